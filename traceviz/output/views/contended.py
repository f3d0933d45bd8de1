"""What GPU counters say in the answers of other commands."""

from __future__ import annotations

from analyzers.counters.limits import Contended
from traceviz.output.document import Block, Paragraph


def contended(found: Contended | None) -> list[Block]:
    """What the sides likely contend for; nothing where there are no counters."""
    if found is None:
        return []
    title, _, text = found.sentence.partition(": ")
    return [Paragraph(text, title)]
