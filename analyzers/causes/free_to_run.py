"""Causes of ops that nothing queued them behind: a full GPU, a late rank, or nothing that the capture shows."""

from __future__ import annotations

import numpy as np

from analyzers.causes.cause import Cause, in_state
from analyzers.causes.evidence import ToldGap
from analyzers.causes.explain import NO_ROOM, PEER_WAITS
from analyzers.causes.hosts import DISPATCH_NS
from analyzers.causes.occupancy import blocks_per_sm
from analyzers.causes.queues import NO_INSTANT
from analyzers.common.wording import duration
from analyzers.counters.states import mean_within
from analyzers.trace.columns import ints_at

MOST_NAMES = 3  # kernels in a sentence
MEASURED = {
    "sm_active": "of SMs active",
    "warps": "of warp places in use",
    "unallocated_warps": "free on active SMs",
}


def _free_since_ns(gap: ToldGap) -> int:
    """From when on in the gap its op was free to run."""
    return int(np.clip(gap.released_ns, gap.start_ns, gap.end_ns))


def _gpu_full_evidence(gap: ToldGap) -> str:
    """What took the GPU's room."""
    room, writer, free_ns = gap.explainer.room, gap.writer, _free_since_ns(gap)
    process, device = (writer.op_column(column, gap.op) for column in ("process", "device"))
    limits = room.limits(process, device)
    assert limits is not None, "without limits no GPU is called full"
    pieces = room.of_op(gap.op, free_ns, gap.end_ns)
    longest = int(np.argmax(np.where(pieces.full, pieces.high_ns - pieces.low_ns, -1)))
    low, high = int(pieces.low_ns[longest]), int(pieces.high_ns[longest])
    running = room.running_at(gap.op, low + (high - low) // 2)
    held = blocks_per_sm(room.columns, np.array(running, np.int64), limits) * limits.sms
    units = "CUs" if limits.warp == 64 else "SMs"  # AMD's wavefronts
    taken = [
        f"{writer.op_name(row)} (grid {writer.op_column('grid', row)} × block {writer.op_column('block', row)}; "
        f"{limits.sms} {units} hold {blocks} such blocks)"
        for row, blocks in zip(running, held.tolist(), strict=True)
        if writer.op_column("grid", row) > 0
    ]
    known = mean_within(writer.trace, process, device, low, high)
    measured = ", ".join(f"{known[counter]:.0f} % {text}" for counter, text in MEASURED.items() if counter in known)
    return (
        f"{gap.side_op} was free to run for {duration(gap.end_ns - free_ns)}, but there was no room beside "
        f"{', '.join(taken[:MOST_NAMES])}{f'; measured: {measured}' if measured else ''}"
    )


GPU_FULL = Cause(
    name="gpu-full",
    label="full GPU",
    meaning="free to run, but the GPU had no room for it",
    look_at="grid and block of what was running",
    remedy="smaller grids, fewer SMs for one side, or no overlap",
    claims=in_state(NO_ROOM),
    evidence=_gpu_full_evidence,
    finding=lambda gap: f"GPU full: {gap.side}'s {gap.op_name} found no room beside {gap.other}",
    alike=lambda gap: gap.op_name,
    removed=NO_ROOM,
    hue="room",
)


def longest_wait(gap: ToldGap) -> int:
    """The idle side's op that waited longest for a late rank in a gap, a row of `Trace.ops`; -1 where none did."""
    low, high = gap.start_ns, gap.real_start_ns
    ops, rows = gap.writer.trace.ops, np.sort(gap.explainer.room.running(gap.op, low, high))
    rows = rows[(gap.explainer.a, gap.explainer.b)[gap.idle_side][rows]]
    start = ints_at(ops, "start_ns", rows)
    together = np.minimum(start + ints_at(ops, "wait_ns", rows), high) - np.maximum(start, low)
    return int(rows[np.argmax(together)]) if together.max(initial=0) > 0 else -1


def _waits_for(gap: ToldGap) -> tuple[str, str]:
    """The collective that waited in a gap, and for which rank."""
    op = longest_wait(gap)
    if op < 0:
        return "a collective", "a late rank"
    rank, device = (gap.writer.op_column(column, op) for column in ("last_rank", "last_device"))
    return gap.writer.op_name(op), gap.writer.device_labels.name(rank, device) if rank >= 0 else "a late rank"


def _peer_wait_evidence(gap: ToldGap) -> str:
    """Which collective waited, and for which rank."""
    collective, late_rank = _waits_for(gap)
    hidden = duration(gap.peer_ns)
    return (
        f"{collective} only waited for {late_rank}, which hides nothing: on time it would have overlapped, in the "
        f"longest case for {hidden}"
    )


PEER_WAIT = Cause(
    name="peer-wait",
    label="late rank",
    meaning="only a collective that waited for a late rank",
    look_at="`traceviz collectives`",
    remedy="balance the ranks",
    claims=in_state(PEER_WAITS),
    evidence=_peer_wait_evidence,
    finding=lambda gap: "late rank: {} only waited for {}, which hides nothing".format(*_waits_for(gap)),
    alike=lambda gap: _waits_for(gap)[1],
    removed=PEER_WAITS,
    hue="late rank",
    may_be_profilers=True,
)


def _unknown_evidence(gap: ToldGap) -> str:
    """What the capture does not show."""
    trace, free_ns = gap.writer.trace, _free_since_ns(gap)
    if gap.released_ns == NO_INSTANT:
        return f"the capture does not show what launched {gap.op_name} or what it waited for"
    if gap.unseen >= 0 or gap.explainer.queues.nodes.hidden[gap.op]:
        node = gap.writer.op_name(gap.unseen if gap.unseen >= 0 else gap.op)
        queued = f", which {gap.side_op_on_stream} was queued behind," if gap.unseen not in (-1, gap.op) else ""
        return (
            f"{node}{queued} runs inside a {trace.runtime} graph, launched as a whole: the capture shows the order of "
            f"its nodes on one {gap.writer.stream}, not which node waits for which across {gap.writer.stream}s"
        )
    idle = duration(gap.end_ns - free_ns)
    if gap.end_ns - free_ns <= DISPATCH_NS:
        return f"dispatch between ops of {gap.side}, up to {idle} each"
    if gap.explainer.ordering.after_unrecorded_wait(np.array([gap.op]))[0]:
        return f"{gap.side_op} took an unrecorded wait: it waited, or found the GPU full, for {idle}"
    return f"{gap.side_op} was launched and free to run, with room on the GPU, and started {idle} later"


UNKNOWN = Cause(
    name="unknown",
    label="unknown cause",
    meaning="the capture does not show what it waited for",
    look_at="a timeline",
    remedy="dispatch between small kernels: fuse, or use graphs",
    claims=lambda parts: np.ones(parts.gap.size, dtype=bool),
    evidence=_unknown_evidence,
    finding=lambda gap: f"unknown: {_unknown_evidence(gap)}",
    alike=lambda gap: "",
    also_unlaunched=True,
)
