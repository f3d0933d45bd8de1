"""summary.md: what goes into a pull request. It stays below what GitHub takes in one comment."""

from __future__ import annotations

import re
from pathlib import Path

from msgspec.structs import asdict

from analyzers.replay.result import LITTLE_MORE, Prediction, WhatIf
from analyzers.verdict.result import OverlapResult
from traceviz.output.document import Block, Bullets, Paragraph, Table, markdown, plain, quoted
from traceviz.output.quantities import duration, listing
from traceviz.output.views import claim, collectives, overlap, what_if
from traceviz.reports.gantt import HEAD_LINES, MOST_LINES, gantt, legend
from traceviz.reports.report import Report

ICONS = {True: "✅", False: "❌", None: "⚠️"}  # of whether the bar is met
FOLDED = "<details><summary>Figures, causes, what a fix is worth, and how it was captured</summary>"
MOST_CAPTURES = 16
MOST_FIXES = 3
MOST_SEEN = 38  # lines above what is folded away
FENCE_LINES = 3  # both of a chart, and the one behind it
MAX_COMMENT_LETTERS = 65_000  # letters; GitHub takes 65,536
_UNIT = re.compile(r"(?<=\d) (?=(?:ns|µs|ms|s|GB/s|[KMG]iB)\b)")
LEFT_OUT = "*… the rest is in report.html.*\n"
LONGEST_COMMAND = 4_000
LONGEST_CELL = 600  # letters of one item: names come from traces and have no bound


def summary(report: Report, *, with_image: bool) -> str:
    """What a reviewer reads in thirty seconds, in less than 40 lines; all else folded away below, as Markdown."""
    result = report.overlap
    again = fenced(report.command, "bash") if 0 < len(report.command) <= LONGEST_COMMAND else ""
    files = ["`report.html` has the zoomable timeline and every section", "`results.json` the data"]
    files += ["`timeline.png` the picture"] if with_image else []
    which_steps = result.steps.sentence if result.steps is not None else ""  # "": that goes without saying
    above = first(result) + claimed(result) + (f"- {quoted(_cut(which_steps))}\n" if which_steps else "")
    below = [again, f"{', '.join(files)}.\n"]
    told = markdown([_short(Paragraph(legend(report.picture)))])
    others = "\n".join(part for part in (above, *below) if part)
    taken = sum(len(text.splitlines()) for text in (others, told)) + HEAD_LINES + FENCE_LINES
    code = gantt(report.picture, met=result.passed is True, most=min(MOST_SEEN - taken, MOST_LINES))
    chart = f"{fenced(code, 'mermaid')}{told}" if code else ""
    head = "\n".join(part for part in (above, chart, *below) if part)
    folded = [
        *(markdown([_short(block)]) for block in overlap.figures(result, verbose=True)),
        markdown([_short(block) for block in best_fixes_in_short(report.what_if)]),
        markdown(conditions(report)),
    ]
    kept = [part for part in folded if part]
    for k, part in enumerate(kept):  # no line of a table breaks between a number and its unit
        lines = (_UNIT.sub("\u00a0", line) if line.startswith("| ") else line for line in part.split("\n"))
        kept[k] = "\n".join(lines)
    room = MAX_COMMENT_LETTERS - len(head) - len(FOLDED)
    for k in sorted(range(len(kept)), key=lambda k: -len(kept[k])):
        if sum(len(part) + 1 for part in kept) <= room:
            break
        kept[k] = LEFT_OUT
    return f"{head}\n{FOLDED}\n\n" + "\n".join(kept) + "\n</details>\n"


def first(result: OverlapResult) -> str:
    """The first lines, the verdict as a heading that is seen from afar."""
    verdict, *more = (quoted(_cut(one.text)) for one in result.lines)
    return "\n".join([f"### {icon_of(result)} {verdict}", "", *(f"- {line}" for line in more)]) + "\n"


def icon_of(result: OverlapResult) -> str:
    """Whether the bar is met; never green where the step got slower, or had to get faster and did not."""
    code = result.against.exit_code if result.against else 0
    if code == 1 or (result.passed and code):
        return ICONS[False] if code == 1 else ICONS[None]
    is_slower = result.against is not None and result.against.is_slower
    return ICONS[None] if result.passed and is_slower else ICONS[result.passed]


def claimed(result: OverlapResult) -> str:
    """What a claim comes to; "" where none was made."""
    icon = {0: ICONS[True], 1: ICONS[False]}.get(result.claim_code, ICONS[None])
    lines = [
        f"- **{icon} {quoted(one.word.capitalize())}:** {quoted(one.text)}\n"
        for one in claim.blocks(result.claim, result.claim_reason)
    ]
    return "".join(lines)


def best_fixes(result: WhatIf) -> list[Prediction]:
    """The changes to try first, of those that gain more than next to nothing, and whose range tells something."""
    named = result.fix.change if result.fix is not None else ""
    may_be = [one for one in result.to_try if one.worth_ns > 0]
    gaining = [one for one in may_be if one.change == named or (one.tells and one.gain_ns > LITTLE_MORE * one.now_ns)]
    return gaining[:MOST_FIXES]


def best_fixes_in_short(result: WhatIf) -> list[Block]:
    """What the best fixes are worth, or why there are none."""
    best = best_fixes(result)
    if not best:
        return [Paragraph(result.sentence, "What a fix is worth")]
    shown = next(one for one in what_if.blocks(result) if isinstance(one, Table))
    wanted = {one.change for one in best}
    rows = [row for row in shown.rows if row[0] in wanted or row is shown.rows[0]]
    assumed = [*result.best.assumptions] if result.best else []
    text = f"predicted by replay, not measured. {result.sentence}"
    text += f" Assumed: {'; '.join(assumed)}." if assumed else ""
    return [Paragraph(text, "What a fix is worth"), Table(shown.headers, rows, "", shown.numeric, shown.note)]


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
    return Paragraph(f"{text}. {about.steps.in_words} A profiler ran: it slows the host down.")


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
    return type(block)(**{name: _cut(text) for name, text in asdict(block).items()})


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_CELL else f"{text[: LONGEST_CELL - 1]}…"
