from __future__ import annotations

import numpy as np
import pytest

from analyzers.causes import CAUSES
from analyzers.check import check_overlap
from analyzers.load import load
from tests.builder import Builder
from tests.timeline_traces import US, drawn, two_instances
from traceviz.timelines.marks import NEVER, ROLE, Marks
from traceviz.timelines.picture import Picture

DP_MP = ("nvtx:DP Embedding", "nvtx:MP Embedding")


def of_role(picture: Picture, role: str) -> Marks:
    return picture.marks.take(picture.marks.role == ROLE[role])


def spans(marks: Marks) -> list[tuple[int, int]]:
    return list(zip((marks.start // US).tolist(), (marks.end // US).tolist(), strict=True))


def test_a_band_has_a_row_for_each_thread_and_stream() -> None:
    _, picture = drawn(two_instances(), "nvtx:A", "nvtx:B")
    (band,) = picture.bands
    assert [row.label for row in band.rows] == ["host 1", "stream 7", "stream 9", "overlap", "A held by"]
    assert [row.number for row in band.rows] == [0, 1, 2, 3, 4]
    assert np.diff([row.y for row in band.rows]) == pytest.approx(-1)


def test_marks_stand_where_the_work_was() -> None:
    _, picture = drawn(two_instances(), "nvtx:A", "nvtx:B")
    assert spans(of_role(picture, "b")) == [(10, 20), (20, 50), (110, 120), (120, 150)]
    assert spans(of_role(picture, "a")) == [(45, 65), (135, 155)]
    assert spans(of_role(picture, "overlap")) == [(45, 50), (135, 150)]
    assert spans(of_role(picture, "sync")) == [(12, 40), (112, 130)]
    assert spans(of_role(picture, "launch-a")) == [(41, 42), (131, 132)]
    assert spans(of_role(picture, "launch-b")) == [(1, 2), (4, 5), (101, 102), (104, 105)]


def test_missed_gaps_carry_their_cause() -> None:
    _, picture = drawn(two_instances(), "nvtx:A", "nvtx:B")
    missed = of_role(picture, "missed-a")
    assert spans(missed) == [(10, 45), (110, 135)]
    assert [picture.texts[name] for name in missed.name] == ["host-sync", "host-sync"]


def test_an_op_points_back_to_its_launch_and_to_what_an_event_made_it_wait_for() -> None:
    _, picture = drawn(two_instances(), "nvtx:A", "nvtx:B")
    a, b = of_role(picture, "a"), of_role(picture, "b")
    (band,) = picture.bands
    assert (a.launch // US).tolist() == [41, 131]
    assert set(a.launch_row.tolist()) == {band.threads[1]}
    assert (a.after // US).tolist() == [20, 120]  # the first lookup: the event was recorded behind it
    assert set(a.after_row.tolist()) == {band.streams[1, 7]}
    assert set(b.after.tolist()) == {NEVER}


def test_a_collective_is_split_into_wait_and_transfer() -> None:
    run = Builder()
    rank = run.rank(0)
    rank.kernel("ncclDevKernel_AllReduce", 7, 0, 100 * US, launch=(0, 1), wait_ns=30 * US)
    rank.kernel("gemm", 9, 20 * US, 60 * US, launch=(2, 3))
    _, picture = drawn(run.trace(), "comm", "compute")
    assert spans(of_role(picture, "a-wait")) == [(0, 30)]
    assert spans(of_role(picture, "a")) == [(30, 100)]
    assert spans(of_role(picture, "overlap")) == [(30, 60)]
    assert spans(of_role(picture, "overlap-wait")) == [(20, 30)]
    (whole,) = set(of_role(picture, "a").whole.tolist())
    assert whole == 100 * US


def test_it_opens_on_the_median_instance_and_says_so() -> None:
    run = Builder()
    rank = run.rank(0)
    for k, overlap in enumerate((9, 2, 5)):  # of 10 µs each
        begin = 100 * k * US
        rank.range("A", begin, begin + 2 * US)
        rank.kernel("a", 7, begin + 10 * US, begin + 20 * US, launch=(begin + 1, begin + 2))
        rank.range("B", begin + 3 * US, begin + 5 * US)
        start = begin + (20 - overlap) * US
        rank.kernel("b", 9, start, start + 10 * US, launch=(begin + 3 * US, begin + 4 * US))
    _, picture = drawn(run.trace(), "nvtx:A", "nvtx:B")
    assert picture.shown.label == "occurrence 2"
    assert picture.shown.text == "occurrence 2 on rank 0, the median of 3 by real overlap: 50.0% (20.0% to 90.0%)"
    assert picture.low_ns <= 210 * US < 225 * US <= picture.high_ns


def test_a_window_that_was_asked_for_is_what_it_opens_on() -> None:
    _, picture = drawn(two_instances(), "nvtx:A", "nvtx:B", (30 * US, 60 * US))
    assert (picture.low_ns, picture.high_ns) == (30 * US, 60 * US)
    assert picture.shown.text == "the window that was asked for"


def test_without_instances_it_shows_everything() -> None:
    run = Builder()
    run.rank(0).kernel("gemm", 7, 0, 10 * US, launch=(0, 1))
    _, picture = drawn(run.trace(), "comm", "compute")
    assert picture.shown.rank is None
    assert picture.low_ns <= 0 < 10 * US <= picture.high_ns


@pytest.mark.parametrize("scenario", ["dpmp_overlap", "dpmp_hidden_sync", "dpmp_race"])
def test_real_captures_have_their_overlap_and_every_op_on_the_picture(scenario: str) -> None:
    trace = load([f"tests/data/torch/{scenario}.rank*.json.gz"])
    result, picture = drawn(trace, *DP_MP)
    marks = picture.marks
    for band, rank in zip(picture.bands, result.ranks, strict=True):
        here = marks.row == band.row("overlap")
        real = here & (marks.role == ROLE["overlap"])
        length = marks.end - marks.start
        assert int(length[real].sum()) == rank.real_overlap_ns
        assert int(length[here].sum()) == rank.overlap_ns
    ops = np.isin(marks.role, [ROLE[role] for role in ("a", "b", "other")])
    assert int(marks.count[ops].sum()) == len(trace.ops)


def test_gaps_sum_up_to_the_time_one_side_ran_alone() -> None:
    result = check_overlap(two_instances(), "nvtx:A", "nvtx:B")
    gaps = result.ranks[0].gaps
    assert gaps is not None
    assert (gaps.start_ns // US).tolist() == [10, 110]
    assert (gaps.end_ns // US).tolist() == [45, 135]
    assert (gaps.alone_ns // US).tolist() == [35, 25]
    assert [CAUSES[cause] for cause in gaps.cause] == ["host-sync", "host-sync"]
    assert gaps.side.tolist() == [0, 0]
