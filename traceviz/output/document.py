"""What a command shows, said once: a list of blocks that the terminal and Markdown both render."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
from msgspec.structs import force_setattr, replace

from analyzers.common.notebook import plain as plain
from analyzers.common.wording import in_one_unit, stream_word

_MARKDOWN = re.compile(r"([\\`*_\[\]#|~$])")
_LINKS = re.compile(r"(@|:(?=//)|\bwww(?=\.))", re.IGNORECASE)  # what GitHub makes links of by itself


class Headline(msgspec.Struct, frozen=True):
    """The answer in one line: a coloured word and a sentence."""

    word: str
    text: str
    mood: str = ""


class Paragraph(msgspec.Struct, frozen=True):
    """Prose; `title` stands in front of it."""

    text: str
    title: str = ""


class Bullets(msgspec.Struct, frozen=True):
    """A list under a title, or under none."""

    title: str
    items: Sequence[str]


class Table(msgspec.Struct, frozen=True):
    """A table, its times in one unit; columns whose header is in `numeric` are set to the right.

    `note` explains it below, in lines.
    """

    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    numeric: frozenset[str] = msgspec.field(default_factory=frozenset)
    note: str = ""

    def __post_init__(self) -> None:
        force_setattr(self, "rows", in_one_unit(self.rows))


Block = Headline | Paragraph | Bullets | Table


def worded(blocks: Sequence[Block], runtime: str) -> list[Block]:
    """The same blocks with titles, headers and notes in the word of a runtime for streams; texts and cells stay.

    >>> worded([Table(("stream", "and stream"), [], "Streams of rank 0")], "SYCL")[0].title
    'Queues of rank 0'
    """
    word = stream_word(runtime)
    if word == "stream":
        return list(blocks)

    def said(text: str) -> str:
        return text.replace("stream", word).replace("Stream", word.capitalize())

    def of(block: Block) -> Block:
        if isinstance(block, Paragraph):
            return replace(block, title=said(block.title))
        if not isinstance(block, Table):
            return block
        headers, numeric = [said(one) for one in block.headers], frozenset(map(said, block.numeric))
        return replace(block, headers=headers, title=said(block.title), numeric=numeric, note=said(block.note))

    return [of(block) for block in blocks]


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
            title = [f"**{quoted(block.title)}**", ""] if block.title else []
            parts.append("\n".join([*title, *(f"- {quoted(item)}" for item in block.items)]))
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


def _markdown_table(block: Table) -> str:
    lines = [f"**{quoted(block.title)}**", ""] if block.title else []
    lines.append("| " + " | ".join(quoted(header) for header in block.headers) + " |")
    lines.append("|" + "|".join("---:" if header in block.numeric else "---" for header in block.headers) + "|")
    lines += ["| " + " | ".join(quoted(cell) for cell in row) + " |" for row in block.rows]
    for line in block.note.splitlines():
        lines += ["", quoted(line)]
    return "\n".join(lines)
