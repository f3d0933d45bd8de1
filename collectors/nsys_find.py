"""Find the nsys that captures, and what it can do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from collectors.errors import CollectError

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
SECONDS = 60
_VERSION = re.compile(r"\b(20\d\d)\.(\d{1,2})\.(\d{1,2})(?:\.(\d{1,4}))?\b")
_OPTION = re.compile(r"^\t(?:\([^)]*\) )?(?:-\w, )?(--[a-z][a-z-]*)", re.MULTILINE)
Version = tuple[int, ...]


@dataclass(frozen=True)
class Nsys:
    """One nsys that runs here; `options` are those `nsys profile` takes, each with what its help says."""

    path: Path
    version: Version
    options: dict[str, str]

    @property
    def release(self) -> str:
        """Its version as people write it."""
        return ".".join(map(str, self.version[:3]))


def find_nsys(chosen: str | None = None) -> Nsys:
    """The nsys to capture with: the chosen one, $TRACEVIZ_NSYS, `PATH`'s, or the newest of the usual folders.

    One that lies in the current folder, or that only a relative entry of `PATH` leads to, is never run.

    Raises
    ------
    CollectError : none is here, or the chosen one does not run.
    """
    chosen = chosen or os.environ.get(VARIABLE)
    if chosen:
        path = Path(chosen).expanduser().absolute() if os.sep in chosen else _on_path(chosen)
        version = _version(path) if path else None
        if path is None or version is None:
            raise CollectError(f"no nsys runs at {chosen!r}.", hint=f"Give the path of nsys (--nsys, or ${VARIABLE}).")
        return Nsys(path, version, options_of(path))
    on_path = _on_path("nsys")
    for candidates in ([on_path] if on_path else [], [path for one in FOLDERS for path in Path("/").glob(one[1:])]):
        found = [(version, path) for path in candidates if (version := _version(path))]
        if found:
            version, path = max(found)
            return Nsys(path, version, options_of(path))
    raise CollectError(
        "nsys is not here.", hint=f"Install Nsight Systems, or name it with --nsys or ${VARIABLE}; or collect torch."
    )


def options_of(path: Path) -> dict[str, str]:
    """Options that `nsys profile` takes, with their help."""
    return parse_options(_said(path, "profile", "--help"))


def parse_options(said: str) -> dict[str, str]:
    r"""Options in the help of `nsys profile`.

    >>> parse_options("\t-t, --trace=\n\n\t   Possible values are 'cuda'\n\n\t--kill=\n\t   x\n")["--trace"]
    "Possible values are 'cuda'"
    """
    heads = list(_OPTION.finditer(said))
    ends = [head.start() for head in heads[1:]] + [len(said)]
    options = zip(heads, ends, strict=False)
    return {head[1]: " ".join(said[head.end() : end].lstrip("=").split()) for head, end in options}


def _on_path(name: str) -> Path | None:
    here = Path.cwd().resolve()
    entries = [entry for entry in os.environ.get("PATH", "").split(os.pathsep) if Path(entry).is_absolute()]
    safe = os.pathsep.join(entry for entry in entries if Path(entry).resolve() != here)
    found = shutil.which(name, path=safe) if safe else None
    return Path(found) if found else None


def _version(path: Path) -> Version | None:
    if not (path.is_file() and os.access(path, os.X_OK)):
        return None
    found = _VERSION.search(_said(path, "--version"))
    return tuple(int(group) for group in found.groups() if group is not None) if found else None


def _said(path: Path, *words: str) -> str:
    try:
        ran = subprocess.run(
            [str(path), *words], stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ran.stdout.decode(errors="replace") if ran.returncode == 0 else ""
