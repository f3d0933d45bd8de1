"""What an answer is of, and what limits it: its steps, and its warnings, those that may change it first."""

from __future__ import annotations

import re
from collections.abc import Sequence

from analyzers.common.errors import TraceWarning
from analyzers.common.wording import count_of, numbers_in_words
from analyzers.trace.step_table import StepsUsed
from traceviz.output.brief import MAY_CHANGE_IT
from traceviz.output.document import Block, Bullets, Headline, Paragraph

MAX_CAVEATS = 5
_OWNER = re.compile(r"(?<=\s)(rank|process) (\d+)\b")  # not as the subject, whose verb is of one


def steps(used: StepsUsed | None) -> list[Block]:
    """Which steps figures are of, in one line, where it does not go without saying."""
    return [Paragraph(used.sentence)] if used is not None and used.sentence else []


def unsure(reason: str) -> list[Block]:
    """What can't be told, as a headline; nothing where all can."""
    return [Headline("INCONCLUSIVE", f"{reason}.", "middle")] if reason else []


def caveats(
    found: Sequence[TraceWarning], *, verbose: bool = False, rest: str = "--format json has all"
) -> list[Bullets]:
    """The warnings as a list: at most five, how many more there are and where (`rest`); verbose, all."""
    lines = _merged(sorted(found, key=lambda one: one.code not in MAY_CHANGE_IT))
    more = len(lines) - MAX_CAVEATS
    if verbose or more <= 0:
        return [Bullets("Caveats", lines)] if lines else []
    return [Bullets("Caveats", [*lines[:MAX_CAVEATS], f"… and {count_of(more, 'more caveat')} ({rest})"])]


def _merged(found: Sequence[TraceWarning]) -> list[str]:
    """Warnings that differ by one rank's or process's number in one line, with all of these numbers."""
    owners: dict[tuple[str, str], list[int]] = {}
    for one in found:
        named = _OWNER.findall(one.message)
        template = _OWNER.sub(r"\1 \\0", one.message) if len(named) == 1 else one.message
        owners.setdefault((one.code, template), []).extend(int(number) for _, number in named if len(named) == 1)
    return [_with_numbers(template, numbers) for (_, template), numbers in owners.items()]


def _with_numbers(template: str, numbers: Sequence[int]) -> str:
    if not numbers:
        return template
    return re.sub(r"(rank|process) \\0", lambda match: numbers_in_words(numbers, match[1]), template)
