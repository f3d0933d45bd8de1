"""The verdict and the order of a run's work together, as pictures and exports show both."""

from __future__ import annotations

from functools import partial
from typing import Any

from analyzers.syncs.report import OrderReport, order_from, order_question
from analyzers.trace.narrow import Narrowing
from analyzers.trace.run import ALL, Beside, PartitionedRun, Question
from analyzers.trace.tables import Trace
from analyzers.verdict import check
from analyzers.verdict.result import OverlapResult


def check_with_order(
    run: PartitionedRun, a: str, b: str, *, narrowing: Narrowing = ALL, missing_only: bool = False, **how: Any
) -> tuple[OverlapResult, OrderReport]:
    """What `check_overlap` and `order_of` answer, of parts that are opened once.

    Parameters
    ----------
    missing_only : as `order_of` takes it. how : all else that `check_overlap` takes.

    Raises
    ------
    TracevizError : as `check_overlap`.
    """
    order = order_question(run, narrowing, missing_only=missing_only)
    beside = Beside(order if narrowing.is_given else partial(_of_all_given, question=order, narrowing=narrowing))
    result = check.check_overlap(run, a, b, narrowing=narrowing, beside=beside, **how)
    return result, order_from(run, beside.answers, narrowing)


def _of_all_given(trace: Trace, question: Question, narrowing: Narrowing) -> Any:
    """The answer for whole steps is that for all that was captured of the ranks: order is not of steps alone."""
    return question(trace if trace.whole is None else narrowing.of_capture(trace.whole))
