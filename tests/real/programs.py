"""The programs of `tests/data/real`, as a person tells them: what a step is, how many there are, what each calls."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.support import raw_programs as raw

DATA = Path(__file__).parents[1] / "data" / "real"


class Program(NamedTuple):
    """steps : in its file. calls : collectives a step over all ranks, as the program's source has them.

    ended_by : the range whose end is a step's end; else begun_by : how the names of the steps' ranges begin.
    """

    name: str
    steps: int
    calls: int
    ended_by: str = ""
    begun_by: str = ""

    @property
    def files(self) -> list[Path]:
        return sorted(DATA.glob(f"{self.name}.rank?.json.gz"))

    @property
    def paths(self) -> list[str]:
        return [str(path) for path in self.files]

    def steps_of(self, rank: raw.Rank, by: str = "") -> list[raw.Interval]:
        """Its steps on one rank's host; by the optimizer's own range where `by` names that."""
        if "Optimizer.step" in by:
            (name,) = {one.name for one in rank.ranges if one.name.startswith("Optimizer.step")}
            return raw.steps_ended_by(rank, name)
        if self.ended_by:
            return raw.steps_ended_by(rank, self.ended_by)
        return raw.steps_begun_by(rank, self.begun_by)


# A step of `mcore_pp`: an all-reduce of four ranks; all-gathers and reduce-scatters, eight of each between ranks 0 and
# 1, one of each between 2 and 3; five exchanges of four micro-batches between each pair of stages.
PROGRAMS = [
    Program("dpmp_before.sync", 8, 8, ended_by="optimizer"),
    Program("dpmp_after.sync", 8, 8, ended_by="optimizer"),
    Program("trec_a2a_async_base", 4, 1, begun_by="## profile "),
    Program("trec_a2a_sync_base", 4, 1, begun_by="## profile "),
    Program("trec_a2a_async_twice", 4, 2, begun_by="## profile "),
    Program("trec_threading_copy", 4, 0, begun_by="## profile "),
    Program("trec_base", 6, 12, ended_by="## optimizer ##"),
    Program("mcore_pp.sync", 4, 1 + 2 * (8 + 1) + 2 * 5, ended_by="optimizer"),
]
COMMUNICATING = [program for program in PROGRAMS if program.calls]


class Truth(NamedTuple):
    ranks: dict[int, raw.Rank]
    calls: list[list[raw.Op]]
    left: dict[raw.OpId, raw.Interval]  # of each kernel what its wait leaves, on clocks that collectives align
    left_by_host: dict[raw.OpId, raw.Interval]  # the same on the host's clock


@cache
def truth(program: Program) -> Truth:
    """What its files hold, by brute force."""
    ranks = raw.read(program.files)
    calls = raw.collectives(ranks)
    aligned, by_host = raw.offsets(ranks, calls), dict.fromkeys(ranks, 0)
    return Truth(ranks, calls, raw.transfers(calls, aligned), raw.transfers(calls, by_host))


def figures(
    program: Program,
    rank: int,
    steps: Callable[[raw.Rank], list[raw.Interval]] | None = None,
    *,
    by_host: bool = False,
) -> raw.Figures:
    """Communication against compute on one rank: of everything, or of what some steps launched; on either clock."""
    found = truth(program)
    one = found.ranks[rank]
    left = found.left_by_host if by_host else found.left
    return raw.figures(one.ops if steps is None else raw.launched_in(one, steps(one)), left)
