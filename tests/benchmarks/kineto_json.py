"""A torch.profiler trace of 2 million events: the commands beside reading alone and a bare decode.

    python -m tests.benchmarks.kineto_json [--events 2000000] [--rounds 3] [--against FOLDER]

The trace is a real capture repeated in time, with times and ids moved on, in the layout torch prints; it stays in
tests/benchmarks/data/. The bare decode is msgspec's, of the same bytes, into typed events. Bars, of CPU: check-overlap
at most 1.3 times reading alone and twice the bare decode, other commands twice reading alone.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import sys
from pathlib import Path
from typing import Any

from tests.benchmarks.timing import bar, command_of, in_turn, ratio, table

HERE = Path(__file__).parent
SOURCE = HERE.parent / "data" / "torch" / "ddp.rank0.json.gz"
EVENTS = 2_000_000
OTHERS = ("collectives", "syncs", "streams")
BAR_CHECK, BAR_DECODE, BAR_OTHERS = 1.3, 2.0, 2.0
_MOVED = re.compile(r'("ts": |"(?:External id|correlation|Sequence number|id)": |ProfilerStep#)(\d+)')

READ, DECODE = "reading", "bare decode"
OURS = "import sys, pathlib; from analyzers.readers.kineto.kineto_trace import read; read(pathlib.Path(sys.argv[1]))"
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
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--against", type=Path, action="append", default=[], help="another working tree")
    asked = parser.parse_args()
    path = HERE / "data" / f"kineto-{asked.events}.json"
    path.parent.mkdir(exist_ok=True)
    if not path.exists():
        tile(SOURCE, path, asked.events)
    commands = {READ: [sys.executable, "-c", OURS, str(path)], DECODE: [sys.executable, "-c", MSGSPEC, str(path)]}
    for name, words in (("check-overlap", ["--min-overlap", "0%"]), *((name, []) for name in OTHERS)):
        commands[name] = [sys.executable, "-m", "traceviz", name, str(path), *words]
        commands |= {f"{name}, {tree.name}": command_of(tree, name, str(path), *words) for tree in asked.against}
    runs = in_turn(commands, asked.rounds)
    print(table(runs, READ))
    print(bar("check-overlap, of reading", ratio(runs, "check-overlap", READ), BAR_CHECK))
    print(bar("check-overlap, of a bare decode", ratio(runs, "check-overlap", DECODE), BAR_DECODE))
    print(*(bar(f"{name}, of reading", ratio(runs, name, READ), BAR_OTHERS) for name in OTHERS), sep="\n")


if __name__ == "__main__":
    main()
