"""What the reader of a verdict has to know beside the figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from analyzers.arrays.groups import alike, distinct, rows_by_key
from analyzers.arrays.intervals import measure, union
from analyzers.arrays.types import Ints, Mask
from analyzers.common.errors import TraceWarning
from analyzers.common.wording import count_of, percent, percent_span, ranks_in_words
from analyzers.overlap.job import Job, is_matched
from analyzers.overlap.measure import RankOverlap
from analyzers.select.select import Selection
from analyzers.syncs.crossings import missing_crossings
from analyzers.syncs.rests import RestingOrder, in_sentences, resting_orders
from analyzers.trace.columns import as_int64, ints
from analyzers.trace.devices import DeviceKey, DeviceLabels
from analyzers.trace.op_rows import ops_by_start, those
from analyzers.trace.overhead import ALL_OF_IT, DISTORTED
from analyzers.trace.ranks import ops_of_devices
from analyzers.trace.step_table import Steps
from analyzers.trace.steps import step_of_ops
from analyzers.trace.tables import Trace

OF_CLOCKS = (
    "few-collectives",
    "clocks-not-aligned",
    "clocks-contradict",
    "order-refuted",
    "ranks-unstated",
    "several-hosts",
)
OF_UNMATCHED = ("clocks-not-aligned", "order-refuted", "ranks-unstated")  # where nothing may be compared, for that
MissingWait = tuple[int, int, str, int]  # when, 0 fork or 1 join, in words, rank
WAITS_MATTER = 0.1  # difference of plain and real ratio worth a word
FEW_INSTANCES = 3  # below that a median is not one
OUTSIDE_MATTERS = 0.05  # share of a side's busy time outside all steps worth a word


def bears_on(warning: TraceWarning, *, compared: bool, communicates: bool) -> bool:
    """Whether a warning of the trace concerns a pair; those of clocks do where its figures rest on several clocks.

    Of the steps that the profiler distorts, those that are looked at are told anew.

    Parameters
    ----------
    compared : an op of either side is of a collective whose last rank is known.
    communicates : an op of either side is communication, which may wait for other ranks.
    """
    if warning.code == DISTORTED:
        return False
    return warning.code not in OF_CLOCKS or compared or (communicates and warning.code in OF_UNMATCHED)


def about_unmatched(calls: int, unmatched: int) -> list[TraceWarning]:
    """Say so where some calls of communication are matched with no other rank's, and others are."""
    if not unmatched:
        return []
    text = (
        f"{unmatched:,} of {calls:,} ops of communication {'is' if unmatched == 1 else 'are'} matched with no other "
        f"rank's: what of {'its' if unmatched == 1 else 'their'} time was waiting is not known, and counts as running."
    )
    return [TraceWarning("unmatched-calls", text)]


def about_instances(ranks: Sequence[RankOverlap]) -> list[TraceWarning]:
    """Say so where no rank has enough instances of the pair to tell the usual one from chance."""
    most = max((len(rank.instances) for rank in ranks), default=0)
    if not 0 < most < FEW_INSTANCES:
        return []
    text = f"The verdict rests on {count_of(most, 'instance')} a rank: too few for a median, it may be chance."
    return [TraceWarning("few-instances", text)]


def missing_waits(trace: Trace, of_either: Mask, ranks: Collection[int]) -> list[MissingWait]:
    """Work of either side that a fork or join left unordered on these ranks."""
    picked = np.append(of_either, False)
    return [
        (one.at_ns, int(one.what == "join"), f"{one.what}: {one.message}", one.rank)
        for one in missing_crossings(trace).missing
        if one.rank in ranks and (picked[one.op] or picked[one.behind])
    ]


def about_missing_waits(found: Iterable[MissingWait]) -> list[TraceWarning]:
    """Each kind of missing wait once, with the ranks that it is missing on, in order of its first."""
    ranks: dict[str, list[int]] = {}
    for *_, text, rank in sorted(found):
        ranks.setdefault(text, []).append(rank)
    return [
        TraceWarning(
            "missing-wait",
            f"{ranks_in_words(on).capitalize()}, {text}" + (f" (seen {len(on)} times)." if len(on) > 1 else "."),
        )
        for text, on in ranks.items()
    ]


def resting_on_syncs(trace: Trace, of_either: Mask, ranks: Collection[int]) -> tuple[RestingOrder, ...]:
    """Order of either side's work on these ranks that rests on host syncs alone."""
    picked = np.append(of_either, False)
    found = resting_orders(trace)
    return tuple(one for one in found if one.rank in ranks and (picked[one.op] or picked[one.behind]))


def about_resting(found: Iterable[RestingOrder]) -> list[TraceWarning]:
    """Each place at which order rests on host syncs alone."""
    return [TraceWarning("rests-on-host-sync", f"{text}.") for text in in_sentences(found)]


def about_ranks(
    rank_ids: Sequence[int], labels: DeviceLabels, ranks: Sequence[RankOverlap], job: Job
) -> list[TraceWarning]:
    """Ranks on which a side is empty, or both are."""
    if job.deciding is None:
        return []
    lacking = [
        labels.short(rank.rank, rank.device)
        for rank in ranks
        if rank.real_overlap_ratio is None and not rank.lost.ops  # which may have been of the other one
    ]
    found = []
    if lacking:
        where = ", ".join(lacking)
        found.append(TraceWarning("empty-side", f"Only one side ran on rank {where}: no overlap is possible there."))
    if job.aside:
        where = ", ".join(labels.short(*device_key) for device_key in job.aside)
        text = f"Rank {where} could overlap less than a tenth of what the median rank could: listed, but not deciding."
        found.append(TraceWarning("rank-aside", text))
    idle = sorted(set(rank_ids) - {rank.rank for rank in ranks})
    if idle:
        where = ", ".join(map(str, idle))
        found.append(TraceWarning("no-side", f"Neither side ran on rank {where}, which the figures leave out."))
    return found


def waiting_side(rank: RankOverlap) -> int | None:
    """The side, 0 or 1, whose waiting for late ranks looks like overlap; None where that makes no difference."""
    plain, real = rank.overlap_ratio, rank.real_overlap_ratio
    if plain is None or real is None or plain - real < WAITS_MATTER:
        return None
    return 0 if rank.a.wait_ns >= rank.b.wait_ns else 1


def waited_for(
    trace: Trace, sides: tuple[Selection, Selection], ranks: Sequence[RankOverlap]
) -> Counter[tuple[DeviceKey, DeviceKey]]:
    """How long, ns, the ops of each device's side that waits more waited for each (rank, device) that came last."""
    waits_count = np.zeros(len(trace.ops), dtype=bool)
    by_device = ops_of_devices(trace)
    for rank in ranks:
        of_device = by_device[rank.rank, rank.device]
        waits_count[of_device] |= sides[rank.b.wait_ns > rank.a.wait_ns].picked[of_device]
    rows = np.flatnonzero(waits_count & is_matched(trace.ops) & (as_int64(trace.ops.wait_ns) > 0))
    waits, *devices = (
        ints(trace.ops, column)[rows] for column in ("wait_ns", "rank", "device", "last_rank", "last_device")
    )
    return Counter(
        {((key[0], key[1]), (key[2], key[3])): int(waits[those].sum()) for key, those in rows_by_key(*devices).items()}
    )


def about_waits(
    names: tuple[str, str],
    labels: DeviceLabels,
    ranks: Sequence[RankOverlap],
    waited: Mapping[tuple[DeviceKey, DeviceKey], int],
) -> list[TraceWarning]:
    """Where waiting for late ranks looks like overlap: what the two figures mean, and who was late."""
    on_devices = [(rank, side) for rank in ranks if (side := waiting_side(rank)) is not None and not rank.is_apparent]
    if not on_devices:
        return []
    looking = {(rank.rank, rank.device) for rank, _ in on_devices}
    late: Counter[DeviceKey] = Counter()
    for (rank_waiting, last), ns in waited.items():
        late[last] += ns if rank_waiting in looking else 0
    usual = [rank.typical for rank, _ in on_devices]
    real = [one.real_overlap_ns / max(one.overlap_ns, 1) for one in usual]
    sides = [(names[side], (rank.a, rank.b)[side]) for rank, side in on_devices]
    shares = [side.wait_ns / side.busy_ns for _, side in sides]
    text = (
        f"{labels.names(looking)}: {_from_to(real)} of what overlapped is real: "
        f"{' or '.join(sorted({name for name, _ in sides}))} spends {_from_to(shares)} of its time waiting"
        f"{_mostly_for(late, labels)}. A collective that only waits for a late rank hides nothing."
    )
    return [TraceWarning("waiting-is-not-overlap", f"{text[0].upper()}{text[1:]}")]


def _from_to(ratios: Sequence[float]) -> str:
    return percent_span(min(ratios), max(ratios))


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
        f"Of the communication whose peers are not seen, probably about {_from_to([*shares.values()])} is waiting for "
        f"them on {labels.names(shares)}. That is an estimate from the fastest of like calls, and no bound."
    )
    return [TraceWarning("waiting-estimate", text)]


def _mostly_for(waited: Mapping[DeviceKey, int], labels: DeviceLabels) -> str:
    return f" for {labels.late(waited)}" if sum(waited.values()) else ""


def worked_steps(trace: Trace, steps: Steps) -> frozenset[tuple[int, int]]:
    """The (rank, step) that have work; the step is -1 where none is marked."""
    rank = trace.ops.rank
    if not steps.size:
        return frozenset((one, ALL_OF_IT) for one in distinct(rank).tolist())
    position = step_of_ops(trace)
    first, _ = alike(rank, position)  # of ops that stand together one is enough
    first = first[position[first] >= 0]
    return frozenset(zip(rank[first].tolist(), steps.numbers[position[first]].tolist(), strict=True))


def outside_steps(
    trace: Trace, sides: tuple[Selection, Selection], steps: Steps
) -> dict[DeviceKey, tuple[tuple[int, int], tuple[int, int]]]:
    """By (rank, device), for each side: busy time, and busy time of what was launched in no step, ns."""
    if not steps.size:
        return {}
    outside = step_of_ops(trace) < 0
    starts, ends = trace.ops.start_ns, trace.ops.end_ns

    def busy(rows: Ints) -> int:
        return measure(union(starts[rows], ends[rows]))

    found = {}
    for (rank, device), rows in ops_by_start(trace).items():
        side_rows = [those(rows, side.picked) for side in sides]
        busy_and_outside = [(busy(its_rows), busy(those(its_rows, outside))) for its_rows in side_rows]
        found[rank, device] = busy_and_outside[0], busy_and_outside[1]
    return found


def about_outside(
    names: tuple[str, str], outside: tuple[tuple[int, int], tuple[int, int]], where: str, steps: Sequence[int]
) -> list[TraceWarning]:
    """Work outside the step marks counts in busy times; where it is much, say how to leave it out."""
    for name, (whole, part) in zip(names, outside, strict=True):
        if whole and part / whole > OUTSIDE_MATTERS:
            text = (
                f"{percent(part / whole)} of the busy time of '{name}' on {where} lies "
                f"outside the step marks; --steps {steps[0]}:{steps[-1] + 1} leaves it out."
            )
            return [TraceWarning("outside-steps", text)]
    return []
