"""GPU counters in exports: tracks in Perfetto, a table in Parquet and SQLite, and back."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from analyzers.export.parquet import to_parquet
from analyzers.export.perfetto import to_perfetto
from analyzers.export.sqlite import to_sqlite
from analyzers.load import load
from analyzers.trace.narrow import clip
from tests.support import counters as raw
from tests.support.builder import Builder

AFTER = raw.CONTEND / "contend_after.sqlite.gz"


def test_perfetto_has_a_track_for_each_counter_that_was_sampled(tmp_path: Path) -> None:
    run = Builder()
    rank = run.rank(0)
    rank.kernel("nccl", 1, 0, 5000)
    rank.kernel("gemm", 2, 0, 5000)
    for at, tensor, clock in ((0, 7, 1500), (1000, 9, -1), (4000, 8, 1600)):
        run.add("counters", process=0, device=0, start_ns=at, end_ns=at + 1000, tensor_active=tensor, gpc_clock=clock)
    events = json.loads(to_perfetto(run.trace(), tmp_path / "x.json").read_text())["traceEvents"]
    gpu = {event["pid"] for event in events if event["ph"] == "X" and event["name"] == "gemm"}
    found = [event for event in events if event["ph"] == "C"]
    assert {event["pid"] for event in found} == gpu
    tracks: dict[str, list[tuple[float, int]]] = {}
    for event in found:
        tracks.setdefault(event["name"], []).append((event["ts"], event["args"]["value"]))
    assert tracks == {
        "tensor active, %": [(0, 7), (1, 9), (2, 0), (4, 8), (5, 0)],
        "GPC clock, MHz": [(0, 1500), (1, 0), (4, 1600), (5, 0)],
    }


def test_a_part_has_the_samples_of_its_time(tmp_path: Path) -> None:
    """From the launch of its first op on, as of the other tables."""
    whole = load([AFTER])
    trace = clip(whole, 40_000_000, 41_000_000)
    again = load([to_parquet(trace, tmp_path / "out")])
    with closing(sqlite3.connect(to_sqlite(whole, tmp_path / "out.db"))) as database:
        rows = database.execute("SELECT count(*), sum(tensor_active), max(gpc_clock) FROM counters").fetchone()
    own = whole.counters.to_frame()
    assert rows == (len(own), int(own["tensor_active"].sum()), int(own["gpc_clock"].max()))
    first = int(trace.api.to_frame()["start_ns"].iloc[trace.ops.to_frame()["launch"]].min())
    inside = (whole.counters.to_frame()["end_ns"] >= first) & (whole.counters.to_frame()["start_ns"] <= 41_000_000)
    assert (
        len(again.counters)
        == (inside & whole.counters.to_frame()["process"].isin(trace.ops.to_frame()["process"])).sum()
    )
