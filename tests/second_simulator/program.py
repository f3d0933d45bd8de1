"""What a program is: per rank one host thread that issues calls in order, each on streams of the rank's own GPU."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Side = Literal["A", "B", ""]
Kind = Literal["kernel", "copy", "collective"]
Does = Literal["work", "launch", "record", "wait", "sync-event", "sync-stream", "sync-device", "push", "pop"]

SLOTS = 132 * 8  # blocks of 256 threads that an H100 holds at once


@dataclass(frozen=True)
class Op:
    """Work for a GPU. `ns` of a collective is its transfer alone; `grid` is in blocks of 256 threads."""

    kind: Kind
    name: str
    ns: int
    grid: int = 64
    collective: int = -1  # which collective of the run: equal on all ranks

    @property
    def fills(self) -> bool:
        """Has several waves of blocks, which take whatever room there is until the last wave."""
        return self.grid >= SLOTS


@dataclass(frozen=True)
class Call:
    """A call of a host thread.

    `ns` is what it costs the host, blocking apart. `site` names the line of the program that makes it, the same in
    each step: what is taken away, is taken away there. `side` is whose range (or kind of work) it belongs to.
    """

    does: Does
    ns: int
    site: str = ""
    stream: int = 0
    event: int = -1
    op: Op | None = None
    side: Side = ""
    step: int = -1
    text: str = ""  # of a range that is pushed; of what a host works on
    blocks: bool = False  # a launch that returns when its op has ended: a copy to pageable memory
    late: bool = False  # what makes this rank later than the others


@dataclass(frozen=True)
class Program:
    """What all ranks run, and how the sides are picked: by ranges, or communication against compute."""

    ranks: tuple[tuple[Call, ...], ...]
    steps: int
    by_ranges: bool
    planted: tuple[str, ...] = ()
    about: dict[str, object] = field(default_factory=dict)
