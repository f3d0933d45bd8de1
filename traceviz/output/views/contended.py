"""What GPU counters say in the answers of other commands."""

from __future__ import annotations

from collections.abc import Sequence

from analyzers.counters.limits import Contended
from analyzers.counters.states import DeviceStates, pooled
from analyzers.counters.vocabulary import COUNTERS
from traceviz.output.document import Block, Paragraph, Table


def contended(found: Contended | None) -> list[Block]:
    """What the sides likely contend for; nothing where there are no counters."""
    if found is None:
        return []
    title, _, text = found.sentence.partition(": ")
    return [Paragraph(text, title)]


def side_by_side(first: str, run: str, before: Sequence[DeviceStates], after: Sequence[DeviceStates]) -> list[Block]:
    """Counters of A alone and B alone in one run, and of both in another, of ranks that have all of their ops."""
    whole = [[one for one in some if not one.lacks_ops] for some in (before, after)]
    if not all(whole):
        return []
    alone, both = (pooled(some) for some in whole)
    states = (alone["a"], alone["b"], both["both"])
    headers = ("counter", "unit", f"{first}: A alone", f"{first}: B alone", f"{run}: both")
    rows = [
        (
            named.label,
            named.unit,
            *("–" if one.mean(counter) is None else f"{one.mean(counter):,.0f}" for one in states),
        )
        for counter, named in COUNTERS.items()
        if any(counter in one.weights for one in states)
    ]
    return [Table(headers, rows, "What the hardware did (mean)", frozenset(headers[2:]))]
