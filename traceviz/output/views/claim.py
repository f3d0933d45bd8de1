"""A stated speedup against what was measured, in a line: the same in every answer that holds one."""

from __future__ import annotations

from analyzers.verdict.claim import Claim
from traceviz.output.document import Headline


def blocks(claim: Claim | None, reason: str = "") -> list[Headline]:
    """What a claim is worth; nothing where none was made.

    Parameters
    ----------
    reason : why it can't be told; "" where it can.
    """
    if claim is None:
        return [Headline("CLAIM NOT CHECKED", f"{reason}.", "middle")] if reason else []
    if claim.impossible:
        return [Headline("IMPOSSIBLE CLAIM", claim.words, "bad")]
    more = f" {reason[0].upper()}{reason[1:]}." if reason else ""
    if claim.shown is None:
        return [Headline("POSSIBLE CLAIM", claim.words + more, "middle")]
    words = claim.words.partition(": ")[2]
    if not claim.shown:
        return [Headline("CLAIM NOT SHOWN", words, "bad")]
    return [Headline("CLAIM UNSURE", words + more, "middle") if reason else Headline("CLAIM SHOWN", words, "good")]
