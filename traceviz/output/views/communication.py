"""What counted as communication, as a table."""

from __future__ import annotations

from collections.abc import Sequence

from analyzers.trace.counted import Counted, Suggested
from traceviz.output.document import Block, Bullets, Table
from traceviz.output.quantities import duration, listing

_KINDS = {"fused": "neither side: computes, too", "bookkeeping": "neither side: bookkeeping"}
_PERHAPS = "Perhaps communication: kernels of no known kind that only ran beside the main stream"


def communication(counted: Sequence[Counted], suggested: Sequence[Suggested] = ()) -> list[Block]:
    """What counts as communication, by which rule; what may be some, too."""
    shown: list[Block] = []
    if counted:
        rows = [
            (
                _KINDS.get(one.kind, one.kind),
                one.library or "–",
                one.operation or "–",
                f"{one.ops:,}",
                duration(one.ns),
                one.rule,
            )
            for one in counted
        ]
        headers = ("counts as", "library", "operation", "ops", "time", "by")
        shown.append(Table(headers, rows, "Communication", frozenset({"ops", "time"})))
    if suggested:
        lines = [
            f"{one.name}: {one.ops:,} ops, {duration(one.ns)}, stream {listing([str(each) for each in one.streams])}; "
            f"--comm '{one.selector}' counts it"
            for one in suggested
        ]
        shown.append(Bullets(_PERHAPS, lines))
    return shown
