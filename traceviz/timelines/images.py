"""A figure as .png or .svg, drawn by a browser: Chromium where there is one, else kaleido (which may bring its own)."""

from __future__ import annotations

import base64
import importlib.util
import json
from typing import TYPE_CHECKING
from urllib.parse import unquote

from analyzers.common.errors import TracevizError
from analyzers.common.temporary import temporary_folder
from traceviz.timelines import chromium

if TYPE_CHECKING:
    import plotly.graph_objects as go

KINDS = ("png", "svg")
WIDTH = 1600
SCALE = 1.5  # pixels of a .png per pixel of the figure


def image(figure: go.Figure, kind: str, *, scale: float = SCALE) -> bytes:
    """Draw a figure as "png" (so many pixels for each of the figure's) or "svg".

    Chromium comes first: newer versions of kaleido need one as well, and take longer to use it.

    Raises
    ------
    TracevizError : there is neither Chromium nor kaleido, or none of them could draw it.
    """
    path = chromium.find()
    if path is not None:
        return _by_chromium(figure, kind, path, scale)
    if not has_kaleido():
        raise TracevizError(
            f"A .{kind} needs a browser to draw it, and there is neither Chromium nor Chrome on PATH, nor kaleido.",
            hint="Install Chromium or name one in $TRACEVIZ_CHROMIUM, pip install 'traceviz-gpu[png]', or write .html.",
        )
    try:
        return bytes(figure.to_image(format=kind, width=WIDTH, scale=scale if kind == "png" else 1))
    except Exception as error:  # kaleido raises what its browser, or the lack of one, brings about
        said = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise TracevizError(f"kaleido could not draw the .{kind}: {said}", hint="Write .html instead.") from error


def _by_chromium(figure: go.Figure, kind: str, path: str, scale: float) -> bytes:
    from plotly.offline import get_plotlyjs

    size = {"width": figure.layout.width or WIDTH, "height": figure.layout.height or 600}
    options = json.dumps({"format": kind, **size, "scale": scale if kind == "png" else 1})
    with temporary_folder() as folder:
        page = folder / "page.html"
        page.write_text(f"<meta charset=utf-8><script>{get_plotlyjs()}</script>", encoding="utf-8")
        with chromium.Chromium(path, folder / "profile") as browser:
            browser.open(page.as_uri())
            url = str(browser.evaluate(f"Plotly.toImage({figure.to_json()}, {options})"))
    head, _, body = url.partition(",")
    return base64.b64decode(body) if head.endswith("base64") else unquote(body).encode()


def has_kaleido() -> bool:
    """Whether kaleido is installed; whether it can draw shows only when it does."""
    return importlib.util.find_spec("kaleido") is not None
