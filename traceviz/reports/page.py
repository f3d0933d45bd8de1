"""report.html: every section of a report and its timeline in one page that needs no network."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from msgspec.structs import replace

from analyzers.common.wording import duration, span
from analyzers.replay.result import WhatIf, change_in_words
from analyzers.verdict.result import OverlapResult
from traceviz.output.document import Block, Bullets, Headline, Paragraph, plain
from traceviz.output.views import collectives, info, overlap, streams, syncs, what_if
from traceviz.reports.report import Report
from traceviz.reports.summary import best_fixes, capture
from traceviz.timelines.page import document, timeline

MOST_RANKS = 16  # in the panel of what overlap cost


def html(report: Report) -> str:
    """The whole page."""
    shown: set[str] = set()

    def section(blocks: Sequence[Block]) -> str:
        """Blocks without the items of lists that stand higher up on the page."""
        kept: list[Block] = []
        for block in blocks:
            if isinstance(block, Bullets):
                items = [item for item in block.items if item not in shown]
                shown.update(items)
                kept += [Bullets(block.title, items)] if items else []
            else:
                kept.append(block)
        return rendered(kept)

    result = report.overlap
    verdict = section([*overlap.head(result), *overlap.figures(result)]) + overlap_cost(result)
    worth = rendered(what_if.blocks(replace(report.what_if, warnings=())))  # the verdict has them
    sections = [
        ("verdict", "Verdict", verdict),
        ("timeline-section", "Timeline", timeline(report.picture)),
        ("what-if", "What fixes are worth", worth + step_times(report.what_if)),
        ("collectives", "Collectives", section(collectives.blocks(report.collectives))),
        ("syncs", "Sync points and ordering", section(syncs.blocks(report.order))),
        ("streams", "Streams", section(streams.blocks(report.streams))),
        ("capture", "Capture", section([capture(report), *info.blocks(report.info)])),
    ]
    if report.command:
        sections.append(("command", "Command", f"<pre>{_text(report.command)}</pre>"))
    links = " · ".join(f'<a href="#{anchor}">{title}</a>' for anchor, title, _ in sections)
    body = "\n".join(
        f'<section id="{anchor}">\n<h2>{title}</h2>\n{content}\n</section>' for anchor, title, content in sections
    )
    return document(report.picture.headline, f'<nav class="about">{links}</nav>\n{body}', scripts=True)


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


def overlap_cost(result: OverlapResult) -> str:
    """Per rank what overlapped, what both sides lost to contention, and what is left; "" where none lost anything."""
    shown = [one for one in result.contention if one.real_overlap_ns][:MOST_RANKS]
    if not any(one.a.is_slowed or one.b.is_slowed for one in shown):
        return ""
    paid = [(one.a.paid_ns or 0, one.b.paid_ns or 0) for one in shown]
    longest = max(max(one.real_overlap_ns, sum(lost)) for one, lost in zip(shown, paid, strict=True))
    rows = []
    for one, lost in zip(shown, paid, strict=True):
        parts = {"net": max(one.real_overlap_ns - sum(lost), 0), "paid-a": lost[0], "paid-b": lost[1]}
        bars = "".join(
            f'<span class="cost {kind}" style="width:{100 * ns / longest:.2f}%" title="{duration(ns)}"></span>'
            for kind, ns in parts.items()
            if ns
        )
        unknown = [letter for letter, side in zip("AB", (one.a, one.b), strict=True) if side.paid_ns is None]
        net = f"at most {duration(max(one.high_ns, 0))}" if unknown else duration(max(one.net_overlap_ns or 0, 0))
        text = f"{duration(one.real_overlap_ns)} overlapped, net {net}"
        text += f"; what {' and '.join(unknown)} lost is not known" if unknown else ""
        rows.append(_row(result.device_labels.name(one.rank, one.device), "cost-name", bars, "cost-bar", text))
    keys = {"net": "net overlap"}
    keys |= {kind: f"lost by '{side}' to contention" for kind, side in (("paid-a", result.a), ("paid-b", result.b))}
    more = len(result.contention) - len(shown)
    note = f'<p class="note">… and {more} more ranks</p>' if more > 0 else ""
    return _panel("What overlap cost: overlapped, lost to contention, net", keys, rows) + note


def step_times(result: WhatIf) -> str:
    """A bar for the step as captured and one for each of the best fixes, with its range; "" where there are none."""
    best = best_fixes(result)
    if not best:
        return ""
    now = best[0].now_ns
    share = 100 / max(now, *(one.step_high_ns for one in best))

    def row(name: str, kind: str, ns: int, text: str, more: str = "") -> str:
        bar = f'<span class="cost {kind}" style="width:{share * ns:.2f}%"></span>'
        return _row(name, "fix-name", bar + more, "cost-bar fix-bar", text)

    rows = [row("as captured", "captured", now, duration(now))]
    for one in best:
        left, wide = share * one.step_low_ns, share * (one.step_high_ns - one.step_low_ns)
        of_range = f'<span class="cost range" style="left:{left:.2f}%;width:{wide:.2f}%"></span>'
        text = f"{duration(one.step_ns)} ({span(one.step_low_ns, one.step_high_ns)}), {change_in_words(one)}"
        rows.append(row(one.change, "predicted", one.step_ns, text, of_range))
    keys = {"captured": "as captured", "predicted": "predicted", "range": "its range"}
    return _panel("Step time before and after, on one axis", keys, rows)


def _panel(title: str, keys: dict[str, str], rows: Sequence[str]) -> str:
    """Rows of bars under a title; `keys` has the words for each kind of bar."""
    legend = " ".join(f'<span class="cost {kind}"></span> {escape(text)}' for kind, text in keys.items())
    bars = "\n".join(rows)
    return f'<h3>{title}</h3>\n<p class="note">{legend}</p>\n<div class="costs">\n{bars}\n</div>'


def _row(name: str, name_kind: str, bars: str, bar_kind: str, text: str) -> str:
    cells = f'<span class="{name_kind}">{_text(name)}</span><span class="{bar_kind}">{bars}</span>'
    return f'<div class="cost-row">{cells} {_text(text)}</div>'
