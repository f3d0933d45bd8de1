"""GPU counters in a timeline: every peak is seen however far one zooms out, and what is drawn was sampled."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.common.errors import TracevizError
from analyzers.load import load
from tests.support import counters as raw
from tests.support.builder import Builder
from tests.support.timeline_traces import drawn
from traceviz.timelines.areas import area, points_for, read_counters, thinned
from traceviz.timelines.draw import figure
from traceviz.timelines.picture import Picture


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 100)), min_size=1, max_size=80), st.integers(1, 9), st.data()
)
def test_thinned_keeps_every_peak_and_invents_nothing(
    steps: list[tuple[int, int]], buckets: int, data: st.DataObject
) -> None:
    start = np.cumsum([length for length, _ in steps])
    value = np.array([height for _, height in steps])
    low = data.draw(st.integers(-5, int(start[-1])))
    high = data.draw(st.integers(low + 1, int(start[-1]) + 60))
    kept_start, kept = thinned(start, value, low, high, buckets)
    inside = [(max(int(at), low), int(height)) for at, height in zip(start, value, strict=True) if low < at < high]
    held = [int(height) for at, height in zip(start, value, strict=True) if at <= low][-1:]
    points = [(low, height) for height in held] + inside
    assert set(zip(kept_start.tolist(), kept.tolist(), strict=True)) <= set(points)
    assert len(kept) <= max(2 * buckets, 1)
    assert sorted(kept_start.tolist()) == kept_start.tolist()
    for part in range(buckets):
        of_part = [height for at, height in points if (at - low) * buckets // (high - low) == part]
        drawn_here = [
            int(height)
            for at, height in zip(kept_start, kept, strict=True)
            if (int(at) - low) * buckets // (high - low) == part
        ]
        assert bool(of_part) == bool(drawn_here)
        if of_part:
            assert (max(drawn_here), min(drawn_here)) == (max(of_part), min(of_part))


def sampled() -> Picture:
    """100,000 samples that read 5, but for one of 99."""
    run = Builder()
    rank = run.rank(0)
    rank.kernel("side_a", 1, 0, 100_000)
    rank.kernel("side_b", 2, 0, 100_000)
    for at in range(0, 100_000, 10):
        run.add("counters", process=0, device=0, start_ns=at, end_ns=at + 10, tensor_active=99 if at == 70_020 else 5)
    return drawn(run.trace(), "kernel:side_a", "kernel:side_b")[1]


def test_one_peak_among_many_samples_is_drawn() -> None:
    picture = sampled()
    (one,) = picture.areas
    row = next(row for band in picture.bands for row in band.rows if row.number == one.row)
    assert (row.kind, row.label) == ("counter", "tensor active")
    trace = next(trace for trace in figure(picture).data if "area" in trace.meta)
    peak = max(range(len(trace.y)), key=lambda k: trace.y[k])
    assert trace.customdata[peak] == 99
    assert trace.x[peak] == pytest.approx(70_020 / 1e6)
    assert trace.y[peak] == pytest.approx(row.y - 0.45 + 0.9 * 0.99)


def test_what_is_drawn_of_a_real_capture_was_sampled() -> None:
    path = raw.CONTEND / "contend_after.sqlite.gz"
    trace = load([path])
    one = area(trace, 0, 0, "dram", 0, (0, 10**12))
    own = trace.counters.take(trace.counters.process == 0).to_frame()
    expected = dict(zip(own["start_ns"], own["dram_read"] + own["dram_write"], strict=True))
    assert [expected.get(at, 0) for at in one.start.tolist()] == one.value.tolist()
    both = area(trace, 0, 0, "nvlink", 0, (0, 10**12))
    assert both.value.max() == max(own["nvlink_in"].max(), own["nvlink_out"].max())


def test_missing_samples_fall_to_nothing() -> None:
    run = Builder()
    run.rank(0).kernel("one", 1, 0, 100)
    for at in (0, 10, 50):
        run.add("counters", process=0, device=0, start_ns=at, end_ns=at + 10, sm_active=40)
    one = area(run.trace(), 0, 0, "sm", 0, (0, 100))
    assert list(zip(one.start.tolist(), one.value.tolist(), strict=True)) == [
        *((0, 40), (10, 40), (20, 0), (50, 40), (60, 0)),
    ]


def test_where_a_page_opens_every_sample_is_drawn_and_elsewhere_every_peak() -> None:
    """100,000 samples, of which a page has room for 2,000: all 900 of the opening and as much again on either side."""
    run = Builder()
    run.rank(0).kernel("one", 1, 0, 1_000_000)
    values = np.random.default_rng(7).integers(0, 90, 100_000)
    values[[17, 99_123]] = 99
    for at, value in enumerate(values.tolist()):
        run.add("counters", process=0, device=0, start_ns=10 * at, end_ns=10 * at + 10, sm_active=value)
    one = area(run.trace(), 0, 0, "sm", 0, (0, 1_000_000), opening=(500_000, 503_000), points=2_000)
    drawn_points = dict(zip(one.start.tolist(), one.value.tolist(), strict=True))
    for at in range(497_000, 506_000, 10):
        assert drawn_points[at] == values[at // 10]
    assert [at for at, value in drawn_points.items() if value == 99] == [170, 991_230]
    assert len(drawn_points) == len(one.start) <= 2_000
    assert all(values[at // 10] == value for at, value in list(drawn_points.items())[:-1])
    assert (np.diff(one.start) > 0).all()


def test_counters_that_there_are_not_are_refused() -> None:
    with pytest.raises(TracevizError, match="no counter 'heat'") as error:
        read_counters("tensor,heat")
    assert "clock" in str(error.value.hint)


def test_areas_share_the_points_of_a_page() -> None:
    """One has 20,000, ten have a page's 200,000, 64 a part of these; however many there are, each has 1,000."""
    assert [points_for(count) for count in (0, 1, 10, 64, 1_000)] == [20_000, 20_000, 20_000, 3_125, 1_000]
