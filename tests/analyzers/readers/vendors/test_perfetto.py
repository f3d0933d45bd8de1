"""Perfetto's binary traces of torch.profiler and rocprofv3, made of JSON in their layouts: the same, to the ns."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

import traceviz as tv
from analyzers.common.errors import TracevizError
from analyzers.common.progress import silent
from analyzers.load import load
from analyzers.readers.perfetto import packets
from analyzers.readers.perfetto import rocprof as by_rocprofv3
from analyzers.readers.perfetto.perfetto_trace import read
from tests.support.made import pftrace, rocprof
from tests.support.made.wire import block, number
from tests.support.nightly import mostly_nightly
from traceviz.output import contract

DATA = Path(__file__).parents[3] / "data"
CAPTURES = ("graph_nodes", "dpmp_hidden_sync.rank0", "a2a_async.rank1", "ddp.rank0", "opt_overlap.rank0")
TABLES = ("ops", "api", "ranges", "syncs", "records", "comms", "devices", "memory")


def held(name: str) -> dict[str, Any]:
    """A real capture, without what a .pftrace can't hold; times as they are printed."""
    text = gzip.decompress((DATA / "torch" / f"{name}.json.gz").read_bytes())
    return pftrace.held(json.loads(text, parse_float=str))


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def pair(folder: Path, name: str) -> tuple[Path, Path]:
    """One capture as JSON and as .pftrace."""
    content = held(name)
    return (
        written(folder / f"{name}.json", json.dumps(content).encode()),
        written(folder / f"{name}.pftrace", gzip.compress(pftrace.torch(content), 1)),
    )


@pytest.mark.parametrize("name", mostly_nightly(CAPTURES, lambda name: name == "dpmp_hidden_sync.rank0"))
def test_torchs_pftrace_has_the_tables_and_answers_of_its_json(tmp_path: Path, name: str) -> None:
    one, other = pair(tmp_path, name)
    from_json, from_pftrace = load([one]), load([other])
    for table in TABLES:
        assert (
            getattr(from_json, table).to_frame().astype(str).equals(getattr(from_pftrace, table).to_frame().astype(str))
        ), table
    assert from_json.warnings == from_pftrace.warnings
    assert from_json.captures[0].start_utc_ns == from_pftrace.captures[0].start_utc_ns
    first, second = (contract.overlap(tv.check_overlap(path, "comm", "compute")) for path in (one, other))
    assert json.dumps(first).replace(".json", "") == json.dumps(second).replace(".pftrace", "")


def test_slices_that_touch_stay_beside_each_other(tmp_path: Path) -> None:
    """A group's begins come first, then its ends: by a stack, [0, 10) [10, 20) would be [0, 20) and [10, 10)."""
    spans = [(0, 100, "outer"), (0, 10, "a"), (10, 20, "b"), (20, 20, "c"), (20, 30, "d")]
    events = [
        {"ph": "X", "cat": "user_annotation", "name": name, "pid": 7, "tid": 7, "ts": start, "dur": end - start}
        for start, end, name in spans
    ]
    for one in events:
        one["args"] = {}
    base = 1_700_000_000_000_000_000
    path = written(tmp_path / "x.pftrace", pftrace.torch({"baseTimeNanoseconds": base, "traceEvents": events}))
    ranges = read(path, silent).ranges.to_frame()
    found = list(zip(ranges["start_ns"], ranges["end_ns"], ranges["name"], strict=True))
    assert found == [(start * 1000, end * 1000, name) for start, end, name in spans]


@pytest.mark.parametrize(("seed", "how"), [(0, {"untold": True}), (1, {"by_queue": True}), (2, {})])
def test_rocprofv3s_pftrace_has_the_tables_of_its_json(tmp_path: Path, seed: int, how: dict[str, bool]) -> None:
    """But for devices, which have the numbers of agents, the CPU's being 0, and of which sizes are not said."""
    text = rocprof.capture(seed).replace('"x": 1,', '"x": 2048,')
    content = json.loads(text)
    for one in content["rocprofiler-sdk-tool"][0]["buffer_records"]["kernel_dispatch"]:
        info = one["dispatch_info"]
        info["grid_size"]["x"] *= info["workgroup_size"]["x"]  # HIP launches whole blocks
    marks = content["rocprofiler-sdk-tool"][0]["buffer_records"]["marker_api"]
    marks.append({**marks[0], "correlation_id": {"internal": 99_999}})  # a call of roctx without a text is no range
    text = json.dumps(content)
    one = written(tmp_path / "1_results.json", text.encode())
    other = written(tmp_path / "1_results.pftrace", pftrace.rocprofv3(text, **how))
    from_json, from_pftrace = load([one]), load([other])
    assert (from_pftrace.ops.to_frame()["device"] == from_json.ops.to_frame()["device"] + 1).all()
    for table in set(TABLES) - {"devices"}:
        first, second = (
            getattr(each, table).to_frame().drop(columns="device", errors="ignore")
            for each in (from_json, from_pftrace)
        )
        assert first.astype(str).equals(second.astype(str)), table
    assert from_pftrace.processes[0].pid == 4711


def test_streams_that_no_version_says_are_queues_and_that_is_said(tmp_path: Path) -> None:
    content = pftrace.rocprofv3(rocprof.capture(), by_queue=True, untold=True)
    trace = load([written(tmp_path / "1_results.pftrace", content)])
    kernels = trace.ops.to_frame()[trace.ops.to_frame()["block"] >= 0]
    assert set(kernels["stream"]) == {rocprof.MAIN - 1, rocprof.SIDE - 1}  # queues, as they are numbered in the file
    assert any("which HIP stream" in text for text in trace.captures[0].lacks)
    told = load([written(tmp_path / "2_results.pftrace", pftrace.rocprofv3(rocprof.capture()))])
    assert not any("which HIP stream" in text for text in told.captures[0].lacks)


def of_process(track: int, pid: int) -> bytes:
    """A packet that calls one of the made tracks a thread of a process."""
    return block(1, block(60, number(1, track) + block(4, number(1, pid) + number(2, pid))))


def test_several_processes_of_rocpd_are_refused_and_one_has_its_own_pid(tmp_path: Path) -> None:
    """Kernels don't say their process; the writer's own is described, too."""
    content = pftrace.rocprofv3(rocprof.capture())
    alone = load([written(tmp_path / "1_results.pftrace", content + of_process(7_001, 8_822))])
    assert [one.pid for one in alone.processes] == [8_822]
    two = content + of_process(7_001, 8_822) + of_process(7_002, 8_823)
    said = refused(written(tmp_path / "2_results.pftrace", two))
    assert "2 processes (8822, 8823)" in said
    assert "file for each process" in said


def test_beside_json_of_the_same_that_is_read(tmp_path: Path) -> None:
    """rocprofv3 writes several formats of a process at once."""
    text = rocprof.capture()
    written(tmp_path / "1_results.json", text.encode())
    alone = written(tmp_path / "1_results.pftrace", pftrace.rocprofv3(text))
    assert [Path(one.path).name for one in load([tmp_path]).captures] == ["1_results.json"]
    assert [Path(one.path).name for one in load([alone]).captures] == ["1_results.pftrace"]


def test_what_it_lacks_is_said(tmp_path: Path) -> None:
    lacks = " ".join(load([pair(tmp_path, "dpmp_hidden_sync.rank0")[1]]).captures[0].lacks)
    for what in ("sizes of the GPUs", "directions of copies", "ranks"):
        assert what in lacks


def refused(path: Path) -> str:
    with pytest.raises(TracevizError) as refusal:
        load([path])
    assert "\n" not in str(refusal.value).strip()
    return str(refusal.value)


def test_a_damaged_file_is_refused_or_says_what_it_left_out(tmp_path: Path) -> None:
    whole, random = pftrace.torch(held("graph_nodes")), Random(0)
    for _ in range(25):
        content = bytearray(whole)
        for _ in range(8):
            content[random.randrange(len(content))] = random.randrange(256)
        path = written(tmp_path / "x.pftrace", bytes(content))
        try:
            load([path], align=False)
        except TracevizError as error:
            assert "\n" not in str(error).strip()
    assert "damaged" in refused(written(tmp_path / "y.pftrace", bytes(random.randbytes(5000))))


@pytest.mark.parametrize(
    ("packet", "what"),
    [
        (block(60, number(1, 5)), "none of torch.profiler or rocprofv3"),
        (block(50, b"\x78\x9c"), "compressed"),
        (block(11, b"\xff\xff"), "damaged"),
    ],
)
def test_other_perfetto_traces_are_named(tmp_path: Path, packet: bytes, what: str) -> None:
    assert what in refused(written(tmp_path / "x.perfetto-trace", block(1, packet)))


def test_a_clock_of_its_own_is_refused(tmp_path: Path) -> None:
    content = pftrace.rocprofv3(rocprof.capture())
    assert "clocks" in refused(written(tmp_path / "x.pftrace", content.replace(number(58, 6), number(58, 64))))


def test_a_cpu_is_no_gpu_of_its_number() -> None:
    one = packets.Slice(1, "memory_copy", "", 0, {"src_agent": "CPU-0", "dst_agent": "GPU-0"})
    assert [by_rocprofv3._agent(one, end) for end in ("src_agent", "dst_agent")] == [-1, 0]


def event(kind: int, track: int, at: int, name: bytes = b"", flags: int = 0, more: bytes = b"") -> bytes:
    """A packet of one sequence: a slice begins (1) or ends (2)."""
    content = block(11, number(9, kind) + number(11, track) + name)
    return block(1, number(8, at) + number(10, 1) + number(13, flags) + content + more)


def test_an_end_is_that_of_the_next_slice_that_began_on_its_track(tmp_path: Path) -> None:
    """No later end is taken for that of b, which never ends, nor one of another track for that of d."""
    a, b, c, d = (block(23, name) for name in "abcd")
    content = event(1, 1, 0, a) + event(1, 1, 5, b) + event(2, 1, 10) + event(1, 1, 20, c) + event(2, 1, 30)
    content += event(1, 1, 50, d) + event(2, 2, 60) + event(2, 1, 70)
    found = packets.packets(written(tmp_path / "x.pftrace", content), silent)
    assert [(one.name, one.start, one.end) for one in found.slices] == [("a", 0, 10), ("c", 20, 30), ("d", 50, 70)]
    assert found.unpaired == 2


def test_names_are_forgotten_where_a_sequence_begins_anew(tmp_path: Path) -> None:
    known = block(12, block(2, number(1, 1) + block(2, "known")))
    content = event(1, 1, 0, number(10, 1), 1, known) + event(2, 1, 1) + event(1, 1, 2, number(10, 1)) + event(2, 1, 3)
    content += event(1, 1, 4, number(10, 1), 1) + event(2, 1, 5)
    found = packets.packets(written(tmp_path / "x.pftrace", content), silent)
    assert [one.name for one in found.slices] == ["known", "known", ""]


def test_what_was_lost_is_said(tmp_path: Path) -> None:
    content = pftrace.rocprofv3(rocprof.capture())
    ends = [block(11, number(9, 2) + number(11, 7_001))]
    stray = block(1, number(8, 1) + number(58, 6) + number(10, 3) + ends[0])
    dropped = block(1, number(10, 3) + number(42, 1))
    full = block(1, block(35, block(1, number(18, 5))))
    for more, code in ((stray, "unreadable-events"), (dropped, "lost-work"), (full, "lost-work")):
        trace = load([written(tmp_path / "x.pftrace", content + more)], align=False)
        assert code in {one.code for one in trace.warnings}
    assert not load([written(tmp_path / "y.pftrace", content)], align=False).warnings


def test_the_extra_is_named_where_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    packets.packet_class.cache_clear()
    assert "traceviz-gpu[perfetto]" in refused(pair(tmp_path, "graph_nodes")[1])
    monkeypatch.undo()
    packets.packet_class.cache_clear()
