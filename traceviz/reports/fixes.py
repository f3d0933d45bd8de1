"""The section "What fixes are worth": step time as captured and with the best changes, as bars on one time axis."""

from __future__ import annotations

from html import escape

from msgspec.structs import replace

from analyzers.common.wording import duration, span
from analyzers.replay.result import LITTLE_MORE, Prediction, WhatIf, change_in_words
from traceviz.output.document import Block, Paragraph, Table, plain
from traceviz.output.views.what_if import blocks as view

MOST_FIXES = 3
MOST_OPS = 200_000  # beyond, trying all that is suggested takes longer than all else of a report
IN_PARTS = "captures that are looked at one by one are not replayed: traceviz what-if does, without --memory"
TOO_MANY = "the run is large, and trying all that it suggests takes a while: traceviz what-if does"


def best_fixes(result: WhatIf) -> list[Prediction]:
    """The changes to try first, of those that gain more than next to nothing, and whose range tells something."""
    named = result.fix.change if result.fix is not None else ""
    may_be = [one for one in result.to_try if one.worth_ns > 0]
    return [one for one in may_be if one.change == named or _gains(one)][:MOST_FIXES]


def _gains(one: Prediction) -> bool:
    return one.tells and one.gain_ns > LITTLE_MORE * one.now_ns


def blocks(result: WhatIf) -> list[Block]:
    """For the page: all that `what-if` says, but for warnings, which the verdict has."""
    return view(replace(result, warnings=()))


def short_blocks(result: WhatIf) -> list[Block]:
    """For the summary: the best fixes, or why there are none."""
    best = best_fixes(result)
    if not best:
        return [Paragraph(result.sentence, "What a fix is worth")]
    shown = next(one for one in blocks(result) if isinstance(one, Table))
    wanted = {one.change for one in best}
    rows = [row for row in shown.rows if row[0] in wanted or row is shown.rows[0]]
    assumed = [*result.best.assumptions] if result.best else []
    text = f"predicted by replay, not measured. {result.sentence}"
    text += f" Assumed: {'; '.join(assumed)}." if assumed else ""
    return [Paragraph(text, "What a fix is worth"), Table(shown.headers, rows, "", shown.numeric, shown.note)]


def panel(result: WhatIf) -> str:
    """A bar for now and one for each of the best fixes, with its range, as HTML; "" where there are none."""
    best = best_fixes(result)
    if not best:
        return ""
    longest = max(best[0].now_ns, *(one.step_high_ns for one in best))
    rows = [_row("as captured", best[0].now_ns, longest, "captured", duration(best[0].now_ns))]
    rows += [
        _row(one.change, one.step_ns, longest, "predicted", _text(one), (one.step_low_ns, one.step_high_ns))
        for one in best
    ]
    legend = "".join(
        f'<span class="cost {kind}"></span> {text} '
        for kind, text in (("captured", "as captured"), ("predicted", "predicted"), ("range", "its range"))
    )
    return (
        f'<h3>Step time before and after, on one axis</h3>\n<p class="note">{legend}</p>\n'
        f'<div class="costs">\n{"".join(rows)}</div>'
    )


def _text(one: Prediction) -> str:
    within = span(one.step_low_ns, one.step_high_ns)
    return f"{duration(one.step_ns)} ({within}), {change_in_words(one)}"


def _row(name: str, ns: int, longest: int, kind: str, text: str, span: tuple[int, int] | None = None) -> str:
    def share(value: int) -> float:
        return 100 * value / longest

    bar = f'<span class="cost {kind}" style="width:{share(ns):.2f}%"></span>'
    if span is not None:
        low, high = map(share, span)
        bar += f'<span class="cost range" style="left:{low:.2f}%;width:{high - low:.2f}%"></span>'
    cells = f'<span class="fix-name">{escape(plain(name))}</span><span class="cost-bar fix-bar">{bar}</span>'
    return f'<div class="cost-row">{cells} {escape(plain(text))}</div>\n'


def refused(a: str, b: str, why: str = TOO_MANY) -> WhatIf:
    """The answer where too much would have to be run, or not all of it is at hand."""
    return WhatIf(a, b, None, (), why)
