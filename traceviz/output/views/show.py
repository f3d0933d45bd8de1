"""The answer of `show`: as a document and as JSON, which is brief as it is."""

from __future__ import annotations

from analyzers.show.result import Shown
from traceviz.options.again import CommandLine
from traceviz.output.brief import fitted
from traceviz.output.document import Block, Bullets, Headline, Paragraph, Table
from traceviz.output.quantities import duration, unshown
from traceviz.output.records import Json, picked

HEADERS = {
    "gap": ("blocked by", "for", "from", "evidence"),
    "instance": ("blocked by", "for", "longest from", "evidence"),
    "collective": ("rank", "took", "from", "evidence"),
}


def brief_document(result: Shown, line: CommandLine) -> Json:
    """`traceviz.show/1`: one finding; times are whole ns from the capture's start.

    `pair`, `rank` and `device` are null where they play no part. Of a gap and an instance `pieces` are causes, `ns` the
    time alone that each held in all, from `start_ns` to `end_ns` in the longest gap; of a collective they are ranks,
    the last to arrive first, of which `more_pieces` are left out. `next` are the commands to run next: the first
    related finding, and a picture of its time.
    """
    pair = {"a": line.given.get("a"), "b": line.given.get("b")}
    around = max((result.end_ns - result.start_ns) // 2, 1_000)
    window = f"{result.start_ns - around}ns:{result.end_ns + around}ns"
    answer = {
        "schema": "traceviz.show/1",
        **picked(result, "id kind"),
        "pair": picked(result, "a b") if result.a else None,
        **picked(result, "rank device start_ns end_ns steps sentence figures pieces more_pieces evidence related"),
        "next": [
            *(line.again("show", one.id, **pair) for one in result.related[:1]),
            f"{line.again('timeline', window=window, **pair)} -o timeline.html",
        ],
    }
    return fitted(answer, {name: len(answer[name]) for name in ("pieces", "evidence", "related")})


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
