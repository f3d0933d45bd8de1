"""A cause in one sentence, in the user's names: what a reader needs first. The evidence at length is in `evidence`."""

from __future__ import annotations

from analyzers.causes.causes import Explained
from analyzers.causes.evidence import EvidenceWriter
from analyzers.common.wording import duration


def host_sync(writer: EvidenceWriter, one: Explained, gap: int, ns: int) -> str:
    """Which call blocked the thread that launches, and for how long."""
    call, blocked_ns = writer.blocked_in(one, gap)
    side, _ = writer.sides(one, gap)
    if call < 0:
        return f"launched late: the host was blocked for {duration(ns)}, in which call the capture does not show"
    blocked = f"{writer.call_in_range(call)} blocked the thread {duration(blocked_ns)}"
    return f"launched late: {blocked} before it launched {side}{writer.why_launch_blocks(call)}"


def late_launch(writer: EvidenceWriter, one: Explained, gap: int, ns: int) -> str:
    """How late, and where the thread was; after a host sync, that sync."""
    side, _ = writer.sides(one, gap)
    call, blocked_ns = writer.last_sync(one, gap) if one.after_sync[gap] else (-1, 0)
    if call >= 0:
        return (
            f"launched late: {writer.call_in_range(call)} blocked the thread {duration(blocked_ns)}; the host was "
            f"still behind the GPU when it launched {side}"
        )
    where, late = writer.thread_was_in(one, gap), duration(writer.late_ns(one, gap))
    if bound := writer.launch_bound(one, gap):
        _, other = writer.sides(one, gap)
        meanwhile = f" meanwhile {side}'s thread was in {where}" if where else f" {side} was submitted {late} later"
        return (
            f"launch-bound: thread {bound.thread} launches {other} of {duration(bound.op_ns)}, one every "
            f"{duration(bound.every_ns)};{meanwhile}"
        )
    if writer.full_queue_ns(one, gap):
        return f"launched late: {side} was submitted up to {late} late, behind a full launch queue"
    return f"launched late: {side} was submitted up to {late} late" + (f"; its thread was in {where}" if where else "")


def same_stream(writer: EvidenceWriter, one: Explained, gap: int, ns: int) -> str:
    """That both share a stream, and which."""
    side, other = writer.sides(one, gap)
    return f"same {writer.stream}: {side} and {other} both run on {writer.stream} {writer.stream_of(one, gap)}"


def dependent_launch(writer: EvidenceWriter, one: Explained, gap: int, ns: int) -> str:
    """That one side's op depends on the other's by its launch, and is meant to begin at the other's tail."""
    side, other = writer.sides(one, gap)
    blocker = writer.op_name(int(one.releases.holder[gap]))
    return f"dependent launch: {side} begins once {other}'s {blocker}, before it on its {writer.stream}, lets it"


def event_dependency(writer: EvidenceWriter, one: Explained, gap: int, ns: int) -> str:
    """For which op of the other side the stream waited, and how much of that side was queued before the wait."""
    side, other = writer.sides(one, gap)
    stream, blocker = writer.stream_of(one, gap), writer.op_name(int(one.releases.holder[gap]))
    if writer.shares_stream(one, gap):
        on = f"{writer.stream} {stream}"
        return f"same {writer.stream}: {side} and {other} both run on {on}, which waits for {other}'s {blocker}"
    queued, ops = writer.queued_before(one, gap)
    after = f"{queued} of {other}'s {ops} ops"
    if queued == ops:
        after = f"both of {other}'s ops" if ops == 2 else f"all {ops} of {other}'s ops"
    issued = f", issued after {after}" if queued and ops > 1 else ""
    return f"event wait: {side} ({writer.stream} {stream}) waits for {other}'s {blocker}{issued}"


def stream_busy(writer: EvidenceWriter, one: Explained, gap: int, ns: int) -> str:
    """Behind what the op was queued that is of neither side."""
    side, _ = writer.sides(one, gap)
    what, of = writer.queued_behind(one, gap)
    on = f"{writer.stream} {writer.stream_of(one, gap)}"
    return f"{writer.stream} busy: {side} ({on}) waited {duration(ns)} behind {what}, {of}"


def shared_queue(writer: EvidenceWriter, one: Explained, gap: int, ns: int) -> str:
    """Behind which op of another stream, and which setting has them share a queue."""
    side, _ = writer.sides(one, gap)
    behind, stream = writer.in_queue_behind(one, gap)
    why = writer.why_shared(one, gap) or "told by the order in which kernels began"
    what = "end" if writer.explainer.queue_order.ends[int(one.gaps.op[gap])] else "begin"
    return (
        f"shared hardware queue: {side} waited {duration(ns)} for {behind} on {writer.stream} {stream}, launched "
        f"before it, to {what} ({why})"
    )


def gpu_full(writer: EvidenceWriter, one: Explained, gap: int, ns: int) -> str:
    """That the op found no room beside the other side."""
    side, other = writer.sides(one, gap)
    return f"GPU full: {side}'s {writer.op_name(int(one.gaps.op[gap]))} found no room beside {other}"


def peer_wait(writer: EvidenceWriter, one: Explained, gap: int, ns: int) -> str:
    """For which rank a collective only waited."""
    collective, late_rank = writer.waits_for(one, gap)
    return f"late rank: {collective} only waited for {late_rank}, which hides nothing"


def unknown(writer: EvidenceWriter, one: Explained, gap: int, ns: int) -> str:
    """What the capture does not show."""
    return f"unknown: {writer.unknown(one, gap, ns)}"
