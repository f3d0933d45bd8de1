"""The captures that a server may read: those in given folders, wherever links, patterns and manifests lead."""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from analyzers.common.errors import TracevizError
from analyzers.readers import remote
from analyzers.readers.formats import FORMATS, SUFFIXES
from analyzers.readers.inputs import EXPORT_ABOUT, MANIFEST, MANIFEST_SCHEMA, PARQUET_EXPORT, bounded, kind_of
from traceviz.output.brief import fitted
from traceviz.output.records import Json

MOST_FILES = 20_000  # looked at, to list captures
_RANK = re.compile(r"(rank[_-]?)\d+")
SQLITE_SIDE_FILES = ("-wal", "-shm", "-journal")  # what SQLite reads beside a file


class Allowed:
    """Folders whose captures may be read."""

    def __init__(self, folders: Sequence[str | Path]) -> None:
        """Take folders.

        Raises
        ------
        TracevizError : one is not there, or is none.
        """
        self.folders = []
        for one in folders:
            folder = Path(one).expanduser()
            if not folder.is_dir():
                raise TracevizError("There is no such folder.", path=one, hint="Give --allow a folder of captures.")
            self.folders.append(folder.resolve())

    def path(self, text: str) -> str:
        """A path or pattern as a command may be given it: absolute, and all that it stands for lies in the folders.

        One that is relative is looked for in each folder in turn.

        Raises
        ------
        TracevizError : it, or something that would be read with it, lies outside; or there is no such file.
        """
        if remote.is_url(text) or "\0" in text or not text.strip():
            raise self._outside(text)
        given = Path(text)
        tried = [given] if given.is_absolute() else [folder / given for folder in self.folders]
        found = [one for one in tried if os.path.lexists(one)]
        if found:
            self._check(found[0], text)
            return str(found[0].resolve())
        inside = [one for one in tried if self._is_inside(_without_pattern(one))]
        if not inside or ".." in given.parts:
            raise self._outside(text)
        for one in inside:
            base = _without_pattern(one).resolve()
            pattern = os.path.join(glob.escape(str(base)), *one.parts[len(_without_pattern(one).parts) :])  # noqa: PTH118
            matches = sorted(glob.glob(pattern))  # noqa: PTH207 (absolute patterns)
            for match in matches:
                self._check(Path(match), text)
            if matches:
                return pattern
        raise TracevizError("There is no such file.", path=text, hint=f"list_captures lists those in {self}.")

    def __str__(self) -> str:
        return ", ".join(map(str, self.folders))

    def _is_inside(self, path: Path) -> bool:
        try:
            resolved = path.resolve()
        except (OSError, RuntimeError):  # links in a circle
            return False
        return any(resolved.is_relative_to(folder) for folder in self.folders)

    def _check(self, path: Path, text: str) -> None:
        """Refuse a file or folder if anything that a command would read for it lies outside."""
        if not self._is_inside(path):
            raise self._outside(text)
        for one in _read_with(path.resolve()):
            if not self._is_inside(one):
                raise self._outside(text)

    def _outside(self, text: str) -> TracevizError:
        return TracevizError(
            "This is, or leads, outside the folders that may be read.",
            path=text[:200],
            hint=f"Give captures in {self}; list_captures lists them.",
        )


def _without_pattern(path: Path) -> Path:
    """The folders of a path in front of the first part that is a pattern."""
    for i, part in enumerate(path.parts):
        if glob.has_magic(part):
            return Path(*path.parts[:i])
    return path.parent


def _read_with(path: Path) -> Iterator[Path]:
    """What a command reads where it is given a path that exists: itself, and what it names or lies beside it."""
    if path.is_dir():
        names = {MANIFEST, EXPORT_ABOUT}
        for one in path.iterdir():
            if one.name in names or one.name.endswith((*SUFFIXES, ".parquet")):
                yield from _with_those_beside(one)
        for name in (MANIFEST, EXPORT_ABOUT):
            if (path / name).is_file() and not (path / name).is_symlink():
                yield from _named_in(path / name)
        return
    yield from _with_those_beside(path)
    if path.name.endswith(".json"):
        yield from _named_in(path)


def _named_in(path: Path) -> Iterator[Path]:
    """The captures that a manifest names, or the tables that an export does, and what is read with each."""
    try:
        kind = kind_of(path)
        content = json.loads(bounded(path)) if kind in ("manifest", PARQUET_EXPORT) else {}
        names = [str(one["path"]) for one in content.get("captures", [])] if kind == "manifest" else []
        names += [f"{name}.parquet" for name in content.get("tables", {})] if kind == PARQUET_EXPORT else []
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, TracevizError):
        return  # the command will say what is wrong with it
    for name in names:
        yield from _with_those_beside(path.parent / name)


def _with_those_beside(path: Path) -> Iterator[Path]:
    yield path
    if path.name:
        yield path.with_suffix(".sqlite")  # an export beside a report is read in its place
        yield from (path.with_name(path.name + end) for end in SQLITE_SIDE_FILES)


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
                formats = (one for one in FORMATS if name.endswith(one.suffixes))
                if not path.is_symlink() and path.is_file() and any(one.is_likely(path) for one in formats):
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


def _is_manifest(path: Path) -> bool:
    if not path.is_file() or path.is_symlink():
        return False
    with path.open("rb") as file:
        return MANIFEST_SCHEMA.encode() in file.read(4096)
