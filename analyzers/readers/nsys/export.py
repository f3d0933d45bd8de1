"""Find the nsys command line, and tell which version it is and which one made a report."""

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
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from analyzers.cache import folder as cache
from analyzers.cache.folder import VARIABLE, stamp
from analyzers.common.errors import TracevizError
from analyzers.common.progress import NOTE, Progress, silent
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
HEADER = b"NVIDIA Tegra Profiler Report"
TAIL = 1 << 16  # bytes at a report's end in which its own version stands

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
        raise TracevizError(f"no nsys runs at {text!r}.", hint=f"Give the path of nsys (--nsys, or ${NSYS_VARIABLE}).")
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
        completed = subprocess.run(
            [str(path), "--version"],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=VERSION_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(completed.stdout)
    return Nsys(path, _numbers(found)) if found and completed.returncode == 0 else None


def made_by(report: Path) -> Version | None:
    """Version of the nsys that made a report, as far as its bytes tell; None where they don't."""
    with report.open("rb") as file:
        head = file.read(128)
        file.seek(max(0, report.stat().st_size - TAIL))
        tail = file.read()
    first = _VERSION.search(head.split(b"\n")[0])  # older reports name it in their first line, newer ones a build
    if first:
        return _numbers(first)
    return max(
        (_numbers(found) for found in _VERSION.finditer(tail)),
        key=lambda version: (len(version), version),
        default=None,
    )


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


# Turn an nsys report into an SQLite export, kept in a cache outside the report's folder.

OPTIONAL = ("--include-blobs=true",)  # payloads with NCCL's message sizes; where this nsys knows the option
PATIENCE_SECONDS, BYTES_PER_SECOND = 300, 100_000  # an export slower than this hangs
POLL_SECONDS = 0.1
MOST_SAID = 1 << 20  # bytes of the output of nsys that are looked at
WHAT = "exporting"


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
    entry = (folder or cache_folder()) / f"{_plain(path.stem)}-{stamp(path)}.sqlite"
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
    if not path.is_file():
        return False
    try:
        with NsysFile(path) as file:
            return file.is_finished
    except TracevizError:
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
        link = folder / f"report{report.suffix}"
        link.symlink_to(report)
        made = folder / "export.sqlite"
        command = [str(tool.path), "export", "--type=sqlite", "--force-overwrite=true", *_options(tool)]

        def on_progress(
            what: str, done: int, total: int
        ) -> None:  # an nsys that stands on PATH is not run without a word
            progress(f"{what}{NOTE}nsys {text(tool.version)} at {tool.path}", done, total)

        reason = _run([*command, f"--output={made}", str(link)], folder, made, report.stat().st_size, on_progress)
        if not reason and is_complete(made):
            _publish(made, entry)
            return ""
        return reason or "it left an incomplete export"


def _options(tool: Nsys) -> list[str]:
    completed = subprocess.run(
        [str(tool.path), "export", "--help"], capture_output=True, stdin=subprocess.DEVNULL, timeout=60, check=False
    )
    return [option for option in OPTIONAL if option.split("=")[0].encode() in completed.stdout]


def _run(command: Sequence[str], folder: Path, made: Path, size: int, progress: Progress) -> str:
    """Run an export to its end; returns what it said went wrong, "" where it exited well."""
    limit = PATIENCE_SECONDS + size / BYTES_PER_SECOND
    began, log = time.monotonic(), folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=folder, start_new_session=True
        )
        try:
            while process.poll() is None:
                progress(WHAT, made.stat().st_size if made.exists() else 0, 0)
                if time.monotonic() - began > limit:
                    return f"it did not end within {limit:.0f} s"
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(POLL_SECONDS)
        finally:
            if process.poll() is None:  # its children too; an interrupt must not leave an export running
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    done = made.stat().st_size if made.exists() else 0
    progress(WHAT, done, done)
    with log.open("rb") as output:  # however much it says, the complaint is near its end
        output.seek(max(log.stat().st_size - MOST_SAID, 0))
        complaint = _complaint(output.read().decode(errors="replace"))
    return "" if process.returncode == 0 and not complaint else complaint or f"it exited with {process.returncode}"


def _complaint(output: str) -> str:
    """The line in which nsys says what failed; it may exit with 0 all the same."""
    for line in re.split(r"[\r\n]+", output):
        if re.search(r"Exportation error|\bwhat\b.*:|FATAL|[Ee]rror:", line):
            return line.strip()[:200]
    return ""


def _publish(made: Path, entry: Path) -> None:
    """Put a finished export in its place unless another process was first: whoever reads that one keeps it."""
    try:
        os.link(made, entry)
    except FileExistsError:
        if not is_complete(entry):
            made.replace(entry)
    except OSError:  # a file system without links
        made.replace(entry)


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
    if not is_report(report):
        return TracevizError(f"not an nsys report, or a damaged one ({here}: {reason}).", path=report)
    if maker and maker > newest.version:
        return TracevizError(
            f"made by nsys {text(maker)}, newer than {here}, which can't export it.",
            path=report,
            hint=f"Install nsys {text(maker)} or newer here, or: {hint[0].lower()}{hint[1:]}",
        )
    return TracevizError(f"made by nsys {text(maker)}; {here} can't export it: {reason}.", path=report, hint=hint)


def _plain(stem: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", stem).lstrip(".-")[:120] or "report"


def _quoted(name: str) -> str:
    name = f"./{name}" if name.startswith("-") else name
    return name if re.fullmatch(r"[\w./+-]+", name) else "'" + name.replace("'", "'\\''") + "'"
