"""summary.md: what goes into a pull request. It stays below what GitHub takes in one comment."""

from __future__ import annotations

import re
from pathlib import Path

from traceviz.output.document import Block, Bullets, Paragraph, Table, markdown, plain
from traceviz.output.quantities import duration, listing
from traceviz.output.views import collectives, overlap
from traceviz.reports import fixes
from traceviz.reports.gantt import gantt, legend
from traceviz.reports.report import Report

MOST_CAPTURES = 16
MOST = 65_000  # letters; GitHub takes 65,536
LONGEST_CELL = 600  # letters of one item: names come from traces and have no bound


def summary(report: Report, *, with_image: bool) -> str:
    """Verdict, figures, causes, the shown instance, capture conditions and the command, as Markdown."""
    verdict, *figures = overlap.blocks(report.overlap, verbose=True)
    code = gantt(report.picture)
    parts = [
        markdown([_short(verdict)]),
        f"{fenced(code, 'mermaid')}\n{markdown([_short(Paragraph(legend(report.picture)))])}" if code else "",
        *(markdown([_short(block)]) for block in figures),
        markdown([_short(block) for block in fixes.short_blocks(report.what_if)]),
        markdown(conditions(report)),
        f"To see this again:\n\n{fenced(report.command, 'bash')}" if report.command else "",
        "`report.html` has the zoomable timeline and every section, `results.json` the data"
        + (", `timeline.png` the picture to attach.\n" if with_image else ".\n"),
    ]
    kept = [part for part in parts if part]
    left_out = "*… the rest is in report.html.*\n"
    while sum(len(part) + 1 for part in kept) > MOST:
        longest = max(range(1, len(kept)), key=lambda k: len(kept[k]))
        kept[longest] = left_out
    return "\n".join(kept)


def conditions(report: Report) -> list[Block]:
    """Under which conditions the trace was taken: captures, GPUs, what can't be told, clocks."""
    about = report.info
    rows = [
        (
            Path(one.path).name,
            one.format,
            listing([text for text in (one.producer, one.schema) if text]) or "–",
            one.host or "–",
        )
        for one in about.captures[:MOST_CAPTURES]
    ]
    more = len(about.captures) - MOST_CAPTURES
    note = f"… and {more} more" if more > 0 else ""
    blocks: list[Block] = [
        Table(("capture", "format", "made by", "host"), rows, "Captured", note=note),
        capture(report),
    ]
    if about.cannot:
        blocks.append(Bullets("What these captures can't tell", about.cannot))
    return [_short(block) for block in [*blocks, *collectives.clocks(report.overlap.clocks)]]


def capture(report: Report) -> Paragraph:
    """On what, and how long: ranks, GPUs, span and steps."""
    about = report.info
    gpus = sorted({rank.gpu for rank in about.ranks if rank.gpu})
    span = max((one.last_ns for one in about.ranks), default=0) - min((one.first_ns for one in about.ranks), default=0)
    text = f"{len(about.ranks)} ranks of {listing(gpus) or 'unnamed GPUs'}, {duration(span)} of GPU work"
    text += f", steps {about.steps[0]} to {about.steps[-1]}" if about.steps else ", no step marks"
    return Paragraph(f"{text}. A profiler ran: it slows the host down.")


def fenced(text: str, language: str) -> str:
    """A text in a code block that it can't close.

    >>> print(fenced("a ``` b", "bash"))
    ````bash
    a ``` b
    ````
    <BLANKLINE>
    """
    runs = [len(run) for run in re.findall("`+", text)]
    fence = "`" * max(3, *(length + 1 for length in runs), 3)
    lines = "\n".join(plain(line) for line in text.splitlines())
    return f"{fence}{language}\n{lines}\n{fence}\n"


def _short(block: Block) -> Block:
    """A block whose texts have a bound."""
    if isinstance(block, Table):
        return Table(
            [_cut(text) for text in block.headers],
            [[_cut(cell) for cell in row] for row in block.rows],
            _cut(block.title),
            frozenset(_cut(text) for text in block.numeric),
            block.note,
        )
    if isinstance(block, Bullets):
        return Bullets(_cut(block.title), [_cut(item) for item in block.items])
    return type(block)(**{name: _cut(text) for name, text in vars(block).items()})


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_CELL else f"{text[: LONGEST_CELL - 1]}…"
