"""Nothing is denied of calls that lost their names, and no GPU is idle of which work was lost."""

from __future__ import annotations

import pytest

from analyzers.syncs.order_report import order_from, order_of, order_report
from analyzers.trace.lost import count_lost_work
from analyzers.trace.run import Run
from tests.support.builder import Builder
from traceviz.output.views import syncs as view


def launches_and(*calls: str, last: int | None = None) -> Builder:
    """Ten kernels of 50 ns, launched every 100 ns, and then some calls of 10 ns; perhaps one kernel more at last."""
    run = Builder()
    rank = run.rank(0)
    for at in range(0, 1_000, 100):
        rank.kernel("work", 7, at + 20, at + 70, launch=(at, at + 10))
    for number, name in enumerate(calls):
        rank.call(name, 2_000 + 100 * number, 2_010 + 100 * number)
    if last is not None:
        rank.kernel("work", 7, last + 20, last + 70, launch=(last, last + 10))
    return run


def headline(run: Builder) -> tuple[str, int]:
    result = order_of(Run.of(count_lost_work(run.trace())))
    first = view.blocks(result)[0]
    return f"{first.word}  {first.text}", result.exit_code  # type: ignore[union-attr]


def test_that_nothing_blocked_is_said_of_named_calls_alone() -> None:
    assert headline(launches_and()) == ("NO SYNCS  nothing in the capture blocked the host.", 0)
    text = "INCONCLUSIVE  the names of CUDA calls are lost (1 of 11 of rank 0), so nothing tells what blocked the host."
    assert headline(launches_and("")) == (text, 3)


@pytest.mark.parametrize(
    ("named", "code"),
    [(40, 0), (38, 3)],  # 1 of 10 + 40 + 1 calls are 1.96 %, 1 of 49 are 2.04 %
)
def test_few_calls_without_names_leave_the_syncs_on_record(named: int, code: int) -> None:
    result = order_report(launches_and("", *["cudaDeviceSynchronize"] * named).trace())
    assert (len(result.syncs), result.exit_code) == (named, code)
    assert "the names of CUDA calls are lost" in result.reason


def test_how_long_gpus_were_idle_cant_be_told_where_work_was_lost() -> None:
    trace = count_lost_work(launches_and("cudaLaunchKernel", "cudaDeviceSynchronize", last=3_000).trace())
    result = order_from(Run.of(trace), {0: order_report(trace)})
    why = "launches have no GPU work on record: 1 of 12 of rank 0"
    assert (len(result.syncs), result.idle_unknown, result.reason) == (1, why, "")
    first = view.blocks(result)[0]
    assert first.text == (  # type: ignore[union-attr]
        f"1 host sync (0 implicit) blocked hosts for 10 ns; how long GPUs were idle can't be told: {why}."
    )
