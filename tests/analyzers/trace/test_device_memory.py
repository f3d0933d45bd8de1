"""Peaks of GPU memory, worked out by hand, as torch.profiler and as nsys write them down."""

from __future__ import annotations

import gzip
import json
import sqlite3
from pathlib import Path

import pytest

from analyzers.compare.compare import compare
from analyzers.load import load
from analyzers.readers.kineto import fast
from analyzers.readers.kineto import kineto_trace as kineto
from analyzers.readers.nsys.nsys_export import read_sqlite
from analyzers.trace.memory import MemoryPeak, memory_peaks
from analyzers.trace.steps import find_steps
from tests.support.builder import Builder
from tests.support.kineto_files import one_way
from tests.support.nsys_exports import Edit, edited
from traceviz.output.contract import comparison
from traceviz.output.document import markdown
from traceviz.output.views import compare as view

MIB = 1 << 20
TORCH = Path("tests/data/torch")
NSYS = Path("tests/data/nsys/dpmp_overlap.2gpu.sqlite")

# As torch 2.13 prints an instant, down to its blanks.
INSTANT = """
  {{
    "ph": "i",
    
    "cat": "cpu_instant_event",
    "s": "t",
    "name": "{name}",
    "pid": {pid},
    "tid": {pid},
    "ts": {ts}
    ,
    "args": {{
      "Total Reserved": {reserved}, "Total Allocated": {allocated}, "Bytes": {bytes}, "Device Id": {device}, "Device Type": {kind}, "Addr": 94205800518592, "finished": false, "Ev Idx": 57
    }}
  }},"""  # noqa: E501, W293


def instants(spans: list[tuple[int, int]], pid: int, device: int) -> str:
    """Memory changes around and in steps of these spans (ts in whole µs and thousandths); MiB after each:

    before the first step 500 allocated (600 reserved); in step k 100 + 10 k, then 200 + 10 k (300 reserved); after
    the last step 900. The host's own memory and other instants must not count.
    """
    (first, _), (_, last) = spans[0], spans[-1]
    changes = [(first - 20_000, 500, 600)]
    for k, (start, end) in enumerate(spans):
        changes += [
            (start + (end - start) // 3, 100 + 10 * k, 300),
            (start + 2 * (end - start) // 3, 200 + 10 * k, 300),
        ]
    changes.append((last + 20_000, 900, 1000))
    text = ""
    for ns, allocated, reserved in changes:
        common = {"pid": pid, "ts": f"{ns // 1000}.{ns % 1000:03d}", "bytes": -512}
        size = {"allocated": allocated * MIB, "reserved": reserved * MIB}
        text += INSTANT.format(name="[memory]", kind=1, device=device, **common, **size)
        text += INSTANT.format(name="[memory]", kind=0, device=-1, **common, allocated=10**15, reserved=0)
        text += INSTANT.format(name="Other", kind=1, device=device, **common, allocated=10**15, reserved=0)
    return text


def with_memory(rank: int, folder: Path, *, compact: bool = False) -> Path:
    """A real capture, into which changes of memory are written beside its own events."""
    source = TORCH / f"opt_overlap.rank{rank}.json.gz"
    text = gzip.decompress(source.read_bytes()).decode()
    events = json.loads(text, parse_float=str)["traceEvents"]
    steps = [one for one in events if str(one.get("name", "")).startswith("ProfilerStep#") and one["ph"] == "X"]
    marks = [one for one in steps if one["cat"] == "user_annotation"]

    def ns(value: object) -> int:
        whole, _, part = str(value).partition(".")
        return int(whole) * 1000 + int(part.ljust(3, "0") or 0)

    spans = sorted((ns(one["ts"]), ns(one["ts"]) + ns(one["dur"])) for one in marks)
    head, key, tail = text.partition('"traceEvents": [')
    assert key
    text = head + key + instants(spans, int(marks[0]["pid"]), rank) + tail
    target = folder / source.name.removesuffix(".gz")
    target.write_text(json.dumps(json.loads(text)) if compact else text)
    return target


def test_torch_states_what_its_allocator_had_handed_out(tmp_path: Path) -> None:
    trace = load([with_memory(rank, tmp_path) for rank in (0, 1)])
    # In all 900 after the last step; in steps 500 that came before the first; from the second step on, by hand: at its
    # beginning 200 still holds, then 110 and 210.
    assert memory_peaks(trace) == tuple(MemoryPeak(rank, rank, "allocator", 900 * MIB, 1000 * MIB) for rank in (0, 1))
    first, second = find_steps(trace).present[:2]
    assert [one.peak_bytes for one in memory_peaks(trace, [first, second])] == [500 * MIB, 500 * MIB]
    assert [one.peak_bytes for one in memory_peaks(trace, [second])] == [210 * MIB, 210 * MIB]
    assert [one.reserved_peak_bytes for one in memory_peaks(trace, [second])] == [300 * MIB, 300 * MIB]


@pytest.mark.parametrize("compact", [False, True], ids=["as torch prints", "as json.dumps prints"])
def test_memory_reads_the_same_in_the_quick_and_the_exact_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compact: bool
) -> None:
    path = with_memory(0, tmp_path, compact=compact)
    slow: list[int] = []
    decode_others = fast._decode_others

    def counted(piece: bytes, starts: object, ends: object, others: object, heads: object) -> object:
        slow.append(others.size)  # type: ignore[attr-defined]
        return decode_others(piece, starts, ends, others, heads)  # type: ignore[arg-type]

    monkeypatch.setattr(fast, "_decode_others", counted)
    quick = kineto.read(path)
    count = len(json.loads(path.read_text())["traceEvents"])
    assert len(slow) == 1, "the quick way was not taken"
    assert sum(slow) < count / 10
    exact = one_way(path, exact=True)
    assert quick.memory.to_frame().equals(exact.memory.to_frame())
    assert len(quick.memory) == 8  # before, two in each of three steps, after; the host's own are left out
    plain = kineto.read(TORCH / "opt_overlap.rank0.json.gz")
    assert quick.ops.to_frame().equals(plain.ops.to_frame()), "the times of all else stay where they were"


USAGE = """CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start INTEGER NOT NULL, globalPid INTEGER NOT NULL,
  deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, address INTEGER NOT NULL, pc INTEGER NOT NULL,
  bytes INTEGER NOT NULL, memKind INTEGER NOT NULL, memoryOperationType INTEGER NOT NULL, name TEXT,
  correlationId INTEGER, streamId INTEGER)"""
DEVICE, PINNED, STATIC = 2, 1, 5
# MiB, kind, 0 allocation or 1 release; the level of the device's memory after it. Rows are not in order of time.
CHANGES = [
    (10, 100, DEVICE, 0),  # 100
    (30, 50, STATIC, 0),  # 150 + 7 = 157, the peak: see 20
    (20, 7, DEVICE, 0),  # 107
    (35, 4000, PINNED, 0),  # the host's
    (40, 120, DEVICE, 1),  # 37: more than the capture saw allocated of one block
    (50, 60, DEVICE, 0),  # 97
]


def add_usage(database: sqlite3.Connection) -> None:
    database.execute(USAGE)
    owners = "SELECT DISTINCT globalPid, deviceId FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY globalPid"
    for rank, (owner, device) in enumerate(database.execute(owners).fetchall()):
        for start, mib, kind, operation in CHANGES:
            row = (start, owner, device, 1, 4096, 0, (1 + rank) * mib * MIB, kind, operation)
            database.execute("INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS VALUES (?,?,?,?,?,?,?,?,?,NULL,NULL,NULL)", row)


def with_usage(tmp_path: Path, *edits: Edit) -> Path:
    return edited(NSYS, tmp_path / NSYS.name, add_usage, *edits)


def test_nsys_states_what_was_taken_from_the_driver_since_the_capture_began(tmp_path: Path) -> None:
    trace = read_sqlite(with_usage(tmp_path))
    mine = trace.memory.to_frame()[trace.memory.to_frame()["process"] == 0]
    assert (mine.bytes // MIB).tolist() == [100, 107, 157, 37, 97]
    loaded = load([with_usage(tmp_path)])
    assert [(one.source, one.peak_bytes // MIB, one.reserved_peak_bytes) for one in memory_peaks(loaded)] == [
        ("driver-change", 157, None),
        ("driver-change", 314, None),
    ]


def test_what_nsys_lists_at_the_beginning_was_taken_before_and_counts(tmp_path: Path) -> None:
    at_the_beginning = (
        "INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS SELECT 0, globalPid, deviceId, 1, 1, 0, 1048576000, 2, 0, NULL, "
        "NULL, NULL FROM CUDA_GPU_MEMORY_USAGE_EVENTS WHERE start = 10 AND deviceId = 0"
    )
    path = with_usage(tmp_path, at_the_beginning)
    # On one of the two devices 1000 MiB more all the time, and so no mere change.
    assert [(one.source, one.peak_bytes // MIB) for one in memory_peaks(load([path]))] == [
        ("driver", 1157),
        ("driver-change", 314),
    ]


@pytest.mark.parametrize("source", ["driver", "driver-change"])
def test_releases_alone_make_no_negative_peak(source: str) -> None:
    run = Builder()
    run.rank(0).kernel("k", 7, 0, 10)
    for at, level in ((1, -5), (2, -9)):
        run.add("memory", process=0, device=0, start_ns=at, source=source, bytes=level)
    assert memory_peaks(run.trace()) == (MemoryPeak(0, 0, source, 0, None),)


def test_compare_states_the_peak_of_the_compared_steps_per_rank(tmp_path: Path) -> None:
    after = [with_memory(rank, tmp_path) for rank in (0, 1)]
    (tmp_path / "less").mkdir()
    before = [with_memory(rank, tmp_path / "less") for rank in (0, 1)]
    before[1].write_text(before[1].read_text().replace(str(500 * MIB), str(400 * MIB)))
    result = compare([load(before), load(after)])
    assert [one.peak_bytes // MIB for one in result.runs[0].memory_peaks] == [500, 400]
    assert [one.peak_bytes // MIB for one in result.runs[1].memory_peaks] == [500, 500]
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in markdown(view.blocks(result)).splitlines()]
    assert ["memory peak", "500.0 MiB", "500.0 MiB (=)"] in lines
    ranks = [line[-2:] for line in lines if len(line) == 11 and line[0] in ("0", "1")]
    assert ranks == [
        ["500.0 MiB", "600.0 MiB"],
        ["500.0 MiB (=)", "600.0 MiB"],
        ["400.0 MiB", "600.0 MiB"],
        ["500.0 MiB (+25 %)", "600.0 MiB"],
    ]
    data = comparison(result)["runs"]
    assert data[0]["memory_peaks"][1] == {
        "rank": 1,
        "device": 1,
        "source": "allocator",
        "peak_bytes": 400 * MIB,
        "reserved_peak_bytes": 600 * MIB,
    }
