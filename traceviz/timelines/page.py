"""A timeline as one HTML file: plotly, the figure, its marks and a script; nothing is loaded from anywhere.

Plotly's program is changed so that a browser starts it sooner: that took longer than to draw a page. Both changes are
to the program as it is packed since version 6; one that is packed in another way stays as it is.
"""

from __future__ import annotations

import base64
import gzip
import html
import json
import re
from importlib import resources
from typing import Any

import numpy as np

from analyzers.common.records import values
from traceviz.output.document import plain
from traceviz.output.quantities import duration
from traceviz.output.views.caveats import caveats
from traceviz.timelines.areas import HEIGHT as AREA_HEIGHT
from traceviz.timelines.areas import buckets_for
from traceviz.timelines.bars import (
    EARLY_MEANS,
    HEIGHT,
    INSIDE_PIXELS,
    LETTER_PIXELS,
    MIN_READABLE_ROWS,
    NS_PER_MS,
    full_height,
    is_held,
    is_named_in_full,
    label,
)
from traceviz.timelines.draw import (
    ALWAYS_TOLD,
    BAND_SIZE,
    FIGURE_WIDTH,
    LEGEND_PIXELS,
    MOST_BARS,
    RANGE_ROLES,
    TEXT_PIXELS,
    TICK_PIXELS,
    ZOOMED,
    about,
    figure,
    layout,
    layout_style,
    legend_rows,
    of_role,
    of_rows,
    spans,
    style,
)
from traceviz.timelines.marks import COARSE, EARLY_ROLES, FINE, ROLES, UNKNOWN_INSTANT, Marks
from traceviz.timelines.palette import FONT, LIGHT, THEMES, Theme, link_colors
from traceviz.timelines.picture import SEEN, Picture, folded, folds, on_gpu_only
from traceviz.timelines.texts import MIN_NAME_LETTERS, fixed_name, full, long, short

SCRIPT_START = '(typeof self !== "undefined" ? self : this, '  # what stands before the function that holds all of it
BARS = 'moduleType:"trace",name:"bar"'
_KINDS = re.compile(r"\.register\(\[((?:[\w$]+\(\),?)+)\]\)")  # of traces: a list of calls that set them up
_MODULE = r"var ([\w$]+)=[\w$]+\(\([\w$]+,[\w$]+\)=>\{"
_NEAR = 5_000  # letters in which the module of bars begins before it gives its name
# Every browser since 2023 unpacks gzip by itself. What a script element holds runs as if it had stood in the page.
UNPACK = """(async () => {
  const packed = Uint8Array.from(atob("%s"), (letter) => letter.charCodeAt(0));
  const program = document.createElement("script");
  program.textContent = await new Response(
    new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  document.head.appendChild(program);
})();"""


MOST_TEXTS = 400  # on marks at once
ASIDE = 4  # times as coarse as what is in view is what lies half as far again on either side
FILLED = ("base", "x", "y", "width", "text", "customdata")
PAGE_KEYS = (
    "Drag to pan, wheel or <kbd>w</kbd> <kbd>s</kbd> to zoom, <kbd>a</kbd> <kbd>d</kbd> to move, <kbd>i</kbd> the "
    "instance it opens on, <kbd>o</kbd> all of it, <kbd>p</kbd> <kbd>n</kbd> the instance before and after, "
    "<kbd>g</kbd> the worst gap, then the next, <kbd>h</kbd> host rows, <kbd>/</kbd> search. Arrows are what the "
    "capture records: a launch (line), what an op waited for through an event (dashed), from the event's record to the "
    "wait (thin), or did not wait for (dotted). Those of the largest gap are drawn, on the rank that decides; point "
    "at an op or at what blocked a side for its own, click to keep them. Pale bars with an outline stand for many "
    "marks; their height is the busy share. "
)
STRIP = '<div id="strip" title="All of it: drag the window, or an edge of it"><canvas></canvas><div></div></div>'
SOUGHT = ("a", "b", "other", "range-a", "range-b", "range-other", "sync")  # roles that a search looks through
PLOTLY_TOOLS = (
    '<p class="tools"><button id="gap" type="button">worst gap</button>'
    '<button id="before" type="button">◀ instance</button><button id="next" type="button">instance ▶</button>'
    '<button id="host" type="button">host rows</button>{fold}'
    '<input id="search" type="search" placeholder="kernel or range" aria-label="search by kernel or range">'
    '<button id="theme" type="button">light / dark</button> <span id="where"></span></p>\n'
)


def page(picture: Picture, *, packed: bool = False) -> str:
    """The whole HTML page of a timeline; `packed` it takes less than half the room."""
    body = f"<h1>{html.escape(plain(picture.headline))}</h1>\n"
    end = ""
    if picture.warnings:
        count = "1 caveat" if len(picture.warnings) == 1 else f"{len(picture.warnings)} caveats"
        body += f'<p class="about"><a href="#mind">{count}</a>, below the timeline.</p>\n'
        (block,) = caveats(picture.warnings, verbose=True)
        items = "".join(f"<li>{html.escape(plain(item))}</li>" for item in block.items)
        end = f'\n<section id="mind">\n<h3>Caveats</h3>\n<ul>{items}</ul>\n</section>'
    return document(picture.headline, f"{body}{timeline(picture)}{end}", scripts=True, packed=packed)


def timeline(picture: Picture) -> str:
    """The timeline's part of a page."""
    many = f'<button id="fold" type="button">all {len(picture.bands)} devices</button>'
    tools = PLOTLY_TOOLS.format(fold=many if folds(picture) else "")
    low, high = picture.active_ns
    left_out = [
        f"{duration(ns)} {where}"
        for ns, where in ((low - picture.first_ns, "before"), (picture.last_ns - high, "after"))
        if ns > 0
    ]
    of_strip = f" The strip below leaves out {' and '.join(left_out)} the work of the steps." if left_out else ""
    return (
        f'<p class="about">{html.escape(plain(about(picture)))}{of_strip}</p>\n{tools}'
        f'<div id="timeline"></div>\n{STRIP}\n<p class="keys">{PAGE_KEYS}</p>\n'
        f'<script type="application/json" id="timeline-data">{in_script(data(picture))}</script>'
    )


def in_script(value: Any) -> str:
    """JSON that can't end the script element it stands in."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def data(picture: Picture) -> dict[str, Any]:
    """What the script needs: marks as columns of whole ns, how roles are drawn, the figure, its colours by theme."""
    drawing = figure(picture, theme=LIGHT, titled=False)
    without = layout(folded(picture), slider=False, titled=False, width=None)  # plotly's strip draws every trace again
    drawing.update_layout(height=without["height"], margin_t=without["margin"]["t"], xaxis_rangeslider_visible=False)
    written = json.loads(drawing.to_json())
    for name in ZOOMED:  # the script sets the ticks
        written["layout"]["xaxis"].pop(name, None)
    metas = [one["meta"] for one in written["data"]]
    # By number, which is not their order where runs stand below each other.
    rows = sorted(((row, band) for band in picture.bands for row in band.rows), key=lambda one: one[0].number)
    band_of = {row.number: number for number, band in enumerate(picture.bands) for row in band.rows}
    return {
        "marks": _columns(picture.marks),
        "texts": _texts(picture),
        "rows": [row.label for row, _ in rows],
        "ranks": [f"rank {band.rank}" for _, band in rows],
        "roles": [_role(number, written["data"], apparent=picture.apparent) for number in range(len(ROLES))],
        "views": [
            [_view(one), _view(on_gpu_only(one))]
            for one in ([folded(picture), picture] if folds(picture) else [picture])
        ],
        "areas": [
            {
                "row": one.row,
                "most": max(one.most, 1),
                "start": np.diff(one.start, prepend=0).tolist(),  # instants as differences
                "value": one.value.tolist(),
            }
            for one in picture.areas
        ],
        "area_height": AREA_HEIGHT,
        "area_buckets": buckets_for(len(picture.areas)),
        "gaps": [
            [one.row, one.low_ns, one.high_ns, one.links, band_of[one.row] if one.decides else -1]
            for one in picture.gaps
        ],
        "instances": picture.instances,
        "themes": {name: _theme(theme, metas) for name, theme in THEMES.items()},
        "figure": {
            # The script fills in the data.
            "data": [{name: one[name] for name in one if name not in FILLED} for one in written["data"]],
            "layout": written["layout"],
        },
        "opening": [picture.low_ns / NS_PER_MS, picture.high_ns / NS_PER_MS],
        "first": picture.first_ns,
        "last": picture.last_ns,
        "active": picture.active_ns,
        "early": EARLY_MEANS,
        "most": MOST_BARS,
        "fine": FINE,
        "aside": ASIDE,
        "weights": of_rows(picture),
        "seen": SEEN,
        "text_pixels": TEXT_PIXELS,
        "tick_pixels": TICK_PIXELS,
        "legend_pixels": LEGEND_PIXELS[0] + 5,  # with the gap to the next
        "font": FONT,
        "legend_rows": legend_rows(folded(picture), None),
        "top": without["margin"]["t"],
        "coarse": COARSE,
        "least": MIN_NAME_LETTERS,
        "letter": LETTER_PIXELS,
        "texts_at_once": MOST_TEXTS,
        "inside": INSIDE_PIXELS,
        "readable": MIN_READABLE_ROWS,
        "low_height": HEIGHT["many"],
        "never": UNKNOWN_INSTANT,
        "wide": FIGURE_WIDTH,
        "title_size": BAND_SIZE,
    }


def _columns(marks: Marks) -> dict[str, list[int | None]]:
    """Columns of the marks; instants as differences, null where they are not known."""
    columns: dict[str, list[int | None]] = {}
    for name, column in values(marks).items():
        if name == "end":
            columns["length"] = (marks.end - marks.start).tolist()
        elif name in ("start", "launch", "after"):
            known = column != UNKNOWN_INSTANT
            instants = np.full(column.size, None, object)
            instants[known] = np.diff(column[known], prepend=0).tolist()
            columns[name] = instants.tolist()
        else:
            columns[name] = column.tolist()
    return columns


def _texts(picture: Picture) -> list[tuple[str, str, str]]:
    """Each text as it is, on a mark, and in a kernel's or call's hover text; those that no mark uses are left out."""
    used = set(picture.marks.name.tolist()) | set(picture.marks.extra.tolist())
    extra = set(picture.marks.extra.tolist())
    return [
        (text if number in extra else long(text), short(text), full(text)) if number in used else ("", "", "")
        for number, text in enumerate(picture.texts)
    ]


def _role(number: int, traces: list[dict[str, Any]], *, apparent: bool) -> dict[str, Any]:
    metas = [one["meta"] for one in traces]
    one, many = (
        next((k for k, meta in enumerate(metas) if meta["role"] == number and meta["many"] == wanted), -1)
        for wanted in (False, True)
    )
    kin = next(
        (some for some in (EARLY_ROLES, RANGE_ROLES) if ROLES[number] in some), (ROLES[number],)
    )  # share an entry
    named = {ROLES[trace["meta"]["role"]]: k for k, trace in enumerate(traces) if trace.get("showlegend")}
    return {
        "one": one,
        "entry": next((named[role] for role in kin if role in named), -1),
        "coarse": of_role(ROLES[number]),
        "always": ROLES[number] in ALWAYS_TOLD,
        "many": many,
        "label": label(number, "%"),
        "fixed": fixed_name(ROLES[number], apparent=apparent),
        "height": full_height(number),
        "shade": ROLES[number] == "overlap",
        "race": ROLES[number] == "race",
        "full": is_named_in_full(number),
        "held": is_held(number),
        "launch": ROLES[number].startswith("launch"),
        "early": ROLES[number] in EARLY_ROLES,
        "named": ROLES[number] in SOUGHT,
        "text": next((k for k, meta in enumerate(metas) if meta.get("labels") == number), -1),
    }


def _view(picture: Picture) -> dict[str, Any]:
    """Where rows are while some bands, or all, are shown, and what of the layout depends on that."""
    placed = layout(picture, slider=False, titled=False, width=None)
    return {
        "y": {str(row.number): row.y for band in picture.bands for row in band.rows},
        "spans": {str(row): span for row, span in spans(picture).items()},
        "layout": {"height": placed["height"], **_flat({"yaxis": placed["yaxis"]})},
        "themes": {name: _flat(layout_style(picture, theme)) for name, theme in THEMES.items()},
        "bands": len(picture.bands),
    }


def _theme(theme: Theme, metas: list[dict[str, Any]]) -> dict[str, Any]:
    """Colours of every trace, as Plotly.update takes them."""
    styles = [_flat(style(meta, theme)) for meta in metas]
    return {key: [one.get(key) for one in styles] for key in sorted({key for one in styles for key in one})}


def _flat(value: dict[str, Any], before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, one in value.items():
        found |= _flat(one, f"{before}{key}.") if isinstance(one, dict) else {f"{before}{key}": one}
    return found


def document(title: str, body: str, *, scripts: bool, packed: bool = False) -> str:
    """An HTML document with the page's style, and plotly where it has a timeline."""
    program = f"<script>{plotly()}</script>\n" if scripts and not packed else ""
    end = f"<script>{_resource('page.js')}</script>\n" if scripts else ""
    if packed:
        programs = gzip.compress(f"{plotly()}\n{_resource('page.js')}".encode(), mtime=0)
        end = f"<script>{UNPACK % base64.b64encode(programs).decode()}</script>\n"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        # Whatever a name in a trace may try: no request leaves this page.
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'unsafe-inline'; "
        "style-src 'unsafe-inline'; img-src data: blob:\">\n"
        f'<link rel="icon" href="data:,">\n<title>{html.escape(plain(title))}</title>\n'
        f"<style>{_resource('page.css')}{link_colors()}</style>\n{program}</head>\n<body>\n{body}\n{end}</body>\n</html>\n"
    )


def _resource(name: str) -> str:
    return resources.files("traceviz.timelines").joinpath(name).read_text(encoding="utf-8")


def plotly() -> str:
    """Plotly's program for pages of bars and lines."""
    from plotly.offline import get_plotlyjs

    return compiled_once(of_bars_alone(get_plotlyjs()))


def of_bars_alone(program: str) -> str:
    """Plotly that sets up no kind of trace but bars, beside lines, which are in its core.

    As it loads it would set up some 47 kinds, maps and meshes among them, each by a function that is read only then.
    """
    kinds = _KINDS.findall(program)
    before, bars, _ = program.partition(BARS)
    modules = re.findall(_MODULE, before[-_NEAR:])
    if len(kinds) != 1 or not bars or not modules:
        return program
    set_up = re.search(rf'{_MODULE}"use strict";[\w$]+\.exports={re.escape(modules[-1])}\(\)}}\)', program)
    if not set_up or f"{set_up[1]}()" not in kinds[0].split(","):
        return program
    return program.replace(f".register([{kinds[0]}])", f".register([{set_up[1]}()])")


def compiled_once(program: str) -> str:
    """Plotly with brackets around the function that holds all of it.

    Chromium compiles a function in brackets as it reads it. Any other it reads twice, here all 4.8 MB: to find its end,
    and when it is called. Plotly up to version 5 has the brackets.
    """
    before, call, function = program.partition(SCRIPT_START)
    if not function.startswith("() => {") or not function.endswith("}));"):
        return program
    return f"{before}{call}({function.removesuffix('));')})));"
