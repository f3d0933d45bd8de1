"""What a reader of a picture meets: arrows on the rank of the headline, a legend, an axis, texts and kernels."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.load import load
from tests.support.builder import Builder, one_rank
from tests.support.timeline_traces import US, drawn, late_behind_an_event, two_instances
from traceviz.timelines import picture as pictures
from traceviz.timelines.bars import room
from traceviz.timelines.draw import figure, weights
from traceviz.timelines.marks import ROLE, Marks, fit, join, make
from traceviz.timelines.page import data
from traceviz.timelines.palette import DARK, LIGHT
from traceviz.timelines.picture import Picture
from traceviz.timelines.texts import MS, amount, ticks, unit_of
from traceviz.timelines.texts import US as MICROSECONDS

PAIR = ("kernel:a", "kernel:b")
COUNT = 3_000
EDGE = 1e-7  # of a box, ms: marks that touch do not overlap


def behind_an_event(run: Builder, number: int, first_us: int, rest_us: int = 0) -> None:
    """B from 0 on for as long as said, and for the rest; A waits by an event for the first, and takes 100 µs."""
    rank = run.rank(number)
    rank.kernel("b", 7, 0, first_us * US, launch=(-9 * US, -8 * US))
    event = rank.record(7, -7 * US)
    if rest_us:
        rank.kernel("b", 7, first_us * US, (first_us + rest_us) * US, launch=(-6 * US, -5 * US))
    rank.wait(9, event, -4 * US)
    rank.kernel("a", 9, (first_us + 2) * US, (first_us + 102) * US, launch=(-3 * US, -2 * US))


def two_ranks() -> Picture:
    """On rank 0 nothing overlaps, with a gap of 100 µs; on rank 1 half of A does, behind a gap of 300 µs."""
    run = Builder()
    behind_an_event(run, 0, 100)
    behind_an_event(run, 1, 300, 52)
    result, picture = drawn(run.trace(), *PAIR)
    assert result.job.deciding == (0, 0)
    return picture


def arrows(picture: Picture) -> set[float]:
    """Where the arrows of a figure begin and end, on the axis of rows."""
    found = [one for one in figure(picture).layout.annotations if one.showarrow]
    return {y for one in found for y in (one.y, one.ay)}


def test_arrows_are_drawn_on_the_rank_that_the_headline_names_though_another_has_the_longer_gap() -> None:
    picture = two_ranks()
    assert "rank 0" in picture.headline
    rows = {band.rank: {row.number: row.y for row in band.rows} for band in picture.bands}
    longest = max(picture.gaps, key=lambda one: one.alone_ns)
    assert longest.row in rows[1], "so that it is not the longest that is taken"
    assert arrows(picture)
    assert arrows(picture) <= set(rows[0].values())
    gaps, ranks = data(picture)["gaps"], data(picture)["ranks"]
    assert [(ranks[row], band) for row, *_, band in gaps] == [("rank 0", 0), ("rank 1", -1)], "so a page goes to them"


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_titles_of_bands_stand_on_ground_of_their_own_above_the_grid(theme: object) -> None:
    assert isinstance(theme, type(LIGHT))
    titles = [one for one in figure(two_ranks(), theme=theme).layout.annotations if not one.showarrow]
    assert [one.bgcolor for one in titles] == [theme.ground] * 2
    views = data(two_ranks())["views"]
    assert [one["bgcolor"] for one in views[0][0]["themes"][theme.name]["annotations"]] == [theme.ground] * 2


def test_a_title_of_a_picture_is_no_wider_than_the_picture() -> None:
    _, picture = drawn(load(["tests/data/torch/rowpar_s4.rank*.json.gz"]), "comm", "compute")
    longest = max((band.title for band in picture.bands), key=len)
    for width in (600, 860, 1280):
        sizes = {one.font.size for one in figure(picture, slider=False, width=width).layout.annotations if one.text}
        assert all(0.6 * size * len(longest) <= width for size in sizes), "bold letters are some 0.6 as wide as high"


def named(picture: Picture) -> set[str]:
    return {one.name for one in figure(picture, slider=False).data if one.showlegend}


def test_the_legend_of_a_picture_is_of_what_is_seen_in_it() -> None:
    """`late_behind_an_event`: A is not launched until 60 µs, and blocked by the event until 102."""
    seen = {
        window: named(drawn(late_behind_an_event(), *PAIR, (window[0] * US, window[1] * US))[1])
        for window in ((0, 40), (70, 100), (0, 110))
    }
    early, late = "not launched yet either", "blocked by event wait"
    assert [(early in one, late in one) for one in seen.values()] == [(True, False), (False, True), (True, True)]
    assert not any("full GPU" in text or "late rank" in text for one in seen.values() for text in one)


def test_a_hair_is_not_in_the_legend_but_a_side_is() -> None:
    run, rank = one_rank()
    rank.kernel("b", 7, 0, 1000 * US, launch=(-2 * US, -1 * US))
    rank.kernel("a", 9, 100 * US, 101 * US, launch=(-4 * US, -3 * US))
    rank.kernel("c", 8, 500 * US, 503 * US, launch=(-6 * US, -5 * US))
    for end, is_told in ((1000, False), (503, True)):  # 0.3 %, and 60 % of what is seen
        picture = drawn(run.trace(), *PAIR, (0 if end == 1000 else 498 * US, end * US))[1]
        assert ("other GPU work" in named(picture)) == is_told
    assert "A: kernel:a" in named(drawn(run.trace(), *PAIR, (0, 1000 * US))[1])


@given(st.integers(-(10**10), 10**10), st.integers(1, 10**11), st.integers(2, 12))
def test_ticks_of_an_axis_have_one_unit_and_say_where_they_stand(low: int, span: int, most: int) -> None:
    found = ticks(low, low + span, most)
    words = [text.split(" ") for _, text in found]
    unit = {"ms": 10**6, "µs": 10**3}
    assert len({name for _, name in words}) <= 1
    assert len({len(number.partition(".")[2]) for number, _ in words}) <= 1
    for (at, _), (number, name) in zip(found, words, strict=True):
        whole, _, part = number.replace(",", "").lstrip("-").partition(".")
        length = int(whole + part) * unit[name]
        assert length % 10 ** len(part) == 0
        assert length // 10 ** len(part) == abs(at)
        assert low <= at <= low + span
    assert len(found) <= most + 1
    assert len({after - before for (before, _), (after, _) in pairwise(found)}) <= 1


@given(st.integers(1, 10**12), st.sampled_from([MS, MICROSECONDS]))
def test_lengths_have_three_digits(ns: int, unit: object) -> None:
    assert isinstance(unit, type(MS))
    number, name = amount(ns, unit).split(" ")
    assert name == unit.name
    least = 0.5 * 10**-unit.decimals
    assert float(number.replace(",", "")) == pytest.approx(ns / unit.ns, rel=0.00501, abs=least)


@pytest.mark.parametrize("times", [1, 100], ids=["µs", "ms"])
def test_hover_texts_and_lengths_on_marks_are_in_the_unit_of_the_axis(times: int) -> None:
    run, rank = one_rank()
    rank.kernel("b", 7, 0, 100 * times * US, launch=(-9 * US, -8 * US))
    event = rank.record(7, -7 * US)
    rank.wait(9, event, -4 * US)
    rank.kernel("a", 9, 101 * times * US, 200 * times * US, launch=(-3 * US, -2 * US))
    drawing = figure(drawn(run.trace(), *PAIR)[1], slider=False)
    unit = unit_of(200 * times * US).name
    assert {text.rpartition(" ")[2] for text in drawing.layout.xaxis.ticktext} == {unit}
    hovers = [custom for one in drawing.data for custom in one.customdata or () if custom]
    lengths = [
        word for custom in hovers for word in re.findall(r"\d (ms|µs|ns|s)\b", custom[4].partition(";")[0] + custom[6])
    ]
    assert len(lengths) > 8
    told = [text for one in drawing.data for text in one.text or () if "event wait " in text]
    assert [text.rpartition(" ")[2] for text in told] == [unit]
    assert {custom[6].split(" ")[k] for custom in hovers for k in (2, 5)} == {unit}


ROWS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 40), st.integers(1, 30), st.integers(0, 2)), min_size=1)


@given(ROWS, st.integers(0, 20), st.integers(1, 40))
def test_a_text_has_room_where_nothing_that_is_drawn_later_lies(
    rows: list[tuple[int, int, int, int]], low: int, length: int
) -> None:
    row, start, span, front = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    marks = make(row, 0, start, start + span)
    high = low + length
    free_low, free_high = room(marks, front, low, high, 1)
    for k in range(row.size):
        seen = range(max(int(start[k]), low), min(int(start[k] + span[k]), high))
        covered = {
            at
            for j in range(row.size)
            if row[j] == row[k] and (front[j], j) > (front[k], k)
            for at in range(int(start[j]), int(start[j] + span[j]))
        }
        longest = run = 0
        for at in seen:
            run = 0 if at in covered else run + 1
            longest = max(longest, run)
        if not len(seen):
            continue
        assert free_high[k] - free_low[k] == longest
        assert covered.isdisjoint(range(int(free_low[k]), int(free_high[k])))


@pytest.mark.parametrize("name", ["dpmp_overlap", "rowpar_s4", "opt_overlap", "dpmp_race"])
def test_no_text_of_a_picture_lies_under_another_mark_or_text(name: str) -> None:
    pair = ("comm", "compute") if name == "rowpar_s4" else ("nvtx:~.*", "comm")
    picture = drawn(load([f"tests/data/torch/{name}.rank0.json.gz"]), *pair)[1]
    drawing = figure(picture, slider=False, width=860)
    marks, labels = [], []  # (place in the order in which they are drawn, row, role, from, to, text)
    for number, one in enumerate(drawing.data):
        for k, base in enumerate(one.base if one.type == "bar" and one.text is not None else ()):
            if base is not None:
                role = one.meta.get("labels", one.meta["role"])
                box = ((number, k), one.y[k], role, base + EDGE, base + one.x[k] - EDGE, one.text[k])
                (labels if "labels" in one.meta else marks).append(box)

    def covered(place: tuple[int, int], y: float, low: float, high: float) -> bool:
        """Whether a mark that is drawn later lies on a part of a row."""
        return any(at > place and on == y and start < high and end > low for at, on, _, start, end, _ in marks)

    written = [one for one in marks if one[5]]
    assert len(written) + len(labels) > 8
    for place, y, _, low, high, text in written:
        assert not covered(place, y, low, high), text
    for place, y, role, low, high, text in labels:
        its = [one for one in marks if one[1] == y and one[2] == role]
        own = [at for at, _, _, start, end, _ in its if start <= low + EDGE / 2 and end >= high - EDGE / 2]
        assert any(not covered(at, y, low, high) for at in own), text
        others = [one for one in labels if one[0] != place and one[1] == y]
        assert not any(start < high and end > low for _, _, _, start, end, _ in others), text
    low, high = drawing.layout.xaxis.range
    assert all(low <= start and end <= high for *_, start, end, _ in labels)


def many_gaps(ranks: int) -> Builder:
    """At 0 and at 50 ms 3,000 kernels of B one behind the other, of 0.9 µs each, then A, which waited for them.

    They were launched 5 ms before; between both there is other work.
    """
    run = Builder()
    for number in range(ranks):
        rank = run.rank(number)
        for begin in (0, 50_000):
            rank.range("B", (begin - 5_100) * US, (begin - 4_900) * US)
            for k in range(COUNT):
                launched = (begin - 5_000) * US + k
                rank.kernel("b", 7, (begin + k) * US, (begin + k) * US + 900, launch=(launched, launched + 1))
            event = rank.record(7, (begin - 9) * US)
            rank.range("A", (begin - 8) * US, (begin - 2) * US)
            rank.wait(9, event, (begin - 7) * US)
            after = begin + COUNT + 1
            rank.kernel("a", 9, after * US, (after + 100) * US, launch=((begin - 5) * US, (begin - 4) * US))
            other = begin + 20_000
            rank.kernel("c", 9, other * US, (other + 1) * US, launch=((begin - 3) * US, (begin - 2) * US))
    return run


def kernels(picture: Picture, rank: int, low_us: int, high_us: int) -> Marks:
    """What stands for B's kernels on a rank in a span."""
    (band,) = [one for one in picture.bands if one.rank == rank]
    marks = picture.marks.take(np.isin(picture.marks.row, list(band.streams.values())))
    return marks.take((marks.role == ROLE["b"]) & (marks.end > low_us * US) & (marks.start < high_us * US))


def test_a_page_with_too_many_marks_has_every_kernel_at_the_worst_gaps_of_the_rank_that_decides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pictures, "MOST_MARKS", 13_000)
    monkeypatch.setattr(pictures, "MOST_DETAILED", 1)
    result, picture = drawn(many_gaps(4).trace(), "nvtx:A", "nvtx:B", (24_000 * US, 24_100 * US))
    assert result.job.deciding == (0, 0)
    assert picture.marks.size <= 13_000
    worst = min(picture.gaps, key=lambda one: (not one.decides, -one.alone_ns))
    begin = worst.low_ns // US
    assert begin in (0, 50_000)
    there = kernels(picture, 0, begin, begin + COUNT)  # far from what it opens on
    assert (there.size, set(there.count.tolist())) == (COUNT, {1})
    other = kernels(picture, 1, begin, begin + COUNT)
    assert int(other.count.sum()) == COUNT
    assert other.size < COUNT, "of other ranks there is no room for all"


def test_kernels_of_the_rank_that_decides_are_drawn_finer_than_those_of_others() -> None:
    picture = drawn(many_gaps(2).trace(), "nvtx:A", "nvtx:B", (0, 3_200 * US))[1]
    found = fit(picture.marks, 0, 3_200 * US, 2_400, weights=weights(picture))
    most = {}
    for band in picture.bands:
        mine = np.isin(found.row, list(band.streams.values())) & (found.start < 3_000 * US) & (found.end > 0)
        most[band.rank] = int(found.count[mine & (found.role == ROLE["b"])].max())
    assert most[0] < most[1]
    assert most[0] <= 4, "a kernel of 0.9 µs is a third of a pixel there"
    assert found.size <= 2_400


def test_marks_before_and_after_what_is_seen_do_not_become_one_across_it() -> None:
    start = np.array([0, 10, 90, 100], np.int64) * US
    marks = join([make(0, 0, start, start + US, name=0)])
    found = fit(marks, 40 * US, 60 * US, 1)
    assert not np.any((found.start < 60 * US) & (found.end > 40 * US))


def test_blocked_sides_are_named_in_plain_words_on_marks_and_in_hover_texts() -> None:
    drawing = figure(drawn(two_instances(), "nvtx:A", "nvtx:B")[1], slider=False)
    texts = {text for one in drawing.data for text in one.text or () if text}
    hovers = {custom[0] for one in drawing.data for custom in one.customdata or () if custom}
    assert {"host sync", "late launch"} <= hovers
    assert any(text.startswith("host sync") for text in texts)
    assert not any("held" in text for text in texts | hovers | named(drawn(two_instances(), "nvtx:A", "nvtx:B")[1]))
