"""The Python API for what is made: timelines, reports and captures; re-exported by `traceviz` itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from analyzers.trace.tables import Trace
    from collectors.capture import Capture
    from traceviz.reports.files import Report

__all__ = ["capture", "report", "timeline"]


def timeline(
    trace: Trace, a: str = "comm", b: str = "compute", *, min_overlap: float = 0.6, dark: bool = False
) -> go.Figure:
    """Draw an aligned timeline of all ranks, opened on the typical instance.

    Parameters
    ----------
    a, b, min_overlap : as `check_overlap` takes them.
    dark : on dark ground.

    Returns
    -------
    plotly Figure : bars in ms on the trace's clock; `customdata` has whole ns. Where there are too many to draw, marks
        too small to see are drawn as one that says how many they are; narrow the trace to see more. The page that
        `traceviz timeline -o x.html` writes does so by itself as one zooms.

    Raises
    ------
    TracevizError : as `check_overlap`.
    """
    from analyzers.syncs import report as order_report
    from analyzers.verdict import check
    from traceviz.timelines import draw, palette, picture

    result = check.check_overlap(trace, a, b, min_overlap=min_overlap)
    drawn = picture.picture(trace, result, order_report.order_report(trace))
    return draw.figure(drawn, theme=palette.DARK if dark else palette.LIGHT)


def report(
    trace: Trace,
    folder: str | Path = "traceviz-report",
    a: str = "comm",
    b: str = "compute",
    *,
    min_overlap: float = 0.6,
) -> Report:
    """Write the attachment of a pull request: summary.md, report.html, results.json and timeline.png.

    Parameters
    ----------
    folder : where to write; made where it is not there. Files of an earlier report in it are replaced.
    a, b, min_overlap : as `check_overlap` takes them.

    Returns
    -------
    Report : `.files` were written (no timeline.png without kaleido and a browser); `.overlap`,
        `.collectives`, `.order`, `.streams` and `.info` are the results they show.

    Raises
    ------
    TracevizError : as `check_overlap`, or the folder can't be written.
    """
    from traceviz.reports import files

    made = files.make(trace, a, b, min_overlap=min_overlap)
    return replace(made, files=tuple(files.write(made, Path(folder))))


def capture(
    folder: str | Path = "captures",
    *,
    tool: str | None = None,
    name: str = "capture",
    shapes: bool = False,
    stacks: bool = False,
) -> Capture:
    """Capture a `with` block, or each call of a function that this decorates; nothing without torch or a GPU.

    torch.profiler writes `rankN.json.gz` and `manifest.json`; under nsys (with --capture-range=cudaProfilerApi) the
    block is what nsys captures. An exception passes through; the trace is written and NVTX ranges are closed.

    Parameters
    ----------
    folder : where to write.
    tool : "torch" or "nsys"; told by whether nsys runs this program, where not given.
    name : the range around the block.
    shapes, stacks : record ops' shapes, Python stacks.

    Returns
    -------
    Capture : `.range(name)` is a range for both profilers, `.path` the trace once the block has ended.
    """
    from collectors import capture as capturing

    return capturing.capture(folder, tool=tool, name=name, shapes=shapes, stacks=stacks)
