"""The verdict with the order of a run's work, and when each side was blocked, as pictures and exports show them."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from analyzers.causes.pieces import GapPieces, gap_pieces
from analyzers.syncs.order_report import OrderReport, order_from, order_question
from analyzers.trace.devices import DeviceKey
from analyzers.trace.narrow import Narrowing, these_steps
from analyzers.trace.ranks import devices_of
from analyzers.trace.run import ALL, ExtraQuery, Question, Run
from analyzers.trace.tables import Trace
from analyzers.verdict import check
from analyzers.verdict.part import explaining
from analyzers.verdict.result import OverlapResult


def check_with_order(
    run: Run, a: str, b: str, *, narrowing: Narrowing = ALL, missing_only: bool = False, **how: Any
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
    extra = ExtraQuery(order if narrowing.is_given else partial(_of_all_given, question=order, narrowing=narrowing))
    result = check.check_overlap(run, a, b, narrowing=narrowing, extra=extra, **how)
    return result, order_from(run, extra.answers, narrowing)


def _of_all_given(trace: Trace, question: Question, narrowing: Narrowing) -> Any:
    """The answer for whole steps is that for all that was captured of the ranks: order is not of steps alone."""
    return question(trace if trace.whole is None else narrowing.of_capture(trace.whole))


# When, and by what, each side was held while the other ran alone, on every rank: for pictures and exports.

MOST_IN_WORDS, LEAST_IN_WORDS = 800, 10  # pieces, of all devices and of each; their words take some 1 to 3 ms each


def held_by_device(trace: Trace, result: OverlapResult) -> dict[DeviceKey, GapPieces]:
    """By (rank, device), where overlap was missed; `result` is what `check_overlap` found in this trace, or its run.

    Of a whole trace that is in the steps which the result is of.
    """
    if trace.whole is None and result.steps is not None and result.steps.numbers is not None:
        trace = these_steps(trace, result.steps.numbers)
    missed = {(rank.rank, rank.device): np.flatnonzero(rank.instances.missed_ns > 0) for rank in result.ranks}
    here = [key for key in devices_of(trace) if key in missed and missed[key].size]
    if not here:
        return {}
    writer = explaining(trace, result.a, result.b, result.agreed)
    in_words = max(MOST_IN_WORDS // len(missed), LEAST_IN_WORDS)
    found = {key: gap_pieces(writer, *key, missed[key], in_words) for key in here}
    return {key: one for key, one in found.items() if one is not None}
