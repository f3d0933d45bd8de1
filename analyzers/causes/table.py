"""The causes, in the order in which they are printed. A new one is a line here, and its record in a module of its own.

A part of a gap goes to the first cause that claims it, and the last claims what is left: so each nanosecond has one
cause, and all of them sum exactly.
"""

from __future__ import annotations

import numpy as np

from analyzers.arrays.types import Ids, Ints, Mask
from analyzers.causes.explain import Explained, Parts
from analyzers.causes.free_to_run import GPU_FULL, PEER_WAIT, UNKNOWN
from analyzers.causes.not_launched import HOST_SYNC, LATE_LAUNCH
from analyzers.causes.queued import DEPENDENT_LAUNCH, EVENT_DEPENDENCY, SAME_STREAM, SHARED_QUEUE, STREAM_BUSY

CAUSE_TABLE = (
    HOST_SYNC,
    LATE_LAUNCH,
    DEPENDENT_LAUNCH,
    SAME_STREAM,
    EVENT_DEPENDENCY,
    STREAM_BUSY,
    SHARED_QUEUE,
    GPU_FULL,
    PEER_WAIT,
    UNKNOWN,
)
CAUSES = tuple(cause.name for cause in CAUSE_TABLE)


def alone_by_cause(explained: Explained) -> Ints:
    """How long each cause held in each gap, ns: a row a cause, a column a gap."""
    cause = cause_of_parts(explained.parts)
    return np.stack([alone_by(explained, cause == number) for number in range(len(CAUSE_TABLE))])


def alone_by(explained: Explained, counts: Mask) -> Ints:
    """How long each gap's parts that count held, ns."""
    alone, parts = np.zeros(explained.gaps.size, np.int64), np.flatnonzero(counts)
    np.add.at(alone, explained.parts.gap[parts], explained.parts.ns[parts])
    return alone


def cause_of_parts(parts: Parts) -> Ids:
    """The cause that each part belongs to, as its position in `CAUSES`."""
    numbers = [np.int8(number) for number in range(len(CAUSE_TABLE))]
    return np.select([cause.claims(parts) for cause in CAUSE_TABLE], numbers, np.int8(0))
