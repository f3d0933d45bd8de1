"""Timelines of several runs below each other on one time axis: a step of each begins at 0, or its typical instance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import numpy as np
from msgspec.structs import replace

from analyzers.common.errors import TraceWarning
from analyzers.compare.results import Comparison
from analyzers.trace.narrow import Narrowing
from analyzers.trace.run import ALL, PartitionedRun, as_run
from analyzers.trace.tables import Trace
from analyzers.verdict.with_order import check_with_order
from traceviz.output.quantities import duration
from traceviz.output.views.compare import headline
from traceviz.timelines.fold import MOST_BANDS
from traceviz.timelines.marks import NEVER, Marks, concatenated, fit
from traceviz.timelines.parts import Gap
from traceviz.timelines.picture import MOST_MARKS, Picture, picture
from traceviz.timelines.rows import Band, placed, renumbered
from traceviz.timelines.shown import Shown
from traceviz.timelines.steps import DrawnStep, median_step

ROOM = 50  # behind the last step's end, one of so many parts of what is seen
CLOCK = "a clock that starts with each run's instance"
CLOCK_OF_STEPS = "a clock that starts with each run's step, both ends of which are dashed lines"


def compared(result: Comparison, runs: Sequence[Trace | PartitionedRun], narrowing: Narrowing = ALL) -> Picture:
    """The compared runs, or a part of each, each checked and drawn as by itself, below each other.

    Where they have steps in common, that of each which took the median time begins at 0, and both its ends are marked.
    """
    asked = [as_run(run) for run in runs]
    steps = [median_step(run, result, narrowing) for run in asked]
    drawn = [
        picture(
            run,
            *check_with_order(run, result.a, result.b, narrowing=narrowing),
            window=step.span if step is not None else None,
            narrowing=narrowing,
        )
        for run, step in zip(asked, steps, strict=True)
    ]
    labels = [run.label for run in result.runs]
    found = [step for step in steps if step is not None]
    if len(found) < len(drawn):
        return stacked(drawn, labels, headline(result))
    drawn = [_with_ends(one, step) for one, step in zip(drawn, found, strict=True)]
    both = stacked(drawn, labels, headline(result))
    return replace(both, clock=CLOCK_OF_STEPS, low_ns=0, high_ns=both.high_ns + both.high_ns // ROOM)


def _with_ends(one: Picture, step: DrawnStep) -> Picture:
    """A run's picture that says which step it is of, and marks its ends on each rank that has it."""
    there = [(band, step.ends.get((band.rank, band.device))) for band in one.bands]
    ends = tuple((band.row("overlap"), *span) for band, span in there if span is not None)
    bands = tuple(
        replace(band, title=_with_step(band.title, step.number, span) if span is not None else band.title)
        for band, span in there
    )
    shown = replace(one.shown, text=step.text, title="", label=f"step {step.number}")
    return replace(one, bands=bands, shown=shown, ends=ends)


def _with_step(title: str, number: int, span: tuple[int, int]) -> str:
    """A band's title with its step, behind the rank and device."""
    where, _, rest = title.partition(":")
    return f"{where}, step {number} took {duration(span[1] - span[0])}:{rest}"


def stacked(pictures: Sequence[Picture], labels: Sequence[str], title: str) -> Picture:
    """Put runs on one axis: by rank, and of each rank the runs in order; what each shows begins at 0.

    Where there are too many bands, those of the rank that decides the first run's verdict are shown at first.

    Parameters
    ----------
    pictures : of the same pair, one a run; labels : what the runs are called.
    """
    zeros = [one.shown.start_ns for one in pictures]
    rows = np.cumsum([0] + [sum(len(band.rows) for band in one.bands) for one in pictures]).tolist()
    texts = np.cumsum([0] + [len(one.texts) for one in pictures]).tolist()
    bands = [
        (band.rank, band.device, run, _renumbered(band, rows[run], labels[run]))
        for run, one in enumerate(pictures)
        for band in one.bands
    ]
    where = pictures[0].shown.rank, pictures[0].shown.device
    if len(bands) > MOST_BANDS:
        has_decisive_band = any((rank, device) == where for rank, device, *_ in bands)
        bands = [
            (rank, device, run, replace(band, shown=(rank, device) == where if has_decisive_band else band.shown))
            for rank, device, run, band in bands
        ]
    marks = concatenated(
        [_moved(one.marks, *offsets) for one, *offsets in zip(pictures, zeros, rows, texts, strict=False)]
    )
    low = min(one.low_ns - zero for one, zero in zip(pictures, zeros, strict=True))
    high = max(one.high_ns - zero for one, zero in zip(pictures, zeros, strict=True))
    end = max(one.shown.end_ns - zero for one, zero in zip(pictures, zeros, strict=True))
    sentence = "; ".join(f"{label}: {one.shown.text}" for one, label in zip(pictures, labels, strict=True))
    return Picture(
        bands=placed([band for *_, band in sorted(bands, key=lambda one: one[:3])]),
        marks=marks if marks.size <= MOST_MARKS else fit(marks, low, high, MOST_MARKS, fine=1),
        texts=tuple(text for one in pictures for text in one.texts),
        names=pictures[0].names,
        headline=title,
        shown=Shown(0, end, sentence, where[0], pictures[0].shown.label, where[1]),
        low_ns=low,
        high_ns=high,
        first_ns=int(marks.start.min()),
        last_ns=int(marks.end.max()),
        clock=CLOCK,
        warnings=tuple(
            TraceWarning(warning.code, f"{label}: {warning.message}")
            for one, label in zip(pictures, labels, strict=True)
            for warning in one.warnings
        ),
        apparent=any(one.apparent for one in pictures),
        gaps=tuple(
            sorted(
                (
                    _moved_gap(gap, zero, row)
                    for one, zero, row in zip(pictures, zeros, rows, strict=False)
                    for gap in one.gaps
                ),
                key=lambda gap: (not gap.decides, -gap.alone_ns),
            )
        ),
        active_ns=(
            min(one.active_ns[0] - zero for one, zero in zip(pictures, zeros, strict=True)),
            max(one.active_ns[1] - zero for one, zero in zip(pictures, zeros, strict=True)),
        ),
        ends=tuple(
            (row + offset, low - zero, high - zero)
            for one, zero, offset in zip(pictures, zeros, rows, strict=False)
            for row, low, high in one.ends
        ),
        areas=tuple(
            replace(area, row=area.row + row, start=area.start - zero)
            for one, zero, row in zip(pictures, zeros, rows, strict=False)
            for area in one.areas
        ),
    )


def _renumbered(band: Band, by: int, label: str) -> Band:
    moved = renumbered(band, {row.number: row.number + by for row in band.rows})
    return replace(moved, title=f"{label}: {band.title}")


def _moved(marks: Marks, zero: int, rows: int, texts: int) -> Marks:
    """The marks with their run's instance at 0, on rows and with texts that come after those of the runs before."""
    columns = {one.name: getattr(marks, one.name) for one in fields(Marks)}
    for name in ("start", "end", "launch", "after"):
        columns[name] = np.where(columns[name] == NEVER, NEVER, columns[name] - zero)
    for name, by in (("row", rows), ("launch_row", rows), ("after_row", rows), ("name", texts), ("extra", texts)):
        columns[name] = np.where(columns[name] < 0, columns[name], columns[name] + by)
    return Marks(**columns)


def _moved_gap(gap: Gap, zero: int, rows: int) -> Gap:
    links = tuple(
        (kind, start - zero, from_row + rows, end - zero, to_row + rows)
        for kind, start, from_row, end, to_row in gap.links
    )
    return replace(gap, row=gap.row + rows, low_ns=gap.low_ns - zero, high_ns=gap.high_ns - zero, links=links)
