"""How often check-overlap names the cause that matters, by format."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import traceviz
from tests.second_simulator.machine import Run
from tests.second_simulator.program import Program
from tests.second_simulator.programs import program
from tests.second_simulator.removal import Truth, truths
from tests.second_simulator.write_kineto import write_kineto
from tests.second_simulator.write_nsys import write_nsys

FORMATS = ("nsys", "kineto", "kineto without sync records")


@dataclass(frozen=True)
class Answer:
    """Of one seed in one format: what was named on the rank that decides, and the truth of that rank."""

    seed: int
    form: str
    truth: Truth
    held: dict[str, int]  # cause → ns
    worth: dict[str, int]
    real_ns: int
    planted: tuple[str, ...]

    @property
    def named(self) -> str:
        return max(self.held, key=lambda cause: self.held[cause], default="")

    @property
    def worth_most(self) -> str:
        return max(self.worth, key=lambda cause: self.worth[cause], default="")

    @property
    def right(self) -> bool:
        return self.named == self.truth.cause

    def __str__(self) -> str:
        amounts = {cause: ns[0] // 1_000 for cause, ns in self.truth.recovered.items() if ns[0] >= 1_000}
        held = {cause: ns // 1_000 for cause, ns in self.held.items()}
        worth = {cause: ns // 1_000 for cause, ns in self.worth.items()}
        return (
            f"seed {self.seed}, {self.form}, rank {self.truth.rank}: truth {self.truth.cause}, named {self.named}; "
            f"recovered µs {amounts}; held µs {held}; worth µs {worth}; planted {', '.join(self.planted)}"
        )


def answers(seed: int, folder: Path | None = None) -> list[Answer]:
    """Of each format, as far as the truth stands out. Captures are left in `folder`, where one is given."""
    with TemporaryDirectory() as scratch:
        whole = program(seed)
        run, found = truths(whole)
        if not any(truth.cause for truth in found):
            return []
        asked = [
            _ask(seed, form, whole, run, found, (folder or Path(scratch)) / form.replace(" ", "-")) for form in FORMATS
        ]
    return [answer for answer in asked if answer.truth.cause]


def _ask(seed: int, form: str, whole: Program, run: Run, found: list[Truth], folder: Path) -> Answer:
    folder.mkdir(parents=True, exist_ok=True)
    if form == "nsys":
        paths = write_nsys(whole, run, folder)
    else:
        paths = write_kineto(whole, run, folder, sync_records=form == "kineto")
    sides = {"a": "nvtx:A side", "b": "nvtx:B side"} if whole.by_ranges else {}
    trace = traceviz.load([str(path) for path in paths], cache=False)
    result = traceviz.check_overlap(trace, **sides)  # type: ignore[arg-type]
    held: dict[str, int] = defaultdict(int)
    worth: dict[str, int] = defaultdict(int)
    critical = result.job.rank or 0
    for rank in result.ranks:
        for missed in rank.missed if rank.rank == critical else ():
            held[missed.cause] += missed.ns
            if missed.recoverable_ns is not None:
                worth[missed.cause] += missed.recoverable_ns
    real = next(rank.real_overlap_ns for rank in result.ranks if rank.rank == critical)
    return Answer(seed, form, found[critical], dict(held), dict(worth), real, whole.planted)
