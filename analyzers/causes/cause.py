"""What makes a cause: which time it claims, its words, and how it is drawn. One record holds all of it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from analyzers.arrays.types import Mask
from analyzers.causes.evidence import ToldGap
from analyzers.causes.explain import Parts

Words = Callable[[ToldGap], str]


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """A cause of missed overlap.

    name : its code in results. label : what blocks a side, as in "blocked by …". meaning : what the next op of the idle
        side was. look_at, remedy : where a reader looks, and what mostly helps.
    claims : which parts of gaps it holds.
    evidence : the words of a gap at length; finding : in one sentence; alike : what gaps of one kind share, which is
        one thing to fix.
    removed : the state that an op is in no longer without the cause, in its gap (`without`), and on all ranks, which is
        what the cause is worth (`analyzers.replay.removals`); None where that tells nothing.
    hue : its group of colours (`traceviz.timelines.palette`).
    also_unlaunched : whether pictures mark the time in which the op was not launched yet either.
    may_be_profilers : whether a heavy profiler may have made it.
    """

    name: str
    label: str
    meaning: str
    look_at: str
    remedy: str
    claims: Callable[[Parts], Mask]
    evidence: Words
    finding: Words
    alike: Words
    removed: int | None = None
    hue: str = "unknown"
    also_unlaunched: bool = False
    may_be_profilers: bool = False


def in_state(state: int) -> Callable[[Parts], Mask]:
    """Claims all parts of gaps in which the op waited for one thing."""
    return lambda parts: parts.state == state
