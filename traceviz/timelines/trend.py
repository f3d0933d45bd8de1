"""The answer of `history` as a plot: one page that needs no network."""

from __future__ import annotations

import html
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from analyzers.common.errors import TracevizError
from traceviz.history.trends import VERDICTS, PairTrend
from traceviz.output.document import plain
from traceviz.timelines.document import document, plotly
from traceviz.timelines.files import write_bytes
from traceviz.timelines.palette import FONT
from traceviz.timelines.texts import side_name

if TYPE_CHECKING:
    from traceviz.history.database import SavedRun

MEASURED, EXPECTED, BAR = "#0072B2", "#E69F00", "#009E73"  # told apart by colour-blind readers (Okabe and Ito)
WORSE, BETTER = "#D55E00", "#009E73"
SYMBOLS = {"better": "triangle-up", "worse": "triangle-down"}
NEUTRAL = "#767676"  # text and lines that can be read on light ground and on dark
MOST_COMMITS = 30  # above which not each run's commit is written
_ROW = 280  # px of a plot's row


def write_plot(found: Sequence[PairTrend], path: Path) -> None:
    """Draw each pair's overlap and step time over its runs, into one page that needs no network.

    With the bar, where the newest run was expected, and the runs at which the verdict changed.

    Raises
    ------
    TracevizError : the file can't be written, or is to be no .html.
    """
    if path.suffix.lower() not in (".html", ".htm"):
        raise TracevizError("The plot is a page.", path=path, hint="Name it .html.")
    from plotly import graph_objects
    from plotly.subplots import make_subplots

    titles = [
        f"{_quoted(side_name(one.a))} overlapped with {_quoted(side_name(one.b))}, {_quoted(one.gpus)}: {what}"
        for one in found
        for what in (one.overlap_name, "step time")
    ]
    rows = max(1, 2 * len(found))
    figure = make_subplots(rows=rows, cols=1, subplot_titles=titles, vertical_spacing=min(0.3, 0.4 / rows))
    for i, one in enumerate(found):
        at = list(range(len(one.runs)))
        flips = [""] + [_flip(before, after) for before, after in pairwise(one.runs)]
        hovers = [_about(run, flip) for run, flip in zip(one.runs, flips, strict=True)]
        ratios = [None if run.real_overlap_ratio is None else 100 * run.real_overlap_ratio for run in one.runs]
        steps = [None if run.step_ns is None else run.step_ns / 1e6 for run in one.runs]
        figures = ((ratios, f"{one.overlap_name}, %", one.overlap, 100.0), (steps, "step time, ms", one.step, 1e-6))
        for below, (values, name, judged, scale) in enumerate(figures):
            row = 2 * i + below + 1
            colors = [{"better": BETTER, "worse": WORSE}.get(flip, MEASURED) for flip in flips]
            marker = {"color": colors, "size": [12 if flip else 8 for flip in flips]}
            marker["symbol"] = [
                {"better": "triangle-up", "worse": "triangle-down"}.get(flip, "circle") for flip in flips
            ]
            shown = {"x": at, "y": values, "customdata": hovers, "name": name, "showlegend": False}
            line = {"mode": "lines+markers", "marker": marker, "line": {"color": MEASURED}}
            hover = f"{name}: %{{y:.3~g}}<br>%{{customdata}}<extra></extra>"
            figure.add_trace(graph_objects.Scatter(**shown, **line, hovertemplate=hover), row=row, col=1)
            figure.update_yaxes(title_text=name, rangemode="tozero", row=row, col=1)
            if values is ratios:
                figure.update_yaxes(range=[-4, 104], row=row, col=1)
                bars = [None if run.bar is None else 100 * run.bar for run in one.runs]
                dashed = {"mode": "lines", "line": {"color": BAR, "dash": "dash", "shape": "hvh"}}
                about = {
                    "name": "threshold",
                    "showlegend": False,
                    "hovertemplate": "threshold %{y:.3~g} %<extra></extra>",
                }
                figure.add_trace(graph_objects.Scatter(x=at, y=bars, **dashed, **about), row=row, col=1)
            if judged is not None and judged.low is not None and judged.high is not None:
                low, high = judged.low * scale, judged.high * scale
                figure.add_shape(
                    type="rect", x0=at[-1] - 0.4, x1=at[-1] + 0.4, y0=low, y1=high, opacity=0.25,
                    fillcolor=EXPECTED, line_width=0, row=row, col=1,
                )  # fmt: skip
            every = -(-len(at) // MOST_COMMITS)
            figure.update_xaxes(
                tickvals=at[::every], ticktext=[_tick(run) for run in one.runs][::every], row=row, col=1
            )
    axes = {"gridcolor": NEUTRAL, "griddash": "dot", "gridwidth": 0.5, "zeroline": False}
    figure.update_xaxes(showgrid=False, zeroline=False, tickangle=0)
    figure.update_yaxes(**axes)
    figure.update_layout(
        height=_ROW * rows, margin={"l": 70, "r": 20, "t": 40, "b": 50}, font={"color": NEUTRAL, "family": FONT},
        paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)", hoverlabel={"align": "left"},
    )  # fmt: skip
    plot = figure.to_html(full_html=False, include_plotlyjs=False, div_id="trend", config={"displayModeBar": False})
    keys = (
        "Dashed: the threshold. Shaded: where the newest run was expected, by those before. ▲ ▼: the verdict changed "
        "for the better, for the worse. Point at a run for its commit, time, host and verdict."
    )
    body = f'<h1>How the overlap went</h1>\n<p class="about">{keys}</p>\n<script>{plotly()}</script>\n{plot}'
    write_bytes(path, document("How the overlap went", body, scripts=False).encode())


def _flip(before: SavedRun, after: SavedRun) -> str:
    """Whether a verdict is "better" or "worse" than the one before; "" where it is the same or tells nothing."""
    if before.verdict not in VERDICTS or after.verdict not in VERDICTS or before.verdict == after.verdict:
        return ""
    return "better" if VERDICTS.index(after.verdict) > VERDICTS.index(before.verdict) else "worse"


def _tick(run: SavedRun) -> str:
    return _quoted(run.commit_id[:9]) or f"run {run.id}"


def _about(run: SavedRun, flip: str) -> str:
    change = {"better": " (was worse before)", "worse": " (was better before)"}.get(flip, "")
    lines = [f"<b>{_quoted(run.verdict)}</b>{change}", f"run {run.id}"]
    lines += [f"commit {_quoted(run.commit_id[:12])}"] * bool(run.commit_id)
    return "<br>".join([*lines, f"{_quoted(run.saved_utc[:19].replace('T', ' '))} UTC", _quoted(run.host)])


def _quoted(text: str) -> str:
    """Plotly shows a subset of HTML in texts: other people's names must not be any."""
    return html.escape(plain(text))
