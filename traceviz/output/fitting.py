"""An answer of at most `MOST_TOKENS`: what is left out of its lists is counted, what is too long for its place ends
with "…".
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

from analyzers.common.wording import shortened
from traceviz.output.document import plain

Json = dict[str, Any]
MOST_TOKENS = 2_000
LONGEST_TEXT = 320  # letters
SHORTER = (200, 120, 60)  # to which texts are cut where what is left is still too much
MOST_NEXT = 3
_TOKEN = re.compile(r"[A-Za-z]{1,4}|[0-9]{1,3}|[^A-Za-z0-9\s]")


def cut(text: str, most: int) -> str:
    """A plain text of so many letters at most."""
    return shortened(plain(text), most)


def fitted(answer: Json, most: dict[str, int], left_out: dict[str, int] | None = None) -> Json:
    """An answer that `MOST_TOKENS` hold: lists lose their last, the longest list first; then texts get shorter.

    Parameters
    ----------
    most : how many of each list to begin with.
    left_out : what the lists lack already.
    """
    following = answer.pop("next")[:MOST_NEXT]
    lacking = Counter(left_out or {})
    fit = {name: _shortened(value, LONGEST_TEXT) for name, value in answer.items()}
    for name, count in most.items():
        lacking[name] += max(len(fit[name]) - count, 0)
        fit[name] = fit[name][:count]

    def put_together() -> Json:
        return {**fit, "left_out": {name: count for name, count in lacking.items() if count}, "next": following}

    while _size(put_together()) > MOST_TOKENS:
        longest = max((name for name in most if len(fit[name]) > 1), key=lambda name: _size(fit[name]), default=None)
        if longest is None:
            break
        fewer = max(len(fit[longest]) // 8, 1)
        fit[longest] = fit[longest][:-fewer]
        lacking[longest] += fewer
    for length in SHORTER:
        if _size(put_together()) > MOST_TOKENS:
            fit = _shortened(fit, length)
    while len(following) > 1 and _size(put_together()) > MOST_TOKENS:
        following = following[:-1]
    return put_together()


def _shortened(value: Any, most: int) -> Any:
    """All texts within a value cut to a length."""
    if isinstance(value, str):
        return cut(value, most)
    if isinstance(value, dict):
        return {key: _shortened(one, most) for key, one in value.items()}
    return [_shortened(one, most) for one in value] if isinstance(value, list | tuple) else value


def tokens(text: str) -> int:
    """How many tokens a text takes at most: assistants' vocabularies have most words, and pairs of signs, in one.

    >>> tokens('{"missed_ns":1133472}')
    12
    """
    return len(_TOKEN.findall(text))


def _size(value: Any) -> int:
    return tokens(as_line(value))


def as_line(answer: Json) -> str:
    """An answer in one line, without blanks that say nothing."""
    return json.dumps(answer, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
