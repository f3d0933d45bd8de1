"""What an nsys export lacks, lost, or holds that the reader could not use."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from analyzers.arrays.groups import distinct
from analyzers.common.errors import TraceWarning
from analyzers.common.wording import count_of, numbers_in_words
from analyzers.readers.nsys.about import LOW_24
from analyzers.readers.nsys.events import CALLS, KERNELS, NVTX, RANGES
from analyzers.readers.nsys.file import NsysFile
from analyzers.trace.schemas import Ops
from analyzers.trace.tables import Process
from analyzers.trace.unread import UNKNOWN_WORK

OPS = "GPU ops"
_LOST = re.compile(r"incomplete|dropped|lost|overflow|out of memory", re.IGNORECASE)
WARNING, SEVERE = 2, 3  # DIAGNOSTIC_EVENT severities
EVERYBODY = 0  # the process of a DIAGNOSTIC_EVENT about the capture as a whole
FIRST_STOP = "The first rank that calls cudaProfilerStop ends a one-report capture for all ranks."
MIN_EARLY_END = 0.05  # of the capture's span: a process whose GPU work ends earlier than this was probably cut off


class Loss(msgspec.Struct, frozen=True):
    """What could not be used: what to warn of, and the reason that verdicts give; "" where they don't rest on it.

    of_ranges : whether only those do that pick a side by ranges.
    """

    warning: TraceWarning
    why: str = ""
    of_ranges: bool = False


def missing(file: NsysFile, tables: Mapping[str, Any]) -> tuple[str, ...]:
    """What this capture cannot answer, and how the next one can."""
    has = {name: len(one) > 0 for name, one in tables.items()}
    records_events = tables["api"].name.is_one_of(("cudaEventRecord", "cudaEventRecordWithFlags")).any()
    linked = file.has("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "eventSyncId")
    lacks = (
        ("CUDA calls, and so which range launched what (--trace=cuda)", not has["api"]),
        ("NVTX ranges (--trace=cuda,nvtx, and ranges in the program)", not has["ranges"]),
        ("which stream recorded which event (--cuda-event-trace=true)", not has["records"] and records_events),
        ("exact links from a recorded event to the wait for it (nsys 2024.2 or newer)", has["records"] and not linked),
        ("what CUDA synchronizations waited for", has["api"] and not has["syncs"]),
    )
    return tuple(text for text, is_missing in lacks if is_missing)


def diagnosed(file: NsysFile, working: set[int]) -> Iterator[TraceWarning]:
    """What nsys noted of its own work that is more than progress.

    Parameters
    ----------
    working : ids of the processes with GPU work: of others, such as a launcher, nsys collects nothing anyway.
    """
    source = "DIAGNOSTIC_EVENT"
    if not file.has(source, "text"):
        return
    owners: dict[str, set[int]] = {}
    counts, doubts, doubted = Counter[str](), dict[str, None](), set[int]()
    severity, owner = file.column(source, "severity"), file.column(source, "globalPid")
    for row, level, key in file.rows(f"SELECT text, {severity}, {owner} >> 24 FROM {source}"):
        text, process = str(row).strip(), key & LOW_24
        if level >= SEVERE or _LOST.search(text):
            first = text.split(". ")[0].strip()
            number = re.search(r"\d+", first)
            what = re.sub(r":?\s*\d+", "", first, count=1).rstrip(".")
            owners.setdefault(what, set()).add(process)
            counts[what] += int(number[0]) if number else 0
        elif level >= WARNING and process in {*working, EVERYBODY}:
            doubts[text.rstrip(".")] = None
            doubted.add(process)
    for what, processes in owners.items():
        count = f": {counts[what]}" if counts[what] else ""
        text = f"nsys says of {numbers_in_words(processes, 'process')}: {what}{count}."
        yield TraceWarning("dropped-events", f"{text} Work at the capture's edge may be missing.")
    if doubts:
        known = sorted(doubted - {EVERYBODY})
        whom, texts = f" of {numbers_in_words(known, 'process')}" if known else "", "; ".join(doubts)
        end = "" if texts.endswith("?") else "."
        yield TraceWarning("nsys-warns", f"nsys warns{whom}: {texts}{end} What it did not collect is in no figure.")


def cut_off(ops: Ops, processes: Sequence[Process], contexts: set[int]) -> Iterator[TraceWarning]:
    """Ranks that the first cudaProfilerStop of a one-report capture ended early, or kept out altogether.

    Parameters
    ----------
    contexts : ids of the processes that had a CUDA context, whether or not they did any GPU work.
    """
    working = distinct(ops.process[ops.kind.is_one_of(("kernel", "graph"))]).tolist()
    if not working:
        return
    having_ops = {processes[index].pid for index in distinct(ops.process).tolist()}
    for code, those, text in (
        (
            "no-kernels",
            contexts & having_ops - {processes[index].pid for index in working},
            "copies or memsets, but no kernel",
        ),
        ("no-gpu-work", contexts - having_ops, "a CUDA context, but no GPU work"),
    ):
        if those:
            who = numbers_in_words(sorted(those), "Process")
            yield TraceWarning(code, f"{who}: {text} in this capture. {FIRST_STOP}")
    ends = {index: int(ops.end_ns[ops.process == index].max()) for index in working}
    last, span = max(ends.values()), int(ops.end_ns.max()) - int(ops.start_ns.min())
    gaps = [
        f"process {processes[index].pid} by {(last - end) / 1e6:.1f} ms"
        for index, end in ends.items()
        if last - end > MIN_EARLY_END * span
    ]
    if gaps:
        yield TraceWarning("uneven-ends", f"GPU work ends before the last rank's: {', '.join(gaps)}. {FIRST_STOP}")


def not_read(file: NsysFile, ranges: int) -> dict[str, int]:
    """Rows that say when something was and that were not used, by table.

    Parameters
    ----------
    ranges : how many NVTX ranges were read: the table's other rows are marks, names of domains, and the like.
    """
    others = file.most_rows(NVTX) - ranges
    return {**file.unused(), **({f"other rows of {NVTX}": others} if others > 0 else {})}


def unknown_work(file: NsysFile, unused: Mapping[str, int]) -> Iterator[Loss]:
    """Tables that may hold work of GPUs and are not known."""
    found = ", ".join(f"{count:,} rows of {name}" for name, count in unused.items() if file.may_be_of_gpus(name))
    if found:
        text = (
            f"The export holds what may be GPU work in tables that are not known: {found}. It is in no figure. "
            "Export the report with another version of nsys, or report this."
        )
        yield Loss(TraceWarning(UNKNOWN_WORK, text), found)


def without_times(lost: Mapping[str, int], absurd: Mapping[str, int]) -> Iterator[Loss]:
    """Rows left out because they say no times, or such as can't be, by what they are of."""
    for code, left, reason in (
        ("no-times", lost, "have no start or end"),
        ("absurd-times", absurd, "last over a day or lie a day apart from the others"),
    ):
        if left:
            counts = ", ".join(f"{count:,} {what}" for what, count in left.items())
            why = f"{count_of(left[OPS], 'GPU op')} without usable times" if left.get(OPS) else ""
            yield Loss(TraceWarning(code, f"left out, because they {reason}: {counts}."), why)


def lost_names(lost: Mapping[str, int]) -> Iterator[Loss]:
    """Rows whose names the export lacks, by what was named."""
    for what, code, so in (
        (KERNELS, "names-lost", "which of them communicate"),
        (RANGES, "range-names-lost", "which work is theirs"),
        (CALLS, "call-names-lost", "what they launched or waited for"),
    ):
        if count := lost.get(what):
            text = f"The names of {count:,} {what} are not in the export (StringIds lacks them): {so} can't be told."
            why = "" if what == CALLS else f"the names of {count:,} {what} are not in the export"
            yield Loss(TraceWarning(code, text), why, of_ranges=what == RANGES)
