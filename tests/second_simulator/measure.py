"""What check-overlap says of a seed's program, beside the truth."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import traceviz
from tests.second_simulator.held import held
from tests.second_simulator.machine import Run
from tests.second_simulator.program import Program
from tests.second_simulator.programs import program
from tests.second_simulator.removal import Truth, truths
from tests.second_simulator.write_kineto import write_kineto
from tests.second_simulator.write_nsys import write_nsys

FORMATS = ("nsys", "kineto", "kineto without sync records")
HELD_BAR, WORTH_BAR, DISPATCH = 0.05, 0.1, 5_000  # ns a step that are as well dispatch as what came before it


@dataclass(frozen=True)
class Answer:
    """Of one rank of one seed in one format. All by cause, in ns."""

    seed: int
    form: str
    truth: Truth
    critical: bool  # the rank that decides
    steps: int
    by_definition: dict[str, int]  # missed time shared out, from what the machine knows
    held: dict[str, int]  # missed time shared out, as named
    named: str  # first
    then: tuple[str, ...]  # causes of which it says what comes next
    worth: dict[str, int]
    worth_range: dict[str, tuple[int, int]]
    real_ns: int
    planted: tuple[str, ...]

    @property
    def large(self) -> list[tuple[str, bool]]:
        """Causes that hold over 30 % of what was missed, and whether their removal brings back a quarter of it."""
        return [
            (cause, max(self.truth.everywhere[cause], self.truth.recovered.get(cause, (0,))[0]) >= ns / 4)
            for cause, ns in self.held.items()
            if ns > 0.3 * sum(self.held.values()) and cause != "unknown"
        ]

    @property
    def worth_most(self) -> str:
        return max(self.worth, key=lambda cause: self.worth[cause], default="")

    @property
    def held_most(self) -> str:
        """By definition: what held longest, worth much or not."""
        return max(self.by_definition, key=lambda cause: self.by_definition[cause], default="")

    @property
    def held_off(self) -> list[str]:
        """Causes that hold over 5 points of what was missed more or less than by definition."""
        least = max(self.truth.missed_ns * HELD_BAR, DISPATCH * self.steps)
        if self.truth.missed_ns < self.truth.achievable_ns // 20:
            return []
        causes = sorted({*self.held, *self.by_definition})
        return [cause for cause in causes if abs(self.held.get(cause, 0) - self.by_definition.get(cause, 0)) > least]

    @property
    def worth_off(self) -> list[str]:
        """Causes whose worth is over a tenth of the achievable from what came back without them everywhere.

        All below zero is nothing.
        """
        bar = self.truth.achievable_ns * WORTH_BAR
        return [
            cause
            for cause, ns in sorted(self.worth.items())
            if abs(max(0, ns) - max(0, self.truth.everywhere[cause])) > bar
        ]

    @property
    def worth_outside(self) -> list[str]:
        """Those that also lie outside the range."""
        return [cause for cause in self.worth_off if not self._within(cause)]

    def _within(self, cause: str) -> bool:
        low, high = self.worth_range[cause]
        return max(0, low) <= max(0, self.truth.everywhere[cause]) <= max(0, high)

    def __str__(self) -> str:
        recovered = {cause: ns[0] for cause, ns in self.truth.recovered.items()}
        parts = {
            "recovered": recovered, "everywhere": self.truth.everywhere, "worth": self.worth,
            "held": self.held, "held by definition": self.by_definition,
        }  # fmt: skip
        amounts = "; ".join(f"{name} {_micro(of)}" for name, of in parts.items())
        return (
            f"seed {self.seed}, {self.form}, rank {self.truth.rank}: truth {self.truth.cause or '–'}, "
            f"named {self.named}; µs: {amounts}; planted {', '.join(self.planted)}"
        )


def _micro(of: dict[str, int]) -> dict[str, int]:
    return {cause: round(ns / 1_000) for cause, ns in of.items() if abs(ns) >= 1_000}


def answers(seed: int, folder: Path | None = None) -> list[Answer]:
    """Of each format and rank. Captures are left in `folder`, where one is given."""
    whole = program(seed)
    run, found = truths(whole)
    with TemporaryDirectory() as scratch:
        told = []
        for form in FORMATS:
            told += _ask(seed, form, whole, run, found, (folder or Path(scratch)) / form.replace(" ", "-"))
    return told


def _ask(seed: int, form: str, whole: Program, run: Run, found: list[Truth], folder: Path) -> list[Answer]:
    folder.mkdir(parents=True, exist_ok=True)
    if form == "nsys":
        paths = write_nsys(whole, run, folder)
    else:
        paths = write_kineto(whole, run, folder, sync_records=form == "kineto")
    sides = {"a": "nvtx:A side", "b": "nvtx:B side"} if whole.by_ranges else {}
    trace = traceviz.load([str(path) for path in paths], cache=False)
    result = traceviz.check_overlap(trace, **sides, everything=True)  # type: ignore[arg-type]
    told = []
    for one in result.ranks:
        shares: dict[str, int] = defaultdict(int)
        worth: dict[str, int] = {}
        spread: dict[str, tuple[int, int]] = {}
        for missed in one.missed:
            shares[missed.cause] += missed.ns
            if missed.recoverable_ns is not None:
                worth[missed.cause] = missed.recoverable_ns
                spread[missed.cause] = (missed.recoverable_low_ns or 0, missed.recoverable_high_ns or 0)
        told.append(
            Answer(
                seed, form, found[one.rank], one.rank == result.job.rank, whole.steps, held(run, one.rank, whole.steps),
                dict(shares), one.missed[0].cause if one.missed else "",
                tuple(each.cause for each in one.missed if each.next_cause or each.is_not_alone), worth, spread,
                one.real_overlap_ns, whole.planted,
            )
        )  # fmt: skip
    return told
