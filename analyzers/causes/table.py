"""The causes, in the order in which they are printed: which parts of a gap each holds, and what it rests on in words.

A part goes to the first cause that claims it, and the last claims what is left: so each nanosecond has one cause, and
all of them sum exactly. A new cause is a line here, with its words in `evidence`.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from analyzers.arrays.types import Ids, Ints, Mask
from analyzers.causes import alike, findings
from analyzers.causes.causes import (
    BEHIND_NEITHER,
    BEHIND_OTHER,
    FREE,
    HOST_BLOCKED,
    IN_QUEUE,
    NO_ROOM,
    NOT_LAUNCHED,
    PEER_WAITS,
    Explained,
    Parts,
)
from analyzers.causes.evidence import EvidenceWriter

Words = Callable[[EvidenceWriter, Explained, int, int], str]


class Cause(msgspec.Struct, frozen=True):
    """A cause; `removed` is what the op waits for no longer without it (`without`), None where that tells nothing.

    evidence : the words of a gap at length; finding : in one sentence; alike : what gaps of one kind share.
    """

    name: str
    claims: Callable[[Parts], Mask]
    evidence: Words
    finding: Words
    alike: Words
    removed: int | None


def _in(state: int) -> Callable[[Parts], Mask]:
    return lambda parts: parts.state == state


def _host_sync(parts: Parts) -> Mask:
    return (parts.state == HOST_BLOCKED) | ((parts.state == FREE) & parts.copies_itself)


def _dependent_launch(parts: Parts) -> Mask:
    return _same_stream(parts) & parts.early


def _same_stream(parts: Parts) -> Mask:
    return (parts.state == BEHIND_OTHER) & parts.same_stream


def _what_is_left(parts: Parts) -> Mask:
    return np.ones(parts.gap.size, dtype=bool)


_E, _F, _A = EvidenceWriter, findings, alike
TABLE = (
    Cause("host-sync", _host_sync, _E.host_sync, _F.host_sync, _A.host_sync, HOST_BLOCKED),
    Cause("late-launch", _in(NOT_LAUNCHED), _E.late_launch, _F.late_launch, _A.late_launch, NOT_LAUNCHED),
    Cause(
        "dependent-launch",
        _dependent_launch,
        _E.dependent_launch,
        _F.dependent_launch,
        _A.dependent_launch,
        BEHIND_OTHER,
    ),
    Cause("same-stream", _same_stream, _E.same_stream, _F.same_stream, _A.same_stream, BEHIND_OTHER),
    Cause(
        "event-dependency",
        _in(BEHIND_OTHER),
        _E.event_dependency,
        _F.event_dependency,
        _A.event_dependency,
        BEHIND_OTHER,
    ),
    Cause("stream-busy", _in(BEHIND_NEITHER), _E.stream_busy, _F.stream_busy, _A.stream_busy, BEHIND_NEITHER),
    Cause("shared-queue", _in(IN_QUEUE), _E.shared_queue, _F.shared_queue, _A.shared_queue, IN_QUEUE),
    Cause("gpu-full", _in(NO_ROOM), _E.gpu_full, _F.gpu_full, _A.gpu_full, NO_ROOM),
    Cause("peer-wait", _in(PEER_WAITS), _E.peer_wait, _F.peer_wait, _A.peer_wait, None),
    Cause("unknown", _what_is_left, _E.unknown, _F.unknown, _A.unknown, None),
)
CAUSES = tuple(cause.name for cause in TABLE)


def alone_by_cause(one: Explained) -> Ints:
    """How long each cause held in each gap, ns: a row a cause, a column a gap."""
    cause = cause_of_parts(one.parts)
    return np.stack([alone_by(one, cause == number) for number in range(len(TABLE))])


def alone_by(one: Explained, counts: Mask) -> Ints:
    """How long each gap's parts that count held, ns."""
    alone, parts = np.zeros(one.gaps.size, np.int64), np.flatnonzero(counts)
    np.add.at(alone, one.parts.gap[parts], one.parts.ns[parts])
    return alone


def cause_of_parts(parts: Parts) -> Ids:
    """The cause that each part belongs to, as its position in `CAUSES`."""
    numbers = [np.int8(number) for number in range(len(TABLE))]
    return np.select([cause.claims(parts) for cause in TABLE], numbers, np.int8(0))
