"""A real launch queue that fills, against the capture's own events, counted one by one."""

from __future__ import annotations

import gzip
import json

from analyzers.verdict.check import check_overlap
from tests.support.captures import DATA, one_capture


def test_a_launch_queue_that_really_filled_is_named() -> None:
    """1,700 kernels of 36 µs on stream 13, launched faster than they ran, then one on stream 17."""
    (rank,) = check_overlap(one_capture("torch/full_queue.json.gz"), "stream:17", "stream:13").ranks
    late = next(one for one in rank.missed if one.cause == "late-launch")
    events = json.loads(gzip.decompress((DATA / "torch" / "full_queue.json.gz").read_bytes()))["traceEvents"]
    kernels = {e["args"]["correlation"]: e for e in events if e.get("cat") == "kernel" and e["args"]["stream"] == 13}
    calls = [e for e in events if e.get("cat") == "cuda_runtime" and e["args"]["correlation"] in kernels]
    starts = sorted(e["ts"] for e in kernels.values())
    waited = 0.0
    for number, call in enumerate(sorted(calls, key=lambda e: float(e["ts"]))):
        ahead = number - sum(start <= call["ts"] for start in starts)
        assert ahead <= 1021  # no stream holds more
        waited += call["dur"] if ahead == 1021 else 0
    assert waited > 16_000
    assert f"; {waited / 1000:.1f} ms of it its launch queue was full" in late.evidence
    assert late.next_cause == "late-launch" and "a full launch queue" in late.next_behind
