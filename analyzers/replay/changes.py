"""All changes that people make in a program, and how the command line writes them."""

from __future__ import annotations

from analyzers.common.errors import TracevizError
from analyzers.replay.change import Change as Change
from analyzers.replay.change import combined as combined
from analyzers.replay.host_changes import DropSync, Graph, Level, MoveWait, OnTime, Pin
from analyzers.replay.stream_changes import DropWait, MoreRoom, OwnStream, Scale, Split

_KINDS = DropSync, Pin, DropWait, MoveWait, OwnStream, OnTime, Level, Scale, Split, Graph, MoreRoom
BY_VERB: dict[str, type[Change]] = {kind.usage.partition(" ")[0]: kind for kind in _KINDS}


def parse_change(text: str) -> Change:
    """A change as the command line writes it, such as "scale collective:all_to_all 0.5".

    Raises
    ------
    TracevizError : it is none.

    >>> parse_change("move-wait nvtx:DP tower before nvtx:MP lookup")
    MoveWait(a='nvtx:DP tower', b='nvtx:MP lookup')
    """
    verb, _, fields = text.strip().partition(" ")
    if verb not in BY_VERB:
        raise TracevizError(
            f"{text!r} is no change.", hint=f"Changes are: {'; '.join(kind.usage for kind in BY_VERB.values())}."
        )
    kind = BY_VERB[verb]
    try:
        return kind.written(fields.strip())
    except ValueError as error:
        raise TracevizError(f"{text!r} can't be read.", hint=f"Write it as: {kind.usage}.") from error
