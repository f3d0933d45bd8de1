"""Write a trace and its findings as a Chrome trace, for Perfetto and chrome://tracing.

All times are on the trace's one clock. What no event can say (captures, clocks) stands under the key
"traceviz" at the head of the file.
"""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
from isal import igzip

from analyzers.collectives.report import collectives_of
from analyzers.common.errors import TracevizError
from analyzers.common.writing import refuse_existing, replacing
from analyzers.export.perfetto_findings import collective_events, finding_events
from analyzers.export.perfetto_lines import Tracks, lines, text
from analyzers.export.perfetto_tables import process_tracks, table_events
from analyzers.export.run import RunAsFiles
from analyzers.trace.about import about
from analyzers.trace.freed_memory import freed_memory_kept
from analyzers.trace.narrow import Narrowing
from analyzers.trace.run import ALL, PartitionedRun, as_run
from analyzers.trace.tables import Trace
from analyzers.verdict.with_order import check_with_order

SCHEMA = "traceviz.perfetto/1"


def to_perfetto(
    run: Trace | PartitionedRun,
    path: str | Path,
    a: str = "comm",
    b: str = "compute",
    *,
    narrowing: Narrowing = ALL,
    overwrite: bool = False,
) -> Path:
    """Write a Chrome trace; gzipped where the name ends in .gz.

    Parameters
    ----------
    a, b : the pair whose overlap and causes become tracks, as `check_overlap` takes them.
    narrowing : the part of the run that is written.
    overwrite : replace a file that is there.

    Raises
    ------
    TracevizError : there is no GPU work, the file is there already or can't be written; as `check_overlap` for a and b.
    """
    path = Path(path)
    refuse_existing(path, overwrite=overwrite)
    run = as_run(run)
    if not len(run.trace.ops):
        raise TracevizError("There is no GPU work to write.", path=path)
    result, order = check_with_order(run, a, b, narrowing=narrowing, missing_only=True)
    files, tracks = RunAsFiles(run, narrowing), Tracks()
    process_tracks(files, tracks)
    found = chain.from_iterable(finding_events(part, tracks, result, order) for part in run.parts(narrowing))
    alone, zero = files.trace, files.first_ns  # the earliest time becomes 0, for Perfetto draws nothing before
    collectives = collective_events(alone, tracks, collectives_of(alone)) if alone.matches is not None else iter(())
    opened = igzip.open if path.name.endswith(".gz") else open
    with replacing(path) as beside, opened(beside, "wb") as file, freed_memory_kept(run.size):
        file.write(_head(alone, zero, tracks.metadata.pop(0)))
        for events in chain(found, collectives, table_events(files, tracks)):
            for some in lines(events, zero):
                file.write(some)
        for event in tracks.metadata:
            file.write(b",\n" + msgspec.json.encode(event))
        file.write(b"\n]}\n")
    return path


def _head(trace: Trace, zero: int, first: dict[str, Any]) -> bytes:
    """All before the events, and the first of them: every other one brings its comma."""
    description: dict[str, Any] = {"schema": SCHEMA, "zero_ns": zero, **about(trace)}
    base = None if trace.origin_utc_ns is None else trace.origin_utc_ns + zero
    known = f'"baseTimeNanoseconds":{base},' if base is not None else ""
    head = f'{{"traceviz":{text(description)},{known}"displayTimeUnit":"ns","traceEvents":[\n{text(first)}'
    return head.encode()
