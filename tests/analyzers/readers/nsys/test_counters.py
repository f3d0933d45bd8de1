"""GPU metrics of nsys: every value as the file has it, by GPU and time, whatever metrics are called."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from analyzers.counters.vocabulary import COUNTERS
from analyzers.load import load
from analyzers.readers.nsys import counters as reader
from analyzers.readers.nsys.counters import NIC_RULES, counter_of
from analyzers.readers.nsys.nsys_export import read_sqlite
from analyzers.readers.reading import Reading
from tests.support import counters as raw
from tests.support.caching import folder as folder
from tests.support.nsys_exports import edited

DATA = Path(__file__).parents[3] / "data"


@pytest.mark.parametrize("which", ["before", "after"])
def test_every_value_is_as_the_file_has_it(which: str, tmp_path: Path) -> None:
    path = raw.contend(which, tmp_path)
    table, samples = read_sqlite(path).counters, raw.samples(path)
    assert len(table) == sum(map(len, samples.values()))
    gpu_of = {row.process: row.gpu for row in read_sqlite(path).devices.to_frame().itertuples()}
    for row in table.to_frame().to_dict("records"):
        sample = samples[gpu_of[row["process"]]][row["start_ns"]]
        for counter in raw.METRICS:
            assert row[counter] == raw.value_of(counter, sample), (counter, row)
        assert row["end_ns"] - row["start_ns"] in range(49_900, 50_100)


@pytest.mark.parametrize(
    ("metric", "counter"),
    [
        ("SM Active [Throughput %]", "sm_active"),
        ("SMs Active [Throughput %]", "sm_active"),
        ("Tensor Active / FP16 Active [Throughput %]", "tensor_active"),
        ("DRAM Read Throughput [Throughput %]", "dram_read"),
        ("DRAM Write Bandwidth [Throughput %]", "dram_write"),
        ("NVLink RX Bandwidth [Throughput %]", "nvlink_in"),
        ("NVLink TX Responses User Data [Throughput %]", "nvlink_out"),
        ("NVLink TX Responses Protocol Data [Throughput %]", None),
        ("PCIe RX Throughput [Throughput %]", "pcie_in"),
        ("PCIe Write Throughput [Throughput %]", "pcie_out"),
        ("SYS Clock Frequency [MHz]", "sys_clock"),
        ("Compute Warps in Flight [Avg Warps per Cycle]", None),
        ("Pixel Warps in Flight [Throughput %]", None),
        ("[%]", None),
        ("", None),
    ],
)
def test_names_of_other_chips_and_versions(metric: str, counter: str | None) -> None:
    assert counter_of(metric) == counter


def test_all_counters_have_a_rule_and_a_column() -> None:
    of_gpus = set(COUNTERS) - {"process", "device", "start_ns", "end_ns"} - set(NIC_RULES)
    assert set(reader.METRIC_RULES) == of_gpus == set(raw.METRICS)


def test_a_gpu_is_told_by_its_identity_where_cuda_renumbers_it(tmp_path: Path) -> None:
    """Two pinned processes both call theirs device 0; one's is GPU 1."""
    path = tmp_path / "pinned.sqlite"
    shutil.copyfile(DATA / "nsys" / "collectives.2gpu.pinned.sqlite", path)
    start = int(read_sqlite(path).ops.start_ns.min())
    raw.with_metrics(path, (0, 1, 7), range(start, start + 10**6, 10**5), lambda _, gpu, __: 10 + gpu)
    trace = load([path], reading=Reading(cache=False), align=False)
    assert set(trace.devices.to_frame()["device"]) == {0}
    by_rank = {trace.processes[row.process].rank: row.tensor_active for row in trace.counters.to_frame().itertuples()}
    assert by_rank == {0: 10, 1: 11}
    assert any("GPU 7" in text for text in trace.captures[0].lacks)


def test_samples_that_are_missing_are_said_and_not_filled(tmp_path: Path) -> None:
    path = raw.contend("after", tmp_path)
    times = sorted(raw.samples(path)[0])
    cut = edited(
        path, tmp_path / "gap.sqlite", f"DELETE FROM GPU_METRICS WHERE timestamp BETWEEN {times[100]} AND {times[139]}"
    )
    trace = read_sqlite(cut)
    own = trace.counters.to_frame()[trace.counters.to_frame()["process"] == 0]
    after = own[own["start_ns"] == times[99]]
    assert int(after["end_ns"].iloc[0]) - times[99] in range(49_900, 50_100)
    assert any("samples of counters are missing" in text for text in trace.captures[0].lacks)
    assert not any("are missing there" in text for text in read_sqlite(path).captures[0].lacks)


def test_a_metric_that_lacks_some_samples_is_unknown_there(tmp_path: Path) -> None:
    path = raw.contend("after", tmp_path)
    at = sorted(raw.samples(path)[2])[7]
    cut = edited(path, tmp_path / "one.sqlite", f"DELETE FROM GPU_METRICS WHERE timestamp = {at} AND metricId = 5")
    table = read_sqlite(cut).counters.to_frame()
    row = table[(table["start_ns"] == at) & (table["process"] == 2)].iloc[0]
    assert row["tensor_active"] == -1
    assert row["sm_active"] >= 0


def test_many_samples_are_read_where_asked_and_the_cache_learns_them(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = raw.contend("after", tmp_path)
    monkeypatch.setattr(reader, "QUICK_ROWS", 1000)
    unasked = load([path])
    assert not len(unasked.counters)
    assert unasked.captures[0].unread_counters == 89_670
    assert any("traceviz counters" in text for text in unasked.captures[0].lacks)
    asked = load([path], reading=Reading(counters=True))
    assert len(asked.counters) == 2989
    again = load([path])  # from the cache, which has them now
    assert again.counters.to_frame().equals(asked.counters.to_frame())


def test_samples_move_with_their_devices_ops(tmp_path: Path) -> None:
    path = raw.contend("before", tmp_path)
    before, after = (load([path], align=align, reading=Reading(cache=False)) for align in (False, True))
    for process in range(4):
        moved = [
            set(
                (getattr(after, name).to_frame()["start_ns"] - getattr(before, name).to_frame()["start_ns"])[
                    getattr(before, name).to_frame()["process"] == process
                ]
            )
            for name in ("ops", "counters")
        ]
        assert moved[0] == moved[1]
        assert len(moved[0]) == 1


@pytest.mark.parametrize(
    "edit", ["DELETE FROM GPU_METRICS", "DELETE FROM TARGET_INFO_GPU_METRICS", "DROP TABLE TARGET_INFO_GPU_METRICS"]
)
def test_metrics_without_names_or_samples_are_none(edit: str, tmp_path: Path) -> None:
    assert not len(read_sqlite(edited(raw.contend("after", tmp_path), tmp_path / "x.sqlite", edit)).counters)
