"""Make a torch.profiler trace small before it becomes a fixture.

    python tests/data/slim_torch.py TRACE.json.gz FIXTURE.json.gz [--steps 8 --ended-by optimizer] [--no-leaves]

What no reader of a trace looks at goes, in any case: flow arrows, annotations drawn on the GPU's rows, Python's calls,
and fields such as occupancy estimates. `--steps` cuts whole steps off the tail: host events that begin later go, ranges
around the cut end there, GPU work goes with its launch. Give all ranks of a run the same number. `--no-leaves` drops
operators that called neither CUDA nor NCCL and have no backward. `--keep` names categories of what is no span: memory's
by default, `fwdbwd` for arrows to backward.

Times keep their digits. Packed by libdeflate where it is installed (`pip install deflate`): 8 % less than gzip.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

Event = dict[str, Any]
CALLS = ("cuda_runtime", "cuda_driver")
ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset", "cuda_sync")
KEPT = ("cpu_instant_event",)  # of what is no span: how memory changed
UNREAD = ("gpu_user_annotation", "python_function")
UNREAD_ARGS = (
    *("Record function id", "Ev Idx", "cbid", "queued", "blocks per SM", "warps per SM", "est. achieved occupancy %"),
    *("memory bandwidth (GB/s)", "Concrete Inputs", "Input Strides", "Input type", "cuda_sync_kind", "Addr", "Bytes"),
    *("Python parent id", "Python id", "Call stack"),
)
BEGIN, END = "\ue000", "\ue001"  # around the digits of a number, in a text


class Digits(str):
    """A number as it was printed."""

    __slots__ = ()


def read(path: Path) -> dict[str, Any]:
    """A trace, its decimal numbers as `Digits`."""
    document: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()), parse_float=Digits)
    return document


def text(document: dict[str, Any]) -> str:
    """A trace as JSON, an event a line."""
    head = {key: value for key, value in document.items() if key != "traceEvents"}
    events = ",\n".join(json.dumps(_marked(event)) for event in document["traceEvents"])
    whole = f'{json.dumps(_marked(head))[:-1]}, "traceEvents": [\n{events}\n]}}\n'
    return re.sub(rf'"{_escaped(BEGIN)}([^"]*){_escaped(END)}"', r"\1", whole)


def _escaped(sign: str) -> str:
    return re.escape(json.dumps(sign).strip('"'))


def _marked(value: Any) -> Any:
    if isinstance(value, Digits):
        return f"{BEGIN}{value}{END}"
    if isinstance(value, dict):
        return {key: _marked(one) for key, one in value.items()}
    return [_marked(one) for one in value] if isinstance(value, list) else value


def packed(data: bytes) -> bytes:
    """Gzipped, without a name and a date."""
    try:
        import deflate
    except ImportError:
        return gzip.compress(data, 9, mtime=0)
    return bytes(deflate.gzip_compress(data, 12))


def read_by_somebody(events: Iterable[Event], keep: Sequence[str]) -> list[Event]:
    """Events and fields without those that no reader looks at; of what is no span, the categories to keep."""
    return [
        {**event, "args": _needed(event)} if "args" in event else event
        for event in events
        if event.get("cat") not in UNREAD and (event["ph"] == "X" or event.get("cat") in keep)
    ]


def _needed(event: Event) -> Event:
    unread = (*UNREAD_ARGS, "External id") if event["cat"] in (*CALLS, *ON_GPU) else UNREAD_ARGS
    return {key: value for key, value in event["args"].items() if key not in unread}


def start(event: Event) -> Decimal:
    """In microseconds."""
    return Decimal(event["ts"])


def end(event: Event) -> Decimal:
    return start(event) + Decimal(event.get("dur", 0))


def cut(events: list[Event], at: Decimal) -> list[Event]:
    """What begins before an instant on the host, and the GPU work launched before it."""
    gone = {event["args"]["correlation"] for event in events if event.get("cat") in CALLS and start(event) >= at}
    kept = [
        event
        for event in events
        if (event["args"]["correlation"] not in gone if event.get("cat") in ON_GPU else start(event) < at)
    ]
    return [_ended(event, at) if event.get("cat") == "user_annotation" else event for event in kept]


def _ended(event: Event, at: Decimal) -> Event:
    return event if end(event) <= at else {**event, "dur": Digits(at - start(event))}


def without_leaves(events: list[Event]) -> list[Event]:
    """Without operators in which nothing was called, and to which no backward belongs."""
    called = defaultdict(list)
    for event in events:
        if event.get("cat") in CALLS or event["name"] == "record_param_comms":
            called[event["tid"]].append(start(event))
    for instants in called.values():
        instants.sort()

    def calls(event: Event) -> bool:
        instants = called[event["tid"]]
        return bisect_right(instants, end(event)) > bisect_left(instants, start(event))

    return [
        event for event in events if event.get("cat") != "cpu_op" or "Sequence number" in event["args"] or calls(event)
    ]


def slim(
    document: dict[str, Any],
    steps: int | None = None,
    ended_by: str = "",
    leaves: bool = True,
    keep: Sequence[str] = KEPT,
) -> dict[str, Any]:
    """A trace made small."""
    events = read_by_somebody(document["traceEvents"], keep)
    if steps is not None:
        last = sorted(end(event) for event in events if event["name"] == ended_by and event["cat"] == "user_annotation")
        events = cut(events, last[steps - 1])
    return {**document, "traceEvents": events if leaves else without_leaves(events), "traceName": ""}


def main() -> None:
    """Make one trace small."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--ended-by", default="", help="the range whose end is the end of a step")
    parser.add_argument("--no-leaves", action="store_true")
    parser.add_argument("--keep", nargs="*", default=KEPT, metavar="CATEGORY")
    given = parser.parse_args()
    small = slim(read(given.source), given.steps, given.ended_by, not given.no_leaves, given.keep)
    given.target.write_bytes(packed(text(small).encode()))


if __name__ == "__main__":
    main()
