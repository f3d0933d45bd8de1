"""An nsys report → an SQLite export in the cache, made by an nsys that is found here."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from analyzers.cache import folder as cache
from analyzers.cache.folder import VARIABLE, stamp
from analyzers.common.errors import TracevizError
from analyzers.common.progress import NOTE_SEPARATOR, Progress, silent
from analyzers.readers.nsys.file import NsysFile

NSYS_VARIABLE = "TRACEVIZ_NSYS"
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
_HEADER = b"NVIDIA Tegra Profiler Report"
_TAIL_BYTES = 1 << 16  # at a report's end, in which its own version stands
_BLOBS = "--include-blobs=true"  # payloads with NCCL's message sizes; where this nsys knows the option
PATIENCE_SECONDS, BYTES_PER_SECOND = 300, 100_000  # an export slower than this hangs
POLL_SECONDS = 0.1
_LOG_BYTES = 1 << 20  # of the output of nsys that are looked at: its complaint is near the end
_COMPLAINT = re.compile(r"[^\r\n]*(?:Exportation error|\bwhat\b.*:|FATAL|[Ee]rror:)[^\r\n]*")
_WHAT = "exporting"

Version = tuple[int, ...]


class Nsys(msgspec.Struct, frozen=True):
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
    chosen = chosen or os.environ.get(NSYS_VARIABLE)
    if chosen:
        path = Path(chosen).expanduser().absolute() if os.sep in chosen else _on_path(chosen)
        nsys = _runs(path) if path else None
        if nsys is None:
            hint = f"Give the path of nsys (--nsys, or ${NSYS_VARIABLE})."
            raise TracevizError(f"no nsys runs at {chosen!r}.", hint=hint)
        yield nsys
        return
    seen: set[Path] = set()
    on_path = _on_path("nsys")
    in_folders = [path for pattern in FOLDERS for path in Path("/").glob(pattern[1:])]
    for candidates in ([on_path] if on_path else [], in_folders):
        new = {path.resolve(): path for path in candidates}
        found = [_runs(path) for real, path in new.items() if real not in seen]
        seen |= set(new)
        yield from sorted((nsys for nsys in found if nsys), key=lambda nsys: nsys.version, reverse=True)


def _on_path(name: str) -> Path | None:
    here, safe = Path.cwd().resolve(), []
    for entry in os.environ.get("PATH", "").split(os.pathsep):
        if Path(entry).is_absolute() and Path(entry).resolve() != here:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
                if not Path(entry).stat().st_mode & stat.S_IWOTH:
                    safe.append(entry)
    found = shutil.which(name, path=os.pathsep.join(safe)) if safe else None
    return Path(found) if found else None


def _output_of(path: Path, *arguments: str) -> bytes:
    """What a run of nsys prints; nothing where it fails."""
    try:
        completed = subprocess.run(
            [str(path), *arguments],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=VERSION_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return b""
    return completed.stdout if completed.returncode == 0 else b""


def _runs(path: Path) -> Nsys | None:
    is_program = path.is_file() and os.access(path, os.X_OK)
    found = _VERSION.search(_output_of(path, "--version")) if is_program else None
    return Nsys(path, _numbers(found)) if found else None


def made_by(report: Path) -> Version | None:
    """Version of the nsys that made a report, as far as its bytes tell; None where they don't."""
    with report.open("rb") as file:
        head = file.read(128)
        file.seek(max(0, report.stat().st_size - _TAIL_BYTES))
        tail = file.read()
    first = _VERSION.search(head.split(b"\n")[0])  # older reports name it in their first line, newer ones a build
    found = [first] if first else _VERSION.finditer(tail)
    return max(map(_numbers, found), key=lambda version: (len(version), version), default=None)


def text(version: Version | None) -> str:
    """A version as people write it.

    >>> text((2025, 3, 1, 0)), text(None)
    ('2025.3.1', 'of unknown version')
    """
    return ".".join(map(str, version[:3])) if version else "of unknown version"


def _numbers(found: re.Match[bytes]) -> Version:
    return tuple(int(group) for group in found.groups() if group is not None)


def exported(path: Path, nsys: str | None = None, progress: Progress = silent, folder: Path | None = None) -> Path:
    """Return a complete SQLite export of a report: from the cache, made now, or lying beside the report.

    The report's own folder is never written to; progress counts bytes exported.

    Parameters
    ----------
    path : a .nsys-rep or .qdrep.
    nsys : the nsys to use instead of $TRACEVIZ_NSYS, `PATH` or the usual folders.
    folder : where exports are kept; the cache where not given.

    Raises
    ------
    TracevizError : no nsys is here, or none here can export this report, and no export lies beside it.
    """
    path = path.absolute()
    stem = re.sub(r"[^A-Za-z0-9._-]+", "_", path.stem).lstrip(".-")[:120] or "report"
    entry = (folder or cache_folder()) / f"{stem}-{stamp(path)}.sqlite"
    if is_complete(entry):
        cache.touch(entry)
        return entry
    tried: list[tuple[Nsys, str]] = []
    for tool in find_nsys(nsys):
        if tried and tool.version <= max(failed.version for failed, _ in tried):
            continue
        reason = _export(tool, path, entry, progress)
        if not reason:
            cache.prune([entry])
            return entry
        tried.append((tool, reason))
    beside = path.with_suffix(".sqlite")
    if is_complete(beside) and beside.stat().st_mtime_ns >= path.stat().st_mtime_ns:
        return beside
    raise _explained(path, tried, beside)


def cache_folder() -> Path:
    """Where exports are kept."""
    return cache.root() / "nsys"


def is_complete(path: Path) -> bool:
    """Whether a file is an export that was finished; a failed one may be there all the same."""
    try:
        if path.is_file():
            with NsysFile(path) as file:
                return file.is_finished
    except TracevizError:
        pass
    return False


def _export(tool: Nsys, report: Path, entry: Path, progress: Progress) -> str:
    """Export into the cache; returns why that failed, "" where it did not."""
    with contextlib.ExitStack() as stack:
        try:
            entry.parent.mkdir(parents=True, exist_ok=True)
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="export-", dir=entry.parent)))
        except OSError as error:
            raise TracevizError(
                f"the cache can't be written: {error.strerror or error}.", path=entry.parent, hint=f"Set ${VARIABLE}."
            ) from error
        # under a plain name of our own, whatever nsys leaves beside its input lands in our folder
        link, made = folder / f"report{report.suffix}", folder / "export.sqlite"
        link.symlink_to(report)
        options = [_BLOBS] if _BLOBS.split("=")[0].encode() in _output_of(tool.path, "export", "--help") else []
        command = [str(tool.path), "export", "--type=sqlite", "--force-overwrite=true", *options]

        def on_progress(done: int, total: int) -> None:  # an nsys that stands on PATH is not run without a word
            progress(f"{_WHAT}{NOTE_SEPARATOR}nsys {text(tool.version)} at {tool.path}", done, total)

        reason = _run([*command, f"--output={made}", str(link)], folder, made, report.stat().st_size, on_progress)
        if reason or not is_complete(made):
            return reason or "it left an incomplete export"
        try:  # unless another process was first: whoever reads that one keeps it
            os.link(made, entry)
        except FileExistsError:
            if not is_complete(entry):
                made.replace(entry)
        except OSError:  # a file system without links
            made.replace(entry)
        return ""


def _run(command: Sequence[str], folder: Path, made: Path, size: int, progress: Callable[[int, int], None]) -> str:
    """Run an export to its end; returns what it said went wrong, "" where it exited well."""
    limit = PATIENCE_SECONDS + size / BYTES_PER_SECOND
    began, log = time.monotonic(), folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=folder, start_new_session=True
        )
        try:
            while process.poll() is None:
                progress(made.stat().st_size if made.exists() else 0, 0)
                if time.monotonic() - began > limit:
                    return f"it did not end within {limit:.0f} s"
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(POLL_SECONDS)
        finally:
            if process.poll() is None:  # its children too; an interrupt must not leave an export running
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    done = made.stat().st_size if made.exists() else 0
    progress(done, done)
    with log.open("rb") as output:
        output.seek(max(log.stat().st_size - _LOG_BYTES, 0))
        complaint = _COMPLAINT.search(output.read().decode(errors="replace"))  # it may exit with 0 all the same
    if complaint:
        return complaint[0].strip()[:200]
    return f"it exited with {process.returncode}" if process.returncode else ""


def _explained(report: Path, tried: list[tuple[Nsys, str]], beside: Path) -> TracevizError:
    maker = made_by(report)
    command = f"nsys export --type sqlite --output {_quoted(beside.name)} {_quoted(report.name)}"
    hint = f"On the machine that captured it run: {command} ; then give traceviz the .sqlite."
    if beside.exists():
        hint += f" ({beside.name} beside it is {'older than the report' if is_complete(beside) else 'incomplete'}.)"
    if not tried:
        return TracevizError(
            "a report can only be opened with nsys, and none is here.",
            path=report,
            hint=f"Install Nsight Systems {text(maker) if maker else ''} or newer, or name it with --nsys. {hint}",
        )
    newest, reason = tried[-1]
    here = f"nsys {text(newest.version)} ({newest.path})"
    with report.open("rb") as file:
        if file.read(len(_HEADER)) != _HEADER:
            return TracevizError(f"not an nsys report, or a damaged one ({here}: {reason}).", path=report)
    if maker and maker > newest.version:
        return TracevizError(
            f"made by nsys {text(maker)}, newer than {here}, which can't export it.",
            path=report,
            hint=f"Install nsys {text(maker)} or newer here, or: {hint[0].lower()}{hint[1:]}",
        )
    return TracevizError(f"made by nsys {text(maker)}; {here} can't export it: {reason}.", path=report, hint=hint)


def _quoted(name: str) -> str:
    name = f"./{name}" if name.startswith("-") else name
    return name if re.fullmatch(r"[\w./+-]+", name) else "'" + name.replace("'", "'\\''") + "'"
