"""Blocks of a document on a terminal or in a pipe, by rich; which takes a while to load, and JSON does without."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from traceviz.output.document import Block, Bullets, Headline, Paragraph, Table, plain

STYLES = {"good": "bold green", "bad": "bold red", "middle": "bold yellow", "": ""}


def print_blocks(blocks: Sequence[Block], console: Console) -> None:
    """Print blocks to a terminal or a pipe; colours are the console's business."""
    for index, block in enumerate(blocks):
        if index:
            console.print()
        if isinstance(block, Headline):
            console.print(Text.assemble((plain(block.word), STYLES[block.mood]), "  ", plain(block.text)))
        elif isinstance(block, Paragraph):
            head = f"{block.title}: " if block.title else ""
            console.print(Text.assemble((plain(head), "bold"), plain(block.text)))
        elif isinstance(block, Bullets):
            console.print(Text(plain(block.title), "bold"))
            for item in block.items:
                _print_item(plain(item), console)
        else:
            _print_table(block, console)


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
