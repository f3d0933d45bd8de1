"""A timeline as a file: .html, .png or .svg, whole or not at all."""

from __future__ import annotations

from pathlib import Path

from analyzers.common.errors import TracevizError
from analyzers.common.writing import replacing
from traceviz.timelines.picture import Picture

KINDS = ("html", "png", "svg")


def kind_of(path: Path) -> str:
    """The kind of file a name asks for; TracevizError where it is none that can be written."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in KINDS:
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
    from traceviz.timelines.images import WIDTH, image
    from traceviz.timelines.palette import DARK, LIGHT

    return image(figure(picture, theme=DARK if dark else LIGHT, slider=False, width=WIDTH), kind)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file so that its name never stands for half of it."""
    with replacing(path) as beside:
        beside.write_bytes(content)
