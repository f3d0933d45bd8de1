"""Many ranks, each a torch.profiler trace of its own: time and memory as their number grows.

    python -m tests.benchmarks.many_ranks [--ranks 16 32 64] [--mb 100] [--memory 2GB] [--keep]
                                          [--simdjson PYTHON] [--hta PYTHON] [--pandas] [--patience 120]

Each rank is a real capture repeated in time, in a file of its own that names its rank; they lie in
tests/benchmarks/data/ and are removed again. Every run starts without a cache. Memory is that of all the
command's processes together, at its largest as sampled ten times a second. Bars: memory within 1.15 times the budget
whatever the number of ranks, exponent of processor seconds at most 1.1. Beside it, if done within so many seconds:
simdjson's parse of the same files and nothing more, HTA's overlap, and json with pandas.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks.kineto_json import HTA, PANDAS, SOURCE, tile
from tests.benchmarks.kineto_scale import BYTES_PER_EVENT, SIMDJSON
from traceviz.options.arguments import read_bytes

DATA = Path(__file__).parent / "data"
EACH = """
import subprocess, sys
for path in sys.argv[2:]:
    subprocess.run([sys.executable, "-c", sys.argv[1], path], check=True)
"""


def make(folder: Path, ranks: int, megabytes: int) -> list[Path]:
    """Write traces of this size, one for each rank that has none: the first one's, under another rank."""
    paths = [folder / f"rank{rank}.json" for rank in range(ranks)]
    if not paths[0].exists():
        tile(SOURCE, paths[0], round(megabytes * 1e6 / BYTES_PER_EVENT))
    head, rank_0, rest = paths[0].read_bytes().partition(b'"rank": 0,')
    assert rank_0
    for rank, path in enumerate(paths):
        if not path.exists():
            with path.open("wb") as file:
                file.writelines([head, b'"rank": %d,' % rank, rest])
    return paths


def resident(pid: int) -> int:
    """Memory in use by a process and its descendants, without what is merely mapped from files; bytes."""
    total = 0
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        total += sum(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("RssAnon"))
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        threads = [entry for entry in Path(f"/proc/{pid}/task").iterdir() if entry.name != str(pid)]
        for thread in threads:
            children += (thread / "children").read_text().split()
        total += sum(resident(int(child)) for child in children)
    except OSError:  # it has ended
        pass
    return total


def measured(command: list[str], cache: str, patience: float = math.inf) -> tuple[float, float, int] | None:
    """Wall and processor seconds, and the largest memory of all processes together, bytes; None if out of patience."""
    before, began, peak = os.times(), time.perf_counter(), 0
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "TRACEVIZ_CACHE": cache},
        start_new_session=True,
    )
    while process.poll() is None:
        peak = max(peak, resident(process.pid))
        time.sleep(0.1)
        if time.perf_counter() - began > patience:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return None
    assert process.stderr is not None
    errors = process.stderr.read()
    if process.returncode not in (0, 1, 3) or b"Traceback" in errors:
        raise RuntimeError(errors.decode())
    process.stderr.close()
    after = os.times()
    busy = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - began, busy, peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=(16, 32, 64))
    parser.add_argument("--mb", type=int, default=100, help="of JSON a rank")
    parser.add_argument("--memory", default="2GB", help="the budget")
    parser.add_argument("--simdjson", help="Python that has pysimdjson")
    parser.add_argument("--hta", help="Python that has HTA")
    parser.add_argument("--pandas", action="store_true", help="json + pandas, too, rank by rank")
    parser.add_argument("--patience", type=float, default=120.0, help="seconds for each of these")
    parser.add_argument("--keep", action="store_true", help="leave the files")
    options = parser.parse_args()
    DATA.mkdir(exist_ok=True)
    folder = DATA / f"ranks-{options.mb}mb"
    folder.mkdir(exist_ok=True)
    busy: list[float] = []
    for ranks in options.ranks:
        paths = [str(path) for path in make(folder, ranks, options.mb)]
        whole = [sys.executable, "-m", "traceviz", "check-overlap", *paths, "--format", "json"]
        for name, command in (("by parts", [*whole, "--memory", options.memory]), ("as a whole", whole)):
            with tempfile.TemporaryDirectory(dir=DATA) as cache:
                first, repeated = measured(command, cache), measured(command, cache)
            assert first is not None
            assert repeated is not None
            seconds, processors, peak = first
            again, processors_again, _ = repeated
            print(
                f"{ranks:3} ranks × {options.mb} MB, {name:10}: first {seconds:6.1f} s ({processors:.1f} s of CPU), "
                f"again {again:5.1f} s ({processors_again:.1f} s of CPU), memory {peak / 1e6:.0f} MB",
                flush=True,
            )
            if name == "by parts":
                busy.append(processors)
                assert peak < 1.15 * read_bytes(options.memory)
        others = {
            "simdjson, parse alone": [options.simdjson, "-c", SIMDJSON],
            "HTA": [options.hta, "-c", HTA],
            "json + pandas": [sys.executable if options.pandas else None, "-c", EACH, PANDAS],
        }
        for name, start in others.items():
            if start[0] is not None:
                found = measured([*start, *paths], "off", options.patience)
                result = "not done in time" if found is None else "{:6.1f} s ({:.1f} s of CPU)".format(*found)
                memory = "" if found is None else f", memory {found[2] / 1e6:.0f} MB"
                print(f"{ranks:3} ranks × {options.mb} MB, {name}: {result}{memory}", flush=True)
    growth = math.log(busy[-1] / busy[0]) / math.log(options.ranks[-1] / options.ranks[0])
    print(f"exponent of the first look's processor seconds: {growth:.2f}")
    if not options.keep:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


if __name__ == "__main__":
    main()
