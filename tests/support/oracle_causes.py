"""What kept one side of a pair waiting, the slow and obvious way. Plain Python; shares no code with the package.

An instance's time is cut at every instant at which anything starts, ends, is launched or is released. In each slice in
which one side runs alone, and the other still has work to start, that side's next op waits for one thing, which is
named by the words of the definition.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

DISPATCH = 10_000
CLOSE, TOGETHER = 3_000, 1_000
LONG_AGO = -(10**30)


@dataclass(frozen=True)
class Op:
    """A GPU op: `launch` is its call (None unknown), `waits` until when it only waits for a late rank."""

    side: str  # "a", "b" or "" for neither
    stream: object
    start: int
    end: int
    arrived: int
    launch: tuple[int, int] | None = None
    thread: object = 1
    copies_itself: bool = False  # its call blocks until it is done
    grid: int = -1
    block: int = 0
    registers: int = 0
    shared: int = 0


@dataclass
class Device:
    """What there is to know of a device: its ops, who waits for whom, when threads were blocked, its size."""

    ops: Sequence[Op]
    waits_for: Mapping[int, Collection[object]]  # node -> nodes it directly comes behind; ops are nodes by number
    blocked: Mapping[object, Sequence[tuple[int, int]]] = field(default_factory=dict)
    sms: int = 0  # 0: unknown
    threads: int = 2048
    blocks: int = 32
    registers: int = 65536
    shared: int = 233472
    one_queue: bool = False  # on record

    def behind(self, op: int) -> list[int]:
        """All ops that have to be done before this one starts: everything that can be reached backwards."""
        seen: set[object] = set()
        queue = deque(self.waits_for.get(op, ()))
        while queue:
            node = queue.popleft()
            if node not in seen:
                seen.add(node)
                queue.extend(self.waits_for.get(node, ()))  # type: ignore[call-overload]
        return sorted(node for node in seen if isinstance(node, int))

    def cuts(self) -> list[int]:
        every = {t for op in self.ops for t in (op.start, op.arrived, op.end, *(op.launch or ()))}
        every |= {t for spans in self.blocked.values() for span in spans for t in span}
        return sorted(every)

    def full(self, wanting: int, low: int, high: int) -> bool:
        """Whether there is no room for an op while what runs in [low, high) runs."""
        running = [op for op in self.ops if op.start <= low and high <= op.end and op.start < op.end]
        op = self.ops[wanting]
        if not self.sms or op.grid <= 0:
            return False
        threads, blocks, registers, shared = self.threads, self.blocks, self.registers, self.shared
        for other in running:
            if other.grid <= 0:
                continue
            most = self.blocks_per_sm(other)
            if other.grid > most * self.sms:
                return True
            here = min(other.grid // self.sms, most)  # on the emptiest multiprocessor
            threads -= here * warps(other) * 32
            blocks -= here
            registers -= here * warps(other) * up(other.registers * 32, 256)
            shared -= here * (up(other.shared, 128) + 1024)
        return (
            threads < warps(op) * 32
            or blocks < 1
            or registers < warps(op) * up(op.registers * 32, 256)
            or shared < up(op.shared, 128) + 1024
        )

    def released(self, op: int) -> int:
        """When an op was launched and all before it was done."""
        return max([_launched(self.ops[op]), *(self.ops[i].end for i in self.behind(op))])

    @cached_property
    def queued_until(self) -> dict[int, int]:
        """Kernel -> when the last of those launched before it began, for those that this held.

        It holds if all streams share a hardware queue: no kernel that was free began before that, and with the setting
        on record one began right then; without, nine in ten of those that were free, with room, did, and three of them
        for over 10 µs behind a kernel that had itself begun within 10 µs of its release.
        """
        kernels = [i for i, op in enumerate(self.ops) if op.launch and not op.copies_itself]
        held, close, telling = {}, 0, 0
        for x in kernels:
            op = self.ops[x]
            earlier = [p for p in kernels if self.ops[p].launch[1] <= op.launch[0]]  # type: ignore[index]
            if not earlier:
                continue
            last = self.ops[max(earlier, key=lambda p: (self.ops[p].start, self.ops[p].launch[1]))]  # type: ignore[index]
            free = self.released(x)
            if last.stream == op.stream or last.start <= free + CLOSE:
                continue
            if op.start + TOGETHER < last.start:
                return {}
            if not any(full for _, _, full in _pieces(self, x, free, op.start)):
                held[x] = last.start
                is_close = op.start <= last.start + CLOSE
                close += is_close
                prompt = last.start <= self.released(self.ops.index(last)) + DISPATCH
                telling += is_close and prompt and last.start > free + DISPATCH
        told = close > 0 if self.one_queue else telling >= 3 and close >= 0.9 * len(held)
        return held if told else {}

    def blocks_per_sm(self, op: Op) -> int:
        by_threads = self.threads // (warps(op) * 32)
        warps_of_a_quarter = (self.registers // 4) // up(op.registers * 32, 256)
        by_shared = self.shared // (up(op.shared, 128) + 1024)
        return max(1, min(by_threads, self.blocks, warps_of_a_quarter * 4 // warps(op), by_shared))


def up(value: int, grain: int) -> int:
    return (max(value, 1) + grain - 1) // grain * grain


def warps(op: Op) -> int:
    return (op.block + 31) // 32


def slices(device: Device, instance: Collection[int]) -> Iterator[tuple[int, int, str, str]]:
    """(from, to, idle side, cause) of each slice of time in which one side runs alone, of the instance of these ops."""
    mine = {side: [op for op in instance if device.ops[op].side == side] for side in "ab"}
    if not mine["a"] or not mine["b"]:
        return
    telling = {side: _telling(device, mine[side]) for side in "ab"}
    cuts = device.cuts()
    vain = {idle: list(_waited_in_vain(device, mine[idle], mine[other], cuts)) for idle, other in ("ab", "ba")}
    ends = {end for spans in vain.values() for _, end in spans}
    for low, high in itertools.pairwise(sorted({*cuts, *ends})):
        for idle, other in ("ab", "ba"):
            cause = _cause(device, telling[idle], mine[other], low, high)
            short = [device.ops[i] for i in set(mine[idle]) - set(telling[idle])]
            if _any_runs(short, low, high):
                continue
            if cause and any(op.start <= low and high <= op.arrived for op in short):
                cause = "peer-wait"
            if cause == "peer-wait" and not any(start <= low and high <= end for start, end in vain[idle]):
                continue
            if cause:
                yield low, high, idle, cause


def _telling(device: Device, mine: list[int]) -> list[int]:
    """A side's ops without those of no account: under a hundredth of the longest, if they take a twentieth of all."""
    length = {i: device.ops[i].end - device.ops[i].arrived for i in mine}
    short = [i for i in mine if 100 * length[i] < max(length.values())]
    if 20 * sum(length[i] for i in short) > sum(length.values()):
        return mine
    return [i for i in mine if i not in short]


def _waited_in_vain(device: Device, mine: list[int], others: list[int], cuts: list[int]) -> Iterator[tuple[int, int]]:
    """When a side waited beside the other, for as long as its run of ops would overlap more, had it not waited."""
    runs: list[list[Op]] = []
    for op in sorted((device.ops[i] for i in mine), key=lambda op: op.start):
        if runs and op.start <= max(before.end for before in runs[-1]) + CLOSE:
            runs[-1].append(op)
        else:
            runs.append([op])
    theirs = [device.ops[i] for i in others]
    slices = list(itertools.pairwise(cuts))
    for ops in runs:
        begin, end = min(op.start for op in ops), max(op.end for op in ops)
        within = [(low, high) for low, high in slices if begin <= low and high <= end]
        real = [(low, high) for low, high in within if _any_runs(ops, low, high)]
        on_time = begin + sum(high - low for low, high in real)
        now = sum(high - low for low, high in real if _any_runs(theirs, low, high))
        then = sum(
            min(high, on_time) - low for low, high in slices if begin <= low < on_time and _any_runs(theirs, low, high)
        )
        more = then - now
        for low, high in within:
            waits = any(op.start <= low and high <= op.arrived for op in ops) and not _any_runs(ops, low, high)
            if waits and _any_runs(theirs, low, high) and more > 0:
                yield low, min(high, low + more)
                more -= min(high - low, more)


def _any_runs(ops: list[Op], low: int, high: int) -> bool:
    return any(op.arrived <= low and high <= op.end for op in ops)


def alone(device: Device, instance: Collection[int]) -> Counter[str]:
    """Cause -> ns alone, of the instance made of these ops."""
    found: Counter[str] = Counter()
    for low, high, _, cause in slices(device, instance):
        found[cause] += high - low
    return found


def _cause(device: Device, idle: list[int], other: list[int], low: int, high: int) -> str:
    ops = device.ops
    runs = {
        s: any(ops[i].arrived <= low and high <= ops[i].end for i in each) for s, each in (("i", idle), ("o", other))
    }
    spins = {
        s: any(ops[i].start <= low and high <= ops[i].arrived for i in each) for s, each in (("i", idle), ("o", other))
    }
    to_start = [i for i in idle if ops[i].arrived >= high and ops[i].end > ops[i].arrived]
    if runs["i"] or not to_start:
        return ""
    if not runs["o"]:
        return ""
    if spins["i"]:
        return "peer-wait"
    wanted = min(to_start, key=lambda i: (ops[i].arrived, ops[i].start, ops[i].end))
    ended = [ops[i].end for i in idle if ops[i].end <= low and ops[i].end > ops[i].arrived]
    began = max(ended, default=min(ops[i].start for i in idle + other))
    return _waits_for(device, wanted, low, high, began)


def _launched(op: Op) -> int:
    if op.launch is None:
        return LONG_AGO
    return min(op.launch[0] if op.copies_itself else op.launch[1], op.start)


def _waits_for(device: Device, wanted: int, low: int, high: int, gap: int) -> str:
    op = device.ops[wanted]
    release = device.released(wanted)
    if low < release:
        return _binds(device, wanted, wanted, low)
    let_go = max(release, min(device.queued_until.get(wanted, release), op.start))
    if low < let_go:
        return "shared-queue"
    for start, end, full in _pieces(device, wanted, max(let_go, gap), op.start):
        if start <= low and high <= end:
            if full or (start > max(let_go, gap) and end - start <= DISPATCH):
                return "gpu-full"
            if end - start <= DISPATCH and let_go > gap:
                if let_go > release:
                    return "shared-queue"
                return "late-launch" if _launched(op) == release else _binds(device, wanted, wanted, release - 1)
            return "host-sync" if op.copies_itself else "unknown"
    raise AssertionError("a slice between release and start lies in no piece")


def _binds(device: Device, wanted: int, at: int, now: int) -> str:
    """The cause by what released an op last, its launch or the work it was queued behind: it holds from the start.

    Work of neither side holds from where it begins; before, what binds that work (`at`) does.
    """
    ops, me = device.ops, device.ops[wanted].side
    theirs = [i for i in range(len(ops)) if ops[i].side not in (me, "")]
    behind = device.behind(at)
    last = max(behind, key=lambda i: (ops[i].end, i in theirs, ops[i].stream == ops[at].stream), default=None)
    if last is None or _launched(ops[at]) >= ops[last].end:
        if now >= _launched(ops[at]):
            return "stream-busy"  # its work is on its way
        spans = device.blocked.get(ops[at].thread, ())
        return "host-sync" if any(start <= now < end for start, end in spans) else "late-launch"
    if last in theirs:
        if now >= ops[last].end:
            return "stream-busy"
        return "same-stream" if ops[last].stream == ops[wanted].stream else "event-dependency"
    return "stream-busy" if ops[last].start <= now else _binds(device, wanted, last, now)


def _pieces(device: Device, wanted: int, low: int, high: int) -> Iterator[tuple[int, int, bool]]:
    """Cut [low, high) into pieces in which there is room for the op, and such in which there is none."""
    inside = sorted({low, high, *(t for t in device.cuts() if low < t < high)})
    slices = [(start, end, device.full(wanted, start, end)) for start, end in itertools.pairwise(inside)]
    for full, group in itertools.groupby(slices, key=lambda piece: piece[2]):
        parts = list(group)
        yield parts[0][0], parts[-1][1], full


def fair(total: int, weights: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Cause -> (least, most) that may be its share: its exact part, rounded down or up; waits count in full."""
    waits = min(total, weights.get("peer-wait", 0))
    others = {cause: ns for cause, ns in weights.items() if ns and cause != "peer-wait"} or {"unknown": 1}
    rest, whole = total - waits, sum(others.values())
    shares = {cause: (rest * ns // whole, -(-rest * ns // whole)) for cause, ns in others.items()}
    return shares | ({"peer-wait": (waits, waits)} if waits else {})
