"""A timeline in a notebook: the whole page in JupyterLab, Notebook, VS Code, Colab and what nbconvert makes of them.

The page lies in a frame of its own, packed, so that it needs neither an extension of the notebook's nor a network.
Where no script runs, as on GitHub and in a notebook that is not trusted, frames are left out, and the picture behind it
stays; once the page is drawn, it says so to the script beside it, which hides that. A frame may be of another origin,
as where a host keeps outputs in a sandbox: so they can only send messages.
"""

from __future__ import annotations

import base64
import html
from typing import Any

import plotly.graph_objects as go

from analyzers.common.errors import TracevizError
from traceviz.output.document import plain
from traceviz.timelines.draw import figure
from traceviz.timelines.files import IMAGE_WIDTH, image
from traceviz.timelines.page import page
from traceviz.timelines.palette import Theme
from traceviz.timelines.picture import Picture

PAGE_ROOM_PIXELS = 300  # pixels of a page around its figure
DRAWN = """<script>addEventListener("message", ({source, data}) => {
  for (const frame of document.querySelectorAll("iframe[data-timeline]")) {
    if (frame.contentWindow !== source || !(data && data.timeline > 0)) continue;
    frame.style.height = data.timeline + "px";
    frame.nextElementSibling.style.display = "none";
  }
});</script>"""


class Timeline(go.Figure):  # type: ignore[misc] # of a class without types
    """A plotly figure that a notebook shows as the page that `traceviz timeline` writes, unless it was changed."""

    def __init__(self, picture: Picture, theme: Theme) -> None:
        super().__init__(figure(picture, theme=theme))
        self._picture, self._theme = picture, theme
        self._as_drawn = hash(self.to_json())

    def _ipython_display_(self) -> None:
        if hash(self.to_json()) != self._as_drawn:
            super()._ipython_display_()
            return
        from IPython.display import publish_display_data

        publish_display_data(*self.shown())  # type: ignore[no-untyped-call] # of IPython

    def shown(self) -> tuple[dict[str, str], dict[str, Any]]:
        """What a notebook keeps of it, by MIME type, and how large it shows that."""
        height = int(self.layout.height) + PAGE_ROOM_PIXELS
        frame = (
            f'<iframe data-timeline srcdoc="{html.escape(page(self._picture, packed=True))}" '
            f'style="width:100%;height:{height}px;border:0"></iframe>'
        )
        headline = plain(self._picture.headline)
        words = f"<p>{html.escape(headline)} (To see the timeline, trust this notebook or run it.)</p>"
        shown = {"text/html": f"<div>{frame}{words}{DRAWN}</div>", "text/plain": f"Timeline: {headline}"}
        try:
            still = image(figure(self._picture, theme=self._theme, slider=False, width=IMAGE_WIDTH), "png")
        except TracevizError:  # no kaleido, or no browser: without a picture that stands still
            return shown, {}
        packed = base64.b64encode(still).decode()
        words = f'<img src="data:image/png;base64,{packed}" width="{IMAGE_WIDTH}" alt="{html.escape(headline)}">'
        shown |= {"text/html": f"<div>{frame}{words}{DRAWN}</div>", "image/png": packed}
        return shown, {"image/png": {"width": IMAGE_WIDTH}}
