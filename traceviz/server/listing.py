"""The captures that lie in folders, those of one run together."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from analyzers.readers.formats import FORMATS
from analyzers.readers.inputs import MANIFEST, MANIFEST_SCHEMA
from traceviz.output.brief import fitted
from traceviz.output.records import Json

MOST_FILES = 20_000  # looked at
_RANK = re.compile(r"(rank[_-]?)\d+")


def captures_in(folders: Sequence[Path]) -> Json:
    """`traceviz.captures/1`: paths as tools take them, with how many files and bytes each stands for.

    A folder with a manifest is one run; elsewhere files are that differ in their rank alone.
    """
    found: dict[str, list[int]] = {}
    looked_at = 0
    for folder in folders:
        for here, below, names in os.walk(folder):
            below[:] = sorted(name for name in below if not name.startswith("."))
            looked_at += len(names)
            if looked_at > MOST_FILES:
                break
            has_manifest = _is_manifest(Path(here, MANIFEST))
            for name in sorted(names):
                path = Path(here, name)
                if not path.is_symlink() and path.is_file() and _is_capture(path):
                    run = path.parent if has_manifest else path.with_name(_RANK.sub(r"\1*", name))
                    shown = str(run.relative_to(folder)) if len(folders) == 1 else str(run)
                    of_run = found.setdefault(shown, [0, 0])
                    of_run[0] += 1
                    of_run[1] += path.stat().st_size
    captures = [{"path": path, "files": files, "bytes": size} for path, (files, size) in found.items()]
    answer = {
        "schema": "traceviz.captures/1",
        "folders": [str(one) for one in folders],
        "captures": captures,
        "all_looked_at": looked_at <= MOST_FILES,
        "next": [],
    }
    return fitted(answer, {"captures": 200})


def _is_capture(path: Path) -> bool:
    """Whether a file looks like one, as it does for a folder that is given."""
    return any(one.is_likely(path) for one in FORMATS if path.name.endswith(one.suffixes))


def _is_manifest(path: Path) -> bool:
    if not path.is_file() or path.is_symlink():
        return False
    with path.open("rb") as file:
        return MANIFEST_SCHEMA.encode() in file.read(4096)
