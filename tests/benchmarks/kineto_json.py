"""A 2-million-event torch.profiler trace: the commands beside reading alone, a bare decode, HTA, and json + pandas.

    python -m tests.benchmarks.kineto_json --hta ~/hta-venv/bin/python [--no-peers]

HTA (PyPI traceinsight 0.6.1, which needs pandas<3, psutil and pyyaml) wants a virtual environment of its own: name its
Python by --hta or $TRACEVIZ_HTA_PYTHON; without one HTA is left out. The trace is a real capture repeated in time, with
times and ids moved on, in the layout torch prints; it stays in tests/benchmarks/data/. The bare decode is msgspec's,
of the same bytes, into typed events. Bars, of CPU: check-overlap at most 1.3 times reading alone and twice the bare
decode, other commands twice reading alone.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from tests.benchmarks.timing import bar, compare, table

HERE = Path(__file__).parent
SOURCE = HERE.parent / "data" / "torch" / "ddp.rank0.json.gz"
EVENTS = 2_000_000
OTHERS = ("collectives", "syncs", "streams")
BAR_CHECK, BAR_DECODE, BAR_OTHERS = 1.3, 2.0, 2.0
_MOVED = re.compile(r'("ts": |"(?:External id|correlation|Sequence number|id)": |ProfilerStep#)(\d+)')

OURS = """
import sys
from pathlib import Path
from analyzers.arrays.intervals import intersect, measure, union
from analyzers.readers.kineto.read import read
from analyzers.trace.columns import ints
from analyzers.trace.kernels import is_communication, is_compute
trace = read(Path(sys.argv[1]))
start, end = ints(trace.ops, "start_ns"), ints(trace.ops, "end_ns")
sides = [union(start[side], end[side]) for side in (is_communication(trace), is_compute(trace))]
print(f"overlap {measure(intersect(*sides))} of communication {measure(sides[0])} ns")
"""

MSGSPEC = """
import sys, msgspec
class Event(msgspec.Struct, gc=False):
    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = -1
    tid: int | str = -1
    ts: float = 0.0
    dur: float = 0.0
class Trace(msgspec.Struct):
    traceEvents: list[Event]
with open(sys.argv[1], "rb") as file:
    print(len(msgspec.json.decode(file.read(), type=Trace).traceEvents), "events")
"""

HTA = """
import os, sys
os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files=dict(enumerate(sys.argv[1:])))
print(analysis.get_comm_comp_overlap(visualize=False).to_dict("records"))
"""

PANDAS = """
import json, sys
import numpy as np
import pandas as pd
with open(sys.argv[1]) as file:
    events = pd.DataFrame(json.load(file)["traceEvents"])
kernels = events[events["cat"] == "kernel"]
start = np.rint(kernels["ts"].to_numpy(float) * 1000).astype("int64")
end = start + np.rint(kernels["dur"].to_numpy(float) * 1000).astype("int64")
comm = kernels["name"].str.contains("nccl").to_numpy()
edges = np.unique(np.concatenate([start, end]))
depth = [np.cumsum(np.bincount(np.searchsorted(edges, start[side]), minlength=edges.size)
         - np.bincount(np.searchsorted(edges, end[side]), minlength=edges.size)) > 0 for side in (comm, ~comm)]
length = np.append(np.diff(edges), 0)
print(f"overlap {length[depth[0] & depth[1]].sum()} of communication {length[depth[0]].sum()} ns")
"""


def tile(source: Path, target: Path, events: int) -> None:
    """Write a trace of about `events` events: those of `source` again and again, in torch's own layout."""
    document = json.loads(gzip.decompress(source.read_bytes()), parse_float="@{}@".format)  # as they are spelled
    events_of = {True: list[str](), False: list[str]()}  # by whether they are repeated
    for event in document.pop("traceEvents"):
        events_of[event["ph"] in "Xsf" and event.get("cat") != "Trace"].append(_as_torch(event))
    repeated, once = events_of[True], events_of[False]
    parts = _MOVED.split(",\n".join(repeated))  # text, key, number, text, key, number, …, text
    numbers = [int(number) for number in parts[2::3]]
    times = [number for key, number in zip(parts[1::3], numbers, strict=True) if "ts" in key]
    steps = [number for key, number in zip(parts[1::3], numbers, strict=True) if "Step" in key]
    ids = [number for key, number in zip(parts[1::3], numbers, strict=True) if "ts" not in key and "Step" not in key]
    moves = {'"ts": ': max(times) - min(times) + 10_000, "ProfilerStep#": max(steps) + 1}
    by = [moves.get(key, max(ids) + 1) for key in parts[1::3]]
    partial = target.with_suffix(".partial")
    with partial.open("w") as file:
        file.write(_as_torch(document).removesuffix("\n  }") + ',\n  "traceEvents": [\n')
        for turn in range(max(1, round(events / len(repeated)))):
            parts[2::3] = [str(number + turn * move) for number, move in zip(numbers, by, strict=True)]
            file.write("".join(parts) + ",\n")
        file.write(",\n".join(once) + "\n  ]\n}\n")
    partial.rename(target)


def _as_torch(value: dict[str, Any]) -> str:
    """An object as torch prints an event, a line a member."""
    lines = ",\n".join(f'    "{key}": {json.dumps(each)}' for key, each in value.items())
    return re.sub(r'"@([^"]*)@"', r"\1", f"  {{\n{lines}\n  }}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hta", default=os.environ.get("TRACEVIZ_HTA_PYTHON"), help="Python that has HTA")
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peer-repeats", type=int, default=1, help="of the slow ones")
    parser.add_argument("--no-peers", action="store_true", help="leave out HTA and pandas")
    parser.add_argument("--gzip", action="store_true", help="read the trace compressed")
    options = parser.parse_args()
    os.environ["TRACEVIZ_CACHE"] = "off"  # each round reads and works out anew
    trace = HERE / "data" / f"kineto-{options.events}.json"
    trace.parent.mkdir(exist_ok=True)
    if not trace.exists():
        tile(SOURCE, trace, options.events)
    path = trace
    if options.gzip:
        path = trace.with_suffix(".json.gz")
        if not path.exists():
            path.write_bytes(gzip.compress(trace.read_bytes(), compresslevel=6))
    check = [sys.executable, "-m", "traceviz", "check-overlap", str(path), "--min-overlap", "0%"]
    commands = {"traceviz": check, "traceviz, read alone": [sys.executable, "-c", OURS, str(path)]}
    commands |= {f"traceviz {name}": [sys.executable, "-m", "traceviz", name, str(path)] for name in OTHERS}
    if not options.gzip:
        commands["msgspec, decode alone"] = [sys.executable, "-c", MSGSPEC, str(path)]
    if not options.gzip and not options.no_peers:
        commands["json + pandas"] = [sys.executable, "-c", PANDAS, str(path)]
    if options.hta and not options.no_peers:
        commands["HTA"] = [options.hta, "-c", HTA, str(path)]
    elif not options.no_peers:
        print("HTA is left out: give its Python by --hta or $TRACEVIZ_HTA_PYTHON.")
    slow = {"json + pandas", "HTA"}
    results = compare(commands, lambda name: options.peer_repeats if name in slow else options.repeats)
    print(f"{path.name}: {path.stat().st_size / 1e6:.0f} MB")
    print(table(results, "traceviz"))
    busy = {result.name: result.busy_seconds for result in results}
    read = busy["traceviz, read alone"]
    print(bar("check-overlap, of reading alone", busy["traceviz"], BAR_CHECK * read))
    if "msgspec, decode alone" in busy:
        print(bar("check-overlap, of the bare decode", busy["traceviz"], BAR_DECODE * busy["msgspec, decode alone"]))
    print(*(bar(name, busy[f"traceviz {name}"], BAR_OTHERS * read) for name in OTHERS), sep="\n")
    for result in results:
        print(f"{result.name}: {result.output.strip().splitlines()[0]}")


if __name__ == "__main__":
    main()
