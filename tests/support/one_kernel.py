"""Kernels of communication calls, with what is made of them: rows as plain values."""

from __future__ import annotations

from typing import Any

from analyzers.matching.calls import CallsToMatch, calls
from tests.support.builder import Builder

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"
SEND_RECV = "ncclDevKernel_SendRecv(x)"


def rows(found: CallsToMatch) -> list[dict[str, Any]]:
    """Rows of the table, None for a missing text."""
    frame = found.table.to_frame()
    frame = frame.astype({name: object for name in frame if frame[name].dtype == "category"})
    return frame.where(frame.notna(), None).to_dict("records")


def each(*stated: dict[str, Any], name: str = ALL_REDUCE) -> list[dict[str, Any]]:
    """What is made of kernels of which the trace says these."""
    builder = Builder()
    rank = builder.rank(0)
    for one in stated:
        rank.kernel(name, 20, 100, 200, launch=(1, 2))
        builder.add("comms", process=0, correlation=builder.correlation, **one)
    return rows(calls(builder.trace()))


def one_call(name: str = ALL_REDUCE, **stated: Any) -> dict[str, Any]:
    """What is made of one kernel of which the trace says this."""
    return each(stated, name=name)[0]


def several(builder: Builder, *stated: dict[str, Any], name: str = SEND_RECV, rank: int = 0) -> dict[str, Any]:
    """What is made of one kernel that several calls were coalesced into."""
    builder.rank(rank).kernel(name, 20, 100, 200, launch=(1, 2))
    for one in stated:
        builder.add("comms", process=0, correlation=builder.correlation, **one)
    (row,) = rows(calls(builder.trace()))
    return row
