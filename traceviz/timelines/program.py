"""Plotly as a page carries it, so that a browser starts it sooner: that took longer than to draw a page.

Both changes are to the program as it is packed since version 6; one that is packed in another way stays as it is.
"""

from __future__ import annotations

import re

CALL = '(typeof self !== "undefined" ? self : this, '  # what stands before the function that holds all of it
BARS = 'moduleType:"trace",name:"bar"'
_KINDS = re.compile(r"\.register\(\[((?:[\w$]+\(\),?)+)\]\)")  # of traces: a list of calls that set them up
_MODULE = r"var ([\w$]+)=[\w$]+\(\([\w$]+,[\w$]+\)=>\{"
_NEAR = 5_000  # letters in which the module of bars begins before it gives its name


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
