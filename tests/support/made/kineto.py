"""What Kineto writes whatever the device: host threads with operators and annotations, and the file around events."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from random import Random
from typing import Any

HOST, THREAD = 4711, 4711
BASE_NS = 1_741_000_000_000_000_000


@dataclass
class Capture:
    """Events in the order they are made; times in ns."""

    rank: int
    world_size: int
    random: Random
    base_ns: int = BASE_NS
    events: list[dict[str, Any]] = field(default_factory=list)
    host_ns: int = 5_000_123  # the host's time
    free_ns: dict[int, int] = field(default_factory=dict)  # of each stream: when its last op ended
    correlation: int = 100

    def add(self, category: str, name: str, pid: int, tid: int, start: int, end: int, **args: Any) -> None:
        """An event with a length."""
        times = {"ts": start / 1000, "dur": (end - start) / 1000}
        head = {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid}
        self.events.append({**head, **times, "args": args})

    def call(self, category: str, name: str, longest_ns: int = 9_000, **args: Any) -> int:
        """A host call; returns when it began."""
        began = self.host_ns = self.host_ns + self.random.randrange(100, 4_000)
        self.correlation += 1
        self.host_ns += self.random.randrange(1_000, longest_ns)
        self.add(category, name, HOST, THREAD, began, self.host_ns, correlation=self.correlation, **args)
        return began

    def span(self, stream: int, launched_ns: int, longest_ns: int) -> tuple[int, int]:
        """When the next op of a stream runs: after the one before it, and after its launch."""
        start = max(self.free_ns.get(stream, 0), launched_ns + 2_000) + self.random.randrange(0, 3_000)
        end = self.free_ns[stream] = start + self.random.randrange(1, longest_ns)
        return start, end

    def text(self, **header: Any) -> str:
        """The file."""
        head = {
            "schemaVersion": 1,
            **header,
            "distributedInfo": {"backend": "nccl", "rank": self.rank, "world_size": self.world_size, "pg_count": 1},
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": self.base_ns,
        }
        return json.dumps({**head, "traceEvents": self.events, "traceName": f"rank{self.rank}.json"}, indent=1)
