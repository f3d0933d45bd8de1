"""Which changes name the fix that was made of a pair of programs, in other words.

`ACCEPTED` was written before anything ran: a change that is the same one in other words ("level" of the range that
makes a rank late is "on-time" of it; a pageable copy that is pinned blocks no longer; a fix of several changes is begun
with any of them), or that takes the same obstacle out of the same place.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

FURTHER = Path(__file__).parents[1] / "data" / "further"
ACCEPTED: dict[str, tuple[str, ...]] = {
    "a2a_check": ("move-wait nvtx:compute before nvtx:validation", "drop-sync nvtx:validation"),
    "ddp_log": ("drop-sync nvtx:log loss",),
    "dpmp_item": ("drop-sync nvtx:MP embedding", "move-wait nvtx:DP tower before nvtx:MP embedding"),
    "dpmp_move": ("move-wait nvtx:DP tower before nvtx:MP embedding",),
    "delta_sync": ("drop-sync nvtx:stream out", "pin nvtx:stream out"),
    "opt_lookup": ("own-stream nvtx:lookup", "own-stream nvtx:optimizer"),
    "fsdp_late": ("on-time 1", "level nvtx:load batch"),
    "moe_late": ("on-time 1", "level nvtx:route"),
    "halves": ("drop-wait nvtx:half 0 on nvtx:reduce 1", "drop-wait nvtx:half 1 on nvtx:reduce 0"),
    "moe_shared": ("own-stream nvtx:shared expert",),
}
# Of four H100s, with the files of each form; asynctp and contend as a change of the collective's wait or pieces.
ON_H100 = {
    "item": (
        "drop-sync nvtx:MP lookup",
        "move-wait nvtx:DP tower before nvtx:MP lookup",
    ),
    "rank": ("on-time 3", "level nvtx:load batch", "drop-sync nvtx:load batch"),
    "contend": (
        "drop-wait nvtx:compute on nvtx:reduce",
        "drop-wait compute on nvtx:reduce",
        "drop-wait compute on comm",
    ),
    "ring": (),
    "asynctp": ("split nvtx:tp matmul", "split comm", "split collective:all_gather"),
}


def accepted(name: str, made: str) -> tuple[str, ...]:
    return (made, *ACCEPTED.get(name, ON_H100.get(name, ())), *further().get(name, {}).get("accepted", ()))


@functools.cache
def further() -> dict[str, Any]:
    """The fix of each further pair, and what is the same in other words."""
    found: dict[str, Any] = json.loads((FURTHER / "FIXES.json").read_text())
    return found


def is_same(named: str, wanted: str) -> bool:
    """Whether a change is the wanted one: pieces and where a stream is joined don't matter; of several, any part."""
    parts = [one.partition(" join-before ")[0] for one in named.split(" + ")]
    if wanted.startswith("split "):
        parts = [one.rpartition(" ")[0] if one.startswith("split ") else one for one in parts]
        wanted = wanted.rpartition(" ")[0] if wanted.rpartition(" ")[2].isdigit() else wanted
    return any(one == each.partition(" join-before ")[0] for each in wanted.split(" + ") for one in parts)
