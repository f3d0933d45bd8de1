"""Two panels of bars for the page: what overlap cost each rank, and step time as captured and with the best fixes."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from analyzers.common.wording import duration, span
from analyzers.contention.cost import Contention
from analyzers.replay.result import LITTLE_MORE, Prediction, WhatIf, change_in_words
from analyzers.verdict.result import OverlapResult
from traceviz.output.document import plain

MOST_RANKS = 16
MOST_FIXES = 3


def overlap_cost(result: OverlapResult) -> str:
    """Per rank what overlapped, what both sides lost to contention, and what is left; "" where none lost anything."""
    shown = [one for one in result.contention if one.real_overlap_ns][:MOST_RANKS]
    if not any(one.a.is_slowed or one.b.is_slowed for one in shown):
        return ""
    longest = max(max(one.real_overlap_ns, sum(_paid(one))) for one in shown)
    named = result.device_labels
    rows = [_cost_row(named.name(one.rank, one.device), one, longest) for one in shown]
    keys = {"net": "net overlap"}
    keys |= {kind: f"lost by '{side}' to contention" for kind, side in (("paid-a", result.a), ("paid-b", result.b))}
    more = len(result.contention) - len(shown)
    note = f'<p class="note">… and {more} more ranks</p>' if more > 0 else ""
    return _panel("What overlap cost: overlapped, lost to contention, net", keys, rows) + note


def _cost_row(name: str, one: Contention, longest: int) -> str:
    paid = _paid(one)
    parts = {"net": max(one.real_overlap_ns - sum(paid), 0), "paid-a": paid[0], "paid-b": paid[1]}
    bars = "".join(
        f'<span class="cost {kind}" style="width:{100 * ns / longest:.2f}%" title="{duration(ns)}"></span>'
        for kind, ns in parts.items()
        if ns
    )
    unknown = [letter for letter, side in zip("AB", (one.a, one.b), strict=True) if side.paid_ns is None]
    net = f"at most {duration(max(one.high_ns, 0))}" if unknown else duration(max(one.net_overlap_ns or 0, 0))
    text = f"{duration(one.real_overlap_ns)} overlapped, net {net}"
    text += f"; what {' and '.join(unknown)} lost is not known" if unknown else ""
    return _row(name, "cost-name", bars, "cost-bar", text)


def _paid(one: Contention) -> Sequence[int]:
    return [side.paid_ns or 0 for side in (one.a, one.b)]


def best_fixes(result: WhatIf) -> list[Prediction]:
    """The changes to try first, of those that gain more than next to nothing, and whose range tells something."""
    named = result.fix.change if result.fix is not None else ""
    may_be = [one for one in result.to_try if one.worth_ns > 0]
    return [one for one in may_be if one.change == named or _gains(one)][:MOST_FIXES]


def _gains(one: Prediction) -> bool:
    return one.tells and one.gain_ns > LITTLE_MORE * one.now_ns


def step_times(result: WhatIf) -> str:
    """A bar for the step as captured and one for each of the best fixes, with its range; "" where there are none."""
    best = best_fixes(result)
    if not best:
        return ""
    longest = max(best[0].now_ns, *(one.step_high_ns for one in best))

    def share(ns: int) -> float:
        return 100 * ns / longest

    def bar(kind: str, ns: int) -> str:
        return f'<span class="cost {kind}" style="width:{share(ns):.2f}%"></span>'

    now = best[0].now_ns
    rows = [_row("as captured", "fix-name", bar("captured", now), "cost-bar fix-bar", duration(now))]
    for one in best:
        low, high = share(one.step_low_ns), share(one.step_high_ns)
        bars = bar("predicted", one.step_ns)
        bars += f'<span class="cost range" style="left:{low:.2f}%;width:{high - low:.2f}%"></span>'
        text = f"{duration(one.step_ns)} ({span(one.step_low_ns, one.step_high_ns)}), {change_in_words(one)}"
        rows.append(_row(one.change, "fix-name", bars, "cost-bar fix-bar", text))
    keys = {"captured": "as captured", "predicted": "predicted", "range": "its range"}
    return _panel("Step time before and after, on one axis", keys, rows)


def _panel(title: str, keys: dict[str, str], rows: Sequence[str]) -> str:
    """Rows of bars under a title; `keys` has the words for each kind of bar."""
    legend = " ".join(f'<span class="cost {kind}"></span> {escape(text)}' for kind, text in keys.items())
    bars = "\n".join(rows)
    return f'<h3>{title}</h3>\n<p class="note">{legend}</p>\n<div class="costs">\n{bars}\n</div>'


def _row(name: str, name_kind: str, bars: str, bar_kind: str, text: str) -> str:
    cells = f'<span class="{name_kind}">{escape(plain(name))}</span><span class="{bar_kind}">{bars}</span>'
    return f'<div class="cost-row">{cells} {escape(plain(text))}</div>'
