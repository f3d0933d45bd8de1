"""Names of findings that stay the same from run to run: one gap, instance, sync or collective of a capture.

An instant in a name is where the finding begins, ns on the trace's clock: the same, whatever part of the trace is
looked at, as long as that part holds the finding whole.
"""

from __future__ import annotations

import re

import msgspec

from analyzers.common.errors import TracevizError

ID_KINDS = ("gap", "inst", "sync", "coll")
LOOKS_LIKE = "gap:r0.d0:1876012, inst:r0.d0:1870000, sync:r0:1874100 or coll:12"
_GAP = re.compile(r"(gap|inst):r(-?\d{1,9})\.d(-?\d{1,9}):(-?\d{1,18})", re.ASCII)
_SYNC = re.compile(r"(sync):r(-?\d{1,9}):(-?\d{1,18})", re.ASCII)
_COLLECTIVE = re.compile(r"(coll):(\d{1,18})", re.ASCII)


class FindingId(msgspec.Struct, frozen=True):
    """What a name says: of which kind, on which rank and device (-1: not said), from when on (ns), or its number."""

    kind: str
    rank: int = -1
    device: int = -1
    start_ns: int = 0
    index: int = -1

    def __str__(self) -> str:
        if self.kind == "coll":
            return f"coll:{self.index}"
        where = f"r{self.rank}" + ("" if self.kind == "sync" else f".d{self.device}")
        return f"{self.kind}:{where}:{self.start_ns}"


def gap_id(rank: int, device: int, start_ns: int) -> str:
    """Of a gap: where one side of a pair ran alone while the other had work to start.

    >>> gap_id(0, 0, 1876012), instance_id(0, 0, 1870000), sync_id(0, 1874100), collective_id(12)
    ('gap:r0.d0:1876012', 'inst:r0.d0:1870000', 'sync:r0:1874100', 'coll:12')
    """
    return str(FindingId("gap", rank, device, start_ns))


def instance_id(rank: int, device: int, start_ns: int) -> str:
    """Of an instance of a pair."""
    return str(FindingId("inst", rank, device, start_ns))


def sync_id(rank: int, start_ns: int) -> str:
    """Of a call that blocked the host."""
    return str(FindingId("sync", rank, start_ns=start_ns))


def collective_id(index: int) -> str:
    """Of a collective, by its number among all of the run."""
    return str(FindingId("coll", index=index))


def read_id(text: str) -> FindingId:
    """What a name stands for.

    >>> read_id("gap:r0.d0:1876012")
    FindingId(kind='gap', rank=0, device=0, start_ns=1876012, index=-1)

    Raises
    ------
    TracevizError : it is no such name.
    """
    text = text.strip()
    if found := _GAP.fullmatch(text):
        return FindingId(found[1], int(found[2]), int(found[3]), int(found[4]))
    if found := _SYNC.fullmatch(text):
        return FindingId(found[1], int(found[2]), start_ns=int(found[3]))
    if found := _COLLECTIVE.fullmatch(text):
        return FindingId(found[1], index=int(found[2]))
    raise TracevizError(
        f"{text[:80]!r} is no id.",
        hint=f"Ids look like {LOOKS_LIKE}; check-overlap, syncs and collectives list them with --format json --brief.",
    )
