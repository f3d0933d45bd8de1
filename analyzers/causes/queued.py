"""Causes by which a launched op was queued: behind other work on its stream, through an event, or in hardware.

How surely an inferred link is what an op waited for: how often the start behind it followed the end before it. A stream
took the same wait in each of six steps. In four of them the work that it is taken to wait for ended last of all that
the op behind the wait was queued behind, and after its launch; so there the wait held the op, if it is for that work.
Where it did, the op started a few µs after that end, as a GPU needs to start the next op: "4 of 4 starts followed
within 3 µs". A link that is for other work meets such ends by chance alone.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from analyzers.arrays.types import Ints
from analyzers.causes.cause import Cause, in_state
from analyzers.causes.evidence import ToldGap
from analyzers.causes.explain import BEHIND_BY_EVENT, BEHIND_NEITHER, BEHIND_ON_STREAM, BEHIND_OTHER, IN_QUEUE
from analyzers.common.wording import duration
from analyzers.ordering.inference import AT_ONCE_NS
from analyzers.ordering.lanes import MAX_NS, MIN_NS, take_or
from analyzers.ordering.ordering import Ordering, Step
from analyzers.overlap.measure import Inferred
from analyzers.trace.settings import ONE_QUEUE

MOST_NAMES = 3  # kinds of ops in a sentence


def inferred_link(gap: ToldGap, removed: int | None) -> Inferred | None:
    """How sure the links are that an op's wait for other work rests on.

    None where the capture states all of them, and of causes that remove another state.
    """
    if removed not in (*BEHIND_OTHER, BEHIND_NEITHER):
        return None
    return _least_sure(gap.explainer.ordering, gap.path(gap.last if removed == BEHIND_NEITHER else gap.holder))


def _least_sure(ordering: Ordering, path: tuple[Step, ...]) -> Inferred | None:
    """The least sure of the inferred links of a path; None where there is none."""
    found = [
        _follows(ordering, record, wait)
        for record, wait in pairwise(path)
        if record.kind == "record" and not wait.exact
    ]
    return min(found, key=lambda link: (link.followed / max(link.starts, 1), link.starts), default=None)


def _follows(ordering: Ordering, record: Step, wait: Step) -> Inferred:
    """Of one link: over all inferred links of the same two streams behind which the op of the same place comes."""
    graph, edges, lanes = ordering.graph, ordering.graph.edges, ordering.lanes
    links = np.flatnonzero((edges.call == wait.call) & (edges.record == record.call) & ~edges.exact)
    link = links[graph.instant_ns[graph.node_of(links)] == wait.instant_ns][0]
    rows = np.flatnonzero(~edges.exact & (edges.source == edges.source[link]))
    node, of_link = graph.node_of(rows), graph.node_of(np.array([link]))
    same_lane = graph.lane[node] == graph.lane[of_link]
    rows, node = rows[same_lane], node[same_lane]
    unit, place = lanes.unit(graph.lane[node], graph.position[node]), ordering.linked.places.place
    same = (take_or(place, unit) == take_or(place, unit[rows == link])) | (rows == link)
    rows, unit = rows[same & (unit >= 0)], unit[same & (unit >= 0)]
    ended = _ends_that_hold(ordering, rows)
    unit, ended = unit[ended > MIN_NS], ended[ended > MIN_NS]
    held, first = np.unique(unit, return_index=True)  # several waits may come before one op
    after = lanes.start_ns[held] - ended[first]
    at_once = after[(after >= 0) & (after <= AT_ONCE_NS)]
    return Inferred(int(at_once.size), int(after.size), int(at_once.max()) if at_once.size else None)


def _ends_that_hold(ordering: Ordering, rows: Ints) -> Ints:
    """When the work behind some edges ended, ns; `MIN_NS` where other work, or the launch, held the op longer."""
    graph, edges, lanes = ordering.graph, ordering.graph.edges, ordering.lanes
    node = graph.node_of(rows)
    lane, position = graph.lane[node], graph.position[node]
    unit, before = lanes.unit(lane, position), lanes.unit(lane, position - 1)
    source = lanes.unit(edges.source[rows], edges.source_position[rows] - 1)
    ended = take_or(lanes.end_ns, source, MIN_NS)
    free = np.maximum(take_or(lanes.end_ns, before, MIN_NS), take_or(lanes.enqueue_ns, unit, MAX_NS))
    ended_last = ordering.released_at(lane, position).waited == take_or(lanes.op, source, -2)
    return np.where(ended_last & (ended >= free), ended, MIN_NS)


def _how_sure(link: Inferred | None) -> str:
    """Such as " (inferred: 6 of 6 starts followed within 4.1 µs)"; "" where the capture states the link."""
    if link is None:
        return ""
    if not link.starts:
        return " (inferred from the order of calls alone)"
    starts = f"{link.followed} of {link.starts} start{'s' if link.starts > 1 else ''} followed"
    within = duration(AT_ONCE_NS if link.within_ns is None else link.within_ns)
    return f" (inferred: {starts} within {within})"


def _path(gap: ToldGap, blocker: int) -> str:
    writer, path = gap.writer, gap.path(blocker)
    through = " → ".join(f"{step.kind} on {writer.stream} {step.stream}" for step in path[1:-1] if step.stream >= 0)
    through = f", through {through}" if through else ""
    sure = _how_sure(_least_sure(gap.explainer.ordering, path))
    return f"on {writer.stream} {writer.op_column('stream', blocker)}{through}{sure}"


def _same_stream_evidence(gap: ToldGap) -> str:
    """Which op of the other side was queued before it."""
    behind = f"{gap.holder_name} of {gap.other} on the same {gap.writer.stream}"
    return f"{gap.side_op_on_stream} was queued behind {behind}, {duration(gap.ns)}"


def _same_stream_finding(gap: ToldGap) -> str:
    """That both share a stream, and which."""
    return f"same {gap.writer.stream}: {gap.side} and {gap.other} both run on {gap.on_stream}"


SAME_STREAM = Cause(
    name="same-stream",
    label="same stream",
    meaning="queued behind the other side's work on one stream",
    look_at="the streams of both sides",
    remedy="a stream for each, with its waits",
    claims=in_state(BEHIND_ON_STREAM),
    evidence=_same_stream_evidence,
    finding=_same_stream_finding,
    alike=lambda gap: str(gap.stream),
    removed=BEHIND_ON_STREAM,
    hue="stream order",
    also_unlaunched=True,
)


def _dependent_launch_evidence(gap: ToldGap) -> str:
    """Behind which op of the other side it was launched to begin, and how long before that one's end it did."""
    early = gap.writer.op_column("end_ns", gap.holder) - gap.writer.op_column("start_ns", gap.op)
    return (
        f"{gap.side_op_on_stream} waited {duration(gap.ns)} until {gap.holder_name} of {gap.other} on the same "
        f"{gap.writer.stream} let it begin, {duration(early)} before its own end (programmatic dependent launch)"
    )


def _dependent_launch_finding(gap: ToldGap) -> str:
    """That one side's op depends on the other's by its launch, and is meant to begin at the other's tail."""
    return (
        f"dependent launch: {gap.side} begins once {gap.other}'s {gap.holder_name}, before it on its "
        f"{gap.writer.stream}, lets it"
    )


DEPENDENT_LAUNCH = Cause(
    name="dependent-launch",
    label="dependent launch",
    meaning="launched to begin near the end of the other side's kernel, on one stream",
    look_at="the kernel before it",
    remedy="none",
    claims=lambda parts: (parts.state == BEHIND_ON_STREAM) & parts.early,
    evidence=_dependent_launch_evidence,
    finding=_dependent_launch_finding,
    alike=lambda gap: gap.holder_name,
    removed=BEHIND_ON_STREAM,
    hue="stream order, early",
)


def wait_issued(gap: ToldGap) -> str:
    """How late an op's wait for an event was issued, and which ops of the other side it leaves to overlap."""
    other_ops, queued_before = gap.queued_before
    if not queued_before.any():
        return ""
    reachable, writer = other_ops[~queued_before], gap.writer
    if not reachable.size:
        queued = f"all {other_ops.size} ops of {gap.other} were" if other_ops.size > 1 else ""
        return f"issued after {queued or f'the only op of {gap.other} was'} queued, so it can't meet any"
    first = sorted(row for row, _ in writer.by_name(reachable))
    kinds = list(dict.fromkeys(map(writer.op_name, first)))
    more = f" and {len(kinds) - MOST_NAMES} more kinds" if len(kinds) > MOST_NAMES else ""
    return (
        f"issued after {int(queued_before.sum())} of {other_ops.size} ops of {gap.other} were queued, so a faster host "
        f"could only meet the rest ({', '.join(kinds[:MOST_NAMES])}{more})"
    )


def _event_dependency_evidence(gap: ToldGap) -> str:
    """Which op of the other side it waited for, and by which path."""
    issued = f"; its wait was {text}" if (text := wait_issued(gap)) else ""
    blocker = f"{gap.holder_name} of {gap.other} {_path(gap, gap.holder)}"
    return f"{gap.side_op_on_stream} waited {duration(gap.ns)} for {blocker}{issued}"


def _event_dependency_finding(gap: ToldGap) -> str:
    """For which op of the other side the stream waited, and how much of that side was queued before the wait."""
    (lane,), _ = gap.explainer.ordering.lane_and_position(np.array([gap.op]))
    other_ops, queued_before = gap.queued_before
    if np.any(gap.explainer.ordering.lane_and_position(other_ops[queued_before])[0] == lane):
        return f"{_same_stream_finding(gap)}, which waits for {gap.other}'s {gap.holder_name}"
    queued, ops = int(np.count_nonzero(queued_before)), other_ops.size
    after = f"{queued} of {gap.other}'s {ops} ops"
    if queued == ops:
        after = f"both of {gap.other}'s ops" if ops == 2 else f"all {ops} of {gap.other}'s ops"
    issued = f", issued after {after}" if queued and ops > 1 else ""
    return f"event wait: {gap.side} ({gap.on_stream}) waits for {gap.other}'s {gap.holder_name}{issued}"


EVENT_DEPENDENCY = Cause(
    name="event-dependency",
    label="event wait",
    meaning="told to wait, by an event, for the other side's work",
    look_at="the record → wait path; *the wait was issued after …*",
    remedy="wait for less: record the event earlier, or move the wait",
    claims=in_state(BEHIND_BY_EVENT),
    evidence=_event_dependency_evidence,
    finding=_event_dependency_finding,
    alike=lambda gap: f"{gap.stream} {gap.holder_name}",
    removed=BEHIND_BY_EVENT,
    hue="event",
    also_unlaunched=True,
)


def _most_queued(gap: ToldGap) -> str:
    """The kind of op that took most of the gap among the work on the stream of what the gap's op waited for."""
    lanes, writer = gap.explainer.ordering.lanes, gap.writer
    (lane,), (position,) = gap.explainer.ordering.lane_and_position(np.array([gap.last]))
    units = np.arange(lanes.first[lane], lanes.first[lane] + position + 1)
    units = units[np.searchsorted(np.maximum.accumulate(lanes.end_ns[units]), gap.start_ns, side="right") :]
    took = lanes.end_ns[units] - np.maximum(lanes.start_ns[units], gap.start_ns)
    spent: dict[str, int] = {}
    for op, has_name in writer.by_name(lanes.op[units]):
        name = writer.op_name(op)
        spent[name] = spent.get(name, 0) + int(took[has_name].sum())
    return max(spent, key=lambda name: spent[name])


def _whose(gap: ToldGap) -> str:
    is_sides = (gap.explainer.a, gap.explainer.b)[gap.idle_side][gap.last]
    return f"other work of {gap.side}" if is_sides else "work of neither side"


def _stream_busy_evidence(gap: ToldGap) -> str:
    """Whose work it waited for, what most of it was, and by which path."""
    most = f"most of it {_most_queued(gap)} {_path(gap, gap.last)}"
    return f"{gap.side_op_on_stream} waited {duration(gap.ns)} for {_whose(gap)}, {most}"


def _stream_busy_finding(gap: ToldGap) -> str:
    """Behind what the op was queued that is of neither side."""
    behind = f"{_most_queued(gap)}, {_whose(gap)}"
    return f"{gap.writer.stream} busy: {gap.side} ({gap.on_stream}) waited {duration(gap.ns)} behind {behind}"


STREAM_BUSY = Cause(
    name="stream-busy",
    label="busy stream",
    meaning="queued behind work of neither side",
    look_at="the work of neither side that was in front",
    remedy="another stream, or another order",
    claims=in_state(BEHIND_NEITHER),
    evidence=_stream_busy_evidence,
    finding=_stream_busy_finding,
    alike=lambda gap: f"{gap.stream} {_most_queued(gap)} {_whose(gap)}",
    removed=BEHIND_NEITHER,
    hue="other work",
    also_unlaunched=True,
)


def _in_queue_behind(gap: ToldGap) -> tuple[str, int]:
    """The op that had to begin, or end, before a gap's op in their hardware queue, and its stream."""
    behind = int(gap.explainer.queue_order.behind[gap.op])
    return gap.writer.op_name(behind), gap.writer.op_column("stream", behind)


def _why_shared(gap: ToldGap) -> str:
    """What says that streams share a hardware queue, "" where times alone do."""
    order = gap.explainer.queue_order
    return order.why[int(order.queue[gap.op])]


def _shared_queue_evidence(gap: ToldGap) -> str:
    """Behind which op of another stream it was, and why these share a hardware queue."""
    order, why = gap.explainer.queue_order, _why_shared(gap)
    name, stream = _in_queue_behind(gap)
    setting = ONE_QUEUE[gap.writer.trace.runtime == "HIP"]
    shared = f"here kernels begin in the order of their launches, as with {setting}=1, which is not on record"
    after = gap.writer.op_column("start_ns", gap.op) - int(order.until_ns[gap.op])
    return (
        f"{gap.side_op_on_stream} was free to run, and began {duration(max(after, 0))} after {name} "
        f"({gap.writer.stream} {stream}), launched before it, had {'ended' if order.ends[gap.op] else 'begun'}; "
        f"{f'{why}: both are in one hardware queue' if why else shared}"
    )


def _shared_queue_finding(gap: ToldGap) -> str:
    """Behind which op of another stream, and which setting has them share a queue."""
    behind, stream = _in_queue_behind(gap)
    until = "end" if gap.explainer.queue_order.ends[gap.op] else "begin"
    return (
        f"shared hardware queue: {gap.side} waited {duration(gap.ns)} for {behind} on {gap.writer.stream} {stream}, "
        f"launched before it, to {until} ({_why_shared(gap) or 'told by the order in which kernels began'})"
    )


SHARED_QUEUE = Cause(
    name="shared-queue",
    label="shared queue",
    meaning="free to run, but behind another stream's work in one hardware queue",
    look_at="`CUDA_DEVICE_MAX_CONNECTIONS`, `GPU_MAX_HW_QUEUES`",
    remedy="launch it earlier; more queues",
    claims=in_state(IN_QUEUE),
    evidence=_shared_queue_evidence,
    finding=_shared_queue_finding,
    alike=lambda gap: str(_in_queue_behind(gap)),
    removed=IN_QUEUE,
    hue="hardware queue",
)
