"""Before and after on one axis: each run's instance begins at 0."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analyzers.common.errors import TracevizError
from analyzers.compare.compare import compare
from analyzers.trace.tables import Trace
from tests.support.builder import Builder
from tests.support.command_lines import invoked
from tests.support.timeline_traces import HOSTILE, US, drawn, many_ranks
from traceviz.timelines.draw import about
from traceviz.timelines.marks import NEVER, ROLE
from traceviz.timelines.picture import Picture
from traceviz.timelines.stack import compared, stacked

PAIR = ("nvtx:A", "nvtx:B")


def run_at(begin_us: int, overlap_us: int, ranks: int = 1) -> Trace:
    """A from `begin` for 20 µs on stream 7, then B for 30, which overlaps A by so much."""
    run = Builder()
    for number in range(ranks):
        rank, begin = run.rank(number), begin_us * US
        rank.range("A", begin - 9 * US, begin - 6 * US)
        rank.kernel(f"a {begin_us}", 7, begin, begin + 20 * US, launch=(begin - 8 * US, begin - 7 * US))
        rank.range("B", begin - 5 * US, begin - 1 * US)
        start = begin + (20 - overlap_us) * US
        rank.kernel(f"b {begin_us}", 9, start, start + 30 * US, launch=(begin - 4 * US, begin - 3 * US))
    return run.trace()


def two(ranks: int = 1) -> Picture:
    pictures = [drawn(run_at(*one, ranks), *PAIR)[1] for one in ((100, 0), (7000, 15))]
    return stacked(pictures, ["before", "after"], "faster")


def spans(picture: Picture, role: str) -> dict[str, tuple[int, int]]:
    marks = picture.marks.take(picture.marks.role == ROLE[role])
    return {
        picture.texts[name]: (start // US, end // US)
        for name, start, end in zip(marks.name.tolist(), marks.start.tolist(), marks.end.tolist(), strict=True)
    }


def test_both_runs_begin_at_nought_however_late_they_were() -> None:
    picture = two()
    assert spans(picture, "a") == {"a 100": (0, 20), "a 7000": (0, 20)}
    assert spans(picture, "b") == {"b 100": (20, 50), "b 7000": (5, 35)}
    overlap = picture.marks.take(picture.marks.role == ROLE["overlap"])
    assert list(zip((overlap.start // US).tolist(), (overlap.end // US).tolist(), strict=True)) == [(5, 20)]
    ops = picture.marks.take(np.isin(picture.marks.role, [ROLE["a"], ROLE["b"]]))
    assert NEVER not in ops.launch.tolist()
    assert sorted((ops.launch // US).tolist()) == [-8, -8, -4, -4]
    assert picture.low_ns < -8 * US < 50 * US < picture.high_ns


def test_every_mark_stays_on_a_row_of_its_run() -> None:
    picture = two(ranks=2)
    assert [band.title.partition(":")[0] for band in picture.bands] == ["before", "after", "before", "after"]
    assert [band.rank for band in picture.bands] == [0, 0, 1, 1]
    numbers = [row.number for band in picture.bands for row in band.rows]
    assert sorted(numbers) == list(range(len(numbers)))
    for band in picture.bands:
        mine = picture.marks.take(np.isin(picture.marks.row, [row.number for row in band.rows]))
        names = {picture.texts[name] for name in mine.name[mine.role == ROLE["a"]].tolist()}
        assert names == {"a 100" if band.title.startswith("before") else "a 7000"}
        ops = mine.take(mine.launch_row >= 0)
        assert set(ops.launch_row.tolist()) == set(band.threads.values())


def test_it_says_which_instance_of_each_run_is_shown_and_on_what_clock() -> None:
    text = about(two())
    assert "before: occurrence 0 on rank 0, the only instance: real overlap 0 %; after: occurrence 0" in text
    assert text.endswith("Times are on a clock that starts with each run's instance.")


def test_of_many_ranks_the_one_that_decides_is_shown_of_both_runs() -> None:
    picture = stacked([drawn(many_ranks(16), *PAIR)[1]] * 2, ["before", "after"], "same")
    assert [(band.rank, band.title.partition(":")[0]) for band in picture.bands if band.shown] == [
        (7, "before"),  # of all ranks it overlaps least
        (7, "after"),
    ]


def test_the_headline_is_the_comparisons_verdict() -> None:
    traces = [run_at(100, 0), run_at(7000, 15)]
    result = compare(traces, *PAIR, labels=["one", HOSTILE[0]])
    picture = compared(result, traces)
    assert picture.headline.startswith("TOO FEW STEPS: <script>")
    assert picture.names == PAIR


@pytest.mark.parametrize("kind", ["pdf", "txt"])
def test_a_name_that_says_no_kind_is_refused_before_anything_is_read(kind: str) -> None:
    words = ["compare", "not/there", "nor/there", "--timeline", f"x.{kind}"]
    with pytest.raises(TracevizError, match=r"End it in \.html, \.png or \.svg"):
        invoked(*words)


def test_the_command_draws_it_and_answers_as_without(tmp_path: Path) -> None:
    runs = [f"tests/data/torch/dpmp_{kind}.rank0.json.gz" for kind in ("serial", "overlap")]
    words = ["compare", *runs, "-a", "nvtx:DP Embedding", "-b", "nvtx:MP Embedding"]
    plain = invoked(*words)
    drawn_too = invoked(*words, "--timeline", str(tmp_path / "x.html"))
    assert (plain.exit_code, plain.output) == (drawn_too.exit_code, drawn_too.output)
    assert "starts with each run" in (tmp_path / "x.html").read_text()
