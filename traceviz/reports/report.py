"""All that a report says: every analysis of a trace, and its timeline."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from analyzers import info
from analyzers import streams as concurrency
from analyzers.collectives import report as collectives
from analyzers.collectives.report import Collectives
from analyzers.info import TraceInfo
from analyzers.replay.answer import what_if
from analyzers.replay.result import WhatIf
from analyzers.replay.worth import with_worth
from analyzers.streams import StreamsResult
from analyzers.syncs import report as order_report
from analyzers.syncs.report import OrderReport
from analyzers.trace.tables import Trace
from analyzers.verdict import check
from analyzers.verdict.check import OverlapResult
from traceviz.reports import fixes
from traceviz.reports.names import gathered, renamed, shown_paths
from traceviz.timelines.picture import Picture, picture


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
    what_if: WhatIf
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
    baseline: Trace | None = None,
    claimed: float | str | None = None,
    window: tuple[int, int] | None = None,
    accept_apparent: bool = False,
    command: str = "",
) -> Report:
    """Analyze a trace.

    Parameters
    ----------
    a, b, min_overlap, baseline, claimed, accept_apparent : as `check_overlap` takes them.
    window : what the timeline opens on, ns; the typical instance where not given.
    command : what to give as the command that makes this report; of a whole trace it is known.
    """
    names = shown_paths([one.path for each in (trace, baseline) if each is not None for one in each.captures])
    trace = renamed(trace, names)
    baseline = None if baseline is None else renamed(baseline, names)
    result = check.check_overlap(
        trace, a, b, min_overlap=min_overlap, baseline=baseline, claimed=claimed, accept_apparent=accept_apparent
    )
    result, order = with_worth(result, trace), order_report.order_report(trace)
    if not command and trace.whole is None and (baseline is None or baseline.whole is None):
        alone = () if baseline is None else [one.path for one in baseline.captures]
        more = ["--accept-apparent"] * accept_apparent
        command = command_of(
            [one.path for one in trace.captures], a, b, min_overlap, *more, baseline=alone, claimed=claimed
        )
    return Report(
        result,
        collectives.collectives_of(trace),
        order,
        concurrency.streams(trace),
        info.info(trace),
        _what_if(trace, a, b),
        picture(trace, result, order, window=window),
        command,
    )


def _what_if(trace: Trace, a: str, b: str) -> WhatIf:
    """What the fixes that the capture suggests are worth."""
    return what_if(trace, (), a, b) if len((trace.whole or trace).ops) <= fixes.MOST_OPS else fixes.refused(a, b)


def command_of(
    paths: Sequence[str],
    a: str,
    b: str,
    min_overlap: float,
    *more: str,
    baseline: Sequence[str] = (),
    claimed: float | str | None = None,
) -> str:
    """The command line that makes a report, with the names that its captures have in it.

    >>> command_of(["my run.json"], "comm", "nvtx:x", 0.6, baseline=["/data/alone.json"], claimed="1.3x")
    "traceviz report 'my run.json' -a comm -b nvtx:x --min-overlap 60% --baseline alone.json --claimed 1.3x -o report"
    """
    paths, baseline = gathered(paths), gathered(baseline)
    names = shown_paths([*paths, *baseline])
    alone = [word for path in baseline for word in ("--baseline", names[path])]
    words = [*(names[path] for path in paths), "-a", a, "-b", b, "--min-overlap", f"{100 * min_overlap:g}%"]
    words += [*alone, *([] if claimed is None else ["--claimed", str(claimed)]), *more]
    return shlex.join(["traceviz", "report", *words, "-o", "report"])
