"""Which steps figures are of, in one line."""

from __future__ import annotations

from analyzers.trace.step_table import StepsUsed
from traceviz.output.document import Block, Paragraph


def steps(used: StepsUsed | None) -> list[Block]:
    """The line, where it does not go without saying."""
    return [Paragraph(used.sentence)] if used is not None and used.sentence else []
