"""Time to match and align 10,000 collectives over 64 ranks: `python -m tests.benchmarks.collectives_align`.

By sequence number, as new torch traces allow; by order within a process group; and by order alone. Clocks are up to
50 ms and 20 ppm apart; the second of each pair lacks calls at head, tail and middle of every rank.
"""

from __future__ import annotations

import time

from analyzers.clocks.align import align
from analyzers.collectives.report import collectives
from tests.support.collective_runs import MS, Call, Loss, lose, run

RANKS, STEPS, CALLS = 64, 200, 50


def main() -> None:
    for keyed in ("sequence", "group", ""):
        complete = run(RANKS, STEPS, (Call(),) * CALLS, offset=50 * MS, drift=20e-6, keyed=keyed)
        for name, recorded in (("complete", complete), ("lossy", lose(complete, Loss(20, 20, 0.02)))):
            trace = recorded.trace()
            busy, start = time.process_time(), time.perf_counter()
            aligned = align(trace)
            busy, middle = time.process_time() - busy, time.perf_counter()
            result = collectives(aligned)
            end = time.perf_counter()
            print(
                f"by {keyed or 'order':8} {name:8} {len(result):6,} collectives × {RANKS} ranks:"
                f" match and align {middle - start:5.2f} s ({busy:.2f} s of CPU), measure {end - middle:5.2f} s"
            )


if __name__ == "__main__":
    main()
