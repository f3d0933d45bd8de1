"""Which files a user means by a path, a glob, a folder or a manifest, and what each file is."""

from __future__ import annotations

import glob
import json
import os
import stat
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from analyzers.common.errors import TracevizError
from analyzers.readers import remote
from analyzers.readers.formats import (
    FORMATS,
    HEAD_BYTES,
    KINETO,
    KNOWN,
    REPORT,
    SUFFIXES,
    FileHead,
    format_of,
    unread,
    unread_json,
)
from analyzers.trace.ranks import RANKS

MANIFEST = "manifest.json"
MANIFEST_SCHEMA = "traceviz.manifest/1"
PARQUET_EXPORT = "parquet-export"  # kind of what `export --to parquet` wrote
EXPORT_ABOUT = "trace.json"  # names the tables of a folder that `export` wrote
MOST_BYTES = 1 << 26  # of a manifest, and of other files that name captures or tables
GZIP_FOLD = 12  # bytes of JSON in one of .gz
MOST_MS = 10**9  # that a step may take
UNREADABLE = "unreadable"  # kind of a file that can't be told, where such are to be left out


class Input(msgspec.Struct, frozen=True):
    """One capture file to read; `kind` is what its content says it is, `rank` what a manifest says.

    `pids` are the ranks of the processes in a file that holds several, by pid, `world_size` the ranks of the whole job,
    and `settings` variables of its environment, as far as a manifest knows them. `step_ns` is how long a step of each
    rank took just before the profiler began, and while it captured, -1 where nobody timed that. `url` is where a file
    lies that is not on this machine, `path` then its name.
    """

    path: Path
    kind: str
    rank: int | None = None
    pids: Mapping[int, int] = msgspec.field(default_factory=dict)
    url: str = ""
    world_size: int | None = None
    settings: Mapping[str, str] = msgspec.field(default_factory=dict)
    step_ns: Mapping[int, tuple[int, int]] = msgspec.field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """About how much there is to read, unpacked; 1 where that can't be told."""
        try:
            size = format_of(self.kind).whole(self.path)
        except OSError:
            return 1
        fold = format_of(self.kind).fold
        return size * (GZIP_FOLD if fold == 1 and self.path.name.endswith(".gz") else fold)


def find_inputs(paths: Iterable[str | Path], *, keep_bad: bool = False) -> tuple[list[Input], list[Path]]:
    """Find the capture files that paths, globs, folders and manifests stand for.

    Parameters
    ----------
    keep_bad : return files that are no trace as UNREADABLE ones, instead of failing.

    Returns
    -------
    inputs : the files, in the order given, sorted inside a folder or glob; each once.
    skipped : files of a folder that look like captures by name and are none.

    Raises
    ------
    TracevizError : a path does not exist, holds no capture, or is no trace.
    """
    inputs: dict[Path, Input] = {}
    skipped: list[Path] = []
    for path in paths:
        if remote.is_url(str(path)):
            for url in remote.expand(str(path)):
                name = Path(url.partition("?")[0].rpartition("/")[2])
                inputs.setdefault(Path(url), Input(name, _kind_of_head(remote.head_of(url), name), url=url))
            continue
        for found in _expand(str(path)):
            some, none = _in_folder(found, keep_bad) if found.is_dir() else (_in_file(found, keep_bad), [])
            skipped += none
            for one in some:
                inputs.setdefault(one.path.resolve(), one)
    if not inputs:
        raise TracevizError("No trace was given.", hint=f"Give {KNOWN}.")
    # Of files that say the same, the one that says most is read: of a report and its export the export, unless the
    # report was written anew since.
    dropped = set()
    for report, one in inputs.items():
        if format_of(one.kind).twins(report) & set(inputs):
            dropped.add(report)
        export = report.with_suffix(".sqlite")
        if one.kind == REPORT.kind and export in inputs:
            stale = export.stat().st_mtime_ns < report.stat().st_mtime_ns
            dropped.add(export if stale else report)
    return [one for path, one in inputs.items() if path not in dropped], skipped


def kind_of(path: Path) -> str:
    """A file's kind by its content: that of a format of captures, or manifest or parquet-export, which are our own."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise TracevizError("This is not a regular file.", path=path, hint=f"Give {KNOWN}.")
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        raise TracevizError(f"This can't be read ({error.strerror or error}).", path=path) from error
    return _kind_of_head(head, path)


def _kind_of_head(start: bytes, path: Path) -> str:
    if not start:
        raise TracevizError("The file is empty.", path=path, hint="Was the capture interrupted? Capture again.")
    head = FileHead(path.name, start)
    found = next((one for one in FORMATS if one.is_one(head)), None)
    known = unread(head) if found is None else unread_json(head) if found is KINETO else None
    if known is not None:
        raise TracevizError(known.what, path=path, hint=known.hint)
    if found is None:
        raise TracevizError("This is not a trace.", path=path, hint=f"Give {KNOWN}.")
    if found is not KINETO:
        return found.kind
    if MANIFEST_SCHEMA.encode() in start and not head.is_gzip:
        return "manifest"
    if b'"traceviz.perfetto/1"' in head.plain[:256]:
        hint = "Give the captures, or export with --to parquet, which can be read back."
        raise TracevizError("This was exported for Perfetto, and can't be read back.", path=path, hint=hint)
    return PARQUET_EXPORT if b'"traceviz.parquet/1"' in head.plain[:256] else found.kind


def _expand(text: str) -> list[Path]:
    try:
        path = Path(text).expanduser()
        if path.exists():
            return [path]
        found = sorted(Path(match) for match in glob.glob(str(path)))  # noqa: PTH207 (absolute patterns too)
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: a ~user who is not there
        raise TracevizError(f"This path can't be used ({error}).", path=text) from error
    if not found:
        raise TracevizError("There is no such file.", path=text, hint=f"Give {KNOWN}, a folder or a manifest.")
    return found


def _in_file(path: Path, keep_bad: bool) -> list[Input]:
    kind = _kind(path, keep_bad)
    return _in_manifest(path, keep_bad) if kind == "manifest" else [Input(path, kind)]


def _kind(path: Path, keep_bad: bool) -> str:
    try:
        return kind_of(path)
    except TracevizError:
        if not keep_bad:
            raise
        return UNREADABLE


def _in_folder(folder: Path, keep_bad: bool) -> tuple[list[Input], list[Path]]:
    manifest = folder / MANIFEST
    try:
        if manifest.exists() and kind_of(manifest) == "manifest":
            return _in_manifest(manifest, keep_bad), []
        export = folder / EXPORT_ABOUT
        if export.is_file() and kind_of(export) == PARQUET_EXPORT:
            return [Input(export, PARQUET_EXPORT)], []
        named = sorted(path for path in folder.iterdir() if path.name.endswith(SUFFIXES) and path.is_file())
    except OSError as error:
        raise TracevizError(f"This can't be read ({error.strerror or error}).", path=folder) from error
    inputs, skipped = [], []
    for path in named:
        if any(one.is_likely(path) for one in FORMATS if path.name.endswith(one.suffixes)) and not _is_unread(path):
            inputs.append(Input(path, _kind(path, keep_bad)))
        else:
            skipped.append(path)
    if not inputs:
        raise TracevizError("There is no capture in this folder.", path=folder, hint=f"Give {KNOWN}.")
    return inputs, skipped


def _is_unread(path: Path) -> bool:
    """Whether a file that nobody named is JSON of a tool whose events aren't read."""
    try:
        with path.open("rb") as file:
            return unread_json(FileHead(path.name, file.read(HEAD_BYTES))) is not None
    except OSError:
        return False  # for the reader to say what is wrong


def bounded(path: Path) -> bytes:
    """All of a small file.

    Raises
    ------
    TracevizError : it is larger than any such file is.
    OSError : it can't be read.
    """
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        text = f"is over {MOST_BYTES:,} bytes, more than any file of its kind."
        raise TracevizError(text, path=path, hint="Make it anew.")
    return content


def _in_manifest(path: Path, keep_bad: bool) -> list[Input]:
    try:
        content = json.loads(bounded(path))
        entries = [(str(entry["path"]), entry.get("rank")) for entry in content["captures"]]
        ranks, world = content.get("ranks", []), content.get("world_size")
        pids, settings = _ranks_by_pid(ranks), [_settings(content, ranks, rank) for _, rank in entries]
        step_ns = _step_ns(ranks)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise TracevizError(f"This manifest can't be read ({error!r}).", path=path, hint="Collect again.") from error
    inputs = []
    for (name, rank), environment in zip(entries, settings, strict=True):
        file = path.parent / name
        if rank is not None and (type(rank) is not int or rank not in RANKS):
            raise TracevizError(f"The manifest gives {name} the rank {rank!r}, which is none.", path=path)
        kind = _kind(file, keep_bad) if os.path.lexists(file) else UNREADABLE if keep_bad else ""
        if kind in ("", "manifest"):
            why = "is a manifest itself" if kind else "is not there"
            raise TracevizError(f"The manifest names {name}, which {why}.", path=path)
        size = world if type(world) is int and world > 0 else None
        of_file = pids if rank is None else {}
        steps = {of: taken for of, taken in step_ns.items() if rank in (None, of)}
        inputs.append(Input(file, kind, rank, of_file, world_size=size, settings=environment, step_ns=steps))
    return inputs


def _settings(content: Mapping[str, Any], ranks: list[Mapping[str, Any]], rank: object) -> dict[str, str]:
    """Variables of a rank's environment, or of all ranks that a file holds: as it stated them, else the collector's."""
    found = dict(content.get("environment") or {})
    stated = [dict(one.get("settings") or {}) for one in ranks if rank is None or one.get("rank") == rank]
    if stated and all(one == stated[0] for one in stated):
        found |= stated[0]
    return {str(name): str(value) for name, value in found.items()}


def _step_ns(ranks: list[Mapping[str, Any]]) -> dict[int, tuple[int, int]]:
    """How long a step of each rank took before the profiler began, and while it captured; of a rank told once."""

    def in_ns(milliseconds: object) -> int:
        if isinstance(milliseconds, bool) or not isinstance(milliseconds, int | float):
            return -1
        return round(milliseconds * 1e6) if 0 < milliseconds < MOST_MS else -1

    told = [(one.get("rank"), dict(one.get("step_ms") or {})) for one in ranks]
    count = Counter(rank for rank, _ in told)
    return {
        rank: (in_ns(times.get("unprofiled")), in_ns(times.get("profiled")))
        for rank, times in told
        if type(rank) is int and count[rank] == 1 and times
    }


def _ranks_by_pid(ranks: list[Mapping[str, object]]) -> dict[int, int]:
    """Rank of each process that told the collector both; a pid that two hosts have tells nothing."""
    claims = [(one.get("pid"), one.get("rank")) for one in ranks]
    known = [(pid, rank) for pid, rank in claims if type(pid) is int and type(rank) is int and rank in RANKS]
    count = Counter(pid for pid, _ in known)
    return {pid: rank for pid, rank in known if count[pid] == 1}
