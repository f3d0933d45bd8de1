"""The panel "What overlap cost": per rank what overlapped, what both sides lost to contention, and what is left."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from analyzers.common.wording import duration
from analyzers.contention.cost import Contention
from analyzers.verdict.result import OverlapResult

MOST_RANKS = 16


def panel(result: OverlapResult) -> str:
    """A bar a rank as HTML; "" where no side is known to have paid anything."""
    shown = [one for one in result.contention if one.real_overlap_ns][:MOST_RANKS]
    if not any(one.a.is_slowed or one.b.is_slowed for one in shown):
        return ""
    longest = max(max(one.real_overlap_ns, sum(_paid(one))) for one in shown)
    named = result.device_labels
    rows = "\n".join(_row(named.name(one.rank, one.device), one, longest) for one in shown)
    lost = [(kind, f"lost by '{side}' to contention") for kind, side in (("paid-a", result.a), ("paid-b", result.b))]
    keys = [("net", "net overlap"), *lost]
    legend = " ".join(f'<span class="cost {kind}"></span> {escape(text)}' for kind, text in keys)
    more = len(result.contention) - len(shown)
    note = f'<p class="note">… and {more} more ranks</p>' if more > 0 else ""
    return (
        "<h3>What overlap cost: overlapped, lost to contention, net</h3>\n"
        f'<p class="note">{legend}</p>\n<div class="costs">\n{rows}\n</div>{note}'
    )


def _row(name: str, one: Contention, longest: int) -> str:
    paid = _paid(one)
    left = max(one.real_overlap_ns - sum(paid), 0)
    parts = [("net", left), ("paid-a", paid[0]), ("paid-b", paid[1])]
    bars = "".join(
        f'<span class="cost {kind}" style="width:{100 * ns / longest:.2f}%" title="{duration(ns)}"></span>'
        for kind, ns in parts
        if ns
    )
    unknown = [letter for letter, side in zip("AB", (one.a, one.b), strict=True) if side.paid_ns is None]
    net = f"at most {duration(max(one.high_ns, 0))}" if unknown else duration(max(one.net_overlap_ns or 0, 0))
    text = f"{duration(one.real_overlap_ns)} overlapped, net {net}"
    text += f"; what {' and '.join(unknown)} lost is not known" if unknown else ""
    cells = f'<span class="cost-name">{escape(name)}</span><span class="cost-bar">{bars}</span>'
    return f'<div class="cost-row">{cells} {text}</div>'


def _paid(one: Contention) -> Sequence[int]:
    return [side.paid_ns or 0 for side in (one.a, one.b)]
