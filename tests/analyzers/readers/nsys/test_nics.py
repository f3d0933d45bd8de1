"""Network cards in an nsys export: bytes in and out of the host, whenever each card was sampled.

The exports are made, by the schema that nsys documents: none was captured on hardware here.
"""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.counters.by_state import counters
from analyzers.load import load
from analyzers.readers.nsys.counters import NicSeries, together
from analyzers.readers.nsys.nsys_export import read_folder, read_sqlite
from analyzers.readers.reading import Reading
from tests.support import counters as raw
from tests.support.nsys_exports import as_folder

PLAIN = Path(__file__).parents[3] / "data" / "nsys" / "collectives.2gpu.pinned.sqlite"
MS = 1_000_000


@pytest.fixture
def export(tmp_path: Path) -> Path:
    return Path(shutil.copyfile(PLAIN, tmp_path / "nics.sqlite"))


def first_ns(path: Path) -> int:
    return int(read_sqlite(path).ops.start_ns.min())


def test_cards_and_ports_count_together_and_other_metrics_do_not(export: Path) -> None:
    """50,000,000 bytes/ms are 400 Gbit/s; a second card of 12,500,000 is 100 more, half a sample later."""
    begin = first_ns(export)
    rows = []
    for at in range(begin, begin + 10 * MS, MS):
        rows += [(0, 1, "IB: Bytes sent", at, at + MS, 25e6), (0, 2, "IB: Bytes sent", at, at + MS, 25e6)]
        rows += [(0, 1, "IB: Bytes received", at, at + MS, 1e6), (0, 1, "IB: Send waits", at, at + MS, 9e9)]
    for at in range(begin + MS // 2, begin + 10 * MS, MS):
        rows.append((1, 1, "Eth: Bytes sent", at, at + MS, 12.5e6))
    raw.with_nics(export, rows)
    table = read_sqlite(export).counters.to_frame()
    own = table[table["process"] == 0].sort_values("start_ns")
    assert own["start_ns"].tolist() == list(range(begin, begin + 10 * MS, MS))
    assert (own["end_ns"] - own["start_ns"] == MS).all()
    assert own["nic_out"].tolist() == [500] * 10
    assert own["nic_in"].tolist() == [8] * 10
    assert (own["sm_active"] == -1).all()
    assert len(table) == 2 * len(own)  # a host's GPUs share its cards


def test_what_was_not_sampled_is_not_zero(export: Path) -> None:
    begin = first_ns(export)
    rows: list[tuple[int, int, str, int, int, float]] = []
    rows += [(0, 1, "IB: Bytes sent", at, at + MS, 25e6) for at in range(begin, begin + 10 * MS, MS)]
    rows += [(1, 1, "IB: Bytes sent", at, at + MS, 25e6) for at in range(begin, begin + 4 * MS, MS)]
    raw.with_nics(export, rows)
    own = read_sqlite(export).counters.to_frame()
    own = own[own["process"] == 0]
    assert own["nic_out"].tolist() == [400] * 4 + [-1] * 6
    assert own["nic_in"].tolist() == [-1] * 10


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_a_folder_of_tables_gives_what_its_export_gives(kind: str, export: Path, tmp_path: Path) -> None:
    begin = first_ns(export)
    raw.with_nics(export, [(0, 1, "IB: Bytes sent", at, at + MS, 25e6 + 0.4) for at in range(begin, begin + MS, MS)])
    raw.with_metrics(export, (0, 1), range(begin, begin + MS, MS // 10), lambda _, gpu, __: 10 + gpu)
    found = read_folder(as_folder(export, tmp_path / "folder", kind)).counters
    assert len(found) == 2 * 11
    assert found.to_frame().equals(read_sqlite(export).counters.to_frame())


def test_another_unit_is_said_and_not_guessed(export: Path) -> None:
    begin = first_ns(export)
    raw.with_nics(export, [(0, 1, "IB: Bytes sent", begin, begin + MS, 5.0)], unit="packets")
    trace = read_sqlite(export)
    assert not len(trace.counters)
    assert any("'packets'" in text for text in trace.captures[0].lacks)


SAMPLES = st.lists(st.tuples(st.integers(1, 20), st.integers(0, 50)), min_size=1, max_size=30)


@given(st.lists(st.tuples(st.integers(0, 40), SAMPLES), min_size=1, max_size=4))
def test_the_sum_over_cards_is_that_of_a_plain_loop(cards: list[tuple[int, list[tuple[int, int]]]]) -> None:
    """Instant by instant: what each card moves in that ns, over those in which it was sampled."""
    series, moves = [], []
    for first, lengths in cards:
        edges = np.cumsum([first, *(length for length, _ in lengths)])
        rates = [rate for _, rate in lengths]
        series.append(NicSeries(edges[:-1], edges[1:], np.array(rates, np.float64)))
        moves.append({t: rate for k, rate in enumerate(rates) for t in range(edges[k], edges[k + 1])})
    grid = series[0]
    for start, end, found in zip(grid.start, grid.end, together(series, grid), strict=True):
        means = []
        for of_card in moves:
            seen = [of_card[t] for t in range(start, end) if t in of_card]
            means.append(sum(seen) / len(seen) if 2 * len(seen) >= end - start else None)
        expected = -1 if None in means else 8 * sum(mean for mean in means if mean is not None)
        assert found == pytest.approx(expected, abs=0.51)


def test_counters_of_gpus_keep_their_own_samples_beside_cards(tmp_path: Path) -> None:
    path = raw.contend("after", tmp_path)
    before = counters(load([path], reading=Reading(cache=False)))
    times = sorted(raw.samples(path)[0])
    raw.with_nics(path, [(0, 1, "IB: Bytes sent", at, at + MS, 25e6) for at in range(times[0], times[-1], MS)])
    after = counters(load([path], reading=Reading(cache=False)))
    assert after.sentence == before.sentence
    for one, other in zip(before.ranks, after.ranks, strict=True):
        assert (one.samples, one.period_ns) == (other.samples, other.period_ns)
        for name, state in one.states.items():
            assert (state.sampled_ns, state.whole_ns) == (other.states[name].sampled_ns, other.states[name].whole_ns)
        assert other.states["both"].mean("nic_out") == 200


def test_the_device_of_a_process_is_told_by_uuid_where_its_index_is_missing(tmp_path: Path) -> None:
    """Two pinned processes call theirs device 0. The export says by UUID which is whose, or by nothing at all."""
    path = Path(shutil.copyfile(PLAIN, tmp_path / "pinned.sqlite"))
    start = first_ns(path)
    raw.with_metrics(path, (0, 1), range(start, start + MS, MS // 10), lambda _, gpu, __: 10 + gpu)
    with closing(sqlite3.connect(path)) as database:
        database.execute("ALTER TABLE TARGET_INFO_CUDA_DEVICE ADD COLUMN uuid TEXT")
        known = "SELECT 'GPU-' || upper(uuid) FROM TARGET_INFO_GPU WHERE id = gpuId"
        database.execute(f"UPDATE TARGET_INFO_CUDA_DEVICE SET uuid = ({known})")
        database.execute("UPDATE TARGET_INFO_CUDA_DEVICE SET gpuId = NULL")
        database.commit()
    trace = load([path], reading=Reading(cache=False), align=False)
    by_pid = {trace.processes[row.process].pid: row.tensor_active for row in trace.counters.to_frame().itertuples()}
    assert by_pid == {1070: 10, 1071: 11}
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE TARGET_INFO_CUDA_DEVICE SET uuid = NULL")
        database.commit()
    trace = load([path], reading=Reading(cache=False), align=False)
    assert not len(trace.counters)
    assert any(
        "nothing tells which GPU of the host a process calls device 0" in text for text in trace.captures[0].lacks
    )
