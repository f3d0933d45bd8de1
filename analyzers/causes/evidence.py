"""Gaps in words: what the causes' sentences are made of. The sentences themselves stand with each cause."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property

import numpy as np

from analyzers.arrays.types import Ids, Ints, Mask
from analyzers.causes.explain import Explained, Explainer
from analyzers.ordering.ordering import Step
from analyzers.syncs.context import Around, around
from analyzers.trace.kernels import function
from analyzers.trace.op_rows import op_rows
from analyzers.trace.ranks import labels_of
from analyzers.trace.steps import numbers_of_ops
from analyzers.trace.tables import Trace

LONGEST_NAME = 48  # letters of a kernel's name
_VERSION = re.compile(r"_v\d+$")  # of CUDA's, which nsys writes behind a call's name


class TraceNames:
    """What to call the ops and host calls of one trace."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    def op_name(self, op: int) -> str:
        """An op's function without its namespaces, shortened."""
        name = function(self.trace.ops.name[op]).rsplit("::", 1)[-1]
        return name if len(name) <= LONGEST_NAME else "…" + name[1 - LONGEST_NAME :]

    def api_name(self, call: int) -> str:
        """A host call's name as the capture has it."""
        return self.trace.api.name[call]

    def call_name(self, call: int) -> str:
        """A host call's name as people know it."""
        return _VERSION.sub("", self.api_name(call))

    def around(self, call: int) -> Around:
        """What a host call was made in."""
        calls, row = self.trace.api, np.array([call])
        return around(self.trace, calls.process[row], calls.thread[row], calls.start_ns[row])


class EvidenceWriter(TraceNames):
    """Puts gaps of one explained trace into words; `sides` are what to call A and B."""

    def __init__(self, explainer: Explainer, sides: tuple[str, str]) -> None:
        super().__init__(explainer.trace)
        self.explainer, self.sides = explainer, sides
        self.pairing = explainer.pairing
        self.stream = self.trace.stream_word
        self.device_labels = labels_of(self.trace)

    @cached_property
    def step_of_ops(self) -> Ints:
        """The number of each op's step, -1 where it is in none."""
        return numbers_of_ops(self.trace)

    def op_column(self, column: str, op: int) -> int:
        """A column's value of an op."""
        return int(self.trace.ops.columns[column][op])

    def by_name(self, ops: Ids) -> Iterator[tuple[int, Mask]]:
        """The first of some ops of each name, and which of them have it; by the names' codes."""
        code = self.trace.ops.name.codes[ops]
        for number, first in zip(*np.unique(code, return_index=True), strict=True):
            yield int(ops[first]), code == number


class ToldGap:
    """One gap to be put into words.

    op : the op that it ended with; instance : its number in `Pairing`; real_start_ns, peer_ns : as `Gaps` has them;
    holder, last, unseen : as `LaunchBounds` has them; ns : for how long of it the cause held that is told.
    side, other : what to call the idle side and the one that ran alone.
    """

    def __init__(self, writer: EvidenceWriter, explained: Explained, gap: int, ns: int = 0) -> None:
        self.writer, self.explainer, self.index, self.ns = writer, writer.explainer, gap, ns
        gaps, releases = explained.gaps, explained.releases
        self.op, self.start_ns, self.end_ns = (int(column[gap]) for column in (gaps.op, gaps.start_ns, gaps.end_ns))
        self.idle_side, self.instance = int(gaps.side[gap]), int(gaps.instance[gap])
        self.side, self.other = writer.sides[self.idle_side], writer.sides[1 - self.idle_side]
        self.holder, self.last, self.unseen, late = (
            int(column[gap]) for column in (releases.holder, releases.last, releases.unseen, releases.late)
        )
        self.late_op = late if late >= 0 else self.op  # whose launch the gap's op waited for
        self.released_ns = int(releases.released_ns[:, gap].max())
        self.real_start_ns, self.peer_ns = int(gaps.real_start_ns[gap]), int(gaps.peer_ns[gap])
        self.after_sync = bool(explained.after_sync[gap])

    @property
    def submitted_ns(self) -> int:
        """When the launch that the gap's op waited for returned, or its op's start where that began before."""
        launched = int(self.explainer.hosts.launch_end_ns[self.late_op])
        return min(launched, self.writer.op_column("start_ns", self.late_op))

    @property
    def op_name(self) -> str:
        """What to call the gap's op."""
        return self.writer.op_name(self.op)

    @property
    def holder_name(self) -> str:
        """What to call the other side's op that it waited for."""
        return self.writer.op_name(self.holder)

    @property
    def side_op(self) -> str:
        """The idle side with its op: "A (gemm)"."""
        return f"{self.side} ({self.op_name})"

    @property
    def side_op_on_stream(self) -> str:
        """The same with its stream: "A (gemm, stream 7)"."""
        return f"{self.side} ({self.op_name}, {self.on_stream})"

    @property
    def stream(self) -> int:
        """The stream of the gap's op."""
        return self.writer.op_column("stream", self.op)

    @property
    def on_stream(self) -> str:
        """The same in words: "stream 7"."""
        return f"{self.writer.stream} {self.stream}"

    def path(self, blocker: int) -> tuple[Step, ...]:
        """By which steps the gap's op came behind another one."""
        return self.explainer.ordering.path(blocker, self.op)

    @cached_property
    def queued_before(self) -> tuple[Ints, Mask]:
        """The other side's ops in the instance and the op's step, and which of them come before it by its waits."""
        pairing = self.writer.pairing
        other = pairing.a if self.idle_side else pairing.b
        near = op_rows(self.writer.trace, int(pairing.process[self.instance]))
        ops = near.start + np.flatnonzero(other[near] == self.instance)
        step = self.writer.step_of_ops
        if step[self.op] >= 0:  # an instance may be all of a capture
            ops = ops[step[ops] == step[self.op]]
        return ops, self.explainer.ordering.before(ops, np.full(ops.size, self.op))
