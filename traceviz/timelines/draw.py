"""Draw a picture with plotly: every role is a pair of bar traces, single marks and marks that stand for many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from traceviz.quantities import size
from traceviz.timelines.marks import NEVER, ROLE, ROLES, Marks, fit
from traceviz.timelines.palette import LIGHT, Theme, group, pale
from traceviz.timelines.picture import Picture
from traceviz.timelines.texts import LEAST, fixed_name, long, safe, short, wrapped

if TYPE_CHECKING:
    import plotly.graph_objects as go

MOST_BARS = 2_400  # at once; what a browser pans smoothly
ROW_PIXELS = 28
READABLE = 0.5  # rows; what is lower carries no text
# A bar that is not drawn: a trace without any would lose its legend entry.
NOTHING: dict[str, Any] = {"base": [None], "x": [None], "y": [None], "width": [0], "text": [""], "customdata": [[]]}
TITLE_LETTERS = 105  # in a line, at 1280 pixels
PLOT_PIXELS, LETTER_PIXELS = 1000, 6.6  # by which it is judged what text a mark has room for
NS_PER_MS = 1e6
HEIGHT = {"launch": 0.5, "many": 0.2}  # in rows; marks of many grow from this with their busy share
FULL = 0.84
LEGEND = [
    ROLE[role] for role in ("a", "a-wait", "b", "b-wait", "overlap", "overlap-wait", "missed-a", "missed-b", "sync")
]
# What `customdata` holds, in this order; the page's script fills it in the same way.
HOVER = (
    "<b>%{customdata[0]}</b><br>%{customdata[1]} · from %{customdata[2]:,} ns · %{customdata[3]:,} ns"
    "%{customdata[4]}<extra>%{customdata[5]}</extra>"
)


@dataclass(frozen=True)
class Drawn:
    """How one role is drawn: its name in the legend ("" where it has no entry), and whether it is hatched."""

    role: int
    legend: str
    pattern: str = ""


def roles(picture: Picture) -> list[Drawn]:
    """The roles a picture has, in the order they are drawn, lowest first."""
    a, b = (safe(name) for name in picture.names)
    said = {
        "launch-other": "",
        "launch-a": "",
        "launch-b": "",
        "other": "other GPU work",
        "other-wait": "other collective, waiting",
        "a": f"A: {a}",
        "a-wait": "A, only waiting for a late rank",
        "b": f"B: {b}",
        "b-wait": "B, only waiting for a late rank",
        "overlap": "A and B really overlap",
        "overlap-wait": "overlap with a mere wait",
        "missed-a": "missed overlap, by cause",
        "missed-b": "",
        "sync": "host blocked (sync point)",
    }
    there = {ROLES[number] for number in np.unique(picture.marks.role).tolist()}
    pattern = {role: "/" for role in ROLES if role.endswith("-wait")}
    return [Drawn(ROLE[role], text, pattern.get(role, "")) for role, text in said.items() if role in there]


def figure(
    picture: Picture, *, theme: Theme = LIGHT, slider: bool = True, titled: bool = True, width: int | None = None
) -> go.Figure:
    """Draw a picture, opened on what it shows."""
    import plotly.graph_objects as go

    marks = fit(picture.marks, picture.low_ns, picture.high_ns, MOST_BARS)
    traces = [_shade(picture, marks)]
    for drawn in roles(picture):
        for many in (False, True):
            mine = marks.take((marks.role == drawn.role) & ((marks.count > 1) == many))
            traces.append({**trace(drawn, many=many), **bars(picture, mine, drawn.role)})
    drawing = go.Figure([go.Bar(one) for one in traces], layout(picture, slider=slider, titled=titled, width=width))
    for number, style in enumerate(trace_styles([one["meta"] for one in traces], theme)):
        drawing.data[number].update(style)
    return drawing.update_layout(layout_style(picture, theme))


def trace(drawn: Drawn, *, many: bool) -> dict[str, Any]:
    """A trace without data or colours."""
    role = ROLES[drawn.role]
    pattern = drawn.pattern
    return {
        "type": "bar",
        "orientation": "h",
        "name": drawn.legend,
        "legendgroup": group(role) if not drawn.pattern else role,
        "showlegend": bool(drawn.legend) and not many,
        "meta": {"role": drawn.role, "many": many, "pattern": pattern},
        "marker": {"pattern": {"shape": pattern, "size": 6, "solidity": 0.2, "fillmode": "replace"}},
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "hovertemplate": HOVER,
        "legendrank": LEGEND.index(drawn.role) + 1 if drawn.role in LEGEND else 1000,
    }


def _shade(picture: Picture, marks: Marks) -> dict[str, Any]:
    """The overlap's shade across a band's streams; its lengths stand on the overlap's own row."""
    mine = marks.take((marks.role == ROLE["overlap"]) & (marks.count == 1))
    place = [spans(picture)[row] for row in mine.row.tolist()]
    return {
        "type": "bar",
        "orientation": "h",
        "base": mine.start / NS_PER_MS,
        "x": (mine.end - mine.start) / NS_PER_MS,
        "y": [middle for middle, _ in place],
        "width": [height for _, height in place],
        "legendgroup": "overlap",
        "showlegend": False,
        "hoverinfo": "skip",
        "opacity": 0.22,
        "meta": {"role": -1, "many": False, "pattern": ""},
    }


def spans(picture: Picture) -> dict[int, tuple[float, float]]:
    """By the number of a band's overlap row: middle and height of its streams and that row."""
    found = {}
    for band in picture.bands:
        rows = [row for row in band.rows if row.kind in ("stream", "overlap")]
        found[band.row("overlap")] = (rows[0].y + rows[-1].y) / 2, rows[0].y - rows[-1].y + 1
    return found


def bars(picture: Picture, marks: Marks, role: int) -> dict[str, Any]:
    """The data of a trace: places in ms on the axis, and in `customdata` whole ns."""
    rows = {row.number: row for band in picture.bands for row in band.rows}
    length = marks.end - marks.start
    visible = np.minimum(marks.end, picture.high_ns) - np.maximum(marks.start, picture.low_ns)
    letters = visible * (PLOT_PIXELS / LETTER_PIXELS / max(picture.high_ns - picture.low_ns, 1))
    high = heights(marks, role)
    labels, custom = [], []
    for k in range(marks.size):
        count, row = int(marks.count[k]), rows[int(marks.row[k])]
        name = fixed_name(ROLES[role]) or (picture.texts[marks.name[k]] if marks.name[k] >= 0 else "")
        if count > 1:
            text = f"{count:,} × {marks.busy[k] / max(length[k], 1):.0%}" if high[k] >= READABLE else ""
            name = f"{count:,} marks drawn as one, the longest {long(name)}"
        else:
            text = label(role, short(name))
        labels.append(safe(_cut(text, int(letters[k]), whole=count > 1)))
        busy = f"{int(marks.busy[k]):,} ns busy" if count > 1 else ""
        hover = (safe(long(name)), row.label, int(marks.start[k]), int(length[k]), _more(picture, marks, k, rows), busy)
        custom.append(list(hover))
    if not marks.size:
        return NOTHING
    return {
        "base": marks.start / NS_PER_MS,
        "x": length / NS_PER_MS,
        "y": [rows[row].y for row in marks.row.tolist()],
        "width": high,
        "text": labels,
        "customdata": custom,
    }


def label(role: int, name: str) -> str:
    """What stands on a mark of a role."""
    word = ROLES[role]
    if word == "overlap":
        return "overlap"
    if word.endswith("-wait"):
        return "waits"
    return f"blocked: {name}" if word == "sync" else name


def _cut(text: str, letters: int, *, whole: bool) -> str:
    """A text cut to so many letters; nothing where too little would be left, or it has to be `whole`."""
    if letters >= len(text):
        return text
    return f"{text[: letters - 1]}…" if letters >= LEAST and not whole else ""


def full_height(role: int) -> float:
    """How high a single mark of a role is, in rows."""
    return HEIGHT.get(ROLES[role].partition("-")[0], FULL)


def heights(marks: Marks, role: int) -> Any:
    """How high marks are: those of many by their busy share."""
    full = full_height(role)
    share = marks.busy / np.maximum(marks.end - marks.start, 1)
    many = full * (HEIGHT["many"] + (1 - HEIGHT["many"]) * np.minimum(share, 1))
    return np.where(marks.count > 1, many, full)


def _more(picture: Picture, marks: Marks, k: int, rows: dict[int, Any]) -> str:
    """Further lines of a hover text."""
    lines = []
    if marks.count[k] == 1 and marks.whole[k] > 0:
        wait, whole = int(marks.wait[k]), int(marks.whole[k])
        lines.append(f"waits {wait:,} ns for the last rank, then transfers {whole - wait:,} ns")
    if marks.launch[k] != NEVER:
        ago, row = int(marks.start[k] - marks.launch[k]), int(marks.launch_row[k])
        lines.append(f"launched {ago:,} ns before" + (f", by {rows[row].label}" if row >= 0 else ""))
    if marks.bytes[k] >= 0:
        lines.append(size(int(marks.bytes[k])))
    if marks.extra[k] >= 0 and marks.count[k] == 1:
        lines += [safe(line) for line in wrapped(picture.texts[marks.extra[k]])]
    return "".join(f"<br>{line}" for line in lines)


def about(picture: Picture) -> str:
    """What the picture opens on, and whose clock its times are on."""
    return f"Opens on {picture.shown.text}. Times are on {picture.clock}."


def _title(picture: Picture) -> dict[str, Any]:
    lines = [f"<b>{safe(line)}</b>" for line in wrapped(picture.headline, TITLE_LETTERS)]
    lines += [f"<sub>{safe(line)}</sub>" for line in wrapped(about(picture), 2 * TITLE_LETTERS)]
    place = {"x": 0.01, "xanchor": "left", "y": 1, "yanchor": "top", "yref": "container", "pad": {"t": 24}}
    return {"text": "<br>".join(lines), **place, "font": {"size": 16}}


def layout(picture: Picture, *, slider: bool, titled: bool, width: int | None) -> dict[str, Any]:
    """Axes, titles and sizes, without colours."""
    rows = [row for band in picture.bands for row in band.rows]
    bottom = rows[-1].y - 0.6
    top = 60 + 26 * (1 + len(wrapped(picture.headline, TITLE_LETTERS))) if titled else 80
    titles = [
        {
            "x": 0,
            "y": band.rows[0].y + 0.5,
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
            "ticktext": [f"{row.label} " for row in rows],
            "showgrid": False,
            "zeroline": False,
        },
    }


def trace_styles(metas: list[dict[str, Any]], theme: Theme) -> list[dict[str, Any]]:
    """Each trace's colours in a theme."""
    return [_style(meta, theme) for meta in metas]


def _style(meta: dict[str, Any], theme: Theme) -> dict[str, Any]:
    fill, text = theme.fill[group(ROLES[meta["role"]]) if meta["role"] >= 0 else "overlap"]
    if meta["pattern"]:
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
            "y0": band.rows[0].y + 0.5,
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
