"""How long what-if takes: python -m tests.benchmarks.replay_scale [RANKS OPS_PER_STEP STEPS]...

Steps of kernels on one stream, every tenth of which an all-reduce on another waits for, with a range around every
hundred and a host sync at the end. Bar: 5 s for all that is suggested of 10,000 ops.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from analyzers.common.errors import TracevizError
from analyzers.replay import engine
from analyzers.replay.answer import parse_change, what_if
from analyzers.replay.predict import Replayed
from analyzers.replay.tasks import tasks
from analyzers.trace.tables import Trace
from tests.support.builder import Builder

SIZES = ((2, 500, 10), (2, 2_500, 2))
PER_REDUCE, PER_LAYER, KERNEL_NS, REDUCE_NS, CALL_NS = 10, 100, 8_000, 40_000, 8_000
CHANGES = (
    "drop-sync nvtx:ProfilerStep#*",
    "drop-wait comm on compute",
    "move-wait nvtx:layer 2 before nvtx:layer 1",
    "own-stream nvtx:layer 1 join-before nvtx:layer 3",
    "on-time all",
    "scale comm 0.5",
    "split comm 4",
    "graph nvtx:layer 1",
    "more-room comm",
)


def large_trace(ranks: int, per_step: int, steps: int) -> Trace:
    """A capture of so many ranks, each with about so many ops in each of its steps."""
    run = Builder()
    kernels = max(per_step * PER_REDUCE // (PER_REDUCE + 1) // PER_LAYER, 1) * PER_LAYER
    step_ns = kernels * (KERNEL_NS + 1_000) + REDUCE_NS + 60_000
    for number in range(ranks):
        rank = run.rank(number)
        for step in range(steps):
            begin, collectives = step * step_ns, step * kernels // PER_REDUCE
            for kernel in range(kernels):
                call, start = begin + kernel * (CALL_NS + 200), begin + 30_000 + kernel * (KERNEL_NS + 1_000)
                launch = (call, call + CALL_NS - 2_000)
                rank.kernel(f"matmul_{kernel % 10}", 7, start, start + KERNEL_NS, launch=launch)
                if kernel % PER_REDUCE == PER_REDUCE - 1:
                    rank.wait_stream(20, 7, call + CALL_NS - 1_500)
                    start, launch = start + KERNEL_NS + 2_000, (call + CALL_NS - 1_000, call + CALL_NS - 800)
                    collective = collectives + kernel // PER_REDUCE
                    times = start, start + REDUCE_NS
                    rank.kernel("ncclDevKernel_AllReduce", 20, *times, launch=launch, collective=collective)
                if kernel % PER_LAYER == PER_LAYER - 1:
                    layer = kernel // PER_LAYER
                    first = begin + layer * PER_LAYER * (CALL_NS + 200)
                    rank.range(f"layer {layer}", first - 50, call + CALL_NS)
            rank.synchronize("device", begin + kernels * (CALL_NS + 200), begin + step_ns - 10_000)
            rank.range(f"ProfilerStep#{step}", begin - 100, begin + step_ns - 5_000)
    return run.trace()


def main() -> None:
    """Print the time of all that is suggested, and of each change alone."""
    given = [int(word) for word in sys.argv[1:]]
    sizes = zip(given[::3], given[1::3], given[2::3], strict=True) if given else SIZES
    for ranks, per_step, steps in sizes:
        trace = large_trace(ranks, per_step, steps)
        print(f"{ranks} ranks of {steps} steps of {per_step:,} ops: {trace!r}")
        found = tasks(trace)
        timed("one run", lambda found=found: engine.run(found))
        timed("what-if", lambda trace=trace: what_if(trace))
        replayed = Replayed(trace, "comm", "compute")
        for text in CHANGES:
            print(f"    {timed(text, lambda text=text, replayed=replayed: tried(replayed, text))}")


def timed(what: str, work: Callable[[], Any]) -> Any:
    """Do the work and print how long it took."""
    begin = time.perf_counter()
    result = work()
    print(f"  {what:<40} {time.perf_counter() - begin:6.2f} s")
    return result


def tried(replayed: Replayed, text: str) -> str:
    """What a change brings, in words."""
    try:
        found = replayed.predict([parse_change(text)])
    except TracevizError as error:
        return str(error)
    return f"{found.step_ns / 1e6:.2f} ms, [{found.step_low_ns / 1e6:.2f}, {found.step_high_ns / 1e6:.2f}]"


if __name__ == "__main__":
    main()
