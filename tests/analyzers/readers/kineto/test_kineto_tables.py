"""Every column that has a direct meaning, against a slow and obvious reading with json and Decimal."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analyzers.readers.kineto import kineto_trace as kineto
from analyzers.trace.tables import Trace
from tests.support.kineto_files import one_way

DATA = Path(__file__).parents[3] / "data" / "torch"
FILES = sorted(DATA.glob("*.json.gz"))
GPU = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}
CALLS = ("cuda_runtime", "cuda_driver")
RANGES = {"cpu_op": "op", "user_annotation": "annotation", "python_function": "python"}
SYNCS = {"Stream Wait Event": "stream_wait", "Event Sync": "event", "Stream Sync": "stream", "Context Sync": "device"}
COPIES = {
    "Memcpy DtoH (Device -> Pinned)": ("DtoH", "device", "pinned"),
    "Memcpy DtoH (Device -> Pageable)": ("DtoH", "device", "pageable"),
    "Memcpy DtoD (Device -> Device)": ("DtoD", "device", "device"),
}
Rows = list[dict[str, Any]]


class Oracle:
    """The tables as lists of rows, one event at a time."""

    def __init__(self, path: Path) -> None:
        text = path.read_bytes()
        text = gzip.decompress(text) if path.suffix == ".gz" else text
        self.document = json.loads(text, parse_float=Decimal)
        events = self.document["traceEvents"] if isinstance(self.document, dict) else self.document
        complete = [event for event in events if event.get("ph") == "X"]
        self.zero = min(ns(event["ts"]) for event in complete)
        self.calls = [event for event in complete if event["cat"] in CALLS]
        self.gpu = [event for event in complete if event["cat"] in GPU]
        self.cpu = [event for event in complete if event["cat"] in RANGES]
        self.syncs = [event for event in complete if event["cat"] == "cuda_sync"]
        self.of_graphs = {c["args"]["correlation"] for c in self.calls if c["name"] == "cudaGraphLaunch"}

    def times(self, event: dict[str, Any]) -> dict[str, int]:
        start = ns(event["ts"]) - self.zero
        return {"start_ns": start, "end_ns": start + ns(event["dur"])}

    def launch(self, correlation: int) -> int:
        for row, call in enumerate(self.calls):
            if call["args"]["correlation"] == correlation:
                return row
        return -1

    def ops(self) -> Rows:
        rows = []
        first = {}
        for row, call in enumerate(self.calls):
            first.setdefault(call["args"]["correlation"], row)
        for event in self.gpu:
            args = event["args"]
            copy = COPIES[event["name"]] if event["cat"] == "gpu_memcpy" else ("", "", "")
            rows.append(
                {
                    "process": 0,
                    "rank": -1,
                    "device": event["pid"],
                    "context": args["context"],
                    "stream": event["tid"],
                    "kind": GPU[event["cat"]],
                    "name": event["name"],
                    "correlation": args["correlation"],
                    "launch": first.get(args["correlation"], -1),
                    "bytes": args.get("bytes", -1),
                    "copy": copy[0],
                    "source_memory": copy[1],
                    "target_memory": copy[2],
                    "grid": volume(args.get("grid")),
                    "block": volume(args.get("block")),
                    "registers": args.get("registers per thread", -1),
                    "shared_bytes": args.get("shared memory", -1),
                    "graph": self.graph(args),
                    **self.times(event),
                }
            )
        return rows

    def graph(self, args: dict[str, Any]) -> int:
        """0 for a node of a CUDA graph: these captures number none, and a graph's launch is its nodes' call."""
        return 0 if args.get("correlation") in self.of_graphs else -1

    def api(self) -> Rows:
        return [
            {
                "process": 0,
                "thread": call["tid"],
                "name": call["name"],
                "correlation": call["args"]["correlation"],
                **self.times(call),
            }
            for call in self.calls
        ]

    def ranges(self) -> Rows:
        rows = []
        for event in self.cpu:
            args = event["args"]
            rows.append(
                {
                    "process": 0,
                    "thread": event["tid"],
                    "kind": RANGES[event["cat"]],
                    "name": event["name"],
                    "domain": "",
                    "id": args.get("External id", -1),
                    "sequence": args.get("Sequence number", -1),
                    **self.times(event),
                }
            )
        return rows

    def sync_rows(self) -> Rows:
        return [
            {
                "process": 0,
                "context": event["args"].get("context", -1),
                "stream": event["args"].get("stream", -1),
                "kind": SYNCS[event["name"]],
                "correlation": event["args"]["correlation"],
                "event": event["args"].get("wait_on_cuda_event_id", -1),
                "event_sync": -1,
                "record_correlation": event["args"].get("wait_on_cuda_event_record_corr_id", -1),
                "record_stream": event["args"].get("wait_on_stream", -1),
                **self.times(event),
            }
            for event in self.syncs
        ]

    def records(self) -> Rows:
        return [
            {"process": 0, "context": -1, "stream": -1, "correlation": c["args"]["correlation"], "event": -1}
            for c in self.calls
            if c["name"] in ("cudaEventRecord", "cudaEventRecordWithFlags")
        ]

    def comms(self) -> Rows:
        """Each NCCL kernel with the record_param_comms around its launch, then those around no kernel."""
        calls = [event for event in self.cpu if event["name"] == "record_param_comms"]
        rows, used = [], set()
        for event in self.gpu:
            if "nccl" not in event["name"]:
                continue
            call = self.calls[self.launch(event["args"]["correlation"])]
            around = [
                other
                for other in calls
                if other["tid"] == call["tid"] and other["ts"] <= call["ts"] <= other["ts"] + other["dur"]
            ]
            (around,) = around  # no call lies within another in these captures
            used.add(id(around))
            rows.append(self.comm(around, event["args"]["correlation"]))
        return rows + [self.comm(event, -1) for event in calls if id(event) not in used]

    def comm(self, event: dict[str, Any], correlation: int) -> dict[str, Any]:
        args = event["args"]
        return {
            "process": 0,
            "correlation": correlation,
            "thread": event["tid"],
            "operation": args["Collective name"],
            "bytes": -1,
            "in_elements": args["In msg nelems"],
            "out_elements": args["Out msg nelems"],
            "dtype": args["dtype"],
            "group": args["Process Group Name"],
            "group_ranks": args["Process Group Ranks"],
            "group_size": args["Group size"],
            "sequence": -1,
            "communicator": -1,
            "peer": -1,
            **self.times(event),
        }


def ns(microseconds: Decimal | int) -> int:
    return int(Decimal(microseconds) * 1000)


def volume(sizes: list[int] | None) -> int:
    return -1 if sizes is None else int(np.prod(sizes))


def assert_equal(trace: Trace, oracle: Oracle) -> None:
    expected = {
        "ops": oracle.ops(),
        "api": oracle.api(),
        "ranges": oracle.ranges(),
        "syncs": oracle.sync_rows(),
        "records": oracle.records(),
        "comms": oracle.comms(),
    }
    for name, rows in expected.items():
        frame = getattr(trace, name).to_frame()
        assert len(frame) == len(rows), name
        for column in rows[0] if rows else ():
            assert frame[column].tolist() == [row[column] for row in rows], f"{name}.{column}"


@pytest.mark.parametrize("exact", [False, True], ids=["quick", "exact"])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.removesuffix(".json.gz"))
def test_tables_hold_what_the_file_says(path: Path, exact: bool) -> None:
    assert_equal(one_way(path, exact=exact), Oracle(path))


def test_all_captures_are_here() -> None:
    assert len(FILES) == 34


@pytest.mark.parametrize("rank", [0, 1])
def test_backward_ops_name_the_thread_their_flow_comes_from(rank: int) -> None:
    path = DATA / f"ddp.rank{rank}.json.gz"
    events, trace = Oracle(path).document["traceEvents"], kineto.read(path)
    zero = Oracle(path).zero
    flows = [event for event in events if event.get("cat") == "fwdbwd"]
    source = {event["id"]: event["tid"] for event in flows if event["ph"] == "s"}
    ranges = trace.ranges.to_frame()[trace.ranges.to_frame()["forward_thread"] >= 0]
    found = {(row.thread, row.start_ns): row.forward_thread for row in ranges.itertuples()}
    ends = [event for event in flows if event["ph"] == "f"]
    assert len(ends) == 792
    for event in ends:
        assert found[event["tid"], ns(event["ts"]) - zero] == source[event["id"]]
