"""A run against its baseline, the step and a stated speedup: the same in every answer that holds one."""

from __future__ import annotations

from analyzers.common.records import values
from analyzers.verdict.against import StepsAgainst
from analyzers.verdict.claim import IMPOSSIBLE, NOT_SHOWN, POSSIBLE, SHOWN, Claim, word_of
from traceviz.output.document import Headline
from traceviz.output.records import Json, picked

_NAMES = {IMPOSSIBLE: "IMPOSSIBLE CLAIM", POSSIBLE: "POSSIBLE CLAIM"}
_MOODS = {IMPOSSIBLE: "bad", NOT_SHOWN: "bad", SHOWN: "good"}


def document(claim: Claim | None, reason: str = "") -> Json | None:
    """A claim as JSON; null where none is held against anything.

    Parameters
    ----------
    reason : why it can't be told; "" where it can.
    """
    if claim is None:
        return None
    return {**values(claim), "word": word_of(claim, reason), "shown": claim.shown, "words": claim.words}


def against(step: StepsAgainst | None) -> Json | None:
    """Step time against the baseline's; times are null where nothing could be compared."""
    if step is None:
        return None
    known = picked(step, "before_ns after_ns low_ns high_ns")
    more = picked(step, "ratio speedup steps ranks disjoint could_ns reason different_profilers is_required sentence")
    return {"word": step.word, **(known if step.moved else dict.fromkeys(known)), **more}


def in_brief(full: Json | None) -> Json | None:
    """The same in short; null where none was made, or it could not be checked."""
    if full is None:
        return None
    return {**picked(full, "word about claimed bound measured shown"), "possible": full["word"] != IMPOSSIBLE}


def blocks(claim: Claim | None, reason: str = "") -> list[Headline]:
    """What a claim is worth, in a line; nothing where none was made. `reason` as `document` takes it."""
    word = word_of(claim, reason)
    if not word:
        return []
    more = f"{reason[0].upper()}{reason[1:]}." if reason and word not in (IMPOSSIBLE, NOT_SHOWN, SHOWN) else ""
    text = " ".join(part for part in (claim.words if claim else "", more) if part)
    return [Headline(_NAMES.get(word, f"CLAIM {word}"), text, _MOODS.get(word, "middle"))]
