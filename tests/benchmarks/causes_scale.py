"""How long it takes to explain a large capture: python -m tests.benchmarks.causes_scale

The capture of `large_trace`: 2M kernels, 5M CUDA calls, 100k event records.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from analyzers.causes import causes, missed
from analyzers.verdict import check, part
from tests.benchmarks.large_trace import large_trace, timed

PAIRS = (("stream:7", "!stream:7"), ("kernel:kernel_1", "kernel:kernel_2"), ("nvtx:range 1", "nvtx:range 2"))


def staged(owner: Any, name: str, spent: dict[str, float]) -> Callable[..., Any]:
    """The same function, which adds its time to `spent`."""
    work = getattr(owner, name)

    def measured(*arguments: Any, **more: Any) -> Any:
        begin = time.perf_counter()
        try:
            return work(*arguments, **more)
        finally:
            spent[name] = spent.get(name, 0.0) + time.perf_counter() - begin

    return measured


def main() -> None:
    """Print the time of each pair, and of its stages (a stage holds those it calls)."""
    trace = large_trace("event_sync")
    print(repr(trace))
    spent: dict[str, float] = {}
    for owner, names in (
        (
            part,
            ("select", "pair_by", "measure_ranks", "_explainer", "explain_missed", "missing_waits", "arrivals"),
        ),
        (causes, ("Ordering", "blocking_calls", "find_gaps", "room")),
        (causes.Explainer, ("explain", "_explain", "_after_sync", "_blocked", "free")),
        (missed, ("_weigh", "_missed_by", "shares")),
    ):
        for name in names:
            setattr(owner, name, staged(owner, name, spent))
    for a, b in PAIRS:
        spent.clear()
        result = timed(f"check_overlap {a} against {b}", lambda a=a, b=b: check.check_overlap(trace, a, b))
        for name, seconds in sorted(spent.items(), key=lambda item: -item[1]):
            print(f"    {name:<38} {seconds:6.2f} s")
        found = ", ".join(f"{one.cause} {one.ns:,} ns" for one in result.ranks[0].missed)
        print(f"    rank 0: {len(result.ranks[0].instances)} instances, {found}")


if __name__ == "__main__":
    main()
