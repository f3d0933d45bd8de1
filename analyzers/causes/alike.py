"""What gaps of one cause share that are one thing to fix: the same call, place, stream, kernel or rank."""

from __future__ import annotations

from analyzers.causes.causes import Explained
from analyzers.causes.evidence import EvidenceWriter


def host_sync(writer: EvidenceWriter, one: Explained, gap: int, ns: int) -> str:
    """The call that blocked, and where."""
    call, _ = writer.blocked_in(one, gap)
    return writer.call_in_range(call) if call >= 0 else ""


def late_launch(writer: EvidenceWriter, one: Explained, gap: int, ns: int) -> str:
    """The sync that it follows, or where the thread was."""
    call, _ = writer.last_sync(one, gap) if one.after_sync[gap] else (-1, 0)
    if call >= 0:
        return writer.call_in_range(call)
    bound = writer.launch_bound(one, gap)
    return f"{'' if bound is None else bound.thread} {writer.thread_was_in(one, gap)}"


def same_stream(writer: EvidenceWriter, one: Explained, gap: int, ns: int) -> str:
    """The stream."""
    return str(writer.stream_of(one, gap))


def dependent_launch(writer: EvidenceWriter, one: Explained, gap: int, ns: int) -> str:
    """The kernel that lets the next begin."""
    return writer.op_name(int(one.releases.holder[gap]))


def event_dependency(writer: EvidenceWriter, one: Explained, gap: int, ns: int) -> str:
    """The stream that waits, and for what."""
    return f"{writer.stream_of(one, gap)} {writer.op_name(int(one.releases.holder[gap]))}"


def stream_busy(writer: EvidenceWriter, one: Explained, gap: int, ns: int) -> str:
    """Behind what, on which stream."""
    return f"{writer.stream_of(one, gap)} {writer.queued_behind(one, gap)}"


def shared_queue(writer: EvidenceWriter, one: Explained, gap: int, ns: int) -> str:
    """Behind what, on which stream."""
    return str(writer.in_queue_behind(one, gap))


def gpu_full(writer: EvidenceWriter, one: Explained, gap: int, ns: int) -> str:
    """The kernel that found no room."""
    return writer.op_name(int(one.gaps.op[gap]))


def peer_wait(writer: EvidenceWriter, one: Explained, gap: int, ns: int) -> str:
    """The rank that was late."""
    return writer.waits_for(one, gap)[1]


def unknown(writer: EvidenceWriter, one: Explained, gap: int, ns: int) -> str:
    """Nothing tells them apart."""
    return ""
