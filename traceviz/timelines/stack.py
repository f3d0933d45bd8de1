"""Timelines below each other on one time axis: of several runs, or a captured one above what is predicted of it.

A step of each begins at 0, or its typical instance.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate

import numpy as np
from msgspec.structs import replace

from analyzers.common.errors import TracevizError, TraceWarning
from analyzers.common.records import Record
from analyzers.compare.results import Comparison
from analyzers.compare.steps import StepMarks, group_steps, step_times
from analyzers.replay.answer import what_if
from analyzers.replay.change import Change
from analyzers.replay.predict import Replayed
from analyzers.replay.predicted import predicted_trace
from analyzers.syncs.order_report import order_report
from analyzers.trace.devices import DeviceKey
from analyzers.trace.narrow import Narrowing, only_ops
from analyzers.trace.run import ALL, Run
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from analyzers.verdict.result import OverlapResult
from analyzers.verdict.with_order import check_with_order
from traceviz.output.quantities import duration
from traceviz.output.views.compare import headline
from traceviz.timelines.marks import concatenated, fit
from traceviz.timelines.picture import MOST_MARKS, Picture, picture
from traceviz.timelines.rows import placed
from traceviz.timelines.shown import MOST_BANDS, Shown

ROOM_PARTS = 50  # behind the last step's end, one of so many parts of what is seen
CLOCK = "a clock that starts with each run's instance"
CLOCK_OF_STEPS = "a clock that starts with each run's step, both ends of which are dashed lines"
CAPTURED, PREDICTED = "captured", "PREDICTED, not measured"
Span = tuple[int, int]


def compared(result: Comparison, runs: Sequence[Trace | Run], narrowing: Narrowing = ALL) -> Picture:
    """The compared runs, or a part of each, each checked and drawn as by itself, below each other.

    Where they have steps in common, that of each which took the median time begins at 0, and both its ends are marked.
    """
    asked = [Run.of(run) for run in runs]
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
    return replace(both, clock=CLOCK_OF_STEPS, low_ns=0, high_ns=both.high_ns + both.high_ns // ROOM_PARTS)


class DrawnStep(Record, frozen=True):
    """The step of a run that is drawn: its ends on each (rank, device), ns, and in words which it is and why."""

    number: int
    ends: dict[DeviceKey, Span]
    text: str

    @property
    def span(self) -> Span:
        """From the first rank's begin to the last one's end, ns."""
        return min(low for low, _ in self.ends.values()), max(high for _, high in self.ends.values())


def median_step(run: Run, result: Comparison, narrowing: Narrowing = ALL) -> DrawnStep | None:
    """Of the steps that all runs have, a run's median one by its time on the slowest device (the lower of two).

    None where the runs have no steps in common.
    """
    found: dict[DeviceKey, dict[int, Span]] = {}
    for answer in run.map(partial(step_spans, marks=StepMarks.of(run.trace)), narrowing).values():
        found |= {key: spans for key, spans in answer.items() if not result.ranks or key[0] in result.ranks}
    ends = {number: {key: spans[number] for key, spans in found.items() if number in spans} for number in result.steps}
    times = {number: max(high - low for low, high in some.values()) for number, some in ends.items() if some}
    if not times:
        return None
    ranked = sorted(times.values())
    number = min(number for number, ns in times.items() if ns == ranked[(len(ranked) - 1) // 2])
    slowest = max(ends[number], key=lambda key: ends[number][key][1] - ends[number][key][0])
    of = f", the median of {len(ranked)} common steps" if len(ranked) > 1 else ", the only common step"
    return DrawnStep(number, ends[number], f"step {number}{of}: {duration(times[number])} on rank {slowest[0]}")


def step_spans(trace: Trace, marks: StepMarks) -> dict[DeviceKey, dict[int, Span]]:
    """By (rank, device) of a trace, or of a part of a run whose marks are given: from when to when each step took, ns.

    A step ends with its last op, and begins where the step before it ended, the first one with its first op.
    """
    if not marks.marked or not len(trace.ops):
        return {}
    groups = group_steps(trace, marks)
    starts, ends = trace.ops.start_ns, trace.ops.end_ns
    last = np.full(groups.size, np.iinfo(np.int64).min)
    inside = groups.group >= 0
    np.maximum.at(last, groups.group[inside], ends[inside])
    end = last.reshape(groups.there.shape)
    start = end - step_times(groups, starts, ends).reshape(groups.there.shape)
    return {
        (rank, device): {
            number: (low, high)
            for number, low, high in zip(
                groups.numbers[there].tolist(), start[row, there].tolist(), end[row, there].tolist(), strict=True
            )
        }
        for row, ((rank, _), device, there) in enumerate(zip(groups.lanes, groups.devices, groups.there, strict=True))
    }


def _with_ends(one: Picture, step: DrawnStep) -> Picture:
    """A run's picture that says which step it is of, and marks its ends on each rank that has it."""
    ends, bands = [], []
    for band in one.bands:
        if span := step.ends.get((band.rank, band.device)):
            ends.append((band.row("overlap"), *span))
            where, _, rest = band.title.partition(":")
            title = f"{where}, step {step.number} took {duration(span[1] - span[0])}:{rest}"
            bands.append(replace(band, title=title))
        else:
            bands.append(band)
    shown = replace(one.shown, text=step.text, title="", label=f"step {step.number}")
    return replace(one, bands=tuple(bands), shown=shown, ends=tuple(ends))


def with_predicted(
    trace: Trace,
    captured: Picture,
    result: OverlapResult,
    changes: Sequence[Change],
    window: tuple[int, int] | None = None,
) -> Picture:
    """A picture of a run with that of the changed run beneath.

    Parameters
    ----------
    captured, result : of this trace. window : what it opens on, ns, where that is not an instance.

    Raises
    ------
    TracevizError : the replay can't predict this capture, or the changes have nothing to change in it.
    """
    found = what_if(trace, changes, result.a, result.b)
    if not found.changes:
        raise TracevizError(f"Nothing can be predicted: {found.reason}.", exit_code=found.exit_code)
    whole = predicted_trace(Replayed(trace, result.a, result.b), changes)
    part = whole if trace.rows is None else only_ops(whole, trace.rows)
    checked = check_overlap(part, result.a, result.b, min_overlap=result.bar)
    same = [one for rank in checked.ranks for one in rank.instances if one.label == captured.shown.label]
    if window is None and same:
        window = min(one.start_ns for one in same), max(one.end_ns for one in same)
    drawn = picture(part, checked, order_report(part), window=window)
    drawn = replace(drawn, shown=replace(drawn.shown, text=f"{captured.shown.label or 'the same'}, as predicted"))
    both = stacked([captured, replace(drawn, warnings=())], [CAPTURED, PREDICTED], f"What if? {found.sentence}")
    return replace(both, warnings=captured.warnings)


def stacked(pictures: Sequence[Picture], labels: Sequence[str], title: str) -> Picture:
    """Put runs on one axis: by rank, and of each rank the runs in order; what each shows begins at 0.

    Where there are too many bands, those of the rank that decides the first run's verdict are shown at first.

    Parameters
    ----------
    pictures : of the same pair, one a run; labels : what the runs are called.
    """
    rows = accumulate((sum(len(band.rows) for band in one.bands) for one in pictures), initial=0)
    texts = accumulate((len(one.texts) for one in pictures), initial=0)
    moved = [_moved(*each) for each in zip(pictures, labels, rows, texts, strict=False)]
    by_rank = sorted(
        (band.rank, band.device, run, k) for run, one in enumerate(moved) for k, band in enumerate(one.bands)
    )
    bands = [moved[run].bands[k] for _, _, run, k in by_rank]
    where = pictures[0].shown.rank, pictures[0].shown.device
    if len(bands) > MOST_BANDS and any((band.rank, band.device) == where for band in bands):
        bands = [replace(band, shown=(band.rank, band.device) == where) for band in bands]
    marks = concatenated([one.marks for one in moved])
    low, high = min(one.low_ns for one in moved), max(one.high_ns for one in moved)
    sentence = "; ".join(f"{label}: {one.shown.text}" for one, label in zip(pictures, labels, strict=True))
    end = max(one.shown.end_ns for one in moved)
    return Picture(
        bands=placed(bands),
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
        warnings=tuple(warning for one in moved for warning in one.warnings),
        apparent=any(one.apparent for one in pictures),
        gaps=tuple(
            sorted((gap for one in moved for gap in one.gaps), key=lambda gap: (not gap.decides, -gap.alone_ns))
        ),
        active_ns=(min(one.active_ns[0] for one in moved), max(one.active_ns[1] for one in moved)),
        ends=tuple(end for one in moved for end in one.ends),
        areas=tuple(area for one in moved for area in one.areas),
    )


def _moved(one: Picture, label: str, first_row: int, first_text: int) -> Picture:
    """A run's picture under its label, what it shows begun at 0, its rows and texts numbered from these on."""
    zero_ns = one.shown.start_ns
    rows = np.append(first_row + np.arange(sum(len(band.rows) for band in one.bands)), -1)
    texts = np.append(first_text + np.arange(len(one.texts)), -1)
    return replace(
        one,
        bands=tuple(replace(band.renumbered(rows), title=f"{label}: {band.title}") for band in one.bands),
        marks=one.marks.moved(rows, texts, zero_ns),
        shown=replace(one.shown, start_ns=0, end_ns=one.shown.end_ns - zero_ns),
        low_ns=one.low_ns - zero_ns,
        high_ns=one.high_ns - zero_ns,
        warnings=tuple(TraceWarning(warning.code, f"{label}: {warning.message}") for warning in one.warnings),
        gaps=tuple(gap.moved(rows, zero_ns) for gap in one.gaps),
        active_ns=(one.active_ns[0] - zero_ns, one.active_ns[1] - zero_ns),
        ends=tuple((int(rows[row]), low - zero_ns, high - zero_ns) for row, low, high in one.ends),
        areas=tuple(replace(area, row=int(rows[area.row]), start=area.start - zero_ns) for area in one.areas),
    )
