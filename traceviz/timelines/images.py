"""A figure as .png or .svg, drawn by kaleido with the Chrome or Chromium that is installed."""

from __future__ import annotations

import logging
import os
import warnings
from typing import TYPE_CHECKING

from analyzers.common.errors import TracevizError

if TYPE_CHECKING:
    import plotly.graph_objects as go

WIDTH = 860  # what GitHub shows in a comment without shrinking it
SCALE = 2.0  # pixels of a .png per pixel of the figure, for screens with fine ones


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
    size = {"width": figure.layout.width or WIDTH, "height": figure.layout.height or 600}
    options = {"format": kind, **size, "scale": scale if kind == "png" else 1}
    browser = {"path": os.environ.get("TRACEVIZ_CHROMIUM"), "mathjax": False}  # which would come from the network
    try:
        return bytes(kaleido.calc_fig_sync(figure, options, kopts=browser))
    except Exception as error:  # whatever the browser, or the lack of one, brings about
        reason = " ".join(str(error.args[0]).split()) if error.args else type(error).__name__
        hint = "Install Chrome or Chromium, or name one in $TRACEVIZ_CHROMIUM; or write .html."
        raise TracevizError(f"kaleido could not draw the .{kind}: {reason}", hint=hint) from error
