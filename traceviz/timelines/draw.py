"""Draw a picture with plotly: every role is a pair of bar traces, single marks and marks that stand for many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from traceviz.timelines.bars import HOVER, NS_PER_MS, bars, labels
from traceviz.timelines.fold import folds
from traceviz.timelines.marks import ROLE, ROLES, Marks, fit
from traceviz.timelines.palette import LIGHT, Theme, group, pale
from traceviz.timelines.picture import Picture, folded
from traceviz.timelines.texts import fixed_name, safe, wrapped

if TYPE_CHECKING:
    import plotly.graph_objects as go

MOST_BARS = 2_400  # at once; what a browser pans smoothly
ROW_PIXELS = 28
TITLE_LETTERS = 105  # in a line, at 1280 pixels
NOTE_LETTERS = 2 * TITLE_LETTERS
LEGEND = [
    "a", "a-wait", "b", "b-wait", "overlap", "overlap-wait", "missed-a", "missed-b", "sync", "race", "other",
    "other-wait", "range-other", "range-a", "range-b",
]  # fmt: skip
RANGES = "the user's ranges on the host"


def legend(picture: Picture) -> dict[str, str]:
    """The roles a picture has, in the order they are drawn, lowest first, with their words in the legend ("": none)."""
    a, b = (safe(name) for name in picture.names)
    present = {ROLES[number] for number in np.unique(picture.marks.role).tolist()}
    descriptions = {
        "launch-other": "",
        "launch-a": "",
        "launch-b": "",
        "range-other": RANGES,
        "range-a": "" if "range-other" in present else RANGES,
        "range-b": "" if {"range-other", "range-a"} & present else RANGES,
        "other": "other GPU work",
        "other-wait": "other collective, waiting",
        "a": f"A: {a}",
        "a-wait": "A, only waiting for a late rank",
        "b": f"B: {b}",
        "b-wait": "B, only waiting for a late rank",
        "overlap": fixed_name("overlap", apparent=picture.apparent),
        "overlap-wait": "overlap with a mere wait",
        "missed-a": "what held A or B (missed overlap)",
        "missed-b": "" if "missed-a" in present else "what held A or B (missed overlap)",
        "sync": "host blocked (sync point)",
        "race": "⚠ missing wait (possible race)",
    }
    return {role: text for role, text in descriptions.items() if role in present}


def figure(
    picture: Picture, *, theme: Theme = LIGHT, slider: bool = True, titled: bool = True, width: int | None = None
) -> go.Figure:
    """Draw a picture, opened on what it shows."""
    import plotly.graph_objects as go

    shown = folded(picture)
    marks = fit(shown.marks, picture.low_ns, picture.high_ns, MOST_BARS)
    traces = [_shade(shown, marks)]
    for role, words in legend(picture).items():
        of_role = marks.take(marks.role == ROLE[role])
        single, many = of_role.take(of_role.count == 1), of_role.take(of_role.count > 1)
        traces.append({**trace(role, words, many=False), **bars(shown, single, ROLE[role])})
        traces.append({**trace(role, words, many=True), **bars(shown, many, ROLE[role])})
        traces.append({**label_trace(role, words), **labels(shown, single, ROLE[role])})
    drawing = go.Figure([go.Bar(one) for one in traces], layout(shown, slider=slider, titled=titled, width=width))
    for one in drawing.data:
        one.update(style(one.meta, theme))
    return drawing.update_layout(layout_style(shown, theme))


def trace(role: str, words: str, *, many: bool) -> dict[str, Any]:
    """A trace without data or colours; `words` stand in the legend."""
    pattern = "/" if _is_wait(role) else ""
    return {
        "type": "bar",
        "orientation": "h",
        "name": words,
        "legendgroup": _legend_group(role),
        "showlegend": bool(words) and not many,
        "meta": {"role": ROLE[role], "many": many},
        "marker": {"pattern": {"shape": pattern, "size": 6, "solidity": 0.2, "fillmode": "replace"}},
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "hovertemplate": HOVER,
        "legendrank": LEGEND.index(role) + 1 if role in LEGEND else 1000,
    }


def label_trace(role: str, words: str) -> dict[str, Any]:
    """A trace of what can't be seen but its text: what stands on marks that the view cuts, within the view."""
    return {
        **trace(role, words, many=False),
        "showlegend": False,
        "meta": {"role": -1, "many": False, "labels": ROLE[role]},
        "marker": {},
        "hoverinfo": "skip",
        "hovertemplate": None,
    }


def _legend_group(role: str) -> str:
    if role.startswith("range-"):
        return "ranges"
    return role if _is_wait(role) else group(role)


def _is_wait(role: str) -> bool:
    """Whether its marks are hatched."""
    return role.endswith("-wait")


def _shade(picture: Picture, marks: Marks) -> dict[str, Any]:
    """The overlap's shade across a band's streams; its lengths stand on the overlap's own row."""
    overlaps = marks.take((marks.role == ROLE["overlap"]) & (marks.count == 1))
    row_spans = [spans(picture)[row] for row in overlaps.row.tolist()]
    return {
        "type": "bar",
        "orientation": "h",
        "base": overlaps.start / NS_PER_MS,
        "x": (overlaps.end - overlaps.start) / NS_PER_MS,
        "y": [middle for middle, _ in row_spans],
        "width": [height for _, height in row_spans],
        "legendgroup": "overlap",
        "showlegend": False,
        "hoverinfo": "skip",
        "opacity": 0.22,
        "meta": {"role": -1, "many": False},
    }


def spans(picture: Picture) -> dict[int, tuple[float, float]]:
    """By the number of a band's overlap row: middle and height of its streams and that row."""
    found = {}
    for band in picture.bands:
        rows = [row for row in band.rows if row.kind in ("stream", "overlap")]
        found[band.row("overlap")] = (rows[0].y + rows[-1].y) / 2, rows[0].y - rows[-1].y + 1
    return found


def about(picture: Picture) -> str:
    """What the picture opens on, whose clock its times are on, and which ranks it shows."""
    text = f"Opens on {picture.shown.text}. Times are on {picture.clock}."
    if not folds(picture.bands):
        return text
    shown = sum(band.shown for band in picture.bands)
    return f"{text} {shown} of {len(picture.bands)} devices are shown: those that speak for the others, and outliers."


def _notes(picture: Picture) -> list[str]:
    """Lines below a picture's headline; warnings by their codes, which the manual explains."""
    codes = ", ".join(dict.fromkeys(one.code for one in picture.warnings))
    return [
        line for text in (about(picture), f"Mind: {codes}." if codes else "") for line in wrapped(text, NOTE_LETTERS)
    ]


def _title(picture: Picture) -> dict[str, Any]:
    lines = [f"<b>{safe(line)}</b>" for line in wrapped(picture.headline, TITLE_LETTERS)]
    lines += [f"<sub>{safe(line)}</sub>" for line in _notes(picture)]
    position = {"x": 0.01, "xanchor": "left", "y": 1, "yanchor": "top", "yref": "container", "pad": {"t": 24}}
    return {"text": "<br>".join(lines), **position, "font": {"size": 16}}


def layout(picture: Picture, *, slider: bool, titled: bool, width: int | None) -> dict[str, Any]:
    """Axes, titles and sizes, without colours."""
    rows = [row for band in picture.bands for row in band.rows]
    bottom = rows[-1].y - 0.6
    lines = len(wrapped(picture.headline, TITLE_LETTERS)), len(_notes(picture))
    top = 60 + 26 * lines[0] + 26 * lines[1] if titled else 80
    titles = [
        {
            "x": 0,
            "y": band.rows[0].top,
            "xref": "paper",
            "xanchor": "left",
            "yanchor": "bottom",
            "showarrow": False,
            "text": f"<b>{safe(band.title)}</b>",
            "font": {"size": 13},
        }
        for band in picture.bands
    ]
    return {
        "barmode": "overlay",
        "bargap": 0,
        "height": int(top + (100 if slider else 30) - bottom * ROW_PIXELS),
        "width": width,
        "margin": {"l": 110, "r": 20, "t": top, "b": 30},
        "title": _title(picture) if titled else None,
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom", "traceorder": "normal"},
        "hovermode": "closest",
        "hoverlabel": {"align": "left", "namelength": -1},
        "dragmode": "pan",
        "annotations": titles,
        "xaxis": {
            "range": [picture.low_ns / NS_PER_MS, picture.high_ns / NS_PER_MS],
            "ticksuffix": " ms",
            "rangeslider": {
                "visible": slider,
                "range": [picture.first_ns / NS_PER_MS, picture.last_ns / NS_PER_MS],
                "thickness": 50 / (-bottom * ROW_PIXELS),
            },
            "zeroline": False,
        },
        "yaxis": {
            "range": [bottom, 0],
            "fixedrange": True,
            "tickvals": [row.y for row in rows],
            "ticktext": [
                "" if row.label == before else f"{row.label} "
                for before, row in zip(["", *(row.label for row in rows)], rows, strict=False)
            ],
            "showgrid": False,
            "zeroline": False,
        },
    }


def style(meta: dict[str, Any], theme: Theme) -> dict[str, Any]:
    """A trace's colours in a theme."""
    number = meta.get("labels", meta["role"])
    role = ROLES[number] if number >= 0 else "overlap"  # across the streams
    is_range = role.startswith("range-")
    fill, text = theme.fill[group(role)]
    if "labels" in meta:
        unseen = {"color": "rgba(0,0,0,0)", "line": {"color": "rgba(0,0,0,0)", "width": 0}}
        return {"marker": unseen, "textfont": {"color": theme.text if is_range or _is_wait(role) else text, "size": 11}}
    if is_range and not meta["many"]:
        outline = {"color": theme.ground, "line": {"color": fill, "width": 1.5}}
        return {"marker": outline, "textfont": {"color": theme.text, "size": 11}}
    if _is_wait(role):
        pattern = {"bgcolor": theme.ground, "fgcolor": fill}
        marker = {"color": fill, "line": {"color": fill, "width": 1}, "pattern": pattern}
        return {"marker": marker, "textfont": {"color": theme.text, "size": 11}}
    if meta["many"]:
        marker = {"color": pale(fill, theme.ground), "line": {"color": fill, "width": 1}}
        return {"marker": marker, "textfont": {"color": theme.text, "size": 11}}
    line = {"color": theme.ground if meta["role"] >= 0 else fill, "width": 0.3}
    return {"marker": {"color": fill, "line": line}, "textfont": {"color": text, "size": 11}}


def layout_style(picture: Picture, theme: Theme) -> dict[str, Any]:
    """The layout's colours in a theme."""
    ground = [
        {
            "type": "rect",
            "xref": "paper",
            "x0": 0,
            "x1": 1,
            "y0": band.rows[0].top,
            "y1": band.rows[-1].y - 0.5,
            "fillcolor": theme.band,
            "line": {"width": 0},
            "layer": "below",
        }
        for band in picture.bands
    ]
    axis = {"gridcolor": theme.grid, "linecolor": theme.grid, "tickfont": {"color": theme.text}}
    return {
        "paper_bgcolor": theme.ground,
        "plot_bgcolor": theme.ground,
        "font": {"color": theme.text, "family": "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"},
        "shapes": ground,
        "xaxis": {**axis, "rangeslider": {"bgcolor": theme.band, "bordercolor": theme.grid, "borderwidth": 1}},
        "yaxis": axis,
        "hoverlabel": {"bgcolor": theme.ground, "bordercolor": theme.faint, "font": {"color": theme.text}},
    }
