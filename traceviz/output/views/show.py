"""The answer of `show` as a document."""

from __future__ import annotations

from analyzers.show.result import Shown
from traceviz.output.document import Block, Bullets, Headline, Paragraph, Table
from traceviz.output.quantities import duration, unshown

HEADERS = {
    "gap": ("blocked by", "for", "from", "evidence"),
    "instance": ("blocked by", "for", "longest from", "evidence"),
    "collective": ("rank", "took", "from", "evidence"),
}


def blocks(result: Shown) -> list[Block]:
    """What it is, when, what it consists of, the evidence, and what to look at beside it."""
    shown: list[Block] = [Headline(result.kind.upper(), result.sentence), Paragraph(f"{result.window}.", "When")]
    if result.pieces:
        headers = HEADERS[result.kind]
        rows = [(one.name, duration(one.ns), duration(one.start_ns), one.evidence) for one in result.pieces]
        note = unshown(result.more_pieces, "more ranks").replace(" (--format json has all)", "")
        shown.append(Table(headers, rows, numeric=frozenset(headers[1:3]), note=note))
    if result.evidence:
        shown.append(Bullets("Evidence", result.evidence))
    if result.related:
        shown.append(Bullets("Related", [f"{one.id}  {one.words}" for one in result.related]))
    return shown
