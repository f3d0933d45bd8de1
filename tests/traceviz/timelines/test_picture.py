from __future__ import annotations

import itertools

import numpy as np
import pytest

from analyzers.arrays.intervals import Union
from analyzers.clocks.align import align
from analyzers.load import load
from analyzers.syncs.order_report import order_report
from analyzers.verdict.check import check_overlap
from tests.support.builder import Builder, one_rank
from tests.support.timeline_traces import US, drawn, late_behind_an_event, many_ranks, race, two_instances
from traceviz.timelines import picture as pictures
from traceviz.timelines.draw import figure, legend
from traceviz.timelines.drawn import around
from traceviz.timelines.marks import ROLE, UNKNOWN_INSTANT, Marks
from traceviz.timelines.page import page
from traceviz.timelines.picture import Picture, folded, on_gpu_only
from traceviz.timelines.ranges import lowest_free
from traceviz.timelines.rows import GAP, stream_uses
from traceviz.timelines.texts import fixed_name

DP_MP = ("nvtx:DP Embedding", "nvtx:MP Embedding")


def of_role(picture: Picture, role: str) -> Marks:
    return picture.marks.take(picture.marks.role == ROLE[role])


def on_host(picture: Picture, role: str) -> Marks:
    """Of a role the marks on host rows."""
    rows = [number for band in picture.bands for of_thread in band.ranges.values() for number in of_thread]
    found = of_role(picture, role)
    return found.take(np.isin(found.row, rows))


def spans(marks: Marks) -> list[tuple[int, int]]:
    return list(zip((marks.start // US).tolist(), (marks.end // US).tolist(), strict=True))


def test_a_band_has_a_row_for_each_thread_and_stream() -> None:
    _, picture = drawn(two_instances(), "nvtx:A", "nvtx:B")
    (band,) = picture.bands
    assert [row.label for row in band.rows] == [
        "ranges of 1",
        "host 1",
        "ranges on GPU",
        "ranges on GPU",  # A begins on the GPU before B ends
        "stream 7 main",  # computes for 80 µs, stream 9 for 40
        "stream 9",
        "overlap",
        "A blocked by",
    ]
    assert [row.number for row in band.rows] == list(range(8))
    edges = [edge for row in band.rows for edge in (row.top, row.top - row.height)]
    assert edges[1:-1:2] == pytest.approx(edges[2::2]), "rows stand below each other, without gaps"


def test_marks_stand_where_the_work_was() -> None:
    _, picture = drawn(two_instances(), "nvtx:A", "nvtx:B")
    assert spans(of_role(picture, "b")) == [(10, 20), (20, 50), (110, 120), (120, 150)]
    assert spans(of_role(picture, "a")) == [(45, 65), (135, 155)]
    assert spans(of_role(picture, "overlap")) == [(45, 50), (135, 150)]
    assert spans(of_role(picture, "sync")) == [(12, 40), (112, 130)]
    assert spans(of_role(picture, "launch-a")) == [(41, 42), (131, 132)]
    assert spans(of_role(picture, "launch-b")) == [(1, 2), (4, 5), (101, 102), (104, 105)]


def test_what_held_a_side_is_cut_in_time_where_the_cause_changes() -> None:
    """The host is busy until 12, blocked until 40, busy again until its launch returns at 42; the op starts at 45."""
    _, picture = drawn(two_instances(), "nvtx:A", "nvtx:B")
    blocked, late = of_role(picture, "held-host-sync"), of_role(picture, "held-late-launch")
    assert spans(blocked) == [(12, 40), (112, 130)]
    assert spans(late) == [(10, 12), (40, 45), (110, 112), (130, 135)]
    assert {picture.texts[name] for name in blocked.name} == {"host sync"}
    assert blocked.whole.tolist() == [28 * US, 18 * US], "B runs all the time"
    assert "was submitted 32.0 µs late: the host was blocked 28.0 µs of it" in picture.texts[blocked.extra[0]]


def test_before_its_submission_an_op_that_waits_anyhow_is_drawn_as_such() -> None:
    _, picture = drawn(late_behind_an_event(), "kernel:a", "kernel:b")
    assert spans(of_role(picture, "early-event-dependency")) == [(0, 60)]
    assert spans(of_role(picture, "held-event-dependency")) == [(60, 102)]
    hovers = [custom for one in figure(picture).data for custom in one.customdata or () if custom]
    (early,) = [custom for custom in hovers if "not launched yet either" in custom[4]]
    assert early[0] == "event wait"
    assert early[6] == "from 0.000000 ms · 0.0600 ms long"
    assert "0.0600 ms in which the other side ran alone" in early[4]
    assert "waited 101 µs for b of b" in early[4]


def test_the_links_of_the_largest_gap_that_is_seen_are_drawn_without_a_click() -> None:
    _, picture = drawn(late_behind_an_event(), "kernel:a", "kernel:b")
    (band,) = picture.bands
    (gap,) = picture.gaps
    a, b, host = band.streams[1, 9], band.streams[1, 7], band.threads[1]
    assert {(kind, start // US, row, end // US, to) for kind, start, row, end, to in gap.links} == {
        ("launch", 58, host, 102, a),
        ("event", 100, b, 102, a),
        ("record", -7, host, 40, host),
    }
    arrows = [one for one in figure(picture).layout.annotations if one.showarrow]
    assert sorted((one.ax, one.x) for one in arrows) == [(-0.007, 0.04), (0.058, 0.102), (0.1, 0.102)]


def test_ranges_stand_on_the_gpu_as_long_as_what_they_launched_ran() -> None:
    _, picture = drawn(two_instances(), "nvtx:A", "nvtx:B")
    (band,) = picture.bands
    rows = [row.number for row in band.rows if row.kind == "projected"]
    found = picture.marks.take(np.isin(picture.marks.row, rows))
    names = [
        (picture.texts[name], start // US, end // US)
        for name, start, end in zip(found.name.tolist(), found.start.tolist(), found.end.tolist(), strict=True)
    ]
    assert sorted(names) == [("A", 45, 65), ("A", 135, 155), ("B", 10, 50), ("B", 110, 150)]
    for row in rows:
        own = found.take(found.row == row)
        assert np.all(own.start[1:] >= own.end[:-1]), "none is drawn over another"


def test_host_rows_fold_away() -> None:
    _, picture = drawn(two_instances(), "nvtx:A", "nvtx:B")
    few = on_gpu_only(picture)
    assert [row.kind for row in few.bands[0].rows] == [
        "projected",
        "projected",
        "stream",
        "stream",
        "overlap",
        "missed-a",
    ]
    assert few.bands[0].rows[0].top == pytest.approx(-GAP)
    assert set(few.marks.row.tolist()) <= {row.number for row in few.bands[0].rows}


def test_a_picture_that_stands_still_has_no_empty_rows_and_names_only_what_is_seen() -> None:
    _, picture = drawn(two_instances(), "nvtx:A", "nvtx:B", (46 * US, 60 * US))  # behind all calls of the first A
    drawing = figure(picture, slider=False)
    rows = [label.strip() for label in drawing.layout.yaxis.ticktext if label]
    assert rows == ["ranges on GPU", "stream 7 main", "stream 9", "overlap"]
    named = {one.name for one in drawing.data if one.showlegend}
    assert named == {"A: nvtx:A", "B: nvtx:B", "A and B really overlap", "the user's ranges"}
    assert len(figure(picture).layout.yaxis.ticktext) == 8


def test_what_blocks_the_host_once_all_is_launched_is_grey_and_the_empty_end_is_folded() -> None:
    run, rank = one_rank()
    rank.kernel("ncclDevKernel_AllReduce", 13, 5 * US, 60 * US, launch=(0, 1 * US))
    rank.kernel("gemm", 7, 5 * US, 105 * US, launch=(2 * US, 3 * US))
    rank.synchronize("device", 10 * US, 900 * US)
    _, picture = drawn(run.trace(), "comm", "compute")
    assert spans(of_role(picture, "sync-end")) == [(10, 900)]
    assert of_role(picture, "sync").size == 0
    assert picture.active_ns == (0, 110 * US), "5 % of the 100 µs of work behind it"
    assert figure(picture).layout.xaxis.rangeslider.range == (0, 0.11)
    assert "The strip below leaves out 790 µs after the work of the steps." in page(picture)
    still = figure(drawn(run.trace(), "comm", "compute", (20 * US, 100 * US))[1], slider=False)
    assert not any("host" in label for label in still.layout.yaxis.ticktext), "it alone makes no row worth seeing"


def test_an_op_points_back_to_its_launch_and_to_what_an_event_made_it_wait_for() -> None:
    _, picture = drawn(two_instances(), "nvtx:A", "nvtx:B")
    a, b = of_role(picture, "a"), of_role(picture, "b")
    (band,) = picture.bands
    assert (a.launch // US).tolist() == [41, 131]
    assert set(a.launch_row.tolist()) == {band.threads[1]}
    assert (a.after // US).tolist() == [20, 120]  # the first lookup: the event was recorded behind it
    assert set(a.after_row.tolist()) == {band.streams[1, 7]}
    assert set(b.after.tolist()) == {UNKNOWN_INSTANT}


def test_ranges_stand_above_the_thread_that_opened_them_as_deep_as_they_nest() -> None:
    _, picture = drawn(race(), "nvtx:make", "nvtx:use")
    (band,) = picture.bands
    assert [row.label for row in band.rows][:3] == ["ranges of 1", "ranges of 1", "host 1"]
    outer, inner = band.ranges[1]
    found = {role: on_host(picture, f"range-{role}") for role in ("a", "b", "other")}
    assert spans(found["a"]) == [
        (100, 103),
        (2, 4),
    ]  # by row: the later one stands in no step; the first launch is at 2
    assert found["a"].row.tolist() == [outer, inner]
    assert spans(found["b"]) == [(105, 109), (5, 9)]
    assert spans(found["other"]) == [(2, 10)], "a step launched work of both"
    assert [picture.texts[name] for name in found["a"].name] == ["make", "make"]


def test_operators_and_what_libraries_open_are_no_ranges_of_the_users() -> None:
    run = Builder()
    rank = run.rank(0)
    rank.range("aten::mm", 0, 9 * US, kind="op")
    rank.range("nccl:all_reduce", 0, 9 * US, kind="annotation")
    rank.range("mine", 0, 9 * US)
    rank.kernel("gemm", 7, 10 * US, 20 * US, launch=(1 * US, 2 * US))
    _, picture = drawn(run.trace(), "compute", "comm")
    marks = [on_host(picture, f"range-{role}") for role in ("a", "b", "other")]
    assert [picture.texts[name] for one in marks for name in one.name] == ["mine"]


def test_a_missing_wait_has_a_mark_of_its_own_that_points_at_what_was_not_waited_for() -> None:
    _, picture = drawn(race(), "nvtx:make", "nvtx:use")
    (band,) = picture.bands
    marks = of_role(picture, "race")
    assert spans(marks) == [(30, 70)], "the second use waits as it should"
    assert marks.row.tolist() == [band.streams[1, 9]]
    assert (marks.after // US).tolist() == [60]
    assert marks.after_row.tolist() == [band.streams[1, 7]]
    (text,) = [picture.texts[extra] for extra in marks.extra]
    assert text.startswith("Missing wait: 'consume' on stream 9 ('use') does not wait for 'produce'")


def test_of_many_ranks_those_are_shown_that_speak_for_the_others() -> None:
    result, picture = drawn(many_ranks(64), "nvtx:A", "nvtx:B")
    assert len(picture.bands) == 64
    shown = {band.rank: band.title.rpartition("(")[2].removesuffix(")") for band in picture.bands if band.shown}
    # By hand: 7 takes 190 µs and overlaps far less than all others, so it decides; 3 is the fastest (135 µs), 5 the
    # slowest (450), all others take 150. In order 3, 0, 1, 2, 4, 6, 8 … 63, 7, 5 the 32nd of the 64 is rank 33.
    assert result.job.rank == 7
    assert shown == {7: "worst", 3: "fastest", 5: "slowest", 33: "median"}
    few = folded(picture)
    assert [band.rank for band in few.bands] == [3, 5, 7, 33]
    rows = {row.number for band in few.bands for row in band.rows}
    assert set(few.marks.row.tolist()) <= rows
    assert few.bands[0].rows[0].top == pytest.approx(-GAP)
    assert few.bands[1].rows[0].top == pytest.approx(few.bands[0].rows[-1].y - 0.5 - GAP)
    counts = [
        np.count_nonzero(figure(one).layout.yaxis.tickvals)
        for one in (picture, drawn(many_ranks(8), "nvtx:A", "nvtx:B")[1])
    ]
    assert counts == [4 * 8, 8 * 8], "a figure draws what is shown at first; eight need no folding"


def test_what_the_view_cuts_is_labelled_in_the_middle_of_what_is_seen() -> None:
    _, picture = drawn(two_instances(), "nvtx:A", "nvtx:B", (30 * US, 60 * US))
    assert (picture.low_ns, picture.high_ns) == (30 * US, 60 * US)
    assert picture.shown.text == "the window that was asked for"
    written = [
        (one.base[k], one.x[k], one.text[k])
        for one in figure(picture).data
        if "labels" in one.meta
        for k in range(len(one.text))
        if one.text[k]
    ]
    # Host blocked 12 to 40, which held A, too; B's second op 20 to 50, A 45 to 65; ms.
    assert (0.03, pytest.approx(0.01), "blocked: cudaStreamSynchronize") in written
    assert (0.03, pytest.approx(0.02), "lookup") in written
    assert (0.045, pytest.approx(0.015), "dense") in written
    assert (0.03, pytest.approx(0.01), "host sync 0.0280 ms") in written
    own = [text for one in figure(picture).data if "labels" not in one.meta for text in one.text or () if text]
    assert "lookup" not in own, "and nowhere else"


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
    assert picture.shown.text == "occurrence 2 on rank 0, the median of 3 by real overlap: 50 % (20 % to 90 %)"
    assert picture.low_ns <= 210 * US < 225 * US <= picture.high_ns


def sliver(apart_us: int = 0) -> Picture:
    """A, 500 to 502 µs, beside B, 0 to 1,000 µs, or so much later."""
    run, rank = one_rank()
    rank.kernel("b", 7, apart_us * US, (apart_us + 1000) * US, launch=(-2 * US, -1 * US))
    rank.kernel("a", 9, 500 * US, 502 * US, launch=(-4 * US, -3 * US))
    return drawn(run.trace(), "kernel:a", "kernel:b")[1]


def test_it_opens_on_a_side_that_is_a_sliver_beside_the_other_and_says_so() -> None:
    picture = sliver()
    assert (picture.low_ns, picture.high_ns) == (492 * US, 510 * US), "four of A's 2 µs before and after it"
    assert picture.shown.text.endswith(", close up on A")
    assert figure(picture, slider=False).layout.xaxis.range == (0.492, 0.510)


def test_it_opens_on_both_sides_though_one_is_a_sliver_where_they_are_apart() -> None:
    picture = sliver(2000)
    assert picture.low_ns < 500 * US < 3000 * US < picture.high_ns
    assert "close up" not in picture.shown.text


def test_rows_of_ranges_that_are_as_good_as_empty_are_left_out_of_a_picture_that_stands_still() -> None:
    run, rank = one_rank()
    for end in (9, 20):  # 1 % and 12 % of what is seen
        rank.range("r", end * US - 12 * US, end * US)
        rank.kernel("a", 7, 8 * US, 60 * US, launch=(-2 * US, -1 * US))
        rank.kernel("b", 9, 40 * US, 108 * US, launch=(1 * US, 2 * US))
        picture = drawn(run.trace(), "kernel:a", "kernel:b", (8 * US, 108 * US))[1]
        rows = [label.strip() for label in figure(picture, slider=False).layout.yaxis.ticktext if label]
        assert ("ranges of 1" in rows) == (end == 20)
        run, rank = one_rank()


def test_the_text_of_a_call_that_launches_is_covered_by_what_blocks_in_it() -> None:
    run, rank = one_rank()
    rank.kernel("a", 7, 0, 100 * US, launch=(0, 90 * US))
    rank.kernel("b", 9, 0, 100 * US, launch=(-2 * US, -1 * US))
    drawing = figure(drawn(run.trace(), "kernel:a", "kernel:b", (10 * US, 60 * US))[1])
    above = [one for one in drawing.data if one.meta.get("labels") == ROLE["launch-a"]]
    assert [text for one in above for text in one.text if text] == []
    own = [one for one in drawing.data if one.meta["role"] == ROLE["launch-a"]]
    assert [text for one in own for text in one.text if text] == ["cudaLaunchKernel"], "on the call itself"


def test_a_page_that_has_room_for_every_mark_keeps_every_one() -> None:
    """Not only in what it opens on: elsewhere one zooms, too."""
    run = Builder()
    rank = run.rank(0)
    for k in range(2_000):
        rank.kernel("gemm", 7, k * US, k * US + 500, launch=(k * US - 200, k * US - 100))
    _, picture = drawn(run.trace(), "comm", "compute", (0, 10 * US))
    assert set(picture.marks.count.tolist()) == {1}
    assert np.count_nonzero(picture.marks.role == ROLE["b"]) == 2_000


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


def test_overlap_that_may_be_waiting_is_not_drawn_as_real() -> None:
    """One rank's all-reduce of four: its overlap may be waiting."""
    run, rank = one_rank()
    row = rank.kernel("ncclDevKernel_AllReduce", 9, 20, 120)
    run.rows["ops"][row]["correlation"] = correlation = run.next_correlation()
    rank.kernel("gemm", 7, 0, 60)
    words = {}
    for size in (1, 4):
        run.rows["comms"] = []
        run.add("comms", process=0, correlation=correlation, operation="allreduce", group="0", group_size=size)
        trace = align(run.trace()).trace
        shown = pictures.picture(trace, check_overlap(trace), order_report(trace))
        words[size] = legend(shown)["overlap"], fixed_name("overlap", apparent=shown.apparent)
    assert words == {1: ("A and B really overlap",) * 2, 4: ("A and B overlap, apparently",) * 2}


def test_ranges_on_the_gpu_take_as_few_rows_as_run_at_once_and_none_hides_another() -> None:
    """Counted at each start, one by one: as many levels as ranges are open there."""
    rng = np.random.default_rng(7)
    for _ in range(50):
        starts = rng.integers(0, 60, 12)
        ends = starts + rng.integers(1, 20, 12)
        level = lowest_free(starts, ends)
        open_at = [int(np.count_nonzero((starts <= at) & (ends > at))) for at in starts.tolist()]
        assert level.max() + 1 == max(open_at)
        for one, other in itertools.combinations(range(12), 2):
            crosses = starts[one] < ends[other] and starts[other] < ends[one]
            assert not (crosses and level[one] == level[other])


def test_a_long_wait_for_a_peer_cuts_what_it_lies_in_and_a_short_one_does_not() -> None:
    """Of 0 to 100: 30 to 60 is long (over an eighth), 80 to 81 is not; of 120 to 128: 121 to 123 is long."""
    waits = Union(np.array([30, 80, 121]), np.array([60, 81, 123]))
    piece, low, high, longest = around(np.array([0, 110, 120]), np.array([100, 115, 128]), waits)
    found = list(zip(piece.tolist(), low.tolist(), high.tolist(), longest.tolist(), strict=True))
    assert found == [
        (0, 0, 30, False), (0, 60, 100, True), (1, 110, 115, True), (2, 120, 121, False), (2, 123, 128, True),
    ]  # fmt: skip


NCCL, ONE_CCL = "ncclDevKernel_AllReduce", "oneccl_allreduce_large_bf16"


@pytest.mark.parametrize(
    ("streams", "uses"),
    [
        ({7: ("gemm", 60), 9: ("gelu", 20), 13: (NCCL, 90)}, " main,, NCCL"),
        ({5: ("gemm", 30), 20: ("gemm", 30), 21: ("gemm", 30)}, ",,"),  # they share the work
        ({7: ("gemm", 10), 20: ("gemm", 30), 21: ("gemm", 30)}, " main,,"),  # but for the default one
        ({13: (ONE_CCL, 90), 21: (NCCL, 60)}, " oneCCL, NCCL"),
    ],
)
def test_streams_are_told_by_what_runs_on_them(streams: dict[int, tuple[str, int]], uses: str) -> None:
    run, rank = one_rank()
    for stream, (name, length) in streams.items():
        rank.kernel(name, stream, 0, length * US, launch=(0, 1))
    rank.copy("DtoH", 30, 0, 10 * US, launch=(6, 7))
    assert ",".join(stream_uses(run.trace()).values()) == f"{uses}, copies"
