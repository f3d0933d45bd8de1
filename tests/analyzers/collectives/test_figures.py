"""Figures of single collectives where ranks, devices, ends and sizes differ, and how tables and cards say them."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from analyzers.clocks.align import align
from analyzers.collectives.costs import Collectives, DeviceTimes, collectives, collectives_of
from analyzers.trace.narrow import clip
from analyzers.trace.tables import Trace
from tests.analyzers.collectives.test_costs import pasted, three_ranks
from tests.support.builder import Builder

Spans = dict[int, tuple[int, int]]  # rank: start and end


def run(*calls: Spans, elements: int = 1_000_000, group_size: int = -1, dtype: str = "Float") -> Trace:
    """All-reduces over ranks whose device is their rank + 4, on clocks taken as captured; no size at `elements` -1."""
    builder = Builder()
    ranks = {rank: builder.rank(rank, rank + 4) for rank in sorted({rank for call in calls for rank in call})}
    for number, call in enumerate(calls):
        for process, rank in enumerate(ranks):
            if rank in call:
                ranks[rank].kernel("ncclDevKernel_AllReduce_Sum(x)", 20, *call[rank], launch=(0, 1))
                builder.add(
                    "comms", process=process, correlation=builder.correlation, group="g", group_size=group_size,
                    sequence=number, dtype=dtype, in_elements=elements, out_elements=elements, operation="allreduce",
                )  # fmt: skip
    aligned = align(builder.trace(), enabled=False)
    return replace(aligned.trace, clocks=aligned.clocks, matches=aligned.matches)


def measured(*calls: Spans, **more: int) -> Collectives:
    return collectives_of(run(*calls, **more))  # type: ignore[arg-type]


def test_ranks_and_devices_of_the_fastest_and_of_the_last() -> None:
    (one,) = measured({0: (100, 500), 1: (250, 530), 2: (180, 540)})
    assert (one.fastest_ns, one.fastest_rank, one.fastest_device) == (280, 1, 5)
    assert (one.last_arrival_rank, one.last_arrival_device, one.last_arrival_lead_ns) == (1, 5, 70)
    assert one.end_skew_ns == 40
    assert [(call.rank, call.device, call.start_ns, call.duration_ns) for call in one.ranks] == [
        (0, 4, 100, 400),
        (1, 5, 250, 280),
        (2, 6, 180, 360),
    ]
    assert [(call.wait_ns, call.transfer_ns) for call in one.ranks] == [(150, 250), (0, 280), (70, 290)]


@pytest.mark.parametrize("unit", [1, 1_000, 100_000_000])  # of ns: 400 of the last take longer than 32 bits hold
def test_durations_and_waits_of_any_length_are_told_in_64_bits(unit: int) -> None:
    spans = {0: (100, 500), 1: (250, 530)}, {0: (900, 950), 1: (800, 990)}
    found = measured(*({rank: (start * unit, end * unit) for rank, (start, end) in one.items()} for one in spans))
    calls = found.to_frame().reset_index()[[*found.calls.schema, "transfer_ns"]]
    assert calls.to_dict("list") == {
        "collective": [0, 0, 1, 1],
        "rank": [0, 1, 0, 1],
        "device": [4, 5, 4, 5],
        "start_ns": [100 * unit, 250 * unit, 900 * unit, 800 * unit],
        "duration_ns": [400 * unit, 280 * unit, 50 * unit, 190 * unit],
        "wait_ns": [150 * unit, 0, 0, 100 * unit],
        "transfer_ns": [250 * unit, 280 * unit, 50 * unit, 90 * unit],
    }
    assert {*calls.dtypes} == {np.dtype(np.int64)}
    assert [(call.rank, call.wait_ns, call.transfer_ns) for one in found for call in one.ranks] == [
        (0, 150 * unit, 250 * unit),
        (1, 0, 280 * unit),
        (0, 0, 50 * unit),
        (1, 100 * unit, 90 * unit),
    ]
    assert found.by_device() == (
        DeviceTimes(0, 4, collectives=2, duration_ns=450 * unit, wait_ns=150 * unit, transfer_ns=300 * unit),
        DeviceTimes(1, 5, collectives=2, duration_ns=470 * unit, wait_ns=100 * unit, transfer_ns=370 * unit),
    )
    (kind,) = found.summary
    assert kind.wait_share == 250 / 920


def test_who_writes_to_the_frame_changes_no_figure() -> None:
    found = measured({0: (100, 500), 1: (100, 500)})  # columns of one value among them
    frame = found.to_frame()
    columns = ["device", "start_ns", "duration_ns", "wait_ns", "transfer_ns", "fastest_ns"]
    frame.loc[(0, 0), columns] = -7
    assert frame[columns].iloc[0].tolist() == [-7] * 6
    (one,) = found
    first = one.ranks[0]
    assert (first.rank, first.device, first.start_ns, first.duration_ns) == (0, 4, 100, 400)
    assert (first.wait_ns, first.transfer_ns) == (0, 400)


def test_of_equal_ranks_the_lowest_is_named() -> None:
    (one,) = measured({1: (100, 500), 2: (100, 500), 3: (90, 490)})
    assert (one.fastest_rank, one.last_arrival_rank, one.last_arrival_lead_ns) == (1, 1, 0)


def test_each_collective_keeps_to_its_own_ranks() -> None:
    first, second = measured({0: (100, 500), 1: (200, 510), 2: (150, 505)}, {0: (900, 950), 2: (800, 990)})
    assert (first.end_skew_ns, first.last_arrival_rank, first.last_arrival_lead_ns) == (10, 1, 50)
    assert (second.end_skew_ns, second.last_arrival_rank, second.last_arrival_lead_ns) == (40, 0, 100)
    assert second.last_arrival_device == 4
    assert [call.rank for call in second.ranks] == [0, 2]
    assert (first.index, second.index) == (0, 1)


def test_bandwidth_counts_the_ranks_of_the_group_also_those_nobody_saw() -> None:
    spans = {0: (0, 1000), 1: (0, 1000)}  # 4 MB in 1 µs are 4,000 GB/s
    (seen,) = measured(spans)
    (of_four,) = measured(spans, group_size=4)
    assert seen.algorithm_gb_s == of_four.algorithm_gb_s == pytest.approx(4000, rel=1e-12)
    assert seen.bus_gb_s == pytest.approx(4000 * 2 * (2 - 1) / 2)
    assert of_four.bus_gb_s == pytest.approx(4000 * 2 * (4 - 1) / 4)
    assert (seen.group_size, of_four.group_size) == (None, 4)


def test_each_collective_has_the_factor_of_its_own_group() -> None:
    two, three = measured({0: (0, 1000), 1: (0, 1000)}, {0: (2000, 3000), 1: (2000, 3000), 2: (2000, 3000)})
    assert two.bus_gb_s == pytest.approx(4000 * 2 * (2 - 1) / 2)
    assert three.bus_gb_s == pytest.approx(4000 * 2 * (3 - 1) / 3)


def test_one_rank_of_an_unknown_group_has_no_bus_bandwidth_and_no_last() -> None:
    (alone,) = measured({2: (300, 1300)})
    assert (alone.bus_gb_s, alone.last_arrival_rank, alone.last_arrival_device) == (None, None, None)
    assert (alone.algorithm_gb_s, alone.last_arrival_lead_ns) == (pytest.approx(4000), 0)
    (of_two,) = measured({2: (0, 1000)}, group_size=2)
    assert of_two.bus_gb_s == pytest.approx(4000)
    (of_one,), (of_none,) = measured({2: (0, 1000)}, group_size=1), measured({2: (0, 1000)}, group_size=0)
    assert (of_one.bus_gb_s, of_none.bus_gb_s) == (0.0, None)  # alone it sends nothing; a group of none is unknown


def test_without_a_size_or_a_duration_there_is_no_bandwidth() -> None:
    spans = {0: (0, 1000), 1: (0, 1000)}
    (unsaid,) = measured(spans, elements=-1)
    assert (unsaid.bytes, unsaid.algorithm_gb_s, unsaid.bus_gb_s) == (None, None, None)
    (empty,) = measured(spans, elements=0)
    assert (empty.bytes, empty.algorithm_gb_s, empty.bus_gb_s) == (0, 0.0, 0.0)
    (instant,) = measured({0: (7, 7), 1: (7, 7)})
    assert (instant.fastest_ns, instant.algorithm_gb_s, instant.bus_gb_s) == (0, None, None)


def test_a_part_has_the_collectives_its_ops_took_part_in_with_the_figures_of_all_ranks() -> None:
    whole = run({0: (0, 50), 1: (10, 50)}, {0: (100, 200), 1: (130, 210)}, {0: (300, 400), 1: (320, 410)})
    everything = list(collectives_of(whole))
    part = clip(whole, 100, 260)
    assert list(collectives_of(part)) == [everything[1]]
    later = collectives_of(clip(whole, 100, 500))
    assert list(later) == everything[1:]
    (kind,) = later.summary
    assert (kind.count, kind.last_by_rank) == (2, {1: 2})
    assert kind.wait_share == pytest.approx((30 + 20) / (100 + 80 + 100 + 90))


def test_a_trace_whose_collectives_nobody_matched_is_refused() -> None:
    trace = run({0: (0, 50), 1: (10, 50)})
    for lacking in (replace(trace, clocks=None), replace(trace, matches=None)):
        with pytest.raises(ValueError, match=r"load it with analyzers\.load"):
            collectives_of(lacking)


def cells(result: Collectives) -> list[list[str]]:
    html = result._repr_html_()
    rows = re.findall("<tr>(.*?)</tr>", html)[1:]
    return [re.findall("<td[^>]*>(.*?)</td>", row) for row in rows]


def test_a_card_shows_each_kind_s_figures() -> None:
    result = three_ranks()
    (reduce, gather) = cells(result)
    # Waits 60 + 30 + 50 + 40 of durations 630; 8 MB at 80 and 160 GB/s over three ranks, so × 4/3.
    assert reduce[:-1] == ["all_reduce", "7.6 MiB", "2", "75.0 µs", "100.0 µs", "28.6 %", "160.0 GB/s"]
    # Waits 20 + 20 of 30 + 30 + 10; 12 MB in 10 µs, × 2/3.
    assert gather == ["all_gather", "11.4 MiB", "1", "10.0 µs", "10.0 µs", "57.1 %", "800.0 GB/s", "2"]
    html = result._repr_html_()
    assert "3 collectives; durations are the fastest rank&#x27;s." in html
    assert 'text-align:left">operation<' in html
    assert 'text-align:right">size<' in html
    assert all(warning.message.replace("'", "&#x27;") in html for warning in result.warnings)
    assert result.warnings


def test_a_card_names_who_came_last_most_often() -> None:
    mostly_0 = [{0: (2000 * k + 300, 2000 * k + 900), 1: (2000 * k, 2000 * k + 900)} for k in range(2)]
    ((*_, last),) = cells(measured(*mostly_0, {0: (5000, 5900), 1: (5100, 5900)}))
    assert last == "0"


def test_what_a_card_does_not_know_is_a_dash() -> None:
    for row in cells(pasted("config3_rank0_only.txt")):
        assert (row[1], row[5], row[6], row[7]) == ("–", "–", "–", "–")


def test_a_short_text_counts_and_says_how_sure_the_clocks_are() -> None:
    result = three_ranks()
    assert repr(result).startswith("<3 collectives of 2 kinds; clocks by collectives, error ")
    assert repr(result).endswith(" µs>")
    unknown = repr(measured({0: (0, 50), 1: (10, 50)}))
    assert unknown == "<1 collectives of 1 kinds; clocks by off, error unknown>"


def test_a_frame_joins_each_rank_s_figures_with_its_collective_s() -> None:
    frame = measured({0: (0, 50), 1: (10, 55)}, {0: (100, 200), 1: (130, 210)}).to_frame()
    assert frame.index.tolist() == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert frame["wait_ns"].tolist() == [10, 0, 30, 0]
    assert frame["fastest_ns"].tolist() == [45, 45, 80, 80]
    assert "index" not in frame
    assert frame["duration_ns"].dtype == np.dtype(np.int64)
    assert frame["bus_gb_s"].dtype == np.dtype(float)


def test_no_warning_is_given_twice() -> None:
    trace = run({0: (0, 50), 1: (10, 50)})
    once = trace.warn("same", "Said once.").warn("same", "Said once.")
    assert [warning.code for warning in collectives_of(once).warnings].count("same") == 1


def test_texts_that_a_capture_does_not_give_are_empty() -> None:
    builder = Builder()
    for rank in range(2):
        builder.rank(rank).kernel("ncclDevKernel_AllReduce(x)", 20, 0, 100)
    (one,) = collectives(align(builder.trace(), enabled=False))
    assert (one.dtype, one.group, one.group_ranks, one.group_size) == ("", "", "", None)


def test_a_kind_names_the_worst_straggler_s_rank_device_and_collective() -> None:
    (kind,) = measured(
        {0: (50, 500), 1: (0, 500)},
        {0: (1000, 1700), 1: (1200, 1700)},
        {0: (2100, 2900), 1: (2000, 2900)},
    ).summary
    assert (kind.worst_straggler_rank, kind.worst_straggler_device) == (1, 5)
    assert (kind.worst_straggler_index, kind.worst_straggler_ns) == (1, 200)
    assert kind.last_by_rank == {0: 2, 1: 1}
    assert kind.wait_share == pytest.approx((50 + 200 + 100) / (450 + 500 + 700 + 500 + 800 + 900))


def test_a_kind_of_one_rank_has_no_straggler_and_no_waiting() -> None:
    (kind,) = measured({0: (0, 100)}, {0: (200, 260)}, elements=0).summary
    assert (kind.bytes, kind.count, kind.median_ns) == (0, 2, 80)
    assert kind.worst_straggler_rank is kind.worst_straggler_device is kind.worst_straggler_index is None
    assert (kind.wait_share, kind.last_by_rank, kind.worst_straggler_ns) == (None, {}, 0)
    assert kind.median_bus_gb_s is None


def test_collectives_of_one_rank_are_no_part_of_a_kind_that_more_took_part_in() -> None:
    both = {0: (0, 100), 1: (20, 100)}
    (kind,) = measured(both, {0: (200, 900)}, {1: (1000, 1900)}).summary
    assert (kind.count, kind.median_ns, kind.p90_ns) == (1, 80, 80)


def test_p90_is_the_least_that_nine_in_ten_do_not_exceed() -> None:
    lengths = [50, 10, 40, 30, 20, 60, 100, 90, 80, 70]
    (kind,) = measured(
        *({0: (1000 * k, 1000 * k + n), 1: (1000 * k, 1000 * k + n)} for k, n in enumerate(lengths))
    ).summary
    assert (kind.count, kind.median_ns, kind.p90_ns, kind.unsure) == (10, 55, 90, 0)


def test_kinds_are_told_by_size_and_the_most_time_comes_first() -> None:
    few = measured({0: (0, 100), 1: (20, 100)})
    assert [kind.count for kind in three_ranks().summary] == [2, 1], "2 × 75 µs before 10 µs"
    assert len(few.summary) == 1
    frame = few.summary.to_frame()
    assert frame["operation"].tolist() == ["all_reduce"]
    assert frame["bytes"].tolist() == [4_000_000]


def test_a_part_s_collectives_keep_their_numbers_in_the_whole_trace() -> None:
    part = collectives_of(clip(run({0: (0, 50), 1: (10, 50)}, {0: (100, 200), 1: (130, 210)}), 100, 260))
    assert part.table.index.tolist() == [1]
    assert part.to_frame().index.tolist() == [(1, 0), (1, 1)]
