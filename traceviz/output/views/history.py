"""The answer of `history` as a document and as a plot."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from analyzers.common.errors import TracevizError
from analyzers.compare.noise import LEAST_RUNS, Trend
from traceviz.history.trends import PairTrend
from traceviz.output.document import Block, Headline, Table, plain
from traceviz.output.quantities import duration, percent
from traceviz.timelines.files import write_bytes
from traceviz.timelines.page import document

if TYPE_CHECKING:
    from traceviz.history.database import SavedRun

MOODS = {"regression": "bad", "improvement": "good", "steady": "good", "too-few": "middle"}
MOST_RUNS = 30
MEASURED, EXPECTED = "#0072B2", "#E69F00"  # told apart by colour-blind readers too (Okabe and Ito)
_ROW = 280  # px of a plot's row


def blocks(found: Sequence[PairTrend]) -> list[Block]:
    """Per pair: what its newest run is, and a table of its runs, newest first."""
    if not found:
        return [Headline("NO RUNS", "there is no run of this pair in the history.", "middle")]
    return [block for one in found for block in (_headline(one), _table(one))]


def _headline(one: PairTrend) -> Headline:
    newest = one.runs[-1]
    said = [
        f"real overlap {_said(one.overlap, percent)}" if one.overlap else "no real overlap",
        f"step time {_said(one.step, lambda ns: duration(round(ns)))}" if one.step else "no step time",
    ]
    word = "TOO FEW RUNS" if one.call == "too-few" else one.call.upper()
    return Headline(
        word, f"run {newest.id}, '{one.a}' against '{one.b}' on {one.gpus}: {'; '.join(said)}.", MOODS[one.call]
    )


def _said(one: Trend, shown: Callable[[float], str]) -> str:
    if one.low is None or one.high is None:
        return f"{shown(one.newest)}; {one.before} runs before are too few to tell noise ({LEAST_RUNS} do)"
    span = f"{shown(one.low)} … {shown(one.high)} expected of the {one.before} runs before"
    return f"{shown(one.newest)} ({span}): {one.call}"


def _table(one: PairTrend) -> Table:
    headers = ("run", "saved (UTC)", "commit", "host", "verdict", "real overlap", "step time", "steps")
    rows = [_row(run) for run in reversed(one.runs[-MOST_RUNS:])]
    more = len(one.runs) - MOST_RUNS
    note = f"… and {more} older (--format json has all)" if more > 0 else ""
    return Table(headers, rows, "", frozenset({"run", "real overlap", "step time", "steps"}), note)


def _row(run: SavedRun) -> tuple[str, ...]:
    return (
        str(run.id),
        run.saved_utc.removesuffix("+00:00").replace("T", " "),
        run.commit_id[:12] or "–",
        run.host or "–",
        run.verdict,
        percent(run.real_overlap_ratio),
        "–" if run.step_ns is None else duration(run.step_ns),
        "–" if run.steps is None else str(run.steps),
    )


def write_plot(found: Sequence[PairTrend], path: Path) -> None:
    """Draw each pair's real overlap and step time over its runs, into one page that needs no network.

    Raises
    ------
    TracevizError : the file can't be written, or is to be no .html.
    """
    if path.suffix.lower() not in (".html", ".htm"):
        raise TracevizError("The plot is a page.", path=path, hint="Name it .html.")
    from plotly import graph_objects
    from plotly.subplots import make_subplots

    titles = [f"{_quoted(one.a)} against {_quoted(one.b)}, {_quoted(one.gpus)}" for one in found for _ in (0, 1)]
    figure = make_subplots(rows=max(1, 2 * len(found)), cols=1, subplot_titles=titles)
    for place, one in enumerate(found):
        ids = [run.id for run in one.runs]
        notes = [f"run {run.id}<br>{_quoted(run.commit_id[:12])}<br>{_quoted(run.saved_utc)}" for run in one.runs]
        ratios = [None if run.real_overlap_ratio is None else 100 * run.real_overlap_ratio for run in one.runs]
        steps = [None if run.step_ns is None else run.step_ns / 1e6 for run in one.runs]
        figures = ((ratios, "real overlap, %", one.overlap, 100.0), (steps, "step time, ms", one.step, 1e-6))
        for below, (values, name, judged, scale) in enumerate(figures):
            row = 2 * place + below + 1
            line = graph_objects.Scatter(
                x=ids, y=values, mode="lines+markers", marker_color=MEASURED, text=notes, name=name, showlegend=False
            )
            figure.add_trace(line, row=row, col=1)
            figure.update_yaxes(title_text=name, rangemode="tozero", row=row, col=1)
            if judged is not None and judged.low is not None and judged.high is not None:
                low, high = judged.low * scale, judged.high * scale
                figure.add_shape(
                    type="rect", x0=ids[-1] - 0.4, x1=ids[-1] + 0.4, y0=low, y1=high, opacity=0.25,
                    fillcolor=EXPECTED, line_width=0, row=row, col=1,
                )  # fmt: skip
    figure.update_xaxes(title_text="run", dtick=1 if len(found) and len(found[0].runs) < MOST_RUNS else None)
    figure.update_layout(
        template="plotly_white",
        height=_ROW * 2 * max(1, len(found)),
        title="traceviz history; shaded: where the newest run was expected",
    )
    body = figure.to_html(full_html=False, include_plotlyjs=True, div_id="trend", config={"displaylogo": False})
    write_bytes(path, document("traceviz history", body, scripts=False).encode())


def _quoted(text: str) -> str:
    """Plotly shows a subset of HTML in texts: other people's names must not be any."""
    return html.escape(plain(text))
