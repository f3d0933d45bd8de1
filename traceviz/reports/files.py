"""The pull-request attachment: every analysis of a trace, and the four files that show it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analyzers import info
from analyzers import streams as concurrency
from analyzers.collectives import report as collectives
from analyzers.collectives.report import Collectives
from analyzers.common.errors import TracevizError
from analyzers.common.writing import replacing
from analyzers.info import TraceInfo
from analyzers.streams import StreamsResult
from analyzers.syncs import report as order_report
from analyzers.syncs.report import OrderReport
from analyzers.trace.tables import Trace
from analyzers.verdict import check
from analyzers.verdict.check import OverlapResult
from traceviz import contract
from traceviz.timelines.files import drawn
from traceviz.timelines.picture import Picture, picture

FILES = ("summary.md", "report.html", "results.json", "timeline.png")


@dataclass(frozen=True)
class Report:
    """All that is known of a pair in a trace.

    `command` makes the same report again, "" where it is not known; `files` are those that were written.
    """

    overlap: OverlapResult
    collectives: Collectives
    order: OrderReport
    streams: StreamsResult
    info: TraceInfo
    picture: Picture
    command: str
    files: tuple[Path, ...] = ()

    def __repr__(self) -> str:
        return f"<report: {self.picture.headline} {len(self.files)} file(s) written>"


def make(
    trace: Trace,
    a: str = "comm",
    b: str = "compute",
    *,
    min_overlap: float = check.DEFAULT_BAR,
    window: tuple[int, int] | None = None,
    command: str = "",
) -> Report:
    """Analyze a trace.

    Parameters
    ----------
    a, b, min_overlap : as `check_overlap` takes them.
    window : what the timeline opens on, ns; the typical instance where not given.
    command : what to give as the command that makes this report; of a whole trace it is known.
    """
    result = check.check_overlap(trace, a, b, min_overlap=min_overlap)
    order = order_report.order_report(trace)
    if not command and trace.whole is None:
        command = command_of([one.path for one in trace.captures], a, b, min_overlap)
    return Report(
        result,
        collectives.collectives_of(trace),
        order,
        concurrency.streams(trace),
        info.info(trace),
        picture(trace, result, order, window=window),
        command
        or ("" if trace.whole is not None else command_of([one.path for one in trace.captures], a, b, min_overlap)),
    )


def command_of(paths: Sequence[str], a: str, b: str, min_overlap: float, *more: str) -> str:
    """The command line that makes a report.

    >>> command_of(["my run.json"], "comm", "nvtx:x", 0.6)
    "traceviz report 'my run.json' -a comm -b nvtx:x --min-overlap 60% -o report"
    """
    bar = f"{100 * min_overlap:g}%"
    return shlex.join(["traceviz", "report", *paths, "-a", a, "-b", b, "--min-overlap", bar, *more, "-o", "report"])


def write(report: Report, folder: Path) -> list[Path]:
    """Write a report's files into a folder, which is made where it is not there.

    Each file is whole or not there, and none is touched before all of them are written beside it. Without kaleido
    there is no timeline.png, and one of an earlier report is removed.

    Returns
    -------
    list[Path] : what was written.

    Raises
    ------
    TracevizError : the folder can't be written.
    """
    from traceviz.reports.page import html
    from traceviz.reports.summary import summary

    content = {"report.html": html(report).encode(), "results.json": _json(report)}
    image = _image(report.picture)
    if image is not None:
        content["timeline.png"] = image
    content["summary.md"] = summary(report, with_image=image is not None).encode()
    new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TracevizError(f"No folder can be made: {error.strerror}.", path=folder, hint="Name another.") from error
    try:
        with ExitStack() as together:
            for name in content:
                together.enter_context(replacing(folder / name)).write_bytes(content[name])
    except BaseException:
        if new:
            with suppress(OSError):  # not empty
                folder.rmdir()
        raise
    for name in FILES:
        if name not in content:
            (folder / name).unlink(missing_ok=True)
    return [folder / name for name in FILES if name in content]


def _image(drawing: Picture) -> bytes | None:
    """The timeline's picture; None where nothing can draw it."""
    try:
        return drawn(drawing, "png")
    except TracevizError:
        return None


def _json(report: Report) -> bytes:
    shown = report.picture.shown
    results: dict[str, Any] = {
        "schema": "traceviz.report/1",
        "command": report.command,
        "shown": {"rank": shown.rank, "instance": shown.label, "start_ns": shown.start_ns, "end_ns": shown.end_ns},
        "overlap": contract.overlap(report.overlap),
        "collectives": contract.collectives(report.collectives),
        "syncs": contract.syncs(report.order),
        "streams": contract.streams(report.streams),
        "info": contract.info(report.info),
    }
    return (json.dumps(results, indent=1, allow_nan=False) + "\n").encode()
