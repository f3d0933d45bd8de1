"""What all runs of a comparison have: ranks, devices and steps; the rest is left out, and said so."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from analyzers.common.errors import TraceWarning
from analyzers.compare.steps import WHOLE_CAPTURE, Lane, StepGroups
from analyzers.trace.narrow import Narrowing
from analyzers.trace.run import Run
from analyzers.trace.step_table import UNMARKED
from analyzers.trace.tables import Capture, Trace


class Common(msgspec.Struct, frozen=True):
    """What all runs have."""

    lanes: tuple[Lane, ...]
    steps: tuple[int, ...]
    reason: str = ""  # why there is nothing, "" where there is something
    excluded: tuple[int, ...] = ()  # steps of all that figures of some run leave out

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks that are in every run."""
        return tuple(dict.fromkeys(rank for rank, _ in self.lanes))


def common_of(labels: Sequence[str], groups: Sequence[StepGroups], unknown: Sequence[str] = ()) -> Common:
    """Find the devices all runs have, and the steps that have work on each of them in every run.

    Parameters
    ----------
    unknown : of each run why it has no steps, "" where that is for want of marks.
    """
    lanes = tuple(lane for lane in groups[0].lanes if all(lane in one.lanes for one in groups))
    if not lanes:
        ranks = "; ".join(
            f"{label} has {listed(sorted({rank for rank, _ in one.lanes}))}"
            for label, one in zip(labels, groups, strict=True)
        )
        return Common((), (), f"no rank is in every run ({ranks}); a run of several files is one quoted glob or folder")
    present = [
        set(one.numbers[one.there[[one.lanes.index(lane) for lane in lanes]].all(axis=0)].tolist()) for one in groups
    ]
    steps = tuple(sorted(set.intersection(*present)))
    if steps:
        return Common(lanes, steps)
    return Common(lanes, (), _no_step(labels, groups, lanes, unknown or [""] * len(labels)))


def without_excluded(common: Common, excluded: Sequence[Sequence[int]]) -> Common:
    """Leave steps that figures of any run leave out, out of all runs, unless nothing would be left."""
    numbers = {number for of_run in excluded for number in of_run} & set(common.steps)
    steps = tuple(number for number in common.steps if number not in numbers)
    return msgspec.structs.replace(common, steps=steps, excluded=tuple(sorted(numbers))) if steps else common


def _no_step(labels: Sequence[str], groups: Sequence[StepGroups], lanes: Sequence[Lane], unknown: Sequence[str]) -> str:
    unmarked = [row for row, one in enumerate(groups) if WHOLE_CAPTURE in one.numbers]
    if unmarked and len(unmarked) < len(labels):
        found = [f"{labels[row]}: {unknown[row]}" for row in unmarked if unknown[row] not in ("", UNMARKED)]
        plain = ", ".join(labels[row] for row in unmarked if unknown[row] in ("", UNMARKED))
        found += [f"{plain} has no step marks and the others have"] if plain else []
        return f"{'; '.join(found)}: there is no step to compare"
    steps_of = "; ".join(
        f"{label} has {listed(one.numbers.tolist())}" for label, one in zip(labels, groups, strict=True)
    )
    text = f"no step is in every run, whole on every common rank ({steps_of})"
    ranks = _with_a_step(groups, lanes)
    return f"{text}; on some ranks there is one: --ranks {','.join(map(str, ranks))}" if ranks else text


def _with_a_step(groups: Sequence[StepGroups], lanes: Sequence[Lane]) -> list[int]:
    """The ranks of the step that is whole on most of them in every run; none where no step is in every run."""
    ranks = list(dict.fromkeys(rank for rank, _ in lanes))
    best: list[int] = []
    for step in sorted(set.intersection(*(set(one.numbers.tolist()) for one in groups))):
        found = [rank for rank in ranks if all(_is_whole(one, rank, step, lanes) for one in groups)]
        best = max(best, found, key=len)
    return best


def _is_whole(group: StepGroups, rank: int, step: int, lanes: Sequence[Lane]) -> bool:
    rows = [group.lanes.index(lane) for lane in lanes if lane[0] == rank]
    return bool(group.there[rows][:, group.numbers == step].all())


def part_of(run: Run, narrowing: Narrowing, common: Common) -> Narrowing:
    """The part of a run that is compared."""
    numbers = None if common.steps == (WHOLE_CAPTURE,) else common.steps
    everyone = narrowing.ranks is None and set(common.ranks) >= set(run.trace.rank_ids)
    return msgspec.structs.replace(narrowing, ranks=None if everyone else common.ranks, numbers=numbers)


def listed(numbers: Sequence[int]) -> str:
    """Some twenty numbers in words."""
    return ", ".join(map(str, numbers[:20])) + (" …" if len(numbers) > 20 else "")


DIFFERENT_PROFILERS = "different-profilers"
_RECORDS = "synchronization records"
_WITHOUT = "call stacks", "tensor shapes"  # what costs each launch time where it is recorded


def captured_by(trace: Trace) -> str:
    """By what a run was captured, with its version where the captures say it, and in which mode."""
    return " and ".join(sorted({_way(one) for one in trace.captures}))


def _way(one: Capture) -> str:
    name = one.producer or one.format
    if one.format != "kineto":
        return name
    lacks = [what for what in (_RECORDS, *_WITHOUT) if any(each.startswith(what) for each in one.lacks)]
    has = [what for what in (_RECORDS, *_WITHOUT) if what not in lacks]
    return f"{name} ({', '.join(has) or 'default settings'})"


def different_profilers(labels: Sequence[str], traces: Sequence[Trace]) -> str:
    """How runs were captured, where that is not the same of all; else ""."""
    ways = [captured_by(trace) for trace in traces]
    if len(set(ways)) == 1:
        return ""
    return "; ".join(f"{label} by {way}" for label, way in zip(labels, ways, strict=True))


def about_profilers(said: str) -> list[TraceWarning]:
    """Say so; nothing where all were captured in the same way."""
    if not said:
        return []
    text = f"Captured in different ways: {said}. A comparison across profilers compares the profilers, too."
    return [TraceWarning(DIFFERENT_PROFILERS, text)]
