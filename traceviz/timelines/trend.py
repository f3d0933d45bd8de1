"""The answer of `history` as a plot: one page that needs no network."""

from __future__ import annotations

import html
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from analyzers.common.errors import TracevizError
from analyzers.compare.noise import Trend
from traceviz.history.trends import VERDICTS, PairTrend
from traceviz.output.document import plain
from traceviz.timelines.files import write_bytes
from traceviz.timelines.page import document, plotly
from traceviz.timelines.palette import BLUE, FONT, GREEN, ORANGE, VERMILLION
from traceviz.timelines.texts import side_name

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from traceviz.history.database import SavedRun

MEASURED, EXPECTED, BAR = BLUE, ORANGE, GREEN
FLIPS = {"better": ("triangle-up", GREEN, 12), "worse": ("triangle-down", VERMILLION, 12), "": ("circle", BLUE, 8)}
NEUTRAL = "#767676"  # text and lines that can be read on light ground and on dark
MOST_COMMITS = 30  # above which not each run's commit is written
_ROW = 280  # px of a plot's row
TREND_KEYS = (
    "Dashed: the threshold. Shaded: where the newest run was expected, by those before. ▲ ▼: the verdict changed "
    "for the better, for the worse. Point at a run for its commit, time, host and verdict."
)


def write_plot(found: Sequence[PairTrend], path: Path) -> None:
    """Draw each pair's overlap and step time over its runs, into one page that needs no network.

    With the bar, where the newest run was expected, and the runs at which the verdict changed.

    Raises
    ------
    TracevizError : the file can't be written, or is to be no .html.
    """
    if path.suffix.lower() not in (".html", ".htm"):
        raise TracevizError("The plot is a page.", path=path, hint="Name it .html.")
    from plotly.subplots import make_subplots

    titles = [
        f"{_quoted(side_name(one.a))} overlapped with {_quoted(side_name(one.b))}, {_quoted(one.gpus)}: {what}"
        for one in found
        for what in (one.overlap_name, "step time")
    ]
    rows = max(1, 2 * len(found))
    figure = make_subplots(rows=rows, cols=1, subplot_titles=titles, vertical_spacing=min(0.3, 0.4 / rows))
    for i, one in enumerate(found):
        ratios = [None if run.real_overlap_ratio is None else 100 * run.real_overlap_ratio for run in one.runs]
        bars = [None if run.bar is None else 100 * run.bar for run in one.runs]
        steps = [None if run.step_ns is None else run.step_ns / 1e6 for run in one.runs]
        _draw(figure, 2 * i + 1, one.runs, f"{one.overlap_name}, %", ratios, _expected(one.overlap, 100.0), bars)
        _draw(figure, 2 * i + 2, one.runs, "step time, ms", steps, _expected(one.step, 1e-6))
    axes = {"gridcolor": NEUTRAL, "griddash": "dot", "gridwidth": 0.5, "zeroline": False}
    figure.update_xaxes(showgrid=False, zeroline=False, tickangle=0)
    figure.update_yaxes(**axes)
    figure.update_layout(
        height=_ROW * rows, margin={"l": 70, "r": 20, "t": 40, "b": 50}, font={"color": NEUTRAL, "family": FONT},
        paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)", hoverlabel={"align": "left"},
    )  # fmt: skip
    plot = figure.to_html(full_html=False, include_plotlyjs=False, div_id="trend", config={"displayModeBar": False})
    body = f'<h1>How the overlap went</h1>\n<p class="about">{TREND_KEYS}</p>\n<script>{plotly()}</script>\n{plot}'
    write_bytes(path, document("How the overlap went", body, scripts=False).encode())


def _draw(
    figure: go.Figure,
    row: int,
    runs: Sequence[SavedRun],
    name: str,
    values: Sequence[float | None],
    expected: tuple[float, float] | None,
    bars: Sequence[float | None] | None = None,
) -> None:
    """One value over the runs, its thresholds, and where the newest run's was expected."""
    from plotly import graph_objects

    at = list(range(len(runs)))
    flips = [""] + [_flip(before, after) for before, after in pairwise(runs)]
    symbols, colors, sizes = (list(column) for column in zip(*(FLIPS[flip] for flip in flips), strict=True))
    figure.add_trace(
        graph_objects.Scatter(
            x=at, y=values, name=name, showlegend=False, mode="lines+markers", line={"color": MEASURED},
            customdata=[_about(run, flip) for run, flip in zip(runs, flips, strict=True)],
            marker={"color": colors, "size": sizes, "symbol": symbols},
            hovertemplate=f"{name}: %{{y:.3~g}}<br>%{{customdata}}<extra></extra>",
        ),
        row=row, col=1,
    )  # fmt: skip
    figure.update_yaxes(title_text=name, rangemode="tozero", row=row, col=1)
    if bars is not None:
        figure.update_yaxes(range=[-4, 104], row=row, col=1)
        figure.add_trace(
            graph_objects.Scatter(
                x=at, y=bars, name="threshold", showlegend=False, mode="lines",
                line={"color": BAR, "dash": "dash", "shape": "hvh"},
                hovertemplate="threshold %{y:.3~g} %<extra></extra>",
            ),
            row=row, col=1,
        )  # fmt: skip
    if expected is not None:
        figure.add_shape(
            type="rect", x0=at[-1] - 0.4, x1=at[-1] + 0.4, y0=expected[0], y1=expected[1], opacity=0.25,
            fillcolor=EXPECTED, line_width=0, row=row, col=1,
        )  # fmt: skip
    every = -(-len(at) // MOST_COMMITS)
    names = [_quoted(run.commit_id[:9]) or f"run {run.id}" for run in runs]
    figure.update_xaxes(tickvals=at[::every], ticktext=names[::every], row=row, col=1)


def _expected(judged: Trend | None, scale: float) -> tuple[float, float] | None:
    if judged is None or judged.low is None or judged.high is None:
        return None
    return judged.low * scale, judged.high * scale


def _flip(before: SavedRun, after: SavedRun) -> str:
    """Whether a verdict is "better" or "worse" than the one before; "" where it is the same or tells nothing."""
    if before.verdict not in VERDICTS or after.verdict not in VERDICTS or before.verdict == after.verdict:
        return ""
    return "better" if VERDICTS.index(after.verdict) > VERDICTS.index(before.verdict) else "worse"


def _about(run: SavedRun, flip: str) -> str:
    change = {"better": " (was worse before)", "worse": " (was better before)"}.get(flip, "")
    lines = [f"<b>{_quoted(run.verdict)}</b>{change}", f"run {run.id}"]
    lines += [f"commit {_quoted(run.commit_id[:12])}"] * bool(run.commit_id)
    return "<br>".join([*lines, f"{_quoted(run.saved_utc[:19].replace('T', ' '))} UTC", _quoted(run.host)])


def _quoted(text: str) -> str:
    """Plotly shows a subset of HTML in texts: other people's names must not be any."""
    return html.escape(plain(text))
