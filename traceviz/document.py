"""What a command shows, said once: a list of blocks that the terminal and Markdown both render."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from analyzers.cards import plain as plain

_MARKDOWN = re.compile(r"([\\`*_\[\]#|~$])")
_LINKS = re.compile(r"(@|:(?=//)|\bwww(?=\.))", re.IGNORECASE)  # what GitHub makes links of by itself
STYLES = {"good": "bold green", "bad": "bold red", "middle": "bold yellow", "dim": "dim", "": ""}


@dataclass(frozen=True)
class Headline:
    """The answer in one line: a coloured word and a sentence."""

    word: str
    text: str
    mood: str = ""


@dataclass(frozen=True)
class Paragraph:
    """Prose; `title` stands in front of it."""

    text: str
    title: str = ""
    mood: str = ""


@dataclass(frozen=True)
class Bullets:
    """A list under a title."""

    title: str
    items: Sequence[str]


@dataclass(frozen=True)
class Table:
    """A table; columns whose header is in `numeric` are set to the right. `note` explains it below, in lines."""

    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    numeric: frozenset[str] = field(default_factory=frozenset)
    note: str = ""


Block = Headline | Paragraph | Bullets | Table


def print_blocks(blocks: Sequence[Block], console: Console) -> None:
    """Print blocks to a terminal or a pipe; colours are the console's business."""
    for index, block in enumerate(blocks):
        if index:
            console.print()
        if isinstance(block, Headline):
            console.print(Text.assemble((plain(block.word), STYLES[block.mood]), "  ", plain(block.text)))
        elif isinstance(block, Paragraph):
            head = f"{block.title}: " if block.title else ""
            console.print(Text.assemble((plain(head), "bold"), (plain(block.text), STYLES[block.mood])))
        elif isinstance(block, Bullets):
            console.print(Text(plain(block.title), "bold"))
            for item in block.items:
                _print_item(plain(item), console)
        else:
            _print_table(block, console)


def markdown(blocks: Sequence[Block]) -> str:
    """Render blocks as GitHub-flavoured Markdown."""
    parts = []
    for block in blocks:
        if isinstance(block, Headline):
            parts.append(f"## {quoted(block.word)}: {quoted(block.text)}")
        elif isinstance(block, Paragraph):
            head = f"**{quoted(block.title)}:** " if block.title else ""
            parts.append(f"{head}{quoted(block.text)}")
        elif isinstance(block, Bullets):
            parts.append("\n".join([f"**{quoted(block.title)}**", "", *(f"- {quoted(item)}" for item in block.items)]))
        else:
            parts.append(_markdown_table(block))
    return "\n\n".join(parts) + "\n"


def quoted(text: str) -> str:
    """A text that Markdown shows as it is: no link, no HTML, no mention, no table cell broken.

    >>> print(quoted("<b>[x](y)</b> | @me"))
    &lt;b&gt;\\[x\\](y)&lt;/b&gt; \\| @\u200bme
    """
    text = plain(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _LINKS.sub(r"\1" + "\u200b", _MARKDOWN.sub(r"\\\1", text))


def _print_item(text: str, console: Console) -> None:
    grid = RichTable.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row("  •" if console.encoding.startswith("utf") else "  -", Text(text))
    console.print(grid)


def _print_table(block: Table, console: Console) -> None:
    if block.title:
        console.print(Text(plain(block.title), "bold"))
    table = RichTable(box=None, padding=(0, 2, 0, 0), show_edge=False, header_style="dim")
    for header in block.headers:
        table.add_column(Text(plain(header)), justify="right" if header in block.numeric else "left", overflow="fold")
    for row in block.rows:
        table.add_row(*(Text(plain(cell)) for cell in row))
    console.print(table)
    for line in block.note.splitlines():
        console.print(Text(plain(line), "dim"))


def _markdown_table(block: Table) -> str:
    lines = [f"**{quoted(block.title)}**", ""] if block.title else []
    lines.append("| " + " | ".join(quoted(header) for header in block.headers) + " |")
    lines.append("|" + "|".join("---:" if header in block.numeric else "---" for header in block.headers) + "|")
    lines += ["| " + " | ".join(quoted(cell) for cell in row) + " |" for row in block.rows]
    for line in block.note.splitlines():
        lines += ["", quoted(line)]
    return "\n".join(lines)
