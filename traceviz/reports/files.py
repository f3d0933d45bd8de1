"""The four files of a pull-request attachment."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from pathlib import Path

from analyzers.common.errors import TracevizError
from analyzers.common.writing import replacing
from traceviz.output import contract
from traceviz.output.records import Json
from traceviz.output.terminal import as_json
from traceviz.reports.page import html
from traceviz.reports.report import Report
from traceviz.reports.summary import summary
from traceviz.timelines.files import drawn

FILES = ("summary.md", "report.html", "results.json", "timeline.png")


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
    content = {"report.html": html(report).encode(), "results.json": as_json(results(report)).encode()}
    with suppress(TracevizError):  # nothing here can draw it
        content["timeline.png"] = drawn(report.picture, "png")
    content["summary.md"] = summary(report, with_image="timeline.png" in content).encode()
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


def results(report: Report) -> Json:
    """What results.json holds."""
    shown = report.picture.shown
    return contract.report(
        report.command,
        {"rank": shown.rank, "instance": shown.label, "start_ns": shown.start_ns, "end_ns": shown.end_ns},
        {
            "overlap": contract.overlap(report.overlap),
            "collectives": contract.collectives(report.collectives),
            "syncs": contract.syncs(report.order),
            "streams": contract.streams(report.streams),
            "info": contract.info(report.info),
            "what_if": contract.what_if(report.what_if),
        },
    )
