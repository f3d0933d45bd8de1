"""Draw a picture with plotly: every role is a pair of bar traces, single marks and marks that stand for many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from analyzers.arrays.intervals import Union
from analyzers.arrays.types import Ints
from analyzers.causes.table import CAUSE_TABLE
from traceviz.timelines.areas import HEIGHT, Area, buckets_for, thinned
from traceviz.timelines.bars import HOVER, NS_PER_MS, bars, in_front, room
from traceviz.timelines.marks import EARLY_ROLES, HELD, ROLE, ROLES, Marks, fit
from traceviz.timelines.palette import FONT, LIGHT, Theme, fill_of, group, link_color, pale
from traceviz.timelines.picture import SEEN, Picture, folded, folds, in_view, worst_gaps
from traceviz.timelines.texts import MS, fixed_name, safe, side_name, ticks, unit_of, wrapped

if TYPE_CHECKING:
    import plotly.graph_objects as go

MOST_BARS = 2_400  # at once; what a browser pans smoothly
ROW_PIXELS = 28
FIGURE_WIDTH = 1130  # of a figure that takes its width from where it stands
LEFT, LABEL_PIXELS, RIGHT = 116, 6.9, 14  # margins; of each letter of a row's name
LEGEND_PIXELS = 40, 6.4  # of an entry, and of each of its letters
TITLE_PIXELS, NOTE_PIXELS = 9.2, 6.6  # of a letter
BAND_SIZE, LEAST_SIZE, BAND_LETTER = 13, 7, 0.68  # of a band's title, pixels; of each of its bold letters, of that
LEGEND = [
    "a", "a-wait", "b", "b-wait", "overlap", "overlap-wait", *HELD, *EARLY_ROLES, "sync", "race", "other", "other-wait",
    "range-other", "range-a", "range-b", "sync-end",
]  # fmt: skip
RANGE_ROLES = ("range-other", "range-a", "range-b")
ALWAYS_TOLD = ("a", "b", "race")  # in the legend, however short
COARSE_RANKS, COARSE_LAUNCHES = 4, 4  # times as coarse as ops of the rank that decides
TEXT_PIXELS = 25  # what is seen of a mark on which a text may stand
TICK_PIXELS = 110  # from one tick to the next, at least
RANGES = "the user's ranges"
# The digits of ticks where one zooms: as many as their distance needs, on all of them.
TICKS = [
    {"dtickrange": [0.999 * 10.0**-digits if digits else 0.999, 0.999 * 10.0 ** (1 - digits) if digits else None],
     "value": f",.{digits}f"}
    for digits in range(7)
]  # fmt: skip
ZOOMED: dict[str, Any] = {"ticksuffix": " ms", "tickformatstops": TICKS}


def legend(picture: Picture, *, told: frozenset[str] | None = None) -> dict[str, str]:
    """The roles a picture has, in the order they are drawn, lowest first, with their words in the legend ("": none).

    Parameters
    ----------
    told : those that the legend is of; all where not given.
    """
    a, b = (safe(name) for name in picture.names)
    there = {ROLES[number] for number in np.unique(picture.marks.role).tolist()}
    present = there if told is None else there & told
    early = next((role for role in EARLY_ROLES if role in present), "")
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
        "overlap-wait": "overlaps only a waiting collective",
        **{f"held-{cause.name}": f"blocked by {cause.label}" for cause in CAUSE_TABLE},
        **{role: "not launched yet either" if role == early else "" for role in EARLY_ROLES},
        "sync": "host blocked (sync point)",
        "sync-end": "host waits for the end",
        "race": "⚠ missing wait (possible race)",
    }
    return {role: text if role in present else "" for role, text in descriptions.items() if role in there}


def figure(
    picture: Picture, *, theme: Theme = LIGHT, slider: bool = True, titled: bool = True, width: int | None = None
) -> go.Figure:
    """Draw a picture, opened on what it shows."""
    import plotly.graph_objects as go

    shown = folded(picture) if slider else in_view(folded(picture))
    pixels = (width or FIGURE_WIDTH) - _left(shown) - RIGHT
    unit = MS if slider else unit_of(picture.high_ns - picture.low_ns)  # where one zooms by oneself plotly has but one
    marks = fit(shown.marks, picture.low_ns, picture.high_ns, MOST_BARS, weights=weights(picture))
    words_of = legend(picture) if slider else legend(shown, told=seen_roles(shown))
    above = in_front(marks, {role: k for k, role in enumerate(words_of)})
    low, high = picture.low_ns, picture.high_ns
    free = Union(*room(marks, above, low, high, int(TEXT_PIXELS * (high - low) / max(pixels, 1))))
    traces, written = [_shade(shown, marks)], []
    for role, words in words_of.items():
        is_role = marks.role == ROLE[role]
        rooms = Union(free.starts[is_role], free.ends[is_role])
        one, many, texts = bars(shown, marks.take(is_role), ROLE[role], pixels, rooms, unit)
        traces += [{**trace(role, words, many=False), **one}, {**trace(role, words, many=True), **many}]
        # What can't be seen but its text: what stands on marks that the view cuts, within the view.
        unseen = {"showlegend": False, "meta": {"role": -1, "many": False, "labels": ROLE[role]}, "marker": {}}
        unseen |= {"hoverinfo": "skip", "hovertemplate": None}
        written.append({**trace(role, words, many=False), **unseen, **texts})
    of = (picture if slider else shown).areas  # a page can unfold all bands
    areas = [area_trace(shown, of, number, None if slider else (low, high)) for number in range(len(of))]
    figures = [*(go.Bar(one) for one in [*traces, *written]), *(go.Scatter(one) for one in areas)]
    drawing = go.Figure(figures, layout(shown, slider=slider, titled=titled, width=width))
    for one in drawing.data:
        one.update(style(one.meta, theme))
    drawing.update_layout(layout_style(shown, theme, width))
    if titled:
        drawing.update_layout(annotations=[*drawing.layout.annotations, *_links(shown, theme)])
    return drawing


def weights(picture: Picture) -> Ints:
    """How coarse marks are, by row and role: ops of other ranks than the one that decides, and launches, the most.

    Ranges, sync points and what blocked a side are few, and as fine as can be.
    """
    coarse = np.array([of_role(role) for role in ROLES], np.int64)
    return np.where(coarse > 0, np.array(of_rows(picture), np.int64)[:, None] * coarse, 1)


def of_role(role: str) -> int:
    """How coarse marks of a role are beside ops; 0: as fine as can be, on whatever rank."""
    return COARSE_LAUNCHES if role.startswith("launch") else int(ROLE[role] <= ROLE["overlap-wait"])


def of_rows(picture: Picture) -> list[int]:
    """By row, how coarse its ops are: the finest are those of the rank that decides."""
    decides = {one.row for one in picture.gaps if one.decides}
    found = [1] * (1 + max((row.number for band in picture.bands for row in band.rows), default=0))
    for band in picture.bands:
        if decides and decides.isdisjoint(row.number for row in band.rows):
            for row in band.rows:
                found[row.number] = COARSE_RANKS
    return found


def seen_roles(picture: Picture) -> frozenset[str]:
    """Roles of which something is seen as a picture opens: more than hairs on some row, or what always counts."""
    low, high = picture.low_ns, picture.high_ns
    marks = picture.marks.take((picture.marks.end > low) & (picture.marks.start < high))
    length = np.minimum(marks.end, high) - np.maximum(marks.start, low)
    on_row = np.zeros((int(marks.row.max(initial=0)) + 1, len(ROLES)), np.int64)
    np.add.at(on_row, (marks.row, marks.role), length)
    told = set(np.flatnonzero(SEEN * on_row.max(axis=0, initial=0) >= high - low).tolist())
    told |= {number for number in np.unique(marks.role).tolist() if ROLES[number] in ALWAYS_TOLD}
    return frozenset(ROLES[number] for number in told)


def _links(picture: Picture, theme: Theme) -> list[dict[str, Any]]:
    """The recorded links of the largest gap that is seen of the rank that decides, as arrows, from within the view."""
    worst, y = worst_gaps(picture), {row.number: row.y for band in picture.bands for row in band.rows}
    return [
        {
            "x": end / NS_PER_MS,
            "y": y[to_row],
            "ax": start / NS_PER_MS,
            "ay": y[from_row],
            "xref": "x",
            "yref": "y",
            "axref": "x",
            "ayref": "y",
            "text": "",
            "showarrow": True,
            "arrowhead": 2,
            "arrowsize": 0.9,
            "arrowwidth": 1.4,
            "arrowcolor": link_color(kind, theme),
        }
        for kind, start, from_row, end, to_row in (link for gap in worst for link in gap.links)
        if from_row in y and to_row in y and picture.low_ns < start and end < picture.high_ns
    ]


def trace(role: str, words: str, *, many: bool) -> dict[str, Any]:
    """A trace without data or colours; `words` stand in the legend."""
    pattern = "/" if _is_wait(role) else "\\" if role in EARLY_ROLES else ""
    alone = _is_wait(role) or role in HELD or role == "sync-end"  # in the legend
    legend_group = "ranges" if role.startswith("range-") else role if alone else group(role)
    return {
        "type": "bar",
        "orientation": "h",
        "name": words,
        "legendgroup": legend_group,
        "showlegend": bool(words) and not many,
        "meta": {"role": ROLE[role], "many": many},
        "marker": {"pattern": {"shape": pattern, "size": 6, "solidity": 0.2, "fillmode": "replace"}},
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "hovertemplate": HOVER,
        "legendrank": LEGEND.index(role) + 1 if role in LEGEND else 1000,
    }


def area_trace(picture: Picture, areas: Sequence[Area], number: int, span: tuple[int, int] | None) -> dict[str, Any]:
    """A counter's area on its row, over all there is or a span, ns; empty where the row is folded away."""
    one = areas[number]
    low, high = span or (picture.first_ns, picture.last_ns)
    y = {row.number: row.y for band in picture.bands for row in band.rows}.get(one.row)
    start, value = thinned(one.start, one.value, low, high, buckets_for(len(areas)))
    if y is None:
        start, value = start[:0], value[:0]
    floor = (y or 0.0) - HEIGHT / 2
    ends = [min(max(int(start[-1]), low), high)] if start.size else []
    times = [*start[:1], *start, *ends[:1]] if start.size else []
    heights = [floor, *(floor + HEIGHT * value / max(one.most, 1)), floor] if start.size else []
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [at / NS_PER_MS for at in times],
        "y": heights,
        "line": {"shape": "hv", "width": 0.7},
        "fill": "toself",
        "hoveron": "points",
        "customdata": [0, *value.tolist(), 0] if start.size else [],
        "hovertemplate": f"{one.label} %{{customdata}} {one.unit}<extra></extra>",
        "showlegend": False,
        "meta": {"role": -1, "many": False, "area": number},
    }


def _is_wait(role: str) -> bool:
    """Whether its marks are hatched."""
    return role.endswith("-wait")


def _shade(picture: Picture, marks: Marks) -> dict[str, Any]:
    """The overlap's shade across a band's streams; its lengths stand on the overlap's own row."""
    overlaps = marks.take((marks.role == ROLE["overlap"]) & (marks.count == 1))
    of_row = spans(picture)
    row_spans = [of_row[row] for row in overlaps.row.tolist()]
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


def about(picture: Picture, *, still: bool = False) -> str:
    """What the picture opens on, or shows where it stands still, whose clock its times are on, and of which ranks."""
    text = f"{'Shown:' if still else 'Opens on'} {picture.shown.text}. Times are on {picture.clock}."
    if not folds(picture):
        return text
    shown = sum(band.shown for band in picture.bands)
    return f"{text} {shown} of {len(picture.bands)} devices are shown: those that speak for the others, and outliers."


def _title(picture: Picture, width: int) -> tuple[dict[str, Any], int]:
    """A picture's title, which says what is seen, with what was found of the run below; and how high it is, pixels."""
    below = [about(picture, still=True)]
    title = picture.headline
    if picture.shown.title:
        title = f"{side_name(picture.names[0])} and {side_name(picture.names[1])}, {picture.shown.title}"
        below = [f"The whole run: {picture.headline}", *below]
    heads = wrapped(title, int(width / TITLE_PIXELS))
    notes = [line for text in below for line in wrapped(text, int(width / NOTE_PIXELS))]
    lines = [f"<b>{safe(line)}</b>" for line in heads]
    lines += [f'<span style="font-size:12px">{safe(line)}</span>' for line in notes]
    position = {"x": 0, "xanchor": "left", "y": 1, "yanchor": "top", "yref": "container", "pad": {"t": 24, "l": 10}}
    return {"text": "<br>".join(lines), **position, "font": {"size": 15}}, 20 * len(heads) + 17 * len(notes)


def _left(picture: Picture) -> int:
    """The left margin, in which rows are named."""
    return max(LEFT, int(12 + LABEL_PIXELS * max(len(row.label) for band in picture.bands for row in band.rows)))


def legend_rows(picture: Picture, width: int | None, *, every: bool = False) -> int:
    """How many rows the legend takes: of all that there is, or of what is seen."""
    words_of = legend(picture) if every else legend(picture, told=seen_roles(picture))
    entries = [words for words in words_of.values() if words]
    entry, letter = LEGEND_PIXELS
    room, wide = (width or FIGURE_WIDTH) - _left(picture) - RIGHT, [entry + letter * len(words) for words in entries]
    columns = int(room / max(wide, default=1))
    return 1 if sum(wide) <= room else -(-len(entries) // max(columns, 1))  # plotly makes columns of several rows


def layout(picture: Picture, *, slider: bool, titled: bool, width: int | None) -> dict[str, Any]:
    """Axes, titles and sizes, without colours."""
    rows = [row for band in picture.bands for row in band.rows]
    bottom, left = rows[-1].y - 0.6, _left(picture)
    title, title_pixels = _title(picture, width or FIGURE_WIDTH)
    top = 20 * legend_rows(picture, width, every=slider) + (40 + title_pixels if titled else 24)
    at_ticks = ZOOMED
    if not slider:  # in the unit that the length asks for
        found = ticks(picture.low_ns, picture.high_ns, max(((width or FIGURE_WIDTH) - left - RIGHT) // TICK_PIXELS, 2))
        at_ticks = {"tickvals": [at / NS_PER_MS for at, _ in found], "ticktext": [text for _, text in found]}
    return {
        "barmode": "overlay",
        "bargap": 0,
        "height": int(top + (100 if slider else 30) - bottom * ROW_PIXELS),
        "width": width,
        "margin": {"l": left, "r": RIGHT, "t": top, "b": 30},
        "title": title if titled else None,
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom", "traceorder": "normal"},
        "hovermode": "closest",
        "hoverlabel": {"align": "left", "namelength": -1},
        "dragmode": "pan",
        "xaxis": {
            "range": [picture.low_ns / NS_PER_MS, picture.high_ns / NS_PER_MS],
            **at_ticks,
            "rangeslider": {
                "visible": slider,
                "range": [edge / NS_PER_MS for edge in picture.active_ns],
                "thickness": min(50 / (-bottom * ROW_PIXELS), 0.3),  # of few rows it would take half
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
            "ticklabeloverflow": "allow",  # to look for labels that leave the page takes 20 s of 64 devices' rows
        },
    }


def titles(picture: Picture, theme: Theme, width: int | None) -> list[dict[str, Any]]:
    """What stands above each band, on ground of its own: no line of the grid goes through it."""
    left, longest = _left(picture), max(len(band.title) for band in picture.bands)
    size = max(min(BAND_SIZE, int(((width or FIGURE_WIDTH) - 24) / (BAND_LETTER * longest))), LEAST_SIZE)
    return [
        {
            "x": 0,
            "y": band.rows[0].top,
            "xref": "paper",
            "xanchor": "left",
            "xshift": 8 - left,
            "yanchor": "bottom",
            "showarrow": False,
            "text": f"<b>{safe(band.title)}</b>",
            "font": {"size": size},
            "bgcolor": theme.ground,
        }
        for band in picture.bands
    ]


def style(meta: dict[str, Any], theme: Theme) -> dict[str, Any]:
    """A trace's colours in a theme."""
    if "area" in meta:
        fill = theme.fill["other"][0]
        return {"line": {"color": theme.faint}, "fillcolor": fill}
    number = meta.get("labels", meta["role"])
    role = ROLES[number] if number >= 0 else "overlap"  # across the streams
    is_range = role.startswith("range-")
    fill, text = fill_of(role, theme)
    # Ground around letters that stand on hatching.
    halo = {"shadow": ", ".join([f"0 0 2px {theme.ground}"] * 5)} if _is_wait(role) else {}
    if "labels" in meta:
        unseen = {"color": "rgba(0,0,0,0)", "line": {"color": "rgba(0,0,0,0)", "width": 0}}
        color = theme.text if is_range or _is_wait(role) else text
        return {"marker": unseen, "textfont": {"color": color, "size": 11, **halo}}
    if is_range and not meta["many"]:
        outline = {"color": theme.ground, "line": {"color": fill, "width": 1.5}}
        return {"marker": outline, "textfont": {"color": theme.text, "size": 11}}
    if _is_wait(role):
        pattern = {"bgcolor": theme.ground, "fgcolor": fill}
        marker = {"color": fill, "line": {"color": fill, "width": 1}, "pattern": pattern}
        return {"marker": marker, "textfont": {"color": theme.text, "size": 11, **halo}}
    if role in EARLY_ROLES and not meta["many"]:
        host, text = theme.fill["host busy"]
        pattern = {"bgcolor": host, "fgcolor": fill}
        return {"marker": {"color": host, "pattern": pattern}, "textfont": {"color": text, "size": 11}}
    if meta["many"]:
        marker = {"color": pale(fill, theme.ground), "line": {"color": fill, "width": 1}}
        return {"marker": marker, "textfont": {"color": theme.text, "size": 11}}
    line = {"color": theme.ground if meta["role"] >= 0 else fill, "width": 0.3}
    return {"marker": {"color": fill, "line": line}, "textfont": {"color": text, "size": 11}}


def layout_style(picture: Picture, theme: Theme, width: int | None = None) -> dict[str, Any]:
    """The layout's colours in a theme, and titles of bands on its ground, where known for so wide a figure."""
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
    band_of = {row.number: band for band in picture.bands for row in band.rows}
    ground += [  # both ends of a step, across the rows of each band on which it is marked
        {
            "type": "line",
            "x0": at / NS_PER_MS,
            "x1": at / NS_PER_MS,
            "y0": band_of[row].rows[0].top,
            "y1": band_of[row].rows[-1].y - 0.5,
            "line": {"color": theme.text, "width": 1.5, "dash": "dash"},
            "layer": "above",
        }
        for row, *ends in picture.ends
        if row in band_of
        for at in ends
    ]
    low, high = picture.active_ns
    ground += [
        {
            "type": "rect",
            "yref": "paper",
            "x0": start / NS_PER_MS,
            "x1": end / NS_PER_MS,
            "y0": 0,
            "y1": 1,
            "fillcolor": theme.grid,
            "opacity": 0.6,
            "line": {"width": 0},
            "layer": "below",
        }
        for start, end in ((picture.first_ns, low), (high, picture.last_ns))
        if start < end
    ]
    axis = {"gridcolor": theme.grid, "linecolor": theme.grid, "tickfont": {"color": theme.text}}
    return {
        "paper_bgcolor": theme.ground,
        "plot_bgcolor": theme.ground,
        "font": {"color": theme.text, "family": FONT},
        "shapes": ground,
        "annotations": titles(picture, theme, width),
        "xaxis": {**axis, "rangeslider": {"bgcolor": theme.band, "bordercolor": theme.grid, "borderwidth": 1}},
        "yaxis": axis,
        "hoverlabel": {"bgcolor": theme.ground, "bordercolor": theme.faint, "font": {"color": theme.text}},
    }
