"""Find the nsys command line, and tell which version it is and which one made a report."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from analyzers.errors import TracevizError

VARIABLE = "TRACEVIZ_NSYS"
FOLDERS = (  # where NVIDIA's installers, CUDA, Nsight Compute and this project's tools/install-nsys.sh put it
    "/opt/nvidia/nsight-systems*/bin/nsys",
    "/opt/nvidia/nsight-systems*/*/bin/nsys",
    "/opt/nvidia/nsight-systems*/*/target-linux-*/nsys",
    "/usr/local/cuda*/bin/nsys",
    "/usr/local/cuda*/nsight-systems*/bin/nsys",
    "/usr/lib/nsight-systems*/target-linux-*/nsys",
    "/usr/lib/*/nsight-systems*/target-linux-*/nsys",
    "/opt/nvidia/nsight-compute/*/host/target-linux-*/nsys",
    "/opt/nsys/bin/nsys",
)
VERSION_SECONDS = 60
_VERSION = re.compile(rb"\b(20\d\d)[.@](\d{1,2})[.@](\d{1,2})(?:[.@](\d{1,4}))?\b")
HEADER = b"NVIDIA Tegra Profiler Report"
TAIL = 1 << 16  # bytes at a report's end in which its own version stands

Version = tuple[int, ...]


@dataclass(frozen=True)
class Nsys:
    """One nsys that runs here."""

    path: Path
    version: Version


def find_nsys(chosen: str | None = None) -> Iterator[Nsys]:
    """The nsys to try, in order: the chosen one alone, or `PATH`'s and then those of the usual folders, newest first.

    One that lies in the current folder or in one that anybody may write to, or that only a relative entry of `PATH`
    leads to, is never run.

    Raises
    ------
    TracevizError : the chosen one (the argument, or $TRACEVIZ_NSYS) is not there or does not run.
    """
    chosen = chosen or os.environ.get(VARIABLE)
    if chosen:
        yield _chosen(chosen)
        return
    seen: set[Path] = set()
    on_path = _on_path("nsys")
    for candidates in (
        [on_path] if on_path else [],
        [path for pattern in FOLDERS for path in Path("/").glob(pattern[1:])],
    ):
        new = {path.resolve(): path for path in candidates}
        found = [_runs(path) for real, path in new.items() if real not in seen]
        seen |= set(new)
        yield from sorted((nsys for nsys in found if nsys), key=lambda nsys: nsys.version, reverse=True)


def _chosen(text: str) -> Nsys:
    path = Path(text).expanduser().absolute() if os.sep in text else _on_path(text)
    nsys = _runs(path) if path else None
    if nsys is None:
        raise TracevizError(f"no nsys runs at {text!r}.", hint=f"Give the path of nsys (--nsys, or ${VARIABLE}).")
    return nsys


def _on_path(name: str) -> Path | None:
    here = Path.cwd().resolve()
    entries = [entry for entry in os.environ.get("PATH", "").split(os.pathsep) if Path(entry).is_absolute()]
    safe = os.pathsep.join(entry for entry in entries if Path(entry).resolve() != here and not _is_anybodys(entry))
    found = shutil.which(name, path=safe) if safe else None
    return Path(found) if found else None


def _is_anybodys(folder: str) -> bool:
    try:
        return bool(Path(folder).stat().st_mode & stat.S_IWOTH)
    except OSError:
        return False


def _runs(path: Path) -> Nsys | None:
    if not (path.is_file() and os.access(path, os.X_OK)):
        return None
    try:
        said = subprocess.run(
            [str(path), "--version"],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=VERSION_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(said.stdout)
    return Nsys(path, _numbers(found)) if found and said.returncode == 0 else None


def made_by(report: Path) -> Version | None:
    """Version of the nsys that made a report, as far as its bytes tell; None where they don't."""
    with report.open("rb") as file:
        head = file.read(128)
        file.seek(max(0, report.stat().st_size - TAIL))
        tail = file.read()
    first = _VERSION.search(head.split(b"\n")[0])  # older reports name it in their first line, newer ones a build
    if first:
        return _numbers(first)
    return max((_numbers(found) for found in _VERSION.finditer(tail)), key=lambda said: (len(said), said), default=None)


def is_report(report: Path) -> bool:
    """Whether a file starts as every known nsys report does."""
    with report.open("rb") as file:
        return file.read(len(HEADER)) == HEADER


def text(version: Version | None) -> str:
    """A version as people write it.

    >>> text((2025, 3, 1, 0)), text(None)
    ('2025.3.1', 'of unknown version')
    """
    return ".".join(map(str, version[:3])) if version else "of unknown version"


def _numbers(found: re.Match[bytes]) -> Version:
    return tuple(int(group) for group in found.groups() if group is not None)
