"""How far replays of all real captures are off, and predictions of real fixes: `docs/measured/what-if.md`.

    python -m tests.benchmarks.replay_errors

writes that page anew, in some minutes.
"""

from __future__ import annotations

import itertools
import json
import re
import statistics
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

import traceviz as tv
from analyzers.common.errors import TracevizError
from analyzers.common.wording import duration, percent
from analyzers.contention.alone import MAX_SHARE_ALONE
from analyzers.ordering.ordering import Ordering
from analyzers.replay.predict import MOST_OFF, Replayed
from analyzers.replay.result import Fidelity
from analyzers.replay.sharing import OTHERS_POWER
from analyzers.trace.tables import Trace
from tests.analyzers.replay.test_pairs import FIXES, PAIRS, TOGETHER, step_ns
from tests.answers import DATA, ROOT, groups
from tests.benchmarks import first_fixes
from tests.benchmarks.first_fixes import First
from tests.support.fixes_made import accepted, is_same

PAGE = ROOT / "docs" / "measured" / "what-if.md"
FORMS = {"torch": ".rank*.json.gz", "nsys": ".sqlite.gz"}
AGREE = 0.05  # of a step: profiled and unprofiled changes that differ by more are of no one truth
WITHIN = 0.05
GAINS = 0.03
FIRST = 2
NEAR = 0.1  # of what is possible
OVERLAP = "overlap predicted", "captured"
BUSIER = 0.05  # of the time
LONG_NS = 50_000
# A pair of four steps on four H100s: its truth is the step time without a profiler.
UNPROFILED = {
    "item": (
        "torch",
        "drop-sync nvtx:MP lookup + move-wait nvtx:DP tower before nvtx:MP lookup",
        4.5107,
        3.8516,
    )
}


@dataclass(frozen=True)
class Replay:
    """What a replay of one capture is like; `fidelity` is None where there was nothing to run."""

    name: str
    ranks: int
    steps: int
    fidelity: Fidelity | None
    recorded: bool
    reason: str


@dataclass(frozen=True)
class Predicted:
    """A fix: its predicted change of the step time with the range, the changes that were measured, of one; `suggested`,
    which one to try it is, or the last of its parts, 0 where it is none; real overlap of what is possible with it, on
    the worst rank, as predicted and as captured.
    """

    name: str
    change: str
    ratio: float
    low: float
    high: float
    profiled: float
    unprofiled: float
    refused: str
    suggested: int = 0
    overlap: float = np.nan
    captured_overlap: float = np.nan

    @property
    def truth(self) -> float:
        return self.unprofiled if np.isnan(self.profiled) else self.profiled

    @property
    def is_right(self) -> bool:
        return not self.refused and abs(self.ratio - self.truth) <= WITHIN

    @property
    def agrees(self) -> bool:
        """Whether both truths are one."""
        return not abs(self.profiled - self.unprofiled) > AGREE

    @property
    def in_range(self) -> bool:
        return not self.refused and self.low <= self.truth <= self.high


def captures() -> dict[str, list[str]]:
    """All runs in tests/data that hold CUDA calls: a name, and the files."""
    found = {name: files for name, files in groups().items() if not name.startswith("stats.")}
    for folder in ("contention", "pairs"):
        paths = sorted((DATA / folder).glob("*.json.gz"))
        for name, files in itertools.groupby(paths, lambda path: path.name.split(".rank")[0]):
            found[f"{folder}.{name}"] = [str(path) for path in files]
        for path in sorted((DATA / folder).glob("*.sqlite.gz")):
            found[f"{folder}.{path.name.split('.')[0]}.nsys"] = [str(path)]
    return found


def replay(name: str, files: Sequence[str]) -> Replay:
    trace = tv.load(list(files))
    recorded = bool(len(trace.api)) and bool(trace.once(Ordering).waits_recorded.all())
    ranks = len(trace.rank_ids)
    try:
        replayed = Replayed(trace, "comm", "compute")
    except TracevizError as error:
        return Replay(name, ranks, 0, None, recorded, str(error))
    found = replayed.fidelity
    return Replay(name, ranks, int(np.count_nonzero(replayed.counted)), found, recorded, found.reason)


def files_of(variant: str, form: str) -> list[str]:
    return [str(path) for path in sorted(PAIRS.glob(f"{variant}{FORMS[form]}"))]


def pairs() -> Iterator[Predicted]:
    """Each pair, in each format that its capture before the fix has; after it, torch's stands for a missing one."""
    known = json.loads((PAIRS / "step_time_ms.json").read_text())
    for name, form in itertools.product(FIXES, FORMS):
        before = files_of(f"{name}_before", form)
        if before:
            trace = tv.load(before)
            after_form = form if files_of(f"{name}_after", form) else "torch"
            captured = [tv.load(files_of(f"{name}_{one}", after_form)) for one in ("before", "after")]
            truth = [step_ns(one) for one in captured]
            unprofiled = known[f"{name}_after"] / known[f"{name}_before"] - 1
            found = predicted(f"{name} ({form})", trace, FIXES[name], truth[1] / truth[0] - 1, unprofiled)
            ratios = [one.real_overlap_ratio for one in tv.check_overlap(captured[1]).ranks]
            yield replace(found, captured_overlap=min((one for one in ratios if one is not None), default=np.nan))
    for name, (form, change, before_ms, after_ms) in UNPROFILED.items():
        trace = tv.load(f"{DATA}/{form}/{name}_before.rank*.json.gz")
        yield predicted(f"{name} (4 H100s, {form})", trace, change, np.nan, after_ms / before_ms - 1)


def predicted(name: str, trace: Trace, change: str, profiled: float, unprofiled: float) -> Predicted:
    nothing = (np.nan,) * 3
    try:
        found = tv.what_if(trace, *change.split(TOGETHER))
    except TracevizError as error:
        return Predicted(name, change, *nothing, profiled, unprofiled, str(error))
    if not found.changes:
        return Predicted(name, change, *nothing, profiled, unprofiled, found.reason)
    one = found.changes[0]
    ratio, low, high = (each / one.now_ns - 1 for each in (one.step_ns, one.step_low_ns, one.step_high_ns))
    order = [each.change for each in tv.what_if(trace).to_try if each.suggested]
    same = accepted(name.partition(" (")[0], change)
    places = [at for at, each in enumerate(order, 1) if any(is_same(each, one) for one in same)]
    suggested = min(places, default=0)
    overlap = min(
        (each.real_overlap_ns / each.achievable_ns for each in one.ranks if each.achievable_ns), default=np.nan
    )
    return Predicted(name, change, ratio, low, high, profiled, unprofiled, "", suggested, overlap)


def busier() -> Iterator[list[str]]:
    """Of each pair under torch.profiler that keeps a GPU busier: its share on tensor cores, and what matmuls take."""
    for name in FIXES:
        shares, taken = zip(*(on_tensor_cores_of(f"{name}_{one}") for one in ("before", "after")), strict=True)
        both = taken[0].index.intersection(taken[1].index)
        gained = float(shares[1] - shares[0])
        if both.size and gained >= BUSIER:
            ratio = np.average(taken[1]["ns"][both] / taken[0]["ns"][both], weights=taken[0]["total"][both])
            yield [name, f"{shares[0]:.2f} → {shares[1]:.2f}", signed(float(ratio) - 1)]


def on_tensor_cores_of(variant: str) -> tuple[float, pd.DataFrame]:
    """The share of time computing on the busiest GPU, and what each rank's matmuls of 50 µs or more take alone, ns."""
    replayed = Replayed(tv.load(files_of(variant, "torch")), "comm", "compute")
    units, ops = replayed.tasks.units, replayed.trace.ops
    alone = replayed.slowdown.beside.sum(axis=1) < MAX_SHARE_ALONE
    long = units.end_ns - units.start_ns >= LONG_NS
    rows = units.op[replayed.on_tensor_cores[units.op] & replayed.in_counted_steps()[units.op] & alone & long]
    each = pd.DataFrame({name: ops[name].to_numpy()[rows] for name in ("rank", "name", "grid", "start_ns", "end_ns")})
    took = (each["end_ns"] - each["start_ns"]).groupby([each["rank"], each["name"].astype(str), each["grid"]])
    share = min(float(replayed.computing(replayed.now.first).max()), 1.0)
    return share, pd.DataFrame({"ns": took.median(), "total": took.sum()})


def signed(share: float) -> str:
    return "–" if np.isnan(share) else f"{share:+.1%}".replace("-", "−")


def replay_row(one: Replay) -> list[str]:
    found = one.fidelity
    figures = ["–"] * 5
    if found is not None:
        figures = [
            f"{duration(found.measured_step_ns)} × {one.steps}",
            duration(found.step_ns),
            *map(percent, (found.error, found.overlap_error, found.unexplained)),
        ]
    return [one.name, str(one.ranks), *figures, in_short(one.reason)]


def in_short(reason: str) -> str:
    """Without what to do about it.

    >>> in_short("run again unchanged, the program misses its captured step times by 9% of a step: more than 5.0%")
    'it misses its captured step times by 9% of a step'
    """
    short = re.split("[;:]", reason)[0].replace("run again unchanged, the program", "it")
    return short.replace(": what of it is waiting, and what it waits for, is not known", "").rstrip(".")


def pair_row(one: Predicted) -> list[str]:
    word = f"{'' if one.is_right else 'not '}within, {'' if one.in_range else 'not '}in range"
    figures = [signed(one.ratio), f"{signed(one.low)} … {signed(one.high)}"]
    if one.refused:
        word, figures = f"refused: {in_short(one.refused)}", ["–", "–"]
    if not one.agrees:
        word = "no one truth"
    suggested = str(one.suggested) if one.suggested else "no"
    measured = signed(one.profiled), signed(one.unprofiled)
    overlap = ("–" if np.isnan(each) else percent(each) for each in (one.overlap, one.captured_overlap))
    return [one.name, f"`{one.change}`", *figures, *measured, *overlap, suggested, word]


def page(replays: Sequence[Replay], fixes: Sequence[Predicted], named: Sequence[First]) -> str:
    recorded = [one for one in replays if one.recorded and one.fidelity]
    inferred = [one for one in replays if not one.recorded and one.fidelity]
    near = [one for one in recorded if one.fidelity and one.fidelity.error <= MOST_OFF]
    judged = [one for one in fixes if one.agrees]
    width = statistics.median(one.high - one.low for one in judged if not one.refused)
    overlapping = [one for one in fixes if one.overlap + one.captured_overlap > 0]  # no NaN is
    gaining = [one for one in fixes if one.truth < -GAINS and not one.change.startswith("scale")]
    columns = ("capture", "ranks", "captured", "replayed", "error", "overlap", "no reason")
    parts = [
        "# What-if, measured",
        wrapped(
            "How far off replays and predictions are ([What a fix is worth](../what-if.md)) on the real captures in",
            "`tests/data`. `python -m tests.benchmarks.replay_errors` writes this page.",
        ),
        "## Fixes that were made",
        wrapped(
            "[Programs](../../tests/data/pairs/README.md) were captured before a fix and after it, 20 steps each, and",
            "timed without a profiler. A prediction knows the capture before the fix alone. Where the changes measured",
            f"with a profiler and without one differ by more than {percent(AGREE)} of a step, there is no one truth.",
            "Suggested: which one it is, or another that is the same in other words or begins it, of those that",
            "`what-if` says to try, asked for nothing. What kernels usually",
            "lose beside others, and when GPUs slow down, was set with the first 22 pairs under torch.profiler at",
            "hand; the others, and most nsys reports, were captured afterwards. With the last five at hand, that all",
            "of a run of like kernels feed the pieces of `split` became as likely as that the last one does.",
        ),
        f"- Of {len(judged)} fixes with one truth {sum(one.is_right for one in judged)} are predicted within "
        f"{percent(WITHIN)} of a step; of {sum(one.in_range for one in judged)} it lies in the range.\n"
        f"- In the median a range is {percent(width)} of a step wide.\n"
        f"- Of {sum(bool(one.refused) for one in judged)} nothing is predicted.\n"
        f"- Of {len(overlapping)} after which communication overlaps, "
        f"{sum(abs(one.overlap - one.captured_overlap) <= NEAR for one in overlapping)} are predicted to within "
        f"{percent(NEAR)} of the achievable overlap, on the worst rank.\n"
        f"- Of {len(gaining)} that gain more than {percent(GAINS)} and make no kernel quicker, "
        f"{sum(0 < one.suggested <= FIRST for one in gaining)} are among the first {FIRST} suggestions.",
        table(
            ("pair", "fix", "predicted", "range", "profiled", "not profiled", *OVERLAP, "suggested", ""),
            map(pair_row, fixes),
        ),
        "## Which fix is named first",
        wrapped(
            "Of programs whose fix was made, by what `check-overlap` and `what-if` name before it. A pair counts where",
            f"the fix gains over {percent(first_fixes.GAINS)} of a step without a profiler and no kernel gets quicker;",
            "no fix is not right. Which other changes name the same was written before anything ran. Further sets were",
            "written and captured when the order was decided; what was named of the first three led to repairs.",
        ),
        "\n".join(f"- {title}: {'; '.join(first_fixes.summary(some))}." for title, some in sets_of(named)),
        first_table(named),
        "## Matmuls on a GPU that is kept busier",
        wrapped(
            "Of pairs whose fix keeps a GPU busier: for which share of the steps the busiest one computes, before and",
            f"after (what is not on tensor cores counts for {OTHERS_POWER}), and by how much longer the same matmuls",
            "take,",
            "those beside nothing. At the limit of its power a GPU lowers its clock.",
        ),
        table(("pair", "computing", "matmuls take"), busier()),
        "## Captures run again unchanged",
        f"- Of {len(recorded)} captures that hold CUDA calls and the waits of streams, {len(near)} replay within "
        f"{percent(MOST_OFF)} of a step.\n"
        f"- Of {len(inferred)} without the waits of streams, which are inferred, "
        f"{sum(not one.reason for one in inferred)} predict something.\n"
        f"- {sum(not one.reason for one in recorded)} of the others predict something. Of "
        f"{sum('not captured' in one.reason for one in recorded)} a part of the communication is with\n"
        "  ranks, or calls of theirs, that were not captured: nothing tells what it waits for.",
        wrapped(
            "Captured: median step time × steps that count. Error: of the steps, mean of how far each is off. Overlap:",
            "by how much real overlap of communication beside computation is off, of what is achievable, on the worst",
            "rank. No reason: of the time for which streams stood idle, what no wait, launch or host work explains.",
            f"Beyond {percent(MOST_OFF)} of the step nothing is predicted; of overlap, no overlap.",
        ),
        table((*columns, "refused, as"), [replay_row(one) for one in replays if one.reason]),
        "## Captures that replay well enough to predict something",
        table(columns, [replay_row(one)[:-1] for one in replays if not one.reason]) + "\n",
    ]
    return "\n\n".join(parts)


# The last pairs: a title, how many, and how many of those that count were right when they were first looked at.
FURTHER_SETS = (
    ("A first further set, of one GPU", 13, "8 of 13"),
    ("A second, of one GPU", 16, "13 of 16"),
    ("A third, of two GPUs", 12, "5 of 10"),
    ("A fourth, of two GPUs, the last: nothing of the order was changed behind it", 12, "12 of 12"),
)


def sets_of(named: Sequence[First]) -> list[tuple[str, Sequence[First]]]:
    """What was named first, by sets of pairs."""
    at = len(named) - sum(count for _, count, _ in FURTHER_SETS)
    found: list[tuple[str, Sequence[First]]] = [("All", named), ("`tests/data/pairs`, and four H100s", named[:at])]
    for title, count, right in FURTHER_SETS:
        found.append((f"{title} ({right} when first looked at)", named[at : at + count]))
        at += count
    return found


def first_table(named: Sequence[First]) -> str:
    columns = ("pair", "gain", "fix that was made", "named first", "")
    quoted = (
        [name, gain, f"`{made}`", one if one == "no fix" else f"`{one}`", word]
        for name, gain, made, one, word in first_fixes.rows(named)
    )
    return table(columns, quoted)


def wrapped(*texts: str) -> str:
    return textwrap.fill(" ".join(texts), 120, break_on_hyphens=False, break_long_words=False)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines)


def main() -> None:
    warnings.simplefilter("ignore")
    replays = [replay(name, files) for name, files in captures().items()]
    PAGE.write_text(page(replays, list(pairs()), [*first_fixes.pairs(), *first_fixes.recorded()]), encoding="utf-8")


if __name__ == "__main__":
    main()
