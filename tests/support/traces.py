"""Random synthetic traces for hypothesis: a few ranks, devices, streams and kinds, where times often tie."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

from analyzers.trace.tables import Trace
from tests.support.builder import Builder
from tests.support.oracle import Interval

NAMES = {"comm": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", "compute": "sgemm_nn", "neither": "Memset (Device)"}


class Op(NamedTuple):
    rank: int
    device: int
    stream: int
    side: str
    start: int
    length: int

    @property
    def interval(self) -> Interval:
        return self.start, self.start + self.length


ops = st.lists(
    st.builds(
        Op,
        st.sampled_from([0, 1, 3]),
        st.integers(0, 1),
        st.integers(5, 7),
        st.sampled_from(list(NAMES)),
        st.integers(0, 30),
        st.integers(0, 12),
    ),
    max_size=24,
)


def build(rows: list[Op], *, shift: int = 0) -> Trace:
    """Every rank is a process of its own that may use two devices."""
    run = Builder()
    ranks = {number: run.rank(number) for number in sorted({row.rank for row in rows})}
    for row in rows:
        rank = ranks[row.rank]
        rank.device = row.device
        start, end = (instant + shift for instant in row.interval)
        kind = "memset" if row.side == "neither" else "kernel"
        rank.op(NAMES[row.side], row.stream, start, end, kind=kind)
    return run.trace()


def intervals(rows: list[Op], rank: int, device: int, side: str) -> list[Interval]:
    return [row.interval for row in rows if (row.rank, row.device, row.side) == (rank, device, side)]
