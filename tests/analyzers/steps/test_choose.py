"""Which candidate is taken, and how ranks' steps are numbered alike."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from analyzers.common.errors import TracevizError
from analyzers.steps.choose import with_steps
from analyzers.steps.renumber import NO_NUMBERS, renumbered
from analyzers.trace.narrow import Narrowing, steps_used
from analyzers.trace.step_table import GIVEN, INFERRED, MARKED, Steps
from analyzers.trace.tables import Trace
from tests.analyzers.steps.loops import OPTIMIZER, Loop, one_loop
from tests.support.builder import Builder
from traceviz.options.arguments import read_step_range


def steps_of(trace: Trace, given: str | None = None) -> Steps:
    found = with_steps(trace, given).steps
    assert found is not None
    return found


def train(loop: Loop, steps: int, *, micro: int = 1) -> None:
    for _ in range(steps):
        for _ in range(micro):
            loop.range("micro", ["forward"] * 6 + ["backward"] * 6)
        loop.range(OPTIMIZER, ["adam", "norm"])


def ranks(*begins: tuple[int, int, int]) -> Trace:
    """Ranks that train: how many launches of a step they have first, how many whole steps, and when they begin."""
    run = Builder()
    for number, (head, steps, at) in enumerate(begins):
        loop = Loop(run.rank(number, device=number), at)
        loop.launch(["backward"] * head)
        if head:
            loop.range(OPTIMIZER, ["adam", "norm"])
        train(loop, steps)
    return run.trace()


def test_micro_batches_are_parts_of_the_step_that_an_optimizer_ends() -> None:
    run, loop = one_loop()
    train(loop, 5, micro=4)
    found = steps_of(run.trace())
    assert (found.source, found.by, found.whole) == (INFERRED, OPTIMIZER, (0, 1, 2, 3, 4))


def test_nothing_is_inferred_where_a_larger_range_recurs_as_evenly() -> None:
    run, loop = one_loop()
    for _ in range(4):
        begin = loop.now
        train(loop, 5)
        loop.rank.range("epoch", begin, loop.now - 1, kind="annotation")
    found = steps_of(run.trace())
    assert (found.source, found.present) == ("", [])
    assert found.unknown == (
        f"'{OPTIMIZER}' (20) and 'epoch' (4) both recur evenly, in different numbers: --step-by RANGE says which is a "
        "step"
    )
    assert steps_of(run.trace(), "epoch").whole == (0, 1, 2, 3)
    assert steps_of(run.trace(), OPTIMIZER).source == GIVEN


def test_nothing_is_inferred_where_launches_vary() -> None:
    run, loop = one_loop()
    for size in (5, 9, 30, 14, 44):
        loop.range("decode", [f"k{i}" for i in range(size)])
    found = steps_of(run.trace())
    assert found.source == "" and "nothing recurs evenly enough" in found.unknown


def test_marks_come_before_all_else() -> None:
    run, loop = one_loop()
    for number in range(3, 6):
        begin = loop.now
        train(loop, 1)
        loop.rank.range(f"ProfilerStep#{number}", begin, loop.now - 1, kind="annotation")
    found = steps_of(run.trace())
    assert (found.source, found.by, found.whole) == (MARKED, "ProfilerStep#", (3, 4, 5))


def test_a_mark_reaches_to_the_next_one_if_that_is_near_and_has_the_next_number() -> None:
    run, rank = Builder(), None
    rank = run.rank(0)
    for number, start, end in ((1, 0, 100), (2, 140, 240), (3, 400, 500), (5, 520, 620)):
        rank.range(f"step {number}", start, end)
    rank.kernel("k", 7, 0, 1, launch=(110, 111))
    found = steps_of(run.trace())
    assert found.end_ns.tolist() == [139, 240, 500, 620]


STEP = 140  # ns: 12 launches of work and 2 of the optimizer


@pytest.mark.parametrize(
    ("begins", "whole", "first_of_second"),
    [
        (((0, 5, 0), (0, 5, 20)), (0, 1, 2, 3, 4), 0),
        (((6, 4, 0), (6, 4, 20)), (1, 2, 3, 4), 0),  # both begin amid a step
        (((0, 5, 0), (6, 3, STEP + 60)), (2, 3, 4), 1),  # the second begins amid the first's second step
        (((0, 4, STEP), (0, 5, 0)), (1, 2, 3, 4), 0),  # the first begins a step later
        (((0, 4, 0), (0, 4, STEP)), (1, 2, 3), 1),  # as many steps each, a step apart
    ],
)
def test_ranks_number_their_steps_alike(
    begins: tuple[tuple[int, int, int], ...], whole: tuple[int, ...], first_of_second: int
) -> None:
    found = steps_of(ranks(*begins))
    assert found.whole == whole
    assert found.numbers[found.process == 1][0] == first_of_second
    starts = [found.start_ns[(found.process == rank) & (found.numbers == whole[-1])][0] for rank in (0, 1)]
    assert abs(int(np.diff(starts)[0])) < STEP / 4


def test_a_late_rank_is_not_taken_for_the_next_step() -> None:
    found = steps_of(ranks((0, 5, 0), (0, 5, STEP // 2)))
    assert found.whole == (0, 1, 2, 3, 4)


def test_ranks_without_one_clock_count_if_they_have_as_many_steps() -> None:
    def apart(trace: Trace) -> Trace:
        captures = (trace.captures[0], replace(trace.captures[0], path="other"))
        processes = (trace.processes[0], replace(trace.processes[1], capture=1))
        return replace(trace, captures=captures, processes=processes)

    assert steps_of(apart(ranks((0, 5, 0), (0, 5, 12 * STEP)))).whole == (0, 1, 2, 3, 4)
    trace = apart(ranks((0, 5, 0), (0, 4, 12 * STEP)))
    assert steps_of(trace).unnumbered == (1,)
    found = renumbered(with_steps(trace)).steps
    assert found is not None and (found.source, found.unknown) == ("", NO_NUMBERS)


def test_a_range_that_some_rank_lacks_is_refused() -> None:
    run = Builder()
    train(Loop(run.rank(0)), 3, micro=2)
    other = Loop(run.rank(1))
    for _ in range(3):
        other.range(OPTIMIZER, ["adam", "norm"])
    with pytest.raises(TracevizError, match="'micro' can't bound steps: it does not recur on rank 1"):
        with_steps(run.trace(), "micro")


def test_of_threads_that_mark_steps_at_once_the_one_that_launches_counts() -> None:
    run, loop = one_loop()
    for number in range(4):
        begin = loop.now
        loop.launch(["a", "b", "c"])
        loop.rank.range(f"step {number}", begin, loop.now - 1)
        loop.rank.range(f"batch {number + 10}", begin + 3, loop.now + 2, thread=9)
    assert steps_of(run.trace()).present == [0, 1, 2, 3]


def test_a_range_that_is_not_there_is_refused_with_those_that_are() -> None:
    run, loop = one_loop()
    train(loop, 3)
    with pytest.raises(TracevizError, match="No range is called 'epoch'") as refused:
        with_steps(run.trace(), "epoch")
    assert refused.value.hint == f"There are {OPTIMIZER}, micro."


@pytest.mark.parametrize("text", ["train_step", "nvtx:train_step", ' nvtx:"train_step" '])
def test_a_range_may_be_named_as_a_selector(text: str) -> None:
    assert read_step_range(text) == "train_step"


@pytest.mark.parametrize("text", ["", "nvtx:", '""'])
def test_no_name_is_refused(text: str) -> None:
    with pytest.raises(TracevizError, match="names no range"):
        read_step_range(text)


def test_where_a_rank_has_no_launches_on_record_no_step_is_told() -> None:
    """By their own times, two of the three kernels would lie in no step."""
    run = Builder()
    for number in (0, 1):
        rank = run.rank(number)
        for step in (0, 1, 2):
            rank.range(f"step {step}", 100 * step, 100 * step + 99)
            launch = {} if number else {"launch": (100 * step + 1, 100 * step + 2)}
            rank.kernel("gemm", 7, 1_000 + 250 * step - 800 * (step == 0), 1_100 + 250 * step, **launch)
    trace = with_steps(run.trace())
    assert trace.steps is not None
    assert (trace.steps.size, trace.steps.counted) == (0, ())
    used = steps_used(trace, Narrowing())
    assert used is not None
    assert used.sentence == (
        "Figures are of everything captured, not of steps: no launches of rank 1 are on record, so what ran in which "
        "step is unknown."
    )
