"""All that a report says: every analysis of a trace, and its timeline."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from glob import escape, glob
from pathlib import Path

from msgspec.structs import replace

from analyzers.collectives.costs import Collectives
from analyzers.common.records import Record
from analyzers.compare.against import with_baseline
from analyzers.info import TraceInfo
from analyzers.replay.answer import what_if
from analyzers.replay.result import WhatIf
from analyzers.replay.worth import with_worth
from analyzers.scale import answers
from analyzers.streams import StreamsResult
from analyzers.syncs.order_report import OrderReport
from analyzers.trace.narrow import Narrowing
from analyzers.trace.run import ALL, Run
from analyzers.trace.tables import Trace
from analyzers.verdict import check
from analyzers.verdict.check import OverlapResult
from analyzers.verdict.with_order import check_with_order
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
    names = _shown_paths([one.path for each in runs for one in each.trace.captures])
    run, *alone = (replace(each, trace=_renamed(each.trace, names)) for each in runs)
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
    if run.size > MOST_OPS or not run.merged:
        fixes = WhatIf(a, b, None, (), TOO_MANY if run.size > MOST_OPS else IN_PARTS)
    else:
        fixes = what_if(run.trace, (), a, b, overlap=result, narrowing=narrowing)
    return Report(
        result,
        answers.collectives(run, narrowing),
        order,
        answers.streams(run, narrowing),
        answers.info(run, narrowing),
        fixes,
        picture(run, result, order, window=narrowing.window, narrowing=narrowing),
        command,
    )


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
    paths, baseline = _gathered(paths), _gathered(baseline)
    names = _shown_paths([*paths, *baseline])
    alone = [word for path in baseline for word in ("--baseline", names[path])]
    pair = ["-a", a, "-b", b] if of_pair or claimed is None else []  # named, it is what a claim is about
    words = [*(names[path] for path in paths), *pair, "--min-overlap", f"{100 * min_overlap:g}%"]
    words += [*alone, *([] if claimed is None else ["--claimed", str(claimed)]), *more]
    return shlex.join(["traceviz", "report", *words, "-o", "report"])


# Others read a report on other machines: no name of a capture begins at a machine's root.


def _shown_paths(paths: Sequence[str]) -> dict[str, str]:
    """What each path is called: as it was given, relative to here, or by as many of its last parts as tell it apart.

    >>> _shown_paths(["runs/a.json", "s3://bucket/b.json"])
    {'runs/a.json': 'runs/a.json', 's3://bucket/b.json': 's3://bucket/b.json'}
    >>> _shown_paths(["/x/serial/rank0.json", "/x/beside/rank0.json"])
    {'/x/serial/rank0.json': 'serial/rank0.json', '/x/beside/rank0.json': 'beside/rank0.json'}
    """
    here = Path.cwd()
    names: dict[str, str] = {}
    tails: dict[str, list[str]] = {}
    for path in dict.fromkeys(paths):
        local = path.removeprefix("file://")
        if not Path(local).is_absolute():
            names[path] = local
        elif Path(local).is_relative_to(here):
            names[path] = str(Path(local).relative_to(here))
        else:
            parts = Path(local).parts[1:] or ("capture",)
            tails[path] = [str(Path(*parts[-count:])) for count in range(1, len(parts) + 1)]
    taken = Counter([*names.values(), *(tail for each in tails.values() for tail in each)])
    names |= {path: next((tail for tail in each if taken[tail] == 1), each[-1]) for path, each in tails.items()}
    return names


def _gathered(paths: Sequence[str]) -> list[str]:
    """One glob instead of all ranks' files, where it stands for these files and no others; else the paths."""
    if len(paths) < 2:
        return list(paths)
    head = os.path.commonprefix(paths)  # noqa: RUF071
    tail = os.path.commonprefix([path[len(head) :][::-1] for path in paths])[::-1]  # noqa: RUF071
    between = [path[len(head) : len(path) - len(tail)] for path in paths]
    pattern = f"{escape(head)}*{escape(tail)}"
    is_numbered = all(part.isdigit() for part in between)
    return [pattern] if is_numbered and set(glob(pattern)) == set(paths) else list(paths)  # noqa: PTH207


def _renamed(trace: Trace, names: Mapping[str, str]) -> Trace:
    """A trace whose captures carry other names, in what it says as well."""
    if all(names.get(one.path, one.path) == one.path for one in trace.captures):
        return trace
    warnings = trace.warnings
    for known in sorted(names, key=len, reverse=True):
        warnings = tuple(replace(one, message=one.message.replace(known, names[known])) for one in warnings)
    captures = tuple(replace(one, path=names.get(one.path, one.path)) for one in trace.captures)
    whole = None if trace.whole is None else _renamed(trace.whole, names)
    return replace(trace, captures=captures, warnings=warnings, whole=whole)
