"""The answer of `history` as a plot: one page that needs no network."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path

from analyzers.common.errors import TracevizError
from traceviz.history.trends import PairTrend
from traceviz.output.document import plain
from traceviz.timelines.files import write_bytes
from traceviz.timelines.page import document

MEASURED, EXPECTED = "#0072B2", "#E69F00"  # told apart by colour-blind readers too (Okabe and Ito)
MANY_RUNS = 30  # above which not each of them is labelled
_ROW = 280  # px of a plot's row


def write_plot(found: Sequence[PairTrend], path: Path) -> None:
    """Draw each pair's overlap and step time over its runs, into one page that needs no network.

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
    for i, one in enumerate(found):
        ids = [run.id for run in one.runs]
        notes = [f"run {run.id}<br>{_quoted(run.commit_id[:12])}<br>{_quoted(run.saved_utc)}" for run in one.runs]
        ratios = [None if run.real_overlap_ratio is None else 100 * run.real_overlap_ratio for run in one.runs]
        steps = [None if run.step_ns is None else run.step_ns / 1e6 for run in one.runs]
        figures = ((ratios, f"{one.overlap_name}, %", one.overlap, 100.0), (steps, "step time, ms", one.step, 1e-6))
        for below, (values, name, judged, scale) in enumerate(figures):
            row = 2 * i + below + 1
            line = graph_objects.Scatter(
                x=ids, y=values, mode="lines+markers", marker_color=MEASURED, text=notes, name=name, showlegend=False
            )
            figure.add_trace(line, row=row, col=1)
            figure.update_yaxes(title_text=name, rangemode="tozero", row=row, col=1)
            if values is ratios:
                figure.update_yaxes(range=[-4, 104], row=row, col=1)
            if judged is not None and judged.low is not None and judged.high is not None:
                low, high = judged.low * scale, judged.high * scale
                figure.add_shape(
                    type="rect", x0=ids[-1] - 0.4, x1=ids[-1] + 0.4, y0=low, y1=high, opacity=0.25,
                    fillcolor=EXPECTED, line_width=0, row=row, col=1,
                )  # fmt: skip
    figure.update_xaxes(title_text="run", dtick=1 if len(found) and len(found[0].runs) < MANY_RUNS else None)
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
