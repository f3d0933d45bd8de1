"""Blocks of a document as lines of a terminal or a pipe; rich colours them, which takes a while to load."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING

from rich.cells import cell_len, chop_cells

from traceviz.output.document import Block, Bullets, Headline, Paragraph, Table, plain

if TYPE_CHECKING:
    from rich.console import Console

Piece = tuple[str, str]  # a text and its style, as rich writes styles
COLUMN_PADDING = 2  # between columns
PROSE = 88  # letters of a line of prose: longer ones are hard to read
NARROW, WORD = 12, 24  # letters, to which a column of words may shrink; it breaks no word up to WORD
# Spaces that no line breaks at: between a number and its unit, and between what is numbered and its number.
_KEPT = re.compile(
    r"(?<=\d) (?=(?:%|ns|µs|ms|s|B|[KMGT]iB|GB/s)(?!\w))|(?<=±) (?=\d)"
    r"|(?:(?<=\brank)|(?<=\branks)|(?<=\bdevice)|(?<=\bstream)|(?<=\bstep)) (?=\d)",
    re.IGNORECASE,
)
STYLES = {"good": "bold green", "bad": "bold red", "middle": "bold yellow", "": ""}


def print_blocks(blocks: Sequence[Block], console: Console) -> None:
    """Print blocks to a terminal; colours are the console's business."""
    from rich.text import Text

    for line in _lines_of_blocks(blocks, console.width, console.encoding):
        console.print(Text.assemble(*line), no_wrap=True, overflow="ignore", crop=False)


def without_colours(blocks: Sequence[Block], width: int, encoding: str) -> str:
    """The same lines for what has no colours."""
    return "".join(f"{_text(line).rstrip()}\n" for line in _lines_of_blocks(blocks, width, encoding))


def _lines_of_blocks(blocks: Sequence[Block], width: int, encoding: str) -> Iterator[Sequence[Piece]]:
    prose = min(width, PROSE)
    for index, block in enumerate(blocks):
        if index:
            yield []
        if isinstance(block, Headline):
            yield from _lines([(plain(block.word), STYLES[block.mood]), ("  ", ""), (plain(block.text), "")], prose)
        elif isinstance(block, Paragraph):
            head = f"{block.title}: " if block.title else ""
            yield from _lines([(plain(head), "bold"), (plain(block.text), "")], prose)
        elif isinstance(block, Bullets):
            yield from _title(block.title, width)
            mark = "  • " if encoding.lower().startswith("utf") else "  - "
            for item in block.items:
                for k, line in enumerate(_lines([(plain(item), "")], max(prose - len(mark), 1))):
                    yield [(" " * len(mark) if k else mark, ""), *line]
        else:
            yield from _lines_of_table(block, width)


def _title(title: str, width: int) -> Iterator[Sequence[Piece]]:
    return _lines([(plain(title), "bold")], width) if title else iter(())


def _text(line: Iterable[Piece]) -> str:
    return "".join(text for text, _ in line)


def _lines(pieces: Sequence[Piece], width: int) -> Iterator[list[Piece]]:
    """A text in lines; rich itself would part a number from its unit."""
    text = _text(pieces)
    starts, used = [0], 0
    for word in re.finditer(r"\s*\S+\s*", _KEPT.sub("_", text)):
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
    for low, high in pairwise([*starts, len(text)]):
        yield _part(pieces, low, low + len(text[low:high].rstrip()))


def _part(pieces: Sequence[Piece], low: int, high: int) -> list[Piece]:
    found, at = [], 0
    for text, style in pieces:
        found.append((text[max(low - at, 0) : max(high - at, 0)], style))
        at += len(text)
    return found


def _columns_that_fit(block: Table, width: int) -> list[list[int]]:
    """The columns of each of the tables that stand below each other where one is too wide; each begins with the first.

    Columns are as narrow as words in their headers, and figures, allow: neither is broken.
    """
    first = _least_width(block, 0) + COLUMN_PADDING if block.headers else 0
    tables, used = [[0]] if block.headers else [], first
    for k in range(1, len(block.headers)):
        wide = _least_width(block, k) + COLUMN_PADDING
        if used + wide > width and len(tables[-1]) > 1:
            tables.append([0])
            used = first
        tables[-1].append(k)
        used += wide
    return tables


def _widths(block: Table, columns: Sequence[int], width: int) -> list[int]:
    """As wide as each column needs to be, or less down to its least: what there is goes to words first."""
    found = {k: min(_least_width(block, k), max(width - COLUMN_PADDING, 1)) for k in columns}
    left = width - sum(found.values()) - COLUMN_PADDING * len(columns)
    for k in sorted(columns, key=lambda k: block.headers[k] in block.numeric):
        wanted = max(len(plain(text)) for text in (block.headers[k], *(row[k] for row in block.rows)))
        more = max(min(wanted - found[k], left), 0)
        found[k] += more
        left -= more
    for _ in range(-left - COLUMN_PADDING):  # there is no room for two columns, of which the last needs no padding
        found[max(found, key=found.__getitem__)] -= 1
    return [max(found[k], 1) for k in columns]


def _least_width(block: Table, k: int) -> int:
    header = block.headers[k]
    words = max((len(word) for word in plain(header).split()), default=0)
    longest = max((len(plain(row[k])) for row in block.rows), default=0)
    if header in block.numeric:
        return max(words, longest)
    word = max((len(word) for row in block.rows for word in plain(row[k]).split()), default=0)
    return max(words, min(longest, NARROW), min(word, WORD))


def _lines_of_table(block: Table, width: int) -> Iterator[Sequence[Piece]]:
    yield from _title(block.title, width)
    for columns in _columns_that_fit(block, width):
        widths = _widths(block, columns, width)
        for number, row in enumerate((block.headers, *block.rows)):
            is_header = number == 0
            cells = [
                [_text(line) for line in _lines([(plain(row[k]), "")], wide)]
                for k, wide in zip(columns, widths, strict=True)
            ]
            if is_header:  # they stand at the bottom
                most = max(map(len, cells))
                cells = [[""] * (most - len(lines)) + lines for lines in cells]
            for at in zip_longest(*cells, fillvalue=""):
                padded = (
                    _padded(one, wide, right=block.headers[k] in block.numeric)
                    for k, one, wide in zip(columns, at, widths, strict=True)
                )
                yield [((" " * COLUMN_PADDING).join(padded).rstrip(), "dim" if is_header else "")]
    for line in block.note.splitlines():
        yield from _lines([(plain(line), "dim")], width)


def _padded(text: str, width: int, *, right: bool) -> str:
    missing = " " * (width - cell_len(text))
    return missing + text if right else text + missing
