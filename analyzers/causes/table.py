"""The causes, in the order in which they are printed: which parts of a gap each holds, and what it rests on in words.

A part goes to the first cause that claims it, and the last claims what is left: so each nanosecond has one cause, and
all of them sum exactly. A new cause is a line here, with its words in `evidence`.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from analyzers.arrays.types import Ids, Ints, Mask
from analyzers.causes import findings
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

    evidence : the words of a gap at length; finding : in one sentence.
    """

    name: str
    claims: Callable[[Parts], Mask]
    evidence: Words
    finding: Words
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


TABLE = (
    Cause("host-sync", _host_sync, EvidenceWriter.host_sync, findings.host_sync, HOST_BLOCKED),
    Cause("late-launch", _in(NOT_LAUNCHED), EvidenceWriter.late_launch, findings.late_launch, NOT_LAUNCHED),
    Cause(
        "dependent-launch", _dependent_launch, EvidenceWriter.dependent_launch, findings.dependent_launch, BEHIND_OTHER
    ),
    Cause("same-stream", _same_stream, EvidenceWriter.same_stream, findings.same_stream, BEHIND_OTHER),
    Cause(
        "event-dependency", _in(BEHIND_OTHER), EvidenceWriter.event_dependency, findings.event_dependency, BEHIND_OTHER
    ),
    Cause("stream-busy", _in(BEHIND_NEITHER), EvidenceWriter.stream_busy, findings.stream_busy, BEHIND_NEITHER),
    Cause("shared-queue", _in(IN_QUEUE), EvidenceWriter.shared_queue, findings.shared_queue, IN_QUEUE),
    Cause("gpu-full", _in(NO_ROOM), EvidenceWriter.gpu_full, findings.gpu_full, NO_ROOM),
    Cause("peer-wait", _in(PEER_WAITS), EvidenceWriter.peer_wait, findings.peer_wait, None),
    Cause("unknown", _what_is_left, EvidenceWriter.unknown, findings.unknown, None),
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
