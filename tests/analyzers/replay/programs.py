"""Small programs in µs, and what a replay makes of them."""

from __future__ import annotations

from collections.abc import Sequence

from analyzers.replay.change import Change, combined
from analyzers.replay.engine import Times, run
from analyzers.replay.model import Tasks
from analyzers.replay.tasks import tasks
from analyzers.trace.tables import Trace
from tests.support.builder import Builder, Rank

US = 1_000


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

    def trace(self) -> Trace:
        return self.run.trace()


def blocked() -> Trace:
    """K runs 100 µs, the host waits for it, does something for 8 µs, and launches L, of 50 µs."""
    program = Program()
    program.range("fetch", 24, 113)
    program.kernel("K", 7, call=0, start=8, end=108)
    program.sync(25, 112)
    program.kernel("L", 7, call=120, start=127, end=177)
    return program.trace()


def spans(trace: Trace, found: Tasks, times: Times) -> dict[str, list[tuple[float, float]]]:
    """When the units of each name run, µs."""
    result: dict[str, list[tuple[float, float]]] = {}
    names = trace.ops.to_frame()["name"].astype(str).to_numpy()[found.units.op]
    for unit in times.unit_start.argsort(kind="stable"):
        span = times.unit_start[unit] / US, times.unit_end[unit] / US
        result.setdefault(names[unit], []).append(span)
    return result


def replayed(trace: Trace, changes: Sequence[Change] = ()) -> dict[str, list[tuple[float, float]]]:
    """When the units of each name run with some changes, µs."""
    found = combined(trace, tasks(trace), changes)
    return spans(trace, found, run(found))
