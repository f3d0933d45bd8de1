"""The numbers of a timeline: rows and marks of a trace, for a pair that has been checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from msgspec.structs import replace

from analyzers.common.errors import TraceWarning
from analyzers.common.records import Record
from analyzers.overlap.measure import RankOverlap
from analyzers.syncs.order_report import OrderReport
from analyzers.trace.columns import as_int64
from analyzers.trace.narrow import Narrowing
from analyzers.trace.run import ALL, Run
from analyzers.trace.tables import Trace
from analyzers.verdict.check import OverlapResult
from traceviz.output.quantities import count_of, duration, percent
from traceviz.timelines.areas import DEFAULT, Area, area, points_for
from traceviz.timelines.drawn import DrawnBand, Gap, drawn_bands, join_work, longest_gaps, work_of
from traceviz.timelines.marks import NO_MARKS, ROLE, Marks, Pieces, concatenated, fit_pieces
from traceviz.timelines.rows import ALWAYS, HOST_ROWS, Band, Row, placed
from traceviz.timelines.shown import Shown, deciding_rank, opened, representative_ranks, typical
from traceviz.timelines.texts import Texts

NOT_ALIGNED = {
    "session": "clocks that only session start times tie: ranks may be shifted against each other",
    "off": "each rank's own clock, not aligned: ranks may be shifted against each other",
}
MOST_MARKS = 60_000  # in a page; some 55 bytes each
MOST_INSTANCES = 4000  # to jump to
MOST_DETAILED = 20  # of the gaps of the rank that decides, about which a page has every mark
FINEST_OUTSIDE = 100_000  # parts of all there is, in which marks outside of these become one first
SEEN = 200  # of what is shown: what is shorter than one of so many parts of it is a hair
SEEN_RANGES = 50  # likewise of all the ranges of a row together
WORTHLESS_UNSEEN = ("ranges", "projected", "stream", "missed-a", "missed-b")  # kinds of rows


class Picture(Record, frozen=True):
    """A timeline as numbers.

    marks : as detailed as a page can be; whole ns on the trace's clock.
    low_ns, high_ns : what it opens on; first_ns, last_ns : all that there is.
    warnings : what limits what it shows.
    apparent : whether its overlap may be waiting for ranks that were not captured.
    gaps : in which a side was blocked, those told in words: first those of the rank that decides, the longest first.
    instances : (label, from, to) by time, on the rank that decides.
    areas : GPU counters, each on a row.
    active_ns : from when to when there is work, without an empty lead-in and end.
    ends : (overlap's row of a band, from, to) of a step whose two ends are marked there.
    names : what A and B are called; texts : what `marks.name` and `marks.extra` count.
    """

    bands: tuple[Band, ...]
    marks: Marks
    texts: tuple[str, ...]
    names: tuple[str, str]
    headline: str
    shown: Shown
    low_ns: int
    high_ns: int
    first_ns: int
    last_ns: int
    clock: str
    warnings: tuple[TraceWarning, ...] = ()
    apparent: bool = False
    gaps: tuple[Gap, ...] = ()
    instances: tuple[tuple[str, int, int], ...] = ()
    active_ns: tuple[int, int] = (0, 0)
    areas: tuple[Area, ...] = ()
    ends: tuple[tuple[int, int, int], ...] = ()


def picture(
    run: Trace | Run,
    result: OverlapResult,
    order: OrderReport,
    *,
    window: tuple[int, int] | None = None,
    counters: Sequence[str] = DEFAULT,
    narrowing: Narrowing = ALL,
) -> Picture:
    """Work out a timeline, part by part of a run.

    Parameters
    ----------
    result, order : what `check_overlap` and `order_of` found in this run.
    window : what to open on, ns; the typical instance where not given.
    counters : which GPU counters to show, where they were captured: keys of `areas.SHOWN`.
    narrowing : the part of the run that is shown.
    """
    run = Run.of(run)
    work = join_work([*run.map(work_of, narrowing).values()])
    titles = {(one.rank, one.device): _title(one) for one in result.ranks}
    with TemporaryDirectory(prefix="traceviz-", ignore_cleanup_errors=True) as folder:
        pieces, drawn = Pieces(None if run.merged else Path(folder)), list[tuple[int, DrawnBand]]()
        for number, (part, first) in enumerate(
            zip(run.parts(narrowing), [handle.first for handle in run.handles], strict=True)
        ):
            for one in drawn_bands(part, first, work, result, order, titles, counters) if len(part.ops) else ():
                pieces.append(one.marks)
                drawn.append((number, replace(one, marks=NO_MARKS)))
        every = [(int(some.start.min()), int(some.end.max())) for some in pieces if some.size]
        first_ns, last_ns = min(low for low, _ in every), max(high for _, high in every)
        shown = typical(result, work.ops)
        low, high, shown = opened(pieces, shown, window)
        # The rank that the headline names, or, where it names none, on which the picture opens.
        where = result.job.deciding or (shown.rank, shown.device)
        decides = [(one.band.rank, one.band.device) == where or where[0] is None for _, one in drawn]
        if sum(some.size for some in pieces) > MOST_MARKS:
            whole = first_ns, last_ns
            also = {k: _around_gaps(pieces[k], one.gaps, whole) for k, (_, one) in enumerate(drawn) if decides[k]}
            outside = max((last_ns - first_ns) // FINEST_OUTSIDE, 1)
            fit_pieces(pieces, whole, (low, high), MOST_MARKS, fine=1, coarse=outside, also=also)
        laid_out, marks, texts, gaps = _put_together(drawn, pieces, decides, representative_ranks(result))
    rank = deciding_rank(result)
    instances = [(one.label, one.start_ns, one.end_ns) for one in rank.instances] if rank else []
    clocks = run.trace.clocks
    method = clocks.method if clocks is not None else "one"
    areas = _areas(run, narrowing, laid_out, drawn, (first_ns, last_ns), (low, high))
    return Picture(
        laid_out,
        marks,
        texts,
        (result.a, result.b),
        f"{result.verdict.upper()}: {result.first_sentence}",
        shown,
        low,
        high,
        first_ns,
        last_ns,
        f"the clock of rank {laid_out[0].rank}"
        if clocks and clocks.aligned
        else NOT_ALIGNED.get(method, "the trace's clock"),
        result.warnings,
        result.job.apparent,
        gaps,
        tuple(sorted(instances, key=lambda one: one[1:])[:MOST_INSTANCES]),
        work.active(first_ns, last_ns),
        areas,
    )


def _around_gaps(marks: Marks, gaps: Sequence[Gap], whole: tuple[int, int]) -> list[tuple[int, int]]:
    """What is seen when one goes to the worst gaps, as far as there is room for every kernel there."""
    spans, kept = list[tuple[int, int]](), np.zeros(marks.size, bool)
    for one in sorted(gaps, key=lambda one: -one.alone_ns)[:MOST_DETAILED]:
        length = one.high_ns - one.low_ns
        begin = min([one.low_ns, *(start for kind, start, *_ in one.links if kind != "record")])
        low = max(begin - length // 3, one.low_ns - 3 * length // 2, whole[0])
        high = min(one.high_ns + length // 3, whole[1])
        kept |= (marks.end >= low) & (marks.start <= high)
        if np.count_nonzero(kept) > MOST_MARKS // 4:
            break
        spans.append((low, high))
    return spans


def _put_together(
    drawn: Sequence[tuple[int, DrawnBand]], pieces: Pieces, decides: Sequence[bool], why: dict[tuple[int, int], str]
) -> tuple[tuple[Band, ...], Marks, tuple[str, ...], tuple[Gap, ...]]:
    """Bands of all parts by rank, with their marks and gaps: rows and texts are numbered through.

    `why` says of too many bands which are shown at first; none where all are.
    """
    bands = [one.band for _, one in drawn]
    order = sorted(range(len(drawn)), key=lambda i: (bands[i].rank, bands[i].device, bands[i].process))
    rows_in_order = [(drawn[i][0], row.number) for i in order for row in bands[i].rows]
    last = max(number for _, number in rows_in_order)
    numbers = {part: np.full(last + 2, -1, np.int64) for part, _ in rows_in_order}  # new ones, by the part's own
    for number, (part, row) in enumerate(rows_in_order):
        numbers[part][row] = number
    texts, found, marks, gaps = Texts(), list[Band](), list[Marks](), list[Gap]()
    for i in order:
        part, one = drawn[i]
        word = why.get((one.band.rank, one.band.device), "")
        title = f"{one.band.title} ({word})" if word else one.band.title
        found.append(replace(one.band.renumbered(numbers[part]), title=title, shown=bool(word) or not why))
        marks.append(pieces[i].moved(numbers[part], np.array([*map(texts.number, one.texts), -1], np.int64)))
        gaps += [replace(gap.moved(numbers[part]), decides=decides[i]) for gap in one.gaps]
    return placed(found), concatenated(marks), tuple(texts.lines), longest_gaps(gaps)


def _areas(
    run: Run,
    narrowing: Narrowing,
    found: Sequence[Band],
    drawn: Sequence[tuple[int, DrawnBand]],
    whole: tuple[int, int],
    opening: tuple[int, int],
) -> tuple[Area, ...]:
    """GPU counters of all bands; parts are looked at once more where there are some."""
    sampled = {(one.band.process, one.band.device): one.sampled for _, one in drawn if one.sampled}
    if not sampled:
        return ()
    room = points_for(sum(len(names) for names in sampled.values()))
    areas = []
    for part in run.parts(narrowing):
        here = set(as_int64(part.ops.process).tolist())
        for band in found:
            names = sampled.get((band.process, band.device), ()) if band.process in here else ()
            rows = [row.number for row in band.rows if row.kind == "counter"]
            for name, row in zip(names, rows, strict=False):
                areas.append(area(part, band.process, band.device, name, row, whole, opening=opening, points=room))
    return tuple(sorted(areas, key=lambda one: one.row))


def folds(picture: Picture) -> bool:
    """Whether some bands are not shown at first."""
    return not all(band.shown for band in picture.bands)


def folded(picture: Picture) -> Picture:
    """The picture with those bands alone that are shown at first."""
    return _with_rows(picture, lambda row: True, [band for band in picture.bands if band.shown])


def on_gpu_only(picture: Picture) -> Picture:
    """The picture without its host rows."""
    return _with_rows(picture, lambda row: row.kind not in HOST_ROWS, picture.bands)


def in_view(picture: Picture) -> Picture:
    """What is seen as the picture opens, without rows on which that is nothing: for one that stands still.

    Rows of ranges, of what held a side and of streams without A or B go, too, where all on them is too short to see,
    and rows of ranges that are as good as empty.
    """
    marks = picture.marks.take((picture.marks.end > picture.low_ns) & (picture.marks.start < picture.high_ns))
    length = np.minimum(marks.end, picture.high_ns) - np.maximum(marks.start, picture.low_ns)
    seen_ns = picture.high_ns - picture.low_ns
    is_side = np.isin(marks.role, [ROLE[name] for name in ("a", "a-wait", "b", "b-wait", "race")])
    rows = set(marks.row[marks.role != ROLE["sync-end"]].tolist())
    clear = set(marks.row[(SEEN * length >= seen_ns) | is_side].tolist())
    in_row = np.bincount(marks.row, np.maximum(length, 0), minlength=int(marks.row.max(initial=0)) + 1)
    sparse = set(np.flatnonzero(SEEN_RANGES * in_row < seen_ns).tolist())

    def keep(row: Row) -> bool:
        if row.kind in WORTHLESS_UNSEEN and row.number not in clear:
            return False
        if row.kind in ("ranges", "projected") and row.number in sparse:
            return False
        return row.number in rows or row.kind in ALWAYS

    return _with_rows(replace(picture, marks=marks), keep, picture.bands)


def _with_rows(picture: Picture, keep: Callable[[Row], bool], bands: Sequence[Band]) -> Picture:
    """Some of its bands with some of their rows, and what stands on these."""
    kept = placed([replace(band, rows=tuple(row for row in band.rows if keep(row))) for band in bands])
    rows = {row.number for band in kept for row in band.rows}
    gaps = tuple(one for one in picture.gaps if one.row in rows)
    areas = tuple(one for one in picture.areas if one.row in rows)
    marks = picture.marks.take(np.isin(picture.marks.row, list(rows)))
    return replace(picture, bands=kept, marks=marks, gaps=gaps, areas=areas)


def worst_gaps(picture: Picture) -> list[Gap]:
    """Of the rank that decides, the gap in which the other side ran longest, of those whose end is seen as it opens.

    Of several runs below each other that of each.
    """
    band_of = {row.number: number for number, band in enumerate(picture.bands) for row in band.rows}
    seen = [one for one in picture.gaps if one.decides and picture.low_ns < one.high_ns < picture.high_ns]
    first = {band_of[one.row]: one for one in reversed(seen)}
    return [first[number] for number in sorted(first)]


def _title(rank: RankOverlap) -> str:
    if rank.overlap_ratio is None:
        return f"rank {rank.rank}, device {rank.device}: not both sides ran"
    plain = f"{duration(rank.overlap_ns)} = {percent(rank.overlap_ratio, apparent=rank.is_apparent)}"
    real = f"{duration(rank.real_overlap_ns)} = {percent(rank.real_overlap_ratio)}"
    waits = bool(rank.a.wait_ns or rank.b.wait_ns)
    where = f"rank {rank.rank}, device {rank.device}: {'real ' if waits and plain == real else ''}overlap"
    over = (
        f" over {count_of(rank.steps.numbers.size, 'step')}" if rank.steps is not None else ""
    )  # the headline is a step's
    return f"{where} {plain} of the shorter side{over}" + (f"; real {real}" if waits and plain != real else "")
