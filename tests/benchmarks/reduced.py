"""1,024 ranks × 5,000 collectives, already reduced to summaries: match, align, report.

    python -m tests.benchmarks.reduced [--rounds 5]

Ranks are synthetic (`tests.support.collective_runs`), their clocks up to 50 ms and 20 ppm apart; the same with a
quarter of the ranks, and with a half, gives how much a doubling takes. Sizes are measured in turn, as the machine may
be half as fast a minute later: of each the least of the rounds counts, of a doubling the median of the rounds' own
ratios. Before each a process touches as much memory as the largest takes: a virtual machine gives back what nobody has
used for seconds, and gets it again at many times the price, which small sizes would not pay, as another has just left
theirs. What the system takes to clear pages is told apart. Bars: 10 processor seconds, and 2.2 times; it ends with exit
code 1 where they are not met.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median

from analyzers.cache.arrow_files import read_trace, write_trace
from analyzers.clocks.align import align
from analyzers.collectives.costs import collectives
from tests.support.collective_runs import MS, Call, run
from traceviz.output.document import markdown
from traceviz.output.views import collectives as collectives_view

CALLS = 50
BAR_SECONDS, BAR_DOUBLING = 10.0, 2.2
BYTES_A_CALL = 200  # that a process touches, and some more


def make(ranks: int, count: int, keyed: str, folder: Path) -> None:
    """Write the ranks' summaries, merged."""
    folder.mkdir(exist_ok=True)
    calls = (Call(),) * CALLS
    write_trace(run(ranks, count // CALLS, calls, offset=50 * MS, drift=20e-6, keyed=keyed).trace(), folder)


def measure(count: int, folder: Path) -> dict[str, float]:
    """Seconds of each stage, and the peak of memory in MB."""
    trace, before = read_trace(folder), resource.getrusage(resource.RUSAGE_SELF)
    began = time.perf_counter()
    aligned = align(trace)
    matched = time.perf_counter()
    result = collectives(aligned)
    measured = time.perf_counter()
    text = markdown(collectives_view.blocks(result))
    ended, after = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    user, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    assert len(result) == count
    assert text
    return {
        "match and align": matched - began,
        "measure": measured - matched,
        "report": ended - measured,
        "seconds": ended - began,
        "of CPU": user + system,
        "of that the system's": system,
        "peak MB": after.ru_maxrss / 1e3,
    }


def touch(size: int) -> None:
    """Have so many bytes of memory used, and given up, by a process of its own."""
    subprocess.run([sys.executable, "-c", f"import numpy; numpy.ones({size}, numpy.uint8)"], check=True)


def measured(command: list[str], touched: int) -> dict[str, float]:
    """What `measure` finds in a process of its own, right after another has touched so many bytes."""
    touch(touched)
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)  # type: ignore[no-any-return]


def largest_doubling(rounds: list[dict[int, dict[str, float]]], took: Callable[[dict[str, float]], float]) -> float:
    """How many times a size takes what half of it does: the median of the rounds' own ratios."""
    return max(median(took(each[many]) / took(each[few]) for each in rounds) for few, many in pairwise(rounds[0]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--collectives", type=int, default=5000)
    parser.add_argument("--keyed", default="sequence", choices=("sequence", "group", "communicator", ""))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--stage", choices=("make", "measure"), help="of one size alone, in a process of its own")
    parser.add_argument("--folder", type=Path, help="of that stage")
    options = parser.parse_args()
    if options.stage:
        if options.stage == "make":
            make(options.ranks, options.collectives, options.keyed, options.folder)
        else:
            print(json.dumps(measure(options.collectives, options.folder)))
        return
    sizes = (options.ranks // 4, options.ranks // 2, options.ranks)
    with tempfile.TemporaryDirectory() as folder:
        commands = {}
        for ranks in sizes:
            words = ["--ranks", str(ranks), "--collectives", str(options.collectives), "--keyed", options.keyed]
            words += ["--folder", f"{folder}/{ranks}", "--stage"]
            command = [sys.executable, "-m", "tests.benchmarks.reduced", *words]
            subprocess.run([*command, "make"], check=True)
            commands[ranks] = [*command, "measure"]
        touched = BYTES_A_CALL * options.ranks * options.collectives
        rounds = [
            {ranks: measured(command, touched) for ranks, command in commands.items()} for _ in range(options.rounds)
        ]
    for ranks in sizes:
        found = min((each[ranks] for each in rounds), key=lambda one: one["of CPU"])
        print(f"{ranks:5} ranks: " + ", ".join(f"{name} {value:.1f}" for name, value in found.items()), flush=True)
    seconds = min(each[options.ranks]["of CPU"] for each in rounds)
    doubling = largest_doubling(rounds, lambda one: one["of CPU"])
    doubling_own = largest_doubling(rounds, lambda one: one["of CPU"] - one["of that the system's"])
    print(
        f"bar {BAR_SECONDS:g} s of CPU: {seconds:.1f} s; bar {BAR_DOUBLING} times a doubling: {doubling:.2f}, "
        f"{doubling_own:.2f} without the system's"
    )
    if seconds > BAR_SECONDS or doubling > BAR_DOUBLING:
        sys.exit(1)


if __name__ == "__main__":
    main()
