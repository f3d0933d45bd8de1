"""Changes as the command line writes them."""

from __future__ import annotations

from collections.abc import Callable

from analyzers.common.errors import TracevizError
from analyzers.replay.changes import (
    Change,
    DropSync,
    DropWait,
    Graph,
    Level,
    MoreRoom,
    MoveWait,
    OnTime,
    OwnStream,
    Pin,
    Scale,
    Split,
)


def parse_change(text: str) -> Change:
    """A change as the command line writes it, such as "scale collective:all_to_all 0.5".

    Raises
    ------
    TracevizError : it is none.

    >>> parse_change("move-wait nvtx:DP tower before nvtx:MP lookup")
    MoveWait(a='nvtx:DP tower', b='nvtx:MP lookup')
    """
    verb, _, rest = text.strip().partition(" ")
    rest = rest.strip()
    form = FORMS.get(verb)
    if form is None:
        raise TracevizError(
            f"{text!r} is no change.", hint=f"Changes are: {'; '.join(form for form, _ in FORMS.values())}."
        )
    words, make = form
    try:
        return make(rest)
    except (ValueError, IndexError) as error:
        raise TracevizError(f"{text!r} can't be read.", hint=f"Write it as: {words}.") from error


def _two(rest: str, between: str) -> tuple[str, str]:
    first, found, second = rest.rpartition(f" {between} ")
    if not found or not first.strip() or not second.strip():
        raise ValueError(between)
    return first.strip(), second.strip()


def _one(rest: str) -> str:
    if not rest:
        raise ValueError("nothing")
    return rest


def _own_stream(rest: str) -> OwnStream:
    return OwnStream(*_two(rest, "join-before")) if " join-before " in rest else OwnStream(_one(rest))


def _number(rest: str) -> tuple[str, float]:
    where, _, number = rest.rpartition(" ")
    if not float(number) > 0:
        raise ValueError(number)
    return _one(where.strip()), float(number)


def _split(rest: str) -> Split:
    where, pieces = _number(rest)
    if pieces != int(pieces) or pieces < 2:
        raise ValueError(pieces)
    return Split(where, int(pieces))


def _on_time(rest: str) -> OnTime:
    return OnTime(None if rest in ("", "all") else int(rest))


FORMS: dict[str, tuple[str, Callable[[str], Change]]] = {
    "drop-sync": ("drop-sync SEL", lambda rest: DropSync(_one(rest))),
    "pin": ("pin SEL", lambda rest: Pin(_one(rest))),
    "drop-wait": ("drop-wait A on B", lambda rest: DropWait(*_two(rest, "on"))),
    "move-wait": ("move-wait A before B", lambda rest: MoveWait(*_two(rest, "before"))),
    "own-stream": ("own-stream SEL [join-before SEL]", _own_stream),
    "on-time": ("on-time RANK|all", _on_time),
    "level": ("level SEL", lambda rest: Level(_one(rest))),
    "scale": ("scale SEL FACTOR", lambda rest: Scale(*_number(rest))),
    "split": ("split SEL N", _split),
    "graph": ("graph SEL", lambda rest: Graph(_one(rest))),
    "more-room": ("more-room SEL", lambda rest: MoreRoom(_one(rest))),
}
