"""What the hosts of a run do: a list of actions for each thread of each rank. Times are ns."""

from __future__ import annotations

from dataclasses import dataclass

SMS = 132
THREADS_PER_SM = 2048
BLOCK = 1024  # threads of a block, at most
SMALL = 64  # threads of a kernel of one block


@dataclass(frozen=True)
class Message:
    """What a communication call is, as torch names it: its operation, process group and size; the peer of a send."""

    operation: str
    group: str
    description: str
    ranks: tuple[int, ...]
    elements: int
    peer: int = -1


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
    message : of a collective what it is, else an all-reduce of all ranks. awaits : ranks whose arrival it waits for,
        where these are not all: who receives a broadcast waits for its root alone, and a small send for nobody.
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
    message: Message | None = None
    awaits: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Node:
    """A node of a CUDA graph: a kernel, which waits for the node before it on its stream and for those in `after`.

    Its stream is the one that the graph is launched on, or one inside the graph that no call names.
    """

    op: Launch
    after: tuple[int, ...] = ()


@dataclass(frozen=True)
class Graph:
    """A CUDA graph is launched by one call; its nodes are traced one by one.

    The first nodes of each branch wait for all before the graph on its stream, what comes after it there for all nodes.
    number : the graph's own, the same at every launch of it.
    """

    stream: int
    number: int
    nodes: tuple[Node, ...]
    call_ns: int = 9_000

    @property
    def reads(self) -> tuple[str, ...]:
        """What any of its nodes reads."""
        return tuple(name for node in self.nodes for name in node.op.reads)

    @property
    def writes(self) -> tuple[str, ...]:
        """What any of its nodes writes."""
        return tuple(dict.fromkeys(name for node in self.nodes for name in node.op.writes))


@dataclass(frozen=True)
class Copy:
    """A copy from the device, or to it; `blocking` where its call returns when it is done (pageable memory)."""

    stream: int
    ns: int
    blocking: bool
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    to_device: bool = False


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
    """The thread computes.

    reads, writes : names of buffers in the host's memory. later : what it reads may as well be read later: it is only
        written to a log.
    """

    ns: int
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    later: bool = False


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


Action = Launch | Graph | Copy | Record | Wait | Synchronize | Busy | Post | Take | Enter | Leave
Thread = tuple[Action, ...]
Rank = tuple[Thread, ...]


@dataclass(frozen=True)
class Program:
    """Threads of each rank; `queue` launches of a stream that have not begun are as many as there may be.

    An H100 holds 1,021 of each stream, of graphs as of kernels; records and waits take no place.
    """

    ranks: tuple[Rank, ...]
    queue: int = 1_021
    seed: int = 0
