"""What the reader of a verdict has to know beside the figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from analyzers.common.errors import TraceWarning
from analyzers.common.wording import count_of, percent, percent_span, ranks_in_words
from analyzers.overlap.job import Job
from analyzers.overlap.measure import RankOverlap
from analyzers.select.language import Selector, atoms, names_of
from analyzers.select.select import about_threads
from analyzers.syncs.crossings import Crossing
from analyzers.syncs.rests import RestingOrder, in_sentences
from analyzers.trace.advice import ADVICE, but_rows
from analyzers.trace.communication import COMMUNICATION
from analyzers.trace.counted import CommunicationFacts, about_neither, about_suggested
from analyzers.trace.devices import DeviceKey, DeviceLabels
from analyzers.trace.overhead import DISTORTED, distorted_steps
from analyzers.trace.tables import Process
from analyzers.verdict.part import Matched, Part, PartSide

OF_CLOCKS = (
    "few-collectives",
    "clocks-not-aligned",
    "clocks-contradict",
    "order-refuted",
    "ranks-unstated",
    "several-hosts",
)
OF_UNMATCHED = ("clocks-not-aligned", "order-refuted", "ranks-unstated")  # where nothing may be compared, for that
OUTSIDE_MATTERS = 0.05  # share of a side's busy time outside all steps worth a word
WAITS_MATTER = 0.1  # difference of plain and real ratio worth a word
FEW_INSTANCES = 3  # below that a median is not one
BY_COMMUNICATION = {"comm", "compute", "collective", "group"}


def warnings_of(
    found: Part,
    of_run: Iterable[TraceWarning],
    processes: Sequence[Process],
    names: tuple[str, str],
    ranks: Sequence[RankOverlap],
    job: Job,
    notes: Sequence[TraceWarning],
) -> tuple[TraceWarning, ...]:
    """The run's warnings that bear on a pair, the sides' own, `notes`, and what the figures call for."""
    labels = DeviceLabels.of(found.devices)
    return (
        *distorted_steps(processes, found.worked),
        *(one for one in but_rows(of_run) if bears_on(one, found.matched)),
        *(warning for side in (found.a, found.b) for threads in side.threads for warning in about_threads(threads)),
        *about_unmatched(found.matched),
        *notes,
        *about_ranks(found.rank_ids, labels, ranks, job),
        *about_waits(names_of(*names), labels, ranks, found.waited),
        *about_unseen_waits(labels, ranks),
        *about_outside(names, found, labels, job),
    )


def bears_on(warning: TraceWarning, matched: Matched) -> bool:
    """Whether a warning of the trace concerns a pair; those of clocks do where its figures rest on several clocks.

    Of the steps that the profiler distorts, those that are looked at are told anew.
    """
    if warning.code == DISTORTED:
        return False
    return warning.code not in OF_CLOCKS or matched.compared or (matched.ops > 0 and warning.code in OF_UNMATCHED)


def about_unmatched(matched: Matched) -> list[TraceWarning]:
    """Say so where some calls of communication are matched with no other rank's, and others are."""
    if not matched.compared or not matched.unmatched:
        return []
    is_one = matched.unmatched == 1
    text = (
        f"{matched.unmatched:,} of {matched.ops:,} ops of communication {'is' if is_one else 'are'} matched with no "
        f"other rank's: what of {'its' if is_one else 'their'} time was waiting is not known, and counts as running."
    )
    return [TraceWarning("unmatched-calls", text)]


def about_instances(ranks: Sequence[RankOverlap]) -> list[TraceWarning]:
    """Say so where no rank has enough instances of the pair to tell the usual one from chance."""
    most = max((len(rank.instances) for rank in ranks), default=0)
    if not 0 < most < FEW_INSTANCES:
        return []
    text = f"The verdict rests on {count_of(most, 'instance')} a rank: too few for a median, it may be chance."
    return [TraceWarning("few-instances", text)]


def about_order(missing: Iterable[Crossing], resting: Iterable[RestingOrder]) -> list[TraceWarning]:
    """Each kind of missing wait once, with the ranks that it is missing on; each place that rests on host syncs."""
    ranks: dict[str, list[int]] = {}
    for *_, text, rank in sorted(
        (one.at_ns, one.what == "join", f"{one.what}: {one.message}", one.rank) for one in missing
    ):
        ranks.setdefault(text, []).append(rank)
    found = [
        TraceWarning(
            "missing-wait",
            f"{ranks_in_words(on).capitalize()}, {text}" + (f" (seen {len(on)} times)." if len(on) > 1 else "."),
        )
        for text, on in ranks.items()
    ]
    return found + [TraceWarning("rests-on-host-sync", f"{text}.") for text in in_sentences(resting)]


def about_graphs(side: PartSide, selector: Selector) -> list[TraceWarning]:
    """What to say of graphs traced as one row that count as ops of a side."""
    if not side.graphs:
        return []
    text = (
        f"{side.graphs} of the ops of '{selector}' are CUDA graphs traced as one row: each counts as busy from its "
        f"start to its end, whatever ran inside; {ADVICE}."
    )
    return [TraceWarning("graph-as-one-row", text)]


def about_communication(found: CommunicationFacts, selectors: Sequence[Selector]) -> list[TraceWarning]:
    """What is on neither side, where a side asks for communication or compute; what else may be communication."""
    if not kinds_of(selectors) & BY_COMMUNICATION:
        return []
    if any(one.kind == COMMUNICATION for one in found.counted):
        return about_neither(found.counted)
    return [*about_neither(found.counted), *about_suggested(found.suggested)]


def kinds_of(selectors: Sequence[Selector]) -> set[str]:
    """The kinds of atoms that some selectors are made of."""
    return {atom.kind for selector in selectors for sign in (True, False) for atom in atoms(selector, positive=sign)}


def about_ranks(
    rank_ids: Collection[int], labels: DeviceLabels, ranks: Sequence[RankOverlap], job: Job
) -> list[TraceWarning]:
    """Ranks on which a side is empty, or both are, and those that could overlap little."""
    if job.deciding is None:
        return []
    lacking = [  # lost work may have been of the other one
        labels.short(one.rank, one.device) for one in ranks if one.real_overlap_ratio is None and not one.lost.ops
    ]
    aside = [labels.short(*device_key) for device_key in job.aside]
    idle = [str(rank) for rank in sorted(set(rank_ids) - {one.rank for one in ranks})]
    found = []
    if lacking:
        text = f"Only one side ran on rank {', '.join(lacking)}: no overlap is possible there."
        found.append(TraceWarning("empty-side", text))
    if aside:
        text = (
            f"Rank {', '.join(aside)} could overlap less than a tenth of what the median rank could: listed, but not "
        )
        found.append(TraceWarning("rank-aside", f"{text}deciding."))
    if idle:
        text = f"Neither side ran on rank {', '.join(idle)}, which the figures leave out."
        found.append(TraceWarning("no-side", text))
    return found


def about_waits(
    names: tuple[str, str],
    labels: DeviceLabels,
    ranks: Sequence[RankOverlap],
    waited: Mapping[tuple[DeviceKey, DeviceKey], int],
) -> list[TraceWarning]:
    """Where waiting for late ranks looks like overlap: what the two figures mean, and who was late."""
    misled = [
        rank
        for rank in ranks
        if not rank.is_apparent
        and rank.overlap_ratio is not None
        and rank.real_overlap_ratio is not None
        and rank.overlap_ratio - rank.real_overlap_ratio >= WAITS_MATTER
    ]
    if not misled:
        return []
    looking = {(rank.rank, rank.device) for rank in misled}
    late: Counter[DeviceKey] = Counter()
    for (rank_waiting, last), ns in waited.items():
        late[last] += ns if rank_waiting in looking else 0
    real = [rank.typical.real_overlap_ns / max(rank.typical.overlap_ns, 1) for rank in misled]
    sides = [(names[0], rank.a) if rank.a.wait_ns >= rank.b.wait_ns else (names[1], rank.b) for rank in misled]
    shares = [side.wait_ns / side.busy_ns for _, side in sides]
    mostly_for = f" for {labels.late(late)}" if late.total() else ""
    text = (
        f"{labels.names(looking)}: {percent_span(min(real), max(real))} of what overlapped is real: "
        f"{' or '.join(sorted({name for name, _ in sides}))} spends {percent_span(min(shares), max(shares))} of its "
        f"time waiting{mostly_for}. A collective that only waits for a late rank hides nothing."
    )
    return [TraceWarning("waiting-is-not-overlap", f"{text[0].upper()}{text[1:]}")]


def about_unseen_waits(labels: DeviceLabels, ranks: Sequence[RankOverlap]) -> list[TraceWarning]:
    """Where real overlap is not seen: about how much of the communication was waiting. Never a bound."""
    shares = {
        (rank.rank, rank.device): rank.unseen.waiting
        for rank in ranks
        if rank.is_apparent and rank.unseen is not None and rank.unseen.waiting is not None
    }
    if not shares:
        return []
    text = (
        f"Of the communication whose peers are not seen, probably about "
        f"{percent_span(min(shares.values()), max(shares.values()))} is waiting for them on {labels.names(shares)}. "
        "That is an estimate from the fastest of like calls, and no bound."
    )
    return [TraceWarning("waiting-estimate", text)]


def about_outside(names: tuple[str, str], found: Part, labels: DeviceLabels, job: Job) -> list[TraceWarning]:
    """Work outside the step marks counts in busy times; where it is much, say how to leave it out."""
    outside = found.outside.get(job.deciding) if job.deciding else None
    for name, (whole, part) in zip(names, outside or (), strict=False):
        if job.deciding and whole and part / whole > OUTSIDE_MATTERS:
            text = (
                f"{percent(part / whole)} of the busy time of '{name}' on {labels.name(*job.deciding)} lies "
                f"outside the step marks; --steps {min(found.steps)}:{max(found.steps) + 1} leaves it out."
            )
            return [TraceWarning("outside-steps", text)]
    return []
