"""Ops, calls and paths in words."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from analyzers.ordering.ordering import Ordering, Step
from analyzers.syncs.context import around
from analyzers.trace.columns import codes, ints
from analyzers.trace.kernels import function
from analyzers.trace.tables import Trace

LONGEST_NAME = 48  # letters of a kernel's name
_VERSION = re.compile(r"_v\d+$")


class Words:
    """Puts a trace's ops and calls into words."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._op_code, self._op_names = codes(trace.ops, "name")
        self._api_code, self._api_names = codes(trace.api, "name")

    def op(self, op: int) -> str:
        """An op's function without its namespaces, shortened, and its stream."""
        name = function(self._op_names[self._op_code[op]]).rsplit("::", 1)[-1]
        name = name if len(name) <= LONGEST_NAME else "…" + name[1 - LONGEST_NAME :]
        return f"{name} (stream {int(self.trace.ops['stream'].iloc[op])})"

    def range_of(self, op: int) -> str:
        """The innermost range that launched an op, "" where there is none."""
        call = int(self.trace.ops["launch"].iloc[op])
        return self._around(call)[1] if call >= 0 else ""

    def call(self, call: int) -> str:
        """A call with the operator and the range that it came from."""
        name = _VERSION.sub("", self._api_names[self._api_code[call]])
        origin, inside = self._around(call)
        return name + (f" from {origin}" if origin else "") + (f" in '{inside}'" if inside else "")

    def _around(self, call: int) -> tuple[str, str]:
        row = np.array([call])
        process, thread, start = (ints(self.trace.api, column)[row] for column in ("process", "thread", "start_ns"))
        found = around(self.trace, process, thread, start)
        return str(found.op[0]), str(found.range[0])

    def path(self, ordering: Ordering, first: int, second: int) -> tuple[tuple[str, ...], bool, tuple[Step, ...]]:
        """The steps from an op to one that has to wait for it, whether all are stated, and the steps themselves."""
        steps = ordering.path(first, second)
        texts = [self.op(first), *(self._step(one) for one in steps[1:-1]), self.op(second)]
        return tuple(_without_repeats(texts)), all(one.exact for one in steps), steps

    def _step(self, step: Step) -> str:
        made_by = f", {self.call(step.call)}" if step.call >= 0 else ""
        guess = "" if step.exact else " (inferred)"
        if step.kind == "synchronize":
            return f"the host waits{made_by}{guess}"
        if step.kind == "launch":
            return "launched after that"
        if step.kind == "default stream":
            return f"the default stream's order, stream {step.stream}"
        verb = "event recorded on" if step.kind == "record" else "waited for by"
        where = f"stream {step.stream}" if step.stream >= 0 else "a stream that runs nothing here"
        return f"{verb} {where}{made_by}{guess}"


def _without_repeats(texts: Sequence[str]) -> list[str]:
    return [text for at, text in enumerate(texts) if at == 0 or text != texts[at - 1]]
