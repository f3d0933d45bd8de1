"""report.html: every section of a report and its timeline in one page that needs no network."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from msgspec.structs import replace

from traceviz.output.document import Block, Bullets, Headline, Paragraph, plain
from traceviz.output.views import collectives, info, overlap, streams, syncs, what_if
from traceviz.reports.panels import overlap_cost, step_times
from traceviz.reports.report import Report
from traceviz.reports.summary import capture
from traceviz.timelines.document import document
from traceviz.timelines.page import timeline


def html(report: Report) -> str:
    """The whole page."""
    verdict = [*overlap.head(report.overlap), *overlap.figures(report.overlap)]
    ordering = syncs.blocks(report.order)
    worth = what_if.blocks(replace(report.what_if, warnings=()))  # the verdict has them
    already_shown: set[str] = set()
    sections: list[tuple[str, str, str]] = [
        ("verdict", "Verdict", rendered(_without_repeats(verdict, already_shown)) + overlap_cost(report.overlap)),
        ("timeline-section", "Timeline", timeline(report.picture)),
        ("what-if", "What fixes are worth", rendered(worth) + step_times(report.what_if)),
        (
            "collectives",
            "Collectives",
            rendered(_without_repeats(collectives.blocks(report.collectives), already_shown)),
        ),
        ("syncs", "Sync points and ordering", rendered(_without_repeats(ordering, already_shown))),
        ("streams", "Streams", rendered(_without_repeats(streams.blocks(report.streams), already_shown))),
        ("capture", "Capture", rendered(_without_repeats([capture(report), *info.blocks(report.info)], already_shown))),
    ]
    if report.command:
        sections.append(("command", "Command", f"<pre>{_text(report.command)}</pre>"))
    links = " · ".join(f'<a href="#{anchor}">{title}</a>' for anchor, title, _ in sections)
    body = "\n".join(
        f'<section id="{anchor}">\n<h2>{title}</h2>\n{content}\n</section>' for anchor, title, content in sections
    )
    return document(report.picture.headline, f'<nav class="about">{links}</nav>\n{body}', scripts=True)


def _without_repeats(blocks: Sequence[Block], already_shown: set[str]) -> list[Block]:
    """Blocks without the items of lists that stand higher up on the page, which are noted in `already_shown`."""
    kept: list[Block] = []
    for block in blocks:
        if isinstance(block, Bullets):
            items = [item for item in block.items if item not in already_shown]
            already_shown.update(items)
            if items:
                kept.append(Bullets(block.title, items))
        else:
            kept.append(block)
    return kept


def rendered(blocks: Sequence[Block]) -> str:
    """Blocks as HTML."""
    return "\n".join(_rendered(block) for block in blocks)


def _rendered(block: Block) -> str:
    if isinstance(block, Headline):
        return f'<p class="headline {block.mood}"><b>{_text(block.word)}</b> {_text(block.text)}</p>'
    if isinstance(block, Paragraph):
        head = f"<b>{_text(block.title)}:</b> " if block.title else ""
        return f"<p>{head}{_text(block.text)}</p>"
    if isinstance(block, Bullets):
        items = "".join(f"<li>{_text(item)}</li>" for item in block.items)
        return f"<h3>{_text(block.title)}</h3>\n<ul>{items}</ul>"
    kinds = ["number" if header in block.numeric else "words" for header in block.headers]
    heads = "".join(f'<th class="{kind}">{_text(one)}</th>' for kind, one in zip(kinds, block.headers, strict=True))
    rows = "\n".join(
        "<tr>"
        + "".join(f'<td class="{kind}">{_text(cell)}</td>' for kind, cell in zip(kinds, row, strict=True))
        + "</tr>"
        for row in block.rows
    )
    title = f"<h3>{_text(block.title)}</h3>\n" if block.title else ""
    note = "".join(f'<p class="note">{_text(line)}</p>' for line in block.note.splitlines())
    return f'{title}<div class="wide"><table>\n<tr>{heads}</tr>\n{rows}\n</table></div>{note}'


def _text(text: str) -> str:
    return escape(plain(text))
