"""What all runs of a comparison have: ranks, devices and steps; the rest is left out, and said so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analyzers.compare_steps import WHOLE_CAPTURE, Lane, StepGroups
from analyzers.errors import TraceWarning


@dataclass(frozen=True)
class Common:
    """What all runs have."""

    lanes: tuple[Lane, ...]
    steps: tuple[int, ...]
    reason: str = ""  # why there is nothing, "" where there is something

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks that are in every run."""
        return tuple(dict.fromkeys(rank for rank, _ in self.lanes))


def common_of(labels: Sequence[str], groups: Sequence[StepGroups]) -> Common:
    """Find the devices all runs have, and the steps that have work on each of them in every run."""
    lanes = tuple(lane for lane in groups[0].lanes if all(lane in one.lanes for one in groups))
    if not lanes:
        ranks = "; ".join(
            f"{label} has {_listed(sorted({rank for rank, _ in one.lanes}))}"
            for label, one in zip(labels, groups, strict=True)
        )
        return Common((), (), f"no rank is in every run ({ranks}); a run of several files is one quoted glob or folder")
    present = [
        set(one.numbers[one.there[[one.lanes.index(lane) for lane in lanes]].all(axis=0)].tolist()) for one in groups
    ]
    steps = tuple(sorted(set.intersection(*present)))
    if steps:
        return Common(lanes, steps)
    return Common(lanes, (), _no_step(labels, groups))


def _no_step(labels: Sequence[str], groups: Sequence[StepGroups]) -> str:
    unmarked = [label for label, one in zip(labels, groups, strict=True) if WHOLE_CAPTURE in one.numbers]
    if unmarked and len(unmarked) < len(labels):
        return f"{', '.join(unmarked)} has no step marks and the others have: there is no step to compare"
    there = "; ".join(f"{label} has {_listed(one.numbers.tolist())}" for label, one in zip(labels, groups, strict=True))
    return f"no step is in every run, whole on every common rank ({there})"


def left_out(labels: Sequence[str], groups: Sequence[StepGroups], common: Common) -> list[TraceWarning]:
    """Say which steps and ranks are not compared."""
    said = []
    for label, one in zip(labels, groups, strict=True):
        steps = [number for number in one.numbers.tolist() if number not in set(common.steps)]
        ranks = sorted({rank for rank, _ in one.lanes} - set(common.ranks))
        for code, what, numbers in (("other-steps", "step", steps), ("other-ranks", "rank", ranks)):
            if numbers:
                text = f"{label}: {what} {_listed(numbers)} is left out: not every run has it, whole."
                said.append(TraceWarning(code, text))
        if one.repeated:
            text = f"{label}: step {_listed(list(one.repeated))} is marked more than once, and is left out."
            said.append(TraceWarning("repeated-steps", text))
    return said


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:20])) + (" …" if len(numbers) > 20 else "")
