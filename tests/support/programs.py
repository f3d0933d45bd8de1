"""Random small programs on several streams, and what a simple GPU makes of them: a Trace, and what the oracle takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hypothesis import strategies as st

from analyzers.trace.tables import Trace
from tests.support.builder import Builder
from tests.support.oracle_causes import Device, Op

SMS = 4
NAMES = {"a": "alpha", "b": "beta", "": "gamma"}


class Action(NamedTuple):
    """What the host does next; which fields count depends on `what`."""

    what: str  # "launch", "after" (a wait, then a launch), "wait", "stream", …
    stream: int
    other: int
    side: str
    length: int  # of the op, or of what the host does, µs
    dispatch: int  # ns from an op's release to its start
    big: bool  # fills the GPU


actions = st.builds(
    Action,
    st.sampled_from(["launch"] * 8 + ["after"] * 6 + ["wait", "stream", "event", "device", "busy", "step", "copy"]),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from(["a", "b", "a", "b", ""]),
    st.integers(1, 90),
    st.sampled_from([0, 1500, 3000, 15_000]),
    st.sampled_from([False, False, True]),
)
programs = st.lists(actions, min_size=4, max_size=16)


@dataclass
class Run:
    """A program under way: host clock, per stream its last node and when that is done."""

    builder: Builder = field(default_factory=Builder)
    now: int = 0
    ops: list[Op] = field(default_factory=list)
    waits_for: dict[Any, list[Any]] = field(default_factory=dict)
    tail: dict[int, Any] = field(default_factory=dict)
    ready: dict[int, int] = field(default_factory=dict)
    blocked: list[tuple[int, int]] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    one_queue: bool = False

    def put(self, stream: int, node: Any, *behind: Any) -> None:
        self.waits_for[node] = [each for each in (self.tail.get(stream), *behind) if each is not None]
        self.tail[stream] = node


def execute(
    program: list[Action], *, shift: int = 0, rename: int = 0, one_queue: bool = False, on_record: bool = False
) -> tuple[Trace, Device]:
    """Run a program; streams may be renamed and all times shifted, which must change nothing.

    With `one_queue` all streams share a hardware queue: kernels begin as they were launched.

    Parameters
    ----------
    on_record : what the device says of that setting; `causes_of.with_one_queue` says it in the trace.
    """
    run = Run(one_queue=one_queue)
    rank = run.builder.rank(0)
    run.now = shift
    run.steps.append(shift)
    for number, action in enumerate(program):
        _act(run, rank, number, action, rename)
        run.now += 500
    for k, (start, end) in enumerate(zip(run.steps, [*run.steps[1:], run.now + 1], strict=True)):
        rank.range(f"step {k}", start, end - 1)
    run.builder.add(
        "devices",
        process=0,
        device=0,
        sms=SMS,
        threads_per_sm=2048,
        blocks_per_sm=32,
        registers_per_sm=65536,
        shared_bytes_per_sm=233472,
    )
    return run.builder.trace(), Device(run.ops, run.waits_for, {1: run.blocked}, sms=SMS, one_queue=on_record)


def _act(run: Run, rank: Any, number: int, action: Action, rename: int) -> None:
    stream, other = action.stream + rename * (10 - 2 * action.stream), action.other + rename * (10 - 2 * action.other)
    if action.what in ("after", "wait"):
        record = rank.record(other, run.now)
        node = ("record", number)
        run.put(other, node)
        rank.wait(stream, record, run.now + 2)
        run.put(stream, ("wait", number), node)
        run.ready[stream] = max(run.ready.get(stream, run.now), run.ready.get(other, run.now))
        run.now += 4
    if action.what in ("launch", "after", "copy"):
        _launch(run, rank, number, action, stream)
    elif action.what == "busy":
        run.now += action.length * 1000
    elif action.what == "step":
        run.steps.append(run.now)
        run.now += 1
    elif action.what != "wait":
        _synchronize(run, rank, action.what, stream)


def _synchronize(run: Run, rank: Any, what: str, stream: int) -> None:
    start, more = run.now, {"stream": stream}
    done = run.ready.get(stream, run.now)
    if what == "event":
        more = {"record": rank.record(stream, run.now)}
        start += 2
    elif what == "device":
        done, more = max(run.ready.values(), default=run.now), {}
    run.now = max(start + 1000, done + 700)
    rank.synchronize(what, start, run.now, **more)
    run.blocked.append((start, run.now))


def _launch(run: Run, rank: Any, number: int, action: Action, stream: int) -> None:
    copies = action.what == "copy"  # a pageable copy: its call returns when it is done
    began, returned = run.now, run.now + 4000
    start = max(began if copies else returned, run.ready.get(stream, began)) + action.dispatch
    if run.one_queue and not copies:
        start = max([start, *(op.start + 200 for op in run.ops if not op.copies_itself)])
    while blockers := [op.end for op in run.ops if op.grid > SMS * 64 and op.start <= start < op.end and not copies]:
        start = max(blockers) + action.dispatch
    # No two ends are the same sum of lengths: of two ops that end together either could be named.
    end = start + action.length * 1000 + 2**number
    if copies:
        returned = end + 300
        run.blocked.append((began, returned))
    grid, block = (-1, 0) if copies else (SMS * 100 if action.big else 1, 1024 if action.big else 64)
    size = {} if copies else {"grid": grid, "block": block, "registers": 32, "shared_bytes": 0}
    if copies:
        more: dict[str, Any] = {"kind": "memcpy", "copy": "DtoH", "source_memory": "device", "call": "cudaMemcpyAsync"}
        more["target_memory"] = "pageable"
    else:
        more = {}
    side = "a" if copies else action.side  # a selector can't tell one copy from another
    rank.op(NAMES[side], stream, start, end, launch=(began, returned), **more, **size)
    run.put(stream, len(run.ops))
    run.ops.append(
        Op(side, stream, start, end, start, (began, returned), 1, copies, grid, block, 32 if grid > 0 else 0, 0)
    )
    run.ready[stream] = end
    run.now = returned
