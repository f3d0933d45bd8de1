"""The questions that a run answers part by part, beside `check_overlap`; with one part or many it is one way.

Each puts together what the parts say; what takes all ranks at once (clocks, collectives, warnings) is the run's own.
"""

from __future__ import annotations

from functools import partial, reduce
from operator import add

from msgspec.structs import replace

from analyzers import info as looking
from analyzers import streams as concurrency
from analyzers.collectives.costs import Collectives, collectives_of
from analyzers.contention import neighbours as neighbouring
from analyzers.contention.neighbours import StreamContention
from analyzers.info import TraceInfo
from analyzers.streams import RankStreams, StreamsResult
from analyzers.syncs import order_report as order_report
from analyzers.syncs.order_report import OrderReport
from analyzers.trace.narrow import Narrowing, counted, steps_used
from analyzers.trace.run import ALL, Run
from analyzers.trace.tables import Trace
from analyzers.trace.untrusted import LOST_SHARE_THAT_MATTERS, untrusted


def collectives(run: Run, narrowing: Narrowing = ALL) -> Collectives:
    """What each collective cost; see `analyzers.collectives.costs`."""
    found = collectives_of(run.communication(counted(run.trace, narrowing)))
    lost = untrusted(run, narrowing, least=LOST_SHARE_THAT_MATTERS if len(found) else 0.0)
    return replace(found, steps=steps_used(run.trace, narrowing), untrusted=lost)


def streams(run: Run, narrowing: Narrowing = ALL) -> StreamsResult:
    """How many streams were busy at once; see `analyzers.streams`."""
    ranks = [one for found in run.map(_streams, counted(run.trace, narrowing)).values() for one in found]
    return StreamsResult(
        tuple(sorted(ranks, key=lambda one: (one.rank, one.device))),
        run.trace.warnings,
        run.trace.runtime,
        steps_used(run.trace, narrowing),
    )


def _streams(trace: Trace) -> tuple[RankStreams, ...]:
    return concurrency.streams(trace).ranks


def stream_contention(run: Run, narrowing: Narrowing = ALL) -> StreamContention:
    """Which kernels lost most to other streams; see `analyzers.contention.neighbours`."""
    return neighbouring.stream_contention([*run.map(neighbouring.neighbours, counted(run.trace, narrowing)).values()])


def syncs(run: Run, narrowing: Narrowing = ALL, *, missing_only: bool = False) -> OrderReport:
    """Sync points, unwaited copies, missing waits; see `analyzers.syncs.order_report`."""
    return order_report.order_of(run, narrowing, missing_only=missing_only)


def info(run: Run, narrowing: Narrowing = ALL) -> TraceInfo:
    """What is in the run; see `analyzers.info`."""
    facts = run.map(partial(looking.facts_within, narrowing=narrowing)).values()
    return looking.info_of(run.trace, reduce(add, facts))
