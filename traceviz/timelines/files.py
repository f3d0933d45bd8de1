"""A timeline as a file: .html, .png or .svg, whole or not at all.

A .png or .svg is drawn by kaleido with the Chrome or Chromium that is installed.
"""

from __future__ import annotations

import logging
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from analyzers.common.errors import TracevizError
from analyzers.common.writing import replacing
from traceviz.timelines.picture import Picture

if TYPE_CHECKING:
    import plotly.graph_objects as go

FILE_KINDS = ("html", "png", "svg")
IMAGE_WIDTH = 860  # of an image: what GitHub shows in a comment without shrinking it
SCALE = 2.0  # pixels of a .png per pixel of the figure, for screens with fine ones


def kind_of(path: Path) -> str:
    """The kind of file a name asks for; TracevizError where it is none that can be written."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in FILE_KINDS:
        raise TracevizError(f"'{path.name}' is no name for a timeline.", hint="End it in .html, .png or .svg.")
    return kind


def write(path: Path, picture: Picture, *, dark: bool = False) -> None:
    """Write a timeline; the ending of the name says what it becomes."""
    write_bytes(path, drawn(picture, kind_of(path), dark=dark))


def drawn(picture: Picture, kind: str, *, dark: bool = False) -> bytes:
    """A timeline as "html", "png" or "svg"."""
    if kind == "html":
        from traceviz.timelines.page import page

        return page(picture).encode()
    from traceviz.timelines.draw import figure
    from traceviz.timelines.palette import DARK, LIGHT

    return image(figure(picture, theme=DARK if dark else LIGHT, slider=False, width=IMAGE_WIDTH), kind)


def image(figure: go.Figure, kind: str, *, scale: float = SCALE) -> bytes:
    """Draw a figure as "png" (so many pixels for each of the figure's) or "svg".

    Raises
    ------
    TracevizError : kaleido is not installed, finds no browser, or could not draw it.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a plotly that can't call this kaleido: we call it ourselves
            import kaleido
    except ImportError as error:
        hint = "pip install 'traceviz-gpu[png]', or write .html."
        raise TracevizError(f"A .{kind} is drawn by kaleido, which is not installed.", hint=hint) from error
    logging.getLogger("choreographer").setLevel(logging.CRITICAL)  # it may print a stack trace and go on
    size = {"width": figure.layout.width or IMAGE_WIDTH, "height": figure.layout.height or 600}
    options = {"format": kind, **size, "scale": scale if kind == "png" else 1}
    browser = {"path": os.environ.get("TRACEVIZ_CHROMIUM"), "mathjax": False}  # which would come from the network
    try:
        return bytes(kaleido.calc_fig_sync(figure, options, kopts=browser))
    except Exception as error:  # whatever the browser, or the lack of one, brings about
        reason = " ".join(str(error.args[0]).split()) if error.args else type(error).__name__
        hint = "Install Chrome or Chromium, or name one in $TRACEVIZ_CHROMIUM; or write .html."
        raise TracevizError(f"kaleido could not draw the .{kind}: {reason}", hint=hint) from error


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file so that its name never stands for half of it."""
    with replacing(path) as beside:
        beside.write_bytes(content)
