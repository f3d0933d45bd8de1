"""Devices of which Kineto says little: busy times and overlap by stream, and a limit that names the category."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

import traceviz as tv
from analyzers.info import info
from analyzers.syncs.order_report import order_report
from tests.support.brute import busy_and_overlap, ns


@pytest.mark.parametrize(
    ("runtime", "host", "work"),
    [
        ("MTIA", "mtia_runtime", "mtia_ccp_events"),
        ("HPU", "cpu_op", "hpu_op"),
        ("PrivateUse1", "privateuse1_runtime", "kernel"),
    ],
)
@pytest.mark.parametrize("texts", [False, True])
def test_busy_and_overlap_by_stream(tmp_path: Path, runtime: str, host: str, work: str, texts: bool) -> None:
    """`texts`: times are texts, as some of these profilers print them."""
    random, events = Random(runtime), []
    for number in range(40):
        times = {"ts": 1000 + 7 * number, "dur": random.randrange(1, 9000) / 1000}
        said = {"correlation": number, "stream": number % 2, "device": 0}
        events.append({"ph": "X", "cat": host, "name": "launch", "pid": 9, "tid": 9, "ts": times["ts"] - 3.5, "dur": 1})
        events[-1]["args"] = {"correlation": number}
        events.append(
            {"ph": "X", "cat": work, "name": f"op {number % 3}", "pid": 0, "tid": number % 2, **times, "args": said}
        )
    if texts:
        events = [{**one, "ts": str(one["ts"]), "dur": str(one["dur"])} for one in events]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    spans: dict[int, list[tuple[int, int]]] = {0: [], 1: []}
    for one in events:
        if one["cat"] == work:
            spans[one["tid"]].append((ns(one["ts"]), ns(one["ts"]) + ns(one["dur"])))
    trace = tv.load(path).data
    (rank,) = tv.check_overlap(trace, "stream:0", "stream:1").ranks
    assert (rank.a.busy_ns, rank.b.busy_ns, rank.overlap_ns) == busy_and_overlap(spans[0], spans[1])
    assert trace.captures[0].runtime == runtime
    category = host if runtime != "HPU" else work
    assert any(f"'{category.split('_')[0]}_…'" in text for text in info(trace).cannot)
    assert not order_report(trace).crossings.missing
    assert "unknown-events" not in {one.code for one in trace.warnings}
