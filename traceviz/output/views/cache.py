"""The state of the cache: as a document and as JSON."""

from __future__ import annotations

import time

from analyzers.cache.folder import KIND_OF_FOLDER, CacheState
from traceviz.output.document import Block, Paragraph, Table
from traceviz.output.quantities import size, unshown
from traceviz.output.records import Json, picked

MAX_FILES = 40
_AGES = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def document(state: CacheState) -> Json:
    """`traceviz.cache/1`: what the cache holds, least recently used first; sizes in bytes, `used` in s since 1970."""
    return {"schema": "traceviz.cache/1", **picked(state, "folder=root limit_bytes=limit unusable entries removed")}


def blocks(state: CacheState) -> list[Block]:
    """Where the cache is and how full, then its entries, the last used first."""
    total = sum(entry.size for entry in state.entries)
    shown: list[Block] = [Paragraph(f"{state.root}: {size(total)} of at most {size(state.limit)}.", "Cache")]
    if state.unusable:
        shown.append(Paragraph(f"Nothing can be kept: {state.unusable}. Captures are read anew each time.", "Caveats"))
    if state.removed:
        freed = sum(entry.size for entry in state.removed)
        shown.append(Paragraph(f"{len(state.removed)} entries, {size(freed)}.", "Removed"))
    rows = []
    for entry in reversed(state.entries):
        seconds = max(time.time() - entry.used, 0)
        span, unit = next((each for each in _AGES if seconds >= each[0]), _AGES[-1])
        rows.append(
            (entry.path.name, KIND_OF_FOLDER[entry.kind], size(entry.size), f"{int(seconds // span)} {unit} ago")
        )
    if rows:
        numeric = frozenset(("size", "used"))
        shown.append(
            Table(("entry", "what", "size", "used"), rows[:MAX_FILES], "", numeric, unshown(len(rows) - MAX_FILES))
        )
    return shown
