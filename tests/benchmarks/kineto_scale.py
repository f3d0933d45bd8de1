"""A torch.profiler trace of 2 GB: first look, repeat look, and growth over three sizes, beside a bare decode.

    python -m tests.benchmarks.kineto_scale [--hta PYTHON] [--simdjson PYTHON] [--rounds 5] [--keep]

A real capture is repeated in time until the file has the size; it lies in tests/benchmarks/data/ and is removed again.
A look is a whole command, from its start to its exit; what finds the tables cached runs in rounds, in turn with the
bare imports, and medians count. The bare decode is msgspec's, of the same bytes, into typed events and nothing more;
simdjson's is its DOM. Bars: first look at most 3 times msgspec's decode, memory below the file's size, exponent at most
1.1, another question at most a second of CPU beyond the bare imports. Processor seconds tell what a busy machine hides.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.benchmarks.kineto_json import HTA, MSGSPEC, PANDAS, SOURCE, tile
from tests.benchmarks.timing import Run, bar, run

DATA = Path(__file__).parent / "data"
BYTES_PER_EVENT = 244
IMPORTS = "import numpy, pandas, pyarrow"
BAR_QUESTION = 1.0  # second of CPU beyond the imports
GB = (0.5, 1.0, 2.0)

SIMDJSON = """
import sys, simdjson
for path in sys.argv[1:]:
    with open(path, "rb") as file:
        print(len(simdjson.Parser().parse(file.read())["traceEvents"]), "events")
"""


def looks(path: Path, cache: Path, rounds: int) -> dict[str, Run]:
    """The first command on a file, and those that find its tables, each a process, with a cache of their own."""
    environment = {"TRACEVIZ_CACHE": str(cache)}
    base = [sys.executable, "-m", "traceviz"]
    check = [*base, "check-overlap", str(path), "--min-overlap", "0%", "--format", "json"]
    commands = {
        "bare imports": [sys.executable, "-c", IMPORTS],
        "again: check-overlap": check,
        "another question: check-overlap": [*check, "-a", "compute", "-b", "comm"],
        **{
            f"another question: {command}": [*base, command, str(path), "--format", "json"]
            for command in ("streams", "info", "collectives")
        },
    }
    first = run(check, environment)
    runs = [{name: run(command, environment) for name, command in commands.items()} for _ in range(rounds)]
    assert all(each["again: check-overlap"].output == first.output for each in runs)
    medians = {name: sorted((each[name] for each in runs), key=lambda one: one.busy_seconds) for name in commands}
    return {"first look: check-overlap": first, **{name: each[rounds // 2] for name, each in medians.items()}}


def show(found: Mapping[str, Run], size: int, base: str) -> None:
    """Print wall and processor seconds, how many times those of the base they are, and memory per file size."""
    print(f"{'':34} {'wall s':>8} {'CPU s':>8} {'wall x':>7} {'CPU x':>7} {'peak MB':>8} {'of file':>8}")
    for name, one in found.items():
        wall, busy = one.seconds / found[base].seconds, one.busy_seconds / found[base].busy_seconds
        print(
            f"{name:34} {one.seconds:8.2f} {one.busy_seconds:8.2f} {wall:7.2f} {busy:7.2f} "
            f"{one.peak_bytes / 1e6:8.0f} {one.peak_bytes / size:8.2f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hta", help="Python that has HTA")
    parser.add_argument("--simdjson", help="Python that has pysimdjson")
    parser.add_argument("--pandas", action="store_true", help="json + pandas, too (10 times the file's size in memory)")
    parser.add_argument("--gb", type=float, nargs="+", default=GB, help="sizes")
    parser.add_argument("--rounds", type=int, default=5, help="of what finds the tables cached")
    parser.add_argument("--keep", action="store_true", help="leave the files")
    options = parser.parse_args()
    DATA.mkdir(exist_ok=True)
    first: list[tuple[int, Run]] = []
    for gigabytes in options.gb:
        path = DATA / f"kineto-{gigabytes:g}gb.json"
        if not path.exists():
            tile(SOURCE, path, round(gigabytes * 1e9 / BYTES_PER_EVENT))
        size = path.stat().st_size
        print(f"{path.name}: {size / 1e9:.2f} GB", flush=True)
        found = {"msgspec, decode alone": run([sys.executable, "-c", MSGSPEC, str(path)])}
        with tempfile.TemporaryDirectory(dir=DATA) as cache:
            found |= looks(path, Path(cache), options.rounds)
        others = {"simdjson, parse alone": (options.simdjson, SIMDJSON), "HTA": (options.hta, HTA)}
        others["json + pandas"] = (sys.executable if options.pandas else None, PANDAS)
        found |= {
            name: run([python, "-c", text, str(path)]) for name, (python, text) in others.items() if python is not None
        }
        show(found, size, "msgspec, decode alone")
        most = found["bare imports"].busy_seconds + BAR_QUESTION
        print(*(bar(name, one.busy_seconds, most) for name, one in found.items() if "question" in name), sep="\n")
        first.append((size, found["first look: check-overlap"]))
        if not options.keep:
            path.unlink()
    if len(first) > 1:
        (small, quick), (large, slow) = first[0], first[-1]
        for name in ("seconds", "busy_seconds"):
            exponent = math.log(getattr(slow, name) / getattr(quick, name)) / math.log(large / small)
            print(f"exponent of the first look's {name}: {exponent:.2f}")


if __name__ == "__main__":
    main()
