"""An HTML document that needs no network: the pages' style, and plotly where it is drawn with.

Plotly's program is changed so that a browser starts it sooner: that took longer than to draw a page. Both changes are
to the program as it is packed since version 6; one that is packed in another way stays as it is.
"""

from __future__ import annotations

import base64
import gzip
import html
import re
from importlib import resources

from traceviz.output.document import plain
from traceviz.timelines.palette import link_colors

CALL = '(typeof self !== "undefined" ? self : this, '  # what stands before the function that holds all of it
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
    before, call, function = program.partition(CALL)
    if not function.startswith("() => {") or not function.endswith("}));"):
        return program
    return f"{before}{call}({function.removesuffix('));')})));"
