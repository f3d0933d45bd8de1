"""Blocks of a document on a terminal or in a pipe, by rich; which takes a while to load, and JSON does without."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal

from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from traceviz.output.document import Block, Bullets, Headline, Paragraph, Table, plain

PADDING = 2  # between columns
NARROW, WORD = 12, 24  # letters, to which a column of words may shrink; it breaks no word up to WORD
# Spaces that no line breaks at: between a number and its unit, and between what is numbered and its number.
_KEPT = re.compile(
    r"(?<=\d) (?=(?:%|ns|µs|ms|s|B|[KMGT]iB|GB/s)(?!\w))|(?<=±) (?=\d)"
    r"|(?:(?<=\brank)|(?<=\branks)|(?<=\bdevice)|(?<=\bstream)|(?<=\bstep)) (?=\d)",
    re.IGNORECASE,
)
STYLES = {"good": "bold green", "bad": "bold red", "middle": "bold yellow", "": ""}


def print_blocks(blocks: Sequence[Block], console: Console) -> None:
    """Print blocks to a terminal or a pipe; colours are the console's business."""
    for index, block in enumerate(blocks):
        if index:
            console.print()
        if isinstance(block, Headline):
            _print(Text.assemble((plain(block.word), STYLES[block.mood]), "  ", plain(block.text)), console)
        elif isinstance(block, Paragraph):
            head = f"{block.title}: " if block.title else ""
            _print(Text.assemble((plain(head), "bold"), plain(block.text)), console)
        elif isinstance(block, Bullets):
            if block.title:
                _print(Text(plain(block.title), "bold"), console)
            for item in block.items:
                _print(Text(plain(item)), console, "  • " if console.encoding.startswith("utf") else "  - ")
        else:
            _print_table(block, console)


def _print(text: Text, console: Console, mark: str = "") -> None:
    """Print a text in lines, behind `mark`; rich itself would part a number from its unit."""
    for k, line in enumerate(_lines(text, max(console.width - len(mark), 1))):
        console.print(Text.assemble(" " * len(mark) if k else mark, line), no_wrap=True, overflow="ignore", crop=False)


def _lines(text: Text, width: int) -> Iterator[Text]:
    starts, used = [], 0
    for word in re.finditer(r"\s*\S+\s*", _KEPT.sub("_", text.plain)):
        letters = word[0].rstrip()
        if used and used + cell_len(letters) > width:
            starts.append(word.start())
            used = 0
        *whole, rest = chop_cells(letters, width) or [""]  # of a word that no line holds
        at = word.start()
        for piece in whole:
            at += len(piece)
            starts.append(at)
        used += cell_len(rest) + len(word[0]) - len(letters)
    for line in text.divide(starts):
        line.rstrip()
        yield line


def _columns_that_fit(block: Table, width: int) -> list[list[int]]:
    """The columns of each of the tables that stand below each other where one is too wide; each begins with the first.

    Columns are as narrow as words in their headers, and figures, allow: neither is broken.
    """
    first = _least_width(block, 0) + PADDING if block.headers else 0
    tables, used = [[0]] if block.headers else [], first
    for k in range(1, len(block.headers)):
        wide = _least_width(block, k) + PADDING
        if used + wide > width and len(tables[-1]) > 1:
            tables.append([0])
            used = first
        tables[-1].append(k)
        used += wide
    return tables


def _widths(block: Table, columns: Sequence[int], width: int) -> list[int]:
    """As wide as each column needs to be, or less down to its least: what there is goes to words first."""
    found = {k: min(_least_width(block, k), max(width - PADDING, 1)) for k in columns}
    left = width - sum(found.values()) - PADDING * len(columns)
    for k in sorted(columns, key=lambda k: block.headers[k] in block.numeric):
        wanted = max(len(plain(text)) for text in (block.headers[k], *(row[k] for row in block.rows)))
        more = max(min(wanted - found[k], left), 0)
        found[k] += more
        left -= more
    return [found[k] for k in columns]


def _least_width(block: Table, k: int) -> int:
    header = block.headers[k]
    words = max((len(word) for word in plain(header).split()), default=0)
    longest = max((len(plain(row[k])) for row in block.rows), default=0)
    if header in block.numeric:
        return max(words, longest)
    word = max((len(word) for row in block.rows for word in plain(row[k]).split()), default=0)
    return max(words, min(longest, NARROW), min(word, WORD))


def _print_table(block: Table, console: Console) -> None:
    if block.title:
        _print(Text(plain(block.title), "bold"), console)
    for columns in _columns_that_fit(block, console.width):
        table = RichTable(box=None, padding=(0, PADDING, 0, 0), show_edge=False, header_style="dim")
        widths = _widths(block, columns, console.width)
        for k, width in zip(columns, widths, strict=True):
            header = block.headers[k]
            justify: Literal["left", "right"] = "right" if header in block.numeric else "left"
            table.add_column(Text(plain(header)), justify=justify, overflow="fold", width=width)
        for row in block.rows:
            cells = (_lines(Text(plain(row[k])), width) for k, width in zip(columns, widths, strict=True))
            table.add_row(*(Text("\n").join(lines) for lines in cells))
        console.print(table)
    for line in block.note.splitlines():
        _print(Text(plain(line), "dim"), console)
