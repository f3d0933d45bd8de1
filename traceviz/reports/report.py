"""All that a report says: every analysis of a trace, and its timeline."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from analyzers.collectives.report import Collectives
from analyzers.common.records import Record
from analyzers.compare.against import with_baseline
from analyzers.info import TraceInfo
from analyzers.replay.answer import what_if
from analyzers.replay.result import WhatIf
from analyzers.replay.worth import with_worth
from analyzers.scale import answers
from analyzers.streams import StreamsResult
from analyzers.syncs.report import OrderReport
from analyzers.trace.narrow import Narrowing
from analyzers.trace.run import ALL, Run
from analyzers.trace.tables import Trace
from analyzers.verdict import check
from analyzers.verdict.check import OverlapResult
from analyzers.verdict.with_order import check_with_order
from traceviz.reports.names import gathered, renamed_run, shown_paths
from traceviz.timelines.picture import Picture, picture

MOST_OPS = 200_000  # beyond, trying all that is suggested takes longer than all else of a report
IN_PARTS = "captures that are looked at one by one are not replayed: traceviz what-if does, without --memory"
TOO_MANY = "the run is large, and trying all that it suggests takes a while: traceviz what-if does"


class Report(Record, frozen=True):
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
    run: Trace | Run,
    a: str = "comm",
    b: str = "compute",
    *,
    min_overlap: float = check.DEFAULT_BAR,
    baseline: Trace | Run | None = None,
    claimed: float | str | None = None,
    of_pair: bool = True,
    require_faster: bool = False,
    narrowing: Narrowing = ALL,
    accept_apparent: bool = False,
    command: str = "",
) -> Report:
    """Analyze a run.

    Parameters
    ----------
    a, b, min_overlap, baseline, narrowing, accept_apparent : as `check_overlap` takes them; on a window of time the
        timeline opens, too.
    claimed, of_pair, require_faster : as `with_baseline` takes them.
    command : what to give as the command that makes this report; of a whole run it is known.
    """
    runs = [Run.of(one) for one in (run, baseline) if one is not None]
    names = shown_paths([one.path for each in runs for one in each.trace.captures])
    run, *alone = (renamed_run(each, names) for each in runs)
    result, order = check_with_order(
        run,
        a,
        b,
        min_overlap=min_overlap,
        baseline=alone[0] if alone else None,
        narrowing=narrowing,
        accept_apparent=accept_apparent,
    )
    for one in alone:
        result = with_baseline(
            result,
            run,
            one,
            narrowing=narrowing,
            claimed=claimed,
            of_pair=of_pair,
            accept_apparent=accept_apparent,
            require_faster=require_faster,
        )
    result = with_worth(result, run, narrowing)
    if not command and narrowing == ALL and all(each.trace.whole is None for each in runs):
        against = [one.path for each in alone for one in each.trace.captures]
        more = ["--accept-apparent"] * accept_apparent + ["--require-faster"] * require_faster
        captures = [one.path for one in run.trace.captures]
        command = command_of(captures, a, b, min_overlap, *more, baseline=against, claimed=claimed, of_pair=of_pair)
    return Report(
        result,
        answers.collectives(run, narrowing),
        order,
        answers.streams(run, narrowing),
        answers.info(run, narrowing),
        _what_if(run, a, b, narrowing, result),
        picture(run, result, order, window=narrowing.window, narrowing=narrowing),
        command,
    )


def _what_if(run: Run, a: str, b: str, narrowing: Narrowing, result: OverlapResult) -> WhatIf:
    """What the fixes that the capture suggests are worth."""
    if run.size > MOST_OPS:
        return WhatIf(a, b, None, (), TOO_MANY)
    if not run.merged:
        return WhatIf(a, b, None, (), IN_PARTS)
    return what_if(run.trace, (), a, b, overlap=result, narrowing=narrowing)


def command_of(
    paths: Sequence[str],
    a: str,
    b: str,
    min_overlap: float,
    *more: str,
    baseline: Sequence[str] = (),
    claimed: float | str | None = None,
    of_pair: bool = True,
) -> str:
    """The command line that makes a report, with the names that its captures have in it.

    >>> command_of(["my run.json"], "comm", "nvtx:x", 0.6, baseline=["/data/alone.json"], claimed="1.3x")
    "traceviz report 'my run.json' -a comm -b nvtx:x --min-overlap 60% --baseline alone.json --claimed 1.3x -o report"
    """
    paths, baseline = gathered(paths), gathered(baseline)
    names = shown_paths([*paths, *baseline])
    alone = [word for path in baseline for word in ("--baseline", names[path])]
    pair = ["-a", a, "-b", b] if of_pair or claimed is None else []  # named, it is what a claim is about
    words = [*(names[path] for path in paths), *pair, "--min-overlap", f"{100 * min_overlap:g}%"]
    words += [*alone, *([] if claimed is None else ["--claimed", str(claimed)]), *more]
    return shlex.join(["traceviz", "report", *words, "-o", "report"])
