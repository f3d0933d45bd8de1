"""What `what_if` answers, on a program whose steps can be worked out by hand.

Each step launches a lookup of 100 µs, waits for it, works 20 µs and launches a product of 100 µs, all on one stream;
the lookup of the next step is launched right behind it, and queued:

    host     |launch|sync ............|--20--|launch|launch|sync ....
    stream        |lookup 100 µs     |               |product 100 µs|lookup ...

Without the wait the product follows the lookup at once: a step takes the 200 µs of its kernels and what is between.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import traceviz as tv
from analyzers.clocks.align import align
from analyzers.common.errors import TracevizError
from analyzers.replay import answer, predict
from analyzers.replay.answer import what_if
from analyzers.replay.engine import Times
from analyzers.replay.host_changes import DropSync, OnTime
from analyzers.replay.path import COMMUNICATION, KERNEL, Segment
from analyzers.replay.result import CriticalPath, Fidelity, Prediction, RankPrediction, WhatIf, next_on
from analyzers.replay.stream_changes import DropWait, Scale
from analyzers.trace.narrow import Narrowing
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from tests.support.builder import Builder, one_rank

US = 1_000
STEP = 226  # µs: 2 from the product before, 100, 1 until the sync returns, 20 of host work, 3 of launch, 100
KERNELS = 200
PAIR = ("kernel:lookup", "kernel:product")


def program(steps: int = 4) -> Trace:
    run, rank = one_rank()
    for number in range(steps):
        at = number * STEP * US  # when the product before ends
        early = at - 97 * US if number else 0
        rank.range(f"step {number}", early, at + 126 * US)
        rank.range("look up", early, at + 105 * US)
        rank.kernel("lookup", 7, at + 2 * US, at + 102 * US, launch=(early + US // 2, early + US))
        rank.synchronize("stream", early + US, at + 103 * US, stream=7)
        rank.kernel("product", 7, at + 126 * US, at + 226 * US, launch=(at + 123 * US, at + 125 * US))
    return run.trace()


def test_a_sync_dropped_gives_back_what_the_host_lost_there() -> None:
    (found,) = what_if(program(), [DropSync("nvtx:look up")], *PAIR).changes
    assert found.now_ns == STEP * US
    assert KERNELS * US <= found.step_ns <= (KERNELS + 5) * US
    assert found.step_low_ns <= found.step_ns <= found.step_high_ns < found.now_ns
    assert found.gain_ns == found.now_ns - found.step_ns
    assert found.assumptions == (DropSync.assumes,)


def test_what_binds_next_is_what_the_predicted_steps_then_wait_for() -> None:
    """Without the sync the kernels leave nothing open; with kernels that take no time the host's work is left."""
    trace = program()
    (found,) = what_if(trace, [DropSync("nvtx:look up")], *PAIR).changes
    assert found.next_cause == "computation"
    assert found.next_share > KERNELS / (KERNELS + 5)
    (found,) = what_if(trace, [Scale("compute", 0.01)], *PAIR).changes
    assert found.next_cause == "host work"


def test_the_critical_path_of_the_capture_is_its_kernels_and_what_the_host_did_between() -> None:
    path = what_if(program(), [DropSync("nvtx:look up")], *PAIR, critical_path=True).path
    assert path is not None
    kinds = path.by_rank()[0]
    assert path.length_ns == (4 * STEP - 2) * US  # from the first kernel's start to the last one's end
    assert kinds["computation"] == 4 * KERNELS * US
    assert kinds["host work"] == 4 * 20 * US
    assert [one.end_ns for one in path.segments[:-1]] == [one.start_ns for one in path.segments[1:]]
    assert len(path.to_frame()) == len(path.segments)


def test_suggestions_are_tried_alone_and_the_best_two_together() -> None:
    result = what_if(program(), (), *PAIR)
    alone = [one for one in result.changes if len(one.changes) == 1]
    both = [one for one in result.changes if len(one.changes) == 2]
    assert "drop-sync nvtx:look up" in [one.change for one in alone]
    assert len(both) <= 1
    assert [one.gain_ns for one in result.changes] == sorted((one.gain_ns for one in result.changes), reverse=True)
    assert result.best is not None
    assert result.best.changes == ("drop-sync nvtx:look up",)
    assert not result.given
    assert result.word == "predicted faster"


@pytest.mark.parametrize("steps", [None, (1, 3)])
def test_a_verdict_that_is_known_need_not_be_found_again(
    steps: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = Narrowing(steps=steps)
    known = check_overlap(program(), *PAIR, narrowing=part)
    expected = what_if(part.of(program()), (), *PAIR)
    monkeypatch.setattr(answer, "check_overlap", None)
    assert what_if(part.of(program()), (), *PAIR, overlap=known) == expected


def test_a_part_of_a_trace_is_predicted_by_running_all_of_it() -> None:
    """Steps 1 and 2 of 4: as long as all of them are."""
    trace = program()
    whole, part = (
        what_if(one, [DropSync("nvtx:look up")], *PAIR) for one in (trace, Narrowing(steps=(1, 3)).of(trace))
    )
    assert part.changes[0].now_ns == STEP * US
    assert abs(part.changes[0].step_ns - whole.changes[0].step_ns) <= US
    a, b = whole.changes[0].ranks[0], part.changes[0].ranks[0]
    assert (a.now_achievable_ns, b.now_achievable_ns) == (400 * US, 200 * US)


def test_only_ranks_that_are_looked_at_are_answered_for() -> None:
    run = Builder()
    for number in (0, 1):
        rank = run.rank(number)
        for step in range(3):
            at = step * 100 * US
            rank.range(f"step {step}", at, at + 50 * US)
            rank.kernel("lookup", 7, at + 2 * US, at + 52 * US, launch=(at, at + US))
            rank.kernel("product", 7, at + 53 * US, at + 99 * US, launch=(at + US, at + 2 * US))
    trace = Narrowing(ranks=(1,)).of(run.trace())
    (found,) = what_if(trace, [Scale("compute", 0.5)], *PAIR).changes
    assert [one.rank for one in found.ranks] == [1]


def test_without_a_suggestion_nothing_is_predicted() -> None:
    run, rank = one_rank()
    for number in range(3):
        rank.kernel("product", 7, number * 101, number * 101 + 100, launch=(number * 10, number * 10 + 5))
    result = what_if(run.trace(), (), "kernel:product", "kernel:lookup")
    assert (result.exit_code, result.changes) == (3, ())
    assert "--change" in result.sentence
    assert [one.code for one in result.warnings][:1] == ["no-overlap-predicted"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (DropSync("nvtx:look down"), "no range 'look down'; did you mean 'look up'"),
        (DropSync("kernel:product"), "no call that blocks"),
        (DropWait("kernel:product", "kernel:lookup"), "no such wait"),
        (OnTime(0), "never later"),
    ],
)
def test_a_change_of_what_is_not_there_is_refused(change: object, message: str) -> None:
    with pytest.raises(TracevizError, match=message):
        what_if(program(), [change], *PAIR)  # type: ignore[list-item]


def made(step: int, low: int, high: int, *changes: str, now: int = 1000) -> Prediction:
    return Prediction(changes or ("on-time all",), now, step, low, high, (), (), "computation", 1.0)


def test_a_range_to_both_sides_and_wider_than_a_fifth_says_nothing() -> None:
    assert made(900, 850, 1100).tells is False  # 250 of 1,000, from faster to slower
    assert made(900, 850, 1050).tells is True  # 200
    assert made(600, 400, 990).tells is True  # wide, but surely faster
    assert made(600, 390, 999).tells is False  # over three fifths


@pytest.mark.parametrize(
    ("prediction", "word"),
    [
        (made(900, 850, 950), "predicted faster"),
        (made(1100, 1050, 1150), "predicted slower"),
        (made(995, 950, 1050), "no gain"),
        (made(950, 900, 1010), "predicted faster"),
        (made(1050, 990, 1100), "predicted slower"),
        (made(900, 100, 2000), "can't tell"),
    ],
)
def test_an_answer_is_one_word(prediction: Prediction, word: str) -> None:
    result = WhatIf("comm", "compute", None, (prediction,), given=True)
    assert (result.word, result.exit_code) == (word, 0)
    assert prediction.change in result.sentence


def test_the_worst_rank_is_the_one_with_the_least_of_what_is_possible() -> None:
    """A rank that could overlap less than a tenth of what the median rank could says nothing."""
    ranks = (
        RankPrediction(0, 0, 10, 100, 90, 90, 90, 100),
        RankPrediction(1, 0, 50, 100, 60, 60, 60, 100),
        RankPrediction(2, 0, 0, 5, 0, 0, 0, 5),
    )
    one = replace(made(900, 850, 950), ranks=ranks)
    assert one.worst_now is not None
    assert one.worst is not None
    assert (one.worst_now.rank, one.worst.rank) == (0, 1)
    assert one.worst.ratio == 0.6


def test_computation_binds_where_nothing_else_has_a_tenth() -> None:
    def path(communication: int) -> CriticalPath:
        comm = Segment(COMMUNICATION, 0, 0, communication, "all_reduce")
        return CriticalPath((comm, Segment(KERNEL, 0, communication, 100, "gemm")), ())

    assert next_on(path(10)) == ("computation", 0.9)
    assert next_on(path(11)) == ("communication", 0.11)


def test_results_are_frames_cards_and_sentences() -> None:
    result = what_if(program(), (), *PAIR)
    frame = result.to_frame()
    assert frame["change"].tolist() == [one.change for one in result.changes]
    assert len(result.ranks_frame()) == len(result.changes)
    assert result.sentence in repr(result)
    html = result._repr_html_()
    assert "drop-sync nvtx:look up" in html
    assert "replay: step" in html


def test_fidelity_is_said_in_a_line() -> None:
    one = Fidelity(4_783_000, 4_783_000, 0.0, 0.0, 0.002, "")
    assert one.sentence == (
        "step 4.78 ms, captured 4.78 ms (error 0 %); 0.2 % of the idle time on streams is unexplained"
    )
    assert Fidelity(4_783_000, 4_783_000, 0.0, 0.0, 0.0, "").sentence == (
        "step 4.78 ms, captured 4.78 ms (error 0 %); all idle time on streams is explained"
    )


def test_communication_that_blocks_is_told_from_what_is_merely_exposed() -> None:
    """Two ranks: 40 µs of one step's all-reduce follow its product, 40 µs of the other's run beside no computation.

    Each of three steps, of rank 0: compute 100, all-reduce 40, compute 10. A broadcast of rank 1 alone takes 20 µs, at
    the begin of the step, before its own compute of 60, which ends long before rank 0's.
    """
    run = Builder()
    ranks = [run.rank(0), run.rank(1)]
    for step in range(3):
        at = step * 160 * US
        for rank in ranks:
            rank.range(f"step {step}", at, at + 9 * US)
        zero, one = ranks
        zero.kernel("gemm", 7, at + 5 * US, at + 105 * US, launch=(at, at + US))
        zero.kernel("ncclDevKernel_AllReduce", 7, at + 106 * US, at + 146 * US, launch=(at + US, at + 2 * US))
        zero.kernel("gemm", 7, at + 147 * US, at + 164 * US, launch=(at + 2 * US, at + 3 * US))
        one.kernel("ncclDevKernel_Broadcast", 7, at + 5 * US, at + 25 * US, launch=(at, at + US))
        one.kernel("gemm", 7, at + 26 * US, at + 86 * US, launch=(at + US, at + 2 * US))
    path = what_if(run.trace(), [Scale("comm", 0.5)], critical_path=True).path
    assert path is not None
    found = {one.rank: (one.busy_ns, one.exposed_ns, one.blocking_ns) for one in path.communication}
    assert found == {0: (120 * US, 120 * US, 120 * US), 1: (60 * US, 60 * US, 0)}


def test_a_capture_that_waits_for_itself_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def stuck(*_: object, **__: object) -> Times:
        nothing = np.full(8, -1)
        return Times(nothing, nothing, nothing, nothing, nothing)

    monkeypatch.setattr(predict, "run", stuck)
    result = what_if(program(), [Scale("compute", 0.5)], *PAIR)
    assert (result.exit_code, result.reason) == (3, "run again, the program would wait for itself for ever")


def test_calls_of_ranks_that_were_given_may_be_unmatched_and_all_else_is_predicted() -> None:
    """Each of ten steps, launched ahead, is a product of 300 µs and an all-reduce of 40. Rank 1 lacks the fifth's.

    Rank 1's product takes half as long (its fifth, 340), and it waits for rank 0, which waits for nobody: with products
    twice as quick, steps are 150 µs shorter. The fifth all-reduce is one of ten.
    """
    run = Builder()
    ranks = [run.rank(0), run.rank(1)]
    for step in range(10):
        at, host = (5 + step * 342) * US, step * 20 * US
        for number, rank in enumerate(ranks):
            rank.range(f"step {step}", host, host + 19 * US)
            lacks = (step, number) == (4, 1)
            product = 340 if lacks else 150 if number else 300
            rank.kernel("gemm", 7, at, at + product * US, launch=(host, host + US))
            if not lacks:
                start, end = at + (product + 1) * US, at + 341 * US
                rank.kernel("ncclDevKernel_AllReduce", 7, start, end, launch=(host + US, host + 2 * US))
                stated = {"group": "0", "group_ranks": "[0, 1]", "group_size": 2, "sequence": step}
                run.add("comms", process=number, correlation=run.correlation, **stated)
    found = what_if(align(run.trace()).trace, [Scale("compute", 0.5)])
    assert not found.reason
    (change,) = found.changes
    lacking = "10 % of the collectives lack a rank's call: they stay as long as they were, waits included"
    assert lacking in change.assumptions
    assert change.gain_ns == pytest.approx(150 * US, abs=10 * US)


@pytest.mark.parametrize("ranks", [(1,), (0, 3)])
def test_of_a_few_ranks_of_several_nothing_is_predicted(ranks: tuple[int, ...]) -> None:
    """Alone, rank 1 has 65 % of its communication beside computation; with all ranks it is seen to wait for most."""
    data = Path(__file__).parents[2] / "data" / "torch"
    trace = tv.load([data / f"item_before.rank{rank}.json.gz" for rank in ranks]).data
    found = tv.what_if(trace, tv.DropSync("nvtx:MP lookup"))
    assert not found.changes
    assert "with ranks that were not captured" in found.reason
