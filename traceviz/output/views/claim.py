"""A stated speedup against what was measured, in a line: the same in every answer that holds one."""

from __future__ import annotations

from analyzers.verdict.claim import IMPOSSIBLE, NOT_SHOWN, POSSIBLE, SHOWN, Claim, word_of
from traceviz.output.document import Headline

_NAMES = {IMPOSSIBLE: "IMPOSSIBLE CLAIM", POSSIBLE: "POSSIBLE CLAIM"}
_MOODS = {IMPOSSIBLE: "bad", NOT_SHOWN: "bad", SHOWN: "good"}


def blocks(claim: Claim | None, reason: str = "") -> list[Headline]:
    """What a claim is worth; nothing where none was made.

    Parameters
    ----------
    reason : why it can't be told; "" where it can.
    """
    word = word_of(claim, reason)
    if not word:
        return []
    more = f"{reason[0].upper()}{reason[1:]}." if reason and word not in (IMPOSSIBLE, NOT_SHOWN, SHOWN) else ""
    text = " ".join(part for part in (claim.words if claim else "", more) if part)
    return [Headline(_NAMES.get(word, f"CLAIM {word}"), text, _MOODS.get(word, "middle"))]
