"""Small programs, and what a replay makes of them. Written as text, in µs, statements apart by ; or lines:

K 7 @0 8-108           kernel K of stream 7, launched by a call at 0, runs from 8 to 108
AllReduce:0 9 @1 9-90  the same of a collective, with its number in its step
DtoH 7 @12-115 109-111 target_memory=pageable   a copy, whose call returns at 115
[fetch 24-113]         a range
9<7 @57                stream 9 waits for what 7 has to do
e=7 @5; 9<e @57        the same for what it has to do at 5
sync 25-112            a synchronize of the device; sync7 of stream 7
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from analyzers.replay.change import Change, combined
from analyzers.replay.engine import Times, run
from analyzers.replay.model import Tasks, Units
from analyzers.replay.tasks import tasks
from analyzers.trace.tables import Trace
from tests.support.builder import Builder, Rank

LONG = 1_000  # of a step, µs
PER_STEP = 10  # collectives
NCCL = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Recv")
_RANGE, _WAIT, _RECORD, _SYNC, _WORK = (
    re.compile(pattern)
    for pattern in (
        r"\[(.+) (\d+)-(\d+)\]",
        r"(\d+)<(\w+) @(\d+)",
        r"(\w+)=(\d+) @(\d+)",
        r"sync(\d*) (\d+)-(\d+)",
        r"([\w ]+?)(?::(\d+))? (\d+) @(\d+)(?:-(\d+))? (\d+)-(\d+)((?: \w+=\w+)*)",
    )
)
US = 1_000


def _parted(text: str) -> tuple[str, str, str]:
    return text.partition("=")


class Program:
    """A rank whose times are µs; each launch takes 5 µs and its kernel starts 2 µs after, or where it says."""

    def __init__(self, run: Builder | None = None, number: int = 0) -> None:
        self.run = run or Builder()
        self.rank: Rank = self.run.rank(number)

    def kernel(self, name: str, stream: int, call: int, start: int, end: int, **more: object) -> None:
        launch = (call * US, (call + 5) * US)
        self.rank.kernel(name, stream, start * US, end * US, launch=launch, **more)  # type: ignore[arg-type]

    def range(self, name: str, start: int, end: int) -> None:
        self.rank.range(name, start * US, end * US)

    def wait(self, stream: int, awaited: int, at: int) -> None:
        self.rank.wait_stream(stream, awaited, at * US)

    def sync(self, start: int, end: int) -> None:
        self.rank.synchronize("device", start * US, end * US)

    def write(self, text: str, step: int = 0) -> None:
        """Add what a text describes, so many milliseconds later."""
        late, records = LONG * step, {}
        for statement in filter(None, map(str.strip, re.split(r"[;\n]", text))):
            if found := _RANGE.fullmatch(statement):
                name, start, end = found.groups()
                self.range(name, late + int(start), late + int(end))
            elif found := _WAIT.fullmatch(statement):
                stream, awaited, at = found.groups()
                if awaited in records:
                    self.rank.wait(int(stream), records[awaited], (late + int(at)) * US)
                else:
                    self.wait(int(stream), int(awaited), late + int(at))
            elif found := _RECORD.fullmatch(statement):
                name, stream, at = found.groups()
                records[name] = self.rank.record(int(stream), (late + int(at)) * US)
            elif found := _SYNC.fullmatch(statement):
                stream, start, end = found.groups()
                times = (late + int(start)) * US, (late + int(end)) * US
                self.rank.synchronize("stream" if stream else "device", *times, stream=int(stream or -1))
            else:
                found = _WORK.fullmatch(statement)
                assert found, statement
                self._work(found, late, step)

    def _work(self, found: re.Match[str], late: int, step: int) -> None:
        name, collective, stream, call, returns, start, end, rest = found.groups()
        more = {key: int(value) if value.isdigit() else value for key, _, value in map(_parted, rest.split())}
        if collective is not None:
            more["collective"] = PER_STEP * step + int(collective)
        times = (late + int(start)) * US, (late + int(end)) * US
        launch = (late + int(call)) * US, (late + int(returns or int(call) + 5)) * US
        if name in ("DtoH", "HtoD", "DtoD"):
            self.rank.copy(name, int(stream), *times, launch=launch, **{"bytes": 4096, **more})  # type: ignore[arg-type]
        elif name == "Memset":
            self.rank.op(name, int(stream), *times, kind="memset", launch=launch)
        else:
            name = f"ncclDevKernel_{name}" if name in NCCL else name
            self.rank.kernel(name, int(stream), *times, launch=launch, **more)  # type: ignore[arg-type]

    def trace(self) -> Trace:
        return self.run.trace()


def written(text: str) -> Trace:
    """The program of one rank that a text describes."""
    program = Program()
    program.write(text)
    return program.trace()


def steps(text: str, count: int = 3) -> Trace:
    """Steps of a millisecond each, with what a text says of one."""
    program = Program()
    for number in range(count):
        program.range(f"step {number}", number * LONG, number * LONG + 990)
        program.write(text, number)
    return program.trace()


def on_ranks(*texts: str) -> Trace:
    """The program of several ranks."""
    both = Builder()
    for number, text in enumerate(texts):
        Program(both, number).write(text)
    return both.trace()


BLOCKED = "[fetch 24-113]; K 7 @0 8-108; sync 25-112; L 7 @120 127-177"


def blocked() -> Trace:
    """K runs 100 µs, the host waits for it, does something for 8 µs, and launches L, of 50 µs."""
    return written(BLOCKED)


def names_of(trace: Trace, units: Units) -> list[str]:
    """The name of each unit's op."""
    return [trace.ops.name[op] for op in units.op]


def spans(trace: Trace, found: Tasks, times: Times) -> dict[str, list[tuple[float, float]]]:
    """When the units of each name run, µs."""
    result: dict[str, list[tuple[float, float]]] = {}
    names = names_of(trace, found.units)
    for unit in times.unit_start.argsort(kind="stable"):
        span = times.unit_start[unit] / US, times.unit_end[unit] / US
        result.setdefault(names[unit], []).append(span)
    return result


def replayed(trace: Trace, changes: Sequence[Change] = ()) -> dict[str, list[tuple[float, float]]]:
    """When the units of each name run with some changes, µs."""
    found = combined(trace, tasks(trace), changes)
    return spans(trace, found, run(found))
