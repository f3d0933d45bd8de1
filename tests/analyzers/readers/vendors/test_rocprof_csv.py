"""rocprofv3's kernel_trace.csv: every figure again from its rows, and what it can't tell is said."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest

import traceviz as tv
from analyzers.common.errors import TracevizError
from analyzers.load import load
from tests.support.brute import busy_and_overlap
from tests.support.made import rocprof

PUBLIC = Path(__file__).parents[3] / "data" / "public" / "rocprofv3-csv" / "out_kernel_trace.csv"
OLDER = (  # numbers for agents, no streams, other sizes
    "Kind,Agent_Id,Queue_Id,Kernel_Id,Kernel_Name,Correlation_Id,Start_Timestamp,End_Timestamp,Private_Segment_Size,"
    "Group_Segment_Size,Workgroup_Size_X,Workgroup_Size_Y,Workgroup_Size_Z,Grid_Size_X,Grid_Size_Y,Grid_Size_Z"
)
NEWER = (  # of `rocpd convert`
    '"Guid","Kind","Agent_Id","Queue_Id","Stream_Id","Thread_Id","Dispatch_Id","Kernel_Id","Kernel_Name",'
    '"Correlation_Id","Start_Timestamp","End_Timestamp","Lds_Block_Size","Scratch_Size","Vgpr_Count",'
    '"Workgroup_Size_X","Workgroup_Size_Y","Workgroup_Size_Z","Grid_Size_X","Grid_Size_Y","Grid_Size_Z"'
)
RCCL, GEMM = "ncclDevKernel_Generic(ncclDevComm*, channelMasks)", "gemm(float*, int)"


def test_the_public_file() -> None:
    with PUBLIC.open() as file:
        rows = list(csv.DictReader(file))
    spans = {
        word: [(int(one["Start_Timestamp"]), int(one["End_Timestamp"])) for one in rows if word in one["Kernel_Name"]]
        for word in ("nccl", "gemm")
    }
    (rank,) = tv.check_overlap(PUBLIC).ranks
    assert (rank.a.busy_ns, rank.b.busy_ns, rank.overlap_ns) == busy_and_overlap(spans["nccl"], spans["gemm"])
    trace = load([PUBLIC])
    assert (trace.captures[0].format, trace.captures[0].runtime) == ("rocprof", "HIP")
    assert set(trace.ops.to_frame()["device"]) == {4}
    assert set(trace.ops.to_frame()["stream"]) == {1, 2}
    assert (set(trace.ops.to_frame()["grid"]), set(trace.ops.to_frame()["block"])) == ({4}, {256})
    (lacking,) = [text for text in tv.info(trace).cannot if text.startswith("copies, ranges")]
    assert "who launched what" in lacking


@pytest.mark.parametrize(("header", "queue"), [(OLDER, True), (NEWER, False)])
def test_older_and_newer_columns(tmp_path: Path, header: str, queue: bool) -> None:
    """Streams where they are recorded, else hardware queues, which is said; a copy that is a kernel is no compute."""
    names = [one.strip('"') for one in header.split(",")]
    kernels = [
        (GEMM, 1, 100, 700),
        (RCCL, 2, 300, 900),
        (GEMM, 1, 900, 1500),
        ("__amd_rocclr_copyBuffer", 1, 1600, 1700),
    ]
    path = tmp_path / "4711_kernel_trace.csv"
    with path.open("w", newline="") as file:
        file.write(header + "\n")
        for name, lane, start, end in kernels:
            said = {"Kind": "KERNEL_DISPATCH", "Agent_Id": "7" if queue else "Agent 7", "Kernel_Name": name}
            said |= {"Queue_Id": str(lane if queue else 9), "Stream_Id": str(lane), "Start_Timestamp": str(start)}
            said |= {"End_Timestamp": str(end)}
            csv.writer(file).writerow([said.get(one, "64") for one in names])
    trace = load([path])
    assert trace.processes[0].pid == 4711
    assert trace.ops.stream.tolist() == [1, 2, 1, 1]
    assert trace.ops.kind.tolist() == ["kernel"] * 3 + ["memcpy"]
    assert any("hardware queues" in text for text in trace.captures[0].lacks) is queue
    (rank,) = tv.check_overlap(path).ranks
    assert (rank.a.busy_ns, rank.b.busy_ns, rank.overlap_ns) == busy_and_overlap(
        [(300, 900)], [(100, 700), (900, 1500)]
    )


@pytest.mark.parametrize("damage", ["cut", "times", "agent"])
def test_rows_that_cant_be_read_leave_the_verdict_open(tmp_path: Path, damage: str) -> None:
    lines = PUBLIC.read_text().splitlines()
    if damage == "cut":
        lines[-1] = lines[-1][:60]
    elif damage == "times":
        lines[3] = lines[3].replace("1260000,1360000", "1260000,")
    else:
        lines[3] = lines[3].replace("Agent 4", "Agent")
    path = tmp_path / "x_kernel_trace.csv"
    path.write_text("\n".join(lines))
    result = tv.check_overlap(path, accept_apparent=True)
    assert (result.verdict, result.exit_code) == ("inconclusive", 3)
    assert "1 rows of kernels that can't be read" in result.reason


def test_a_file_without_kernels_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x_kernel_trace.csv"
    path.write_text(PUBLIC.read_text().splitlines()[0] + "\n")
    with pytest.raises(TracevizError, match="no row of a kernel"):
        load([path])


def test_the_json_beside_it_says_more(tmp_path: Path) -> None:
    shutil.copy(PUBLIC, tmp_path / "4711_kernel_trace.csv")
    (tmp_path / "4711_results.json").write_text(rocprof.capture(0))
    (capture,) = load([tmp_path]).captures
    assert capture.path.endswith(".json")


@pytest.mark.parametrize("lacking", ["Start_Timestamp", "End_Timestamp"])
def test_a_table_without_times_is_refused_with_amds_tools(tmp_path: Path, lacking: str) -> None:
    with PUBLIC.open(newline="") as file:
        rows = [{name: value for name, value in row.items() if name != lacking} for row in csv.DictReader(file)]
    path = tmp_path / "x_kernel_trace.csv"
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, rows[0])
        table.writeheader()
        table.writerows(rows)
    with pytest.raises(TracevizError, match=f"is rocprofv3's table of kernels without {lacking}") as refusal:
        load([path])
    assert "rocprofv3 --sys-trace" in str(refusal.value)
    assert "nsys" not in str(refusal.value)
