"""What the hosts of a run do: a list of actions for each thread of each rank. Times are ns."""

from __future__ import annotations

from dataclasses import dataclass

SMS = 132
THREADS_PER_SM = 2048
BLOCK = 1024  # threads of a block, at most
SMALL = 64  # threads of a kernel of one block


@dataclass(frozen=True)
class Launch:
    """A kernel or collective is put on a stream.

    side : "a", "b" or "" for neither; threads : how many it holds on each SM while it runs, up to THREADS_PER_SM.
    collective : a key that its calls on all ranks share, "" for a kernel; ns is then the transfer, which begins when
        the last rank has arrived.
    reads, writes : names of buffers, for what has to be ordered.
    name : the kernel's, where it is not one of its side.
    bandwidth : the part of its time for which it moves data; ops that want more than there is slow each other down. A
        collective wants it while it waits, too: it spins.
    """

    side: str
    stream: int
    ns: int
    threads: int = 64
    collective: str = ""
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    call_ns: int = 5_000
    name: str = ""
    bandwidth: float = 0.0


@dataclass(frozen=True)
class Copy:
    """A copy from the device; `blocking` where its call returns when it is done (pageable memory)."""

    stream: int
    ns: int
    blocking: bool
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Record:
    """An event is recorded on a stream; with `signal` a stream writes a value to memory instead."""

    event: str
    stream: int
    signal: bool = False


@dataclass(frozen=True)
class Wait:
    """A stream waits for the record of an event that was made last; with `signal` for the value in memory."""

    event: str
    stream: int
    signal: bool = False


@dataclass(frozen=True)
class Synchronize:
    """The thread blocks on a stream (its number), an event (its name) or, with None, the device."""

    what: int | str | None


@dataclass(frozen=True)
class Busy:
    """The thread computes."""

    ns: int


@dataclass(frozen=True)
class Post:
    """Let another thread of the rank go on; no profiler sees it."""

    flag: str


@dataclass(frozen=True)
class Take:
    """Wait for another thread's Post."""

    flag: str


@dataclass(frozen=True)
class Enter:
    """Push an NVTX range or a record_function."""

    name: str


@dataclass(frozen=True)
class Leave:
    """Pop it."""


Action = Launch | Copy | Record | Wait | Synchronize | Busy | Post | Take | Enter | Leave
Thread = tuple[Action, ...]
Rank = tuple[Thread, ...]


@dataclass(frozen=True)
class Program:
    """Threads of each rank; the GPU's room may be switched off, and the launch queue may be short."""

    ranks: tuple[Rank, ...]
    queue: int = 1024
    seed: int = 0
