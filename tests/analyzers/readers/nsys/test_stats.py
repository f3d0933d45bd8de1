"""Pasted `nsys stats` tables say the same whatever their form."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.common.errors import TracevizError
from analyzers.readers.nsys.stats import read

DATA = Path(__file__).parents[3] / "data" / "nsys-stats"

# Two kernels (one with commas, brackets and parentheses in its name), a copy and a memset, in both forms.
CSV, TABLE = (DATA / "small.csv").read_text(), (DATA / "small.txt").read_text()


def written(folder: Path, text: str) -> Path:
    path = folder / "paste.txt"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "text",
    [CSV, TABLE, "\n".join(TABLE.splitlines()[6:])],
    ids=["csv", "table", "rows alone"],
)
def test_every_form_gives_the_same_ops(tmp_path: Path, text: str) -> None:
    trace = read(written(tmp_path, text))
    ops = trace.ops.to_frame()
    assert ops.start_ns.tolist() == [6482359, 6947703, 6966806, 7000000]
    assert (ops.end_ns - ops.start_ns).tolist() == [56096, 767, 2880, 1000]
    assert ops.correlation.tolist() == [376, 666, 686, 700]
    assert list(ops["kind"]) == ["kernel", "memset", "memcpy", "kernel"]
    assert ops.device.tolist() == [1, 1, 0, 0]
    assert ops.stream.tolist() == [7, 7, 9, 17]
    assert ops.grid.tolist() == [2048, -1, -1, 16]
    assert ops.block.tolist() == [256, -1, -1, 640]
    assert ops.registers.tolist() == [40, -1, -1, 96]
    assert ops.shared_bytes.tolist() == [3000, -1, -1, 119000]
    assert ops.bytes.tolist() == [-1, 0, 8389000, -1]
    assert list(ops["copy"]) == ["", "", "DtoH", ""]
    assert (ops["source_memory"].iloc[2], ops["target_memory"].iloc[2]) == ("device", "pinned")
    assert ops["name"].iloc[0] == "void at::native::<unnamed>::bag<float, long>(const T2 *, long (*)(int))"
    assert set(trace.devices.to_frame()["name"]) == {"NVIDIA H200"}


@pytest.mark.parametrize(("unit", "size"), [("KB", 2500), ("", 2_500_000)])
def test_units_of_the_header_are_honored_and_an_empty_one_is_the_usual(tmp_path: Path, unit: str, size: int) -> None:
    text = (
        f"Start (us),Duration (us),CorrId,Bytes ({unit}),Device,Ctx,Strm,Name\n1.5,0.25,3,2.5,GPU (4),1,7,[CUDA memset]"
    )
    ops = read(written(tmp_path, text)).ops
    assert (ops.start_ns[0], ops.end_ns[0], ops.bytes[0]) == (1500, 1750, size)


def test_a_device_name_with_parentheses_keeps_them(tmp_path: Path) -> None:
    row = "10 5 1 1 1 1 32 1 1 8 0.000 0.000 Vendor GPU (TM) 9 (3) 1 7 ncclDevKernel_AllReduce(x)\n"
    trace = read(written(tmp_path, row))
    assert trace.ops.device.tolist() == [3]
    assert list(trace.devices.to_frame()["name"]) == ["Vendor GPU (TM) 9"]


def test_rank_is_the_device_index() -> None:
    trace = read(DATA / "config1_one_report_8gpu.txt")
    assert sorted(process.claims["gpu"] for process in trace.processes) == list(range(8))
    lines = (DATA / "config1_one_report_8gpu.txt").read_text().splitlines()
    assert len(trace.ops) == len(lines) == 16
    assert sorted(trace.ops.start_ns.tolist()) == sorted(int(line.split()[0]) for line in lines)


def test_a_repeated_line_is_one_op_and_said_so(tmp_path: Path) -> None:
    text = (DATA / "config3_rank0_only.txt").read_text()
    trace = read(written(tmp_path, text + text))
    assert len(trace.ops) == 2
    assert [warning.code for warning in trace.warnings if warning.code == "repeated-lines"]
    assert "2 lines" in next(warning.message for warning in trace.warnings if warning.code == "repeated-lines")


def test_same_times_on_two_devices_are_two_ops(tmp_path: Path) -> None:
    row = "10 5 1 1 1 1 32 1 1 8 0.0 0.0 GPU ({}) 1 7 ncclDevKernel_AllReduce(x)\n"
    assert len(read(written(tmp_path, row.format(0) + row.format(1))).ops) == 2


def test_each_device_has_a_clock_of_its_own() -> None:
    trace = read(DATA / "config2_report_per_rank_8gpu.txt")
    assert len(trace.captures) == 8
    assert all(capture.start_utc_ns is None for capture in trace.captures)
    starts = trace.ops.start_ns
    process = trace.ops.process
    for number, capture in enumerate(trace.captures):
        assert capture.first_ns == starts[process == number].min()


def test_a_row_cut_short_is_counted_not_hidden(tmp_path: Path) -> None:
    text = (DATA / "config3_rank0_only.txt").read_text() + "12226226 270945 2066 16 1 1\n"
    trace = read(written(tmp_path, text))
    assert len(trace.ops) == 2
    assert "unread-lines" in {warning.code for warning in trace.warnings}


def test_what_is_not_a_gpu_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TracevizError, match="no row of a GPU trace"):
        read(written(tmp_path, "Time (%)  Total Time (ns)\n 99.0  12345\n"))
    with pytest.raises(TracevizError, match="cannot be read"):
        read(tmp_path / "absent.txt")


@pytest.mark.parametrize("number", [str(2**63), str(2**64), "9" * 300])
@pytest.mark.parametrize("column", [0, 1, 2, 3, 18])
def test_a_row_with_a_number_beyond_64_bits_is_left_out_and_reported(tmp_path: Path, number: str, column: int) -> None:
    good = (DATA / "config3_rank0_only.txt").read_text().splitlines()[0]
    words = good.split()
    words[column] = number
    trace = read(written(tmp_path, f"{good}\n{' '.join(words)}\n"))
    assert len(trace.ops) == 1
