"""Programs that nobody here wrote: steps, matches and overlap against the raw files, counted without the package.

Of each program of `tests/data/real` a person tells what a step is, how many there are, and what each calls.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support import raw_programs as raw
from tests.support.command_lines import run_json
from tests.support.raw_programs import Interval, Rank

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


CLOSE = 0.02  # of achievable overlap: clocks are estimated, and the oracle does it more simply
QUICK = ("trec_a2a_sync_base", "trec_threading_copy", "trec_base")  # of either kind of step; all others nightly


def each_of(programs: list[Program]) -> pytest.MarkDecorator:
    marks = {program.name: () if program.name in QUICK else pytest.mark.nightly for program in programs}
    return pytest.mark.parametrize(
        "program", [pytest.param(one, marks=marks[one.name], id=one.name) for one in programs]
    )


EVERY, EACH = each_of(PROGRAMS), each_of(COMMUNICATING)


@cache
def answer(command: str, program: Program, *options: str) -> Any:
    return run_json(command, *program.paths, *options)


def plain(one: Any) -> tuple[int, int, int]:
    return one["a"]["busy_ns"], one["b"]["busy_ns"], one["overlap_ns"]


# What the oracle reads, against what the programs' sources say.


@EVERY
def test_all_ranks_have_the_steps_that_the_program_made(program: Program) -> None:
    assert {len(program.steps_of(rank)) for rank in truth(program).ranks.values()} == {program.steps}


@EVERY
def test_each_step_makes_the_calls_of_the_program(program: Program) -> None:
    calls = truth(program).calls
    assert len(calls) == program.steps * program.calls
    kernels = [op for rank in truth(program).ranks.values() for op in rank.ops if op.is_communication]
    assert sum(len(call) for call in calls) == len(kernels), "none is left alone"


@EACH
def test_all_work_was_launched_in_a_step(program: Program) -> None:
    for number in truth(program).ranks:
        assert figures(program, number, program.steps_of) == figures(program, number)


# Steps


@EVERY
def test_the_steps_are_found_that_a_person_sees(program: Program) -> None:
    steps = answer("info", program)["steps"]
    assert steps["count"] == program.steps, steps
    assert steps["source"] == "inferred"
    assert program.steps - 2 <= steps["whole"] <= program.steps, "but for a head or tail that may be cut"
    assert steps["by"]


@EACH
def test_the_verdict_is_of_those_steps(program: Program) -> None:
    assert answer("check-overlap", program)["steps"]["count"] == program.steps


# Matches


def matched(program: Program) -> list[tuple[tuple[int, int], ...]]:
    """Each call by its ranks and the ns that its kernel took there, which tells kernels apart."""
    return sorted(tuple(sorted((op.rank, op.end - op.start) for op in call)) for call in truth(program).calls)


@EACH
def test_every_call_is_matched_on_all_ranks_that_made_it(program: Program) -> None:
    found = answer("collectives", program, "--all")["collectives"]
    said = sorted(tuple(sorted((one["rank"], one["duration_ns"]) for one in call["ranks"])) for call in found)
    wrong = set(said) - set(matched(program))
    assert said == matched(program), f"{len(said)} calls said, {len(wrong)} of them wrong"


@EACH
def test_matches_of_complete_captures_are_sure(program: Program) -> None:
    assert all(call["sure"] for call in answer("collectives", program, "--all")["collectives"])


# Figures


@EACH
def test_busy_and_overlap_of_everything_are_exact(program: Program) -> None:
    for one in answer("check-overlap", program, "--all")["ranks"]:
        assert plain(one) == figures(program, one["rank"])[:3], f"rank {one['rank']}"


@EACH
def test_real_overlap_of_everything_is_close(program: Program) -> None:
    for one in answer("check-overlap", program, "--all")["ranks"]:
        expected = figures(program, one["rank"])
        assert one["apparent_ns"] is None, "all peers were captured"
        assert one["real_overlap_ns"] == pytest.approx(expected.real_overlap, abs=CLOSE * expected.achievable)


@EACH
def test_figures_are_of_the_whole_steps(program: Program) -> None:
    """Numbered from 0. Kernels run on past the step that launched them, and belong to it."""
    said = answer("check-overlap", program)
    numbers, by = said["steps"]["numbers"], said["steps"]["by"]
    assert numbers, "figures are of steps"

    def counted(rank: Rank) -> list[Interval]:
        return [program.steps_of(rank, by)[number] for number in numbers]

    for one in said["ranks"]:
        expected = figures(program, one["rank"], counted)
        assert plain(one) == expected[:3], f"rank {one['rank']}"
        assert one["real_overlap_ns"] == pytest.approx(expected.real_overlap, abs=CLOSE * expected.achievable)
        # The shorter side is the same one in every step. Its transfers take some 50 µs each: 2 µs of a clock are 4 %.
        either = [expected.achievable, figures(program, one["rank"], counted, by_host=True).achievable]
        assert min(either) * (1 - CLOSE) <= one["achievable_ns"] <= max(either) * (1 + CLOSE), f"rank {one['rank']}"
