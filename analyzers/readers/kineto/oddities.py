"""What is odd in a Kineto trace, and what it lacks: what can't be true is left out, and all of it is said."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import rows_by_key
from analyzers.common.errors import TraceWarning
from analyzers.common.wording import count_of
from analyzers.ordering.calls import call_kind
from analyzers.readers.json_mend import HINT_ESCAPE
from analyzers.readers.kineto.events import Batch, Broken, FileEvents, Rows, whole
from analyzers.readers.kineto.kineto_tables import SYNC_KINDS_OF
from analyzers.readers.kineto.vendors import Raw, Vendor
from analyzers.trace.overhead import KINETO, with_overhead
from analyzers.trace.tables import Trace
from analyzers.trace.unread import UnreadWork, noted, with_unread

DAY_NS = 24 * 3600 * 10**9
MOST_KINDS = 5  # of events that are named
_MOST_FRONT = 60  # letters of what stood before the JSON that are shown
_NO_NAME = re.compile(r"[\W_]*(?:unknown(?:[\W_]+kernel)?[\W_]*)?", re.IGNORECASE)
_USUAL = "stfM"  # phases of arrows, which say what correlation ids say, and of names
# Categories of what is no work of a device; those of other host runtimes end in "_runtime" or "_driver".
_NO_WORK = ("", "Trace", "overhead", "gpu_user_annotation", "cuda_event", "cuda_profiler_range", "external_correlation")
_COUNTED_RANGES = (  # so that nothing overlapped in them
    "what GPU counters say of overlap: CUPTI counted ranges, which it runs one at a time (nsys samples them)"
)


def leave_out_absurd(events: FileEvents) -> list[TraceWarning]:
    """Leave out events with times or of kinds that can't be, in place; say how many, and how many could not be read."""
    batch = events.batch
    warnings = _about_broken(events.broken, batch.events)
    if absurd := _leave_out_far(batch):
        text = f"{absurd:,} events end before they start, last over a day or lie a day apart from the others"
        warnings.append(TraceWarning("absurd-times", f"{text}; they are left out."))
    if batch.unreadable:
        text = f"{batch.unreadable:,} of {batch.events:,} events have no readable name, thread or time"
        warnings.append(TraceWarning("unreadable-events", f"{text}; they are left out."))
    syncs = batch.rows["sync"]
    if unknown := sorted({head.name for head in syncs.heads.values()} - {*SYNC_KINDS_OF}):
        batch.rows["sync"] = syncs.having(lambda head: head.name in SYNC_KINDS_OF)
        text = f"synchronization records of unknown kind are left out: {', '.join(unknown)}."
        warnings.append(TraceWarning("unknown-sync", text))
    return warnings


def described(trace: Trace, raw: Raw, events: FileEvents, vendor: Vendor) -> Trace:
    """A trace of one capture with what it lacks, what was not used of it, and warnings of what is odd."""
    spans = raw.rows["span"]
    (capture,) = trace.captures
    lacks = _lacks(trace, vendor, has_shapes=whole(events.header.get("record_shapes")) not in (-1, 0))
    if any(head.category == "cuda_profiler_range" for head in spans.heads.values()):
        lacks += (_COUNTED_RANGES,)
    unused = _not_used(events.batch.unused, spans)
    trace = replace(trace, captures=(replace(capture, lacks=lacks, unused=unused),))
    unread = events.batch.unread
    kinds = ", ".join(f"{count:,} {which}" for which, count in sorted(unread.items())[:MOST_KINDS])
    trace = with_unread(
        trace,
        UnreadWork(unread.total(), f"events that no reader here can use ({kinds})"),
        UnreadWork(events.broken.work, "events that are no valid JSON, and may be work of a GPU", HINT_ESCAPE),
        ranges=events.broken.ranges + events.batch.unread_ranges,
    )
    trace = _unknown_events(_nameless(trace), spans)
    ours = spans.having(lambda head: head.name in KINETO)
    trace = with_overhead(trace, ours.start - raw.zero, ours.start - raw.zero + ours.duration)
    return _unrecorded_waits(_ops_before_launches(trace), vendor)


def _about_broken(broken: Broken, whole: int) -> list[TraceWarning]:
    """Say what of a file is no valid JSON, and why; what is odd before the JSON and at its end costs no event."""
    found = []
    if count := broken.events.total():
        kinds = ", ".join(
            f"{events:,} of '{kind}'" if kind else f"{events:,} of unknown kind"
            for kind, events in broken.events.most_common(MOST_KINDS)
        )
        text = f"{count:,} of {whole + count:,} events are no valid JSON ({kinds}); they are left out. {HINT_ESCAPE}"
        found.append(TraceWarning("unreadable-events", text))
    if broken.section:
        all_read = f", as a text in it is not escaped: all {whole:,} events are read, but" if not count else ", either:"
        text = f"What stands beside the events is no valid JSON{all_read} versions, devices or the rank may be missing."
        found.append(TraceWarning("unreadable-section", text))
    if broken.front:
        shown = broken.front[:_MOST_FRONT] + ("…" if len(broken.front) > _MOST_FRONT else "")
        found.append(TraceWarning("unreadable-section", f"Text in front of the JSON is passed over: '{shown}'."))
    if broken.open_end:
        text = "The file's end is missing, a bracket or more: its events are all there, and read."
        found.append(TraceWarning("unreadable-section", text))
    return found


def _leave_out_far(batch: Batch) -> int:
    """Keep in each group what can be true; says how many others there were, without those kept for their times."""
    starts = np.concatenate([rows.start for group, rows in batch.rows.items() if group != "span"])
    middle = int(np.partition(starts, starts.size // 2)[starts.size // 2]) if starts.size else None
    absurd = 0
    for group, rows in batch.rows.items():
        center = rows.start if middle is None else middle
        fine = (rows.duration >= 0) & (rows.duration < DAY_NS) & (np.abs(rows.start - center) < DAY_NS)
        if not fine.all():
            left_out = 0 if group == "span" else int(np.count_nonzero(~fine))
            absurd += left_out
            if group == "op" and left_out:
                batch.unread["of GPU work with times that can't be"] += left_out
            batch.rows[group] = rows[np.flatnonzero(fine)]
    return absurd


def _not_used(phases: Counter[str], spans: Rows) -> dict[str, int]:
    """How many events of each kind the file holds that nothing here uses: arrows and names of processes apart."""
    found = Counter({f"events in phase '{phase}'": count for phase, count in phases.items() if phase not in _USUAL})
    for head, count in spans.counts:
        if head.category and head.name not in KINETO:
            found[f"events of category '{head.category}'"] += count
    return dict(found)


def _nameless(trace: Trace) -> Trace:
    """Warn of kernels without a name: what they are can't be told, nor on which side they belong."""
    nameless = trace.ops.kind.is_one_of(("kernel",)) & trace.ops.name.matching(lambda name: not _is_name(name))
    if not nameless.any():
        return trace
    found = count_of(int(np.count_nonzero(nameless)), "kernel")
    text = f"The names of {found} are not in {trace.captures[0].path}: which of them communicate can't be told."
    return noted(trace, f"the names of {found} are not in the file").warn("names-lost", text)


def _is_name(text: str) -> bool:
    """Whether a text names a kernel.

    >>> [_is_name(text) for text in ("gemm", "unknown_gemm", "", " ", "[unknown]", "<unknown kernel>", "??")]
    [True, True, False, False, False, False, False]
    """
    return _NO_NAME.fullmatch(text) is None


def _unknown_events(trace: Trace, spans: Rows) -> Trace:
    """Warn of events of kinds that are not known here: they may be work of a device, and are in no figure."""
    found = Counter[str]()
    for head, count in spans.counts:
        if head.category not in _NO_WORK and not head.category.lower().endswith(("runtime", "driver")):
            found[head.category] += count
    if not found:
        return trace
    kinds = ", ".join(f"{count:,} of '{category}'" for category, count in sorted(found.items())[:MOST_KINDS])
    return trace.warn("unknown-events", f"Events of kinds that are not known here are in no figure: {kinds}.")


def _ops_before_launches(trace: Trace) -> Trace:
    """Warn of ops that start before their launch."""
    launched = np.flatnonzero(trace.ops.launch >= 0)
    called = trace.api.start_ns[trace.ops.launch[launched]]
    if not (before := int(np.count_nonzero(trace.ops.start_ns[launched] < called))):
        return trace
    text = f"{before:,} of the GPU ops in {trace.captures[0].path} start before the call that launched them"
    return trace.warn("op-before-launch", f"{text}: the clocks of host and device are apart by at least that much.")


def _unrecorded_waits(trace: Trace, vendor: Vendor) -> Trace:
    """Warn where streams were made to wait, and nothing says which of them waited: what torch.profiler does unasked."""
    if trace.syncs.kind.is_one_of(["stream_wait"]).any():
        return trace
    if not trace.api.name.matching(lambda name: "StreamWaitEvent" in name).any():
        return _only_launches(trace) if vendor.records_waits else trace
    if not vendor.records_waits:
        return trace.warn(
            "waits-not-recorded",
            f"The capture records neither which stream waits nor for what, and no profiler of {vendor.runtime} "
            "does: no missing wait can be told, and a full GPU not from a wait.",
        )
    return trace.warn(
        "waits-not-recorded",
        "The capture does not record which stream waits for what: that is inferred from the order of calls and from "
        "times, no missing wait can be told, and a full GPU not from a wait. To record it: profile(..., experimental_"
        "config=torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True)).",
    )


def _only_launches(trace: Trace) -> Trace:
    """Where host calls were left out but for launches, that no stream waits on record does not say that none did.

    torch.profiler itself synchronizes the device, so a capture of several streams without any call that records, waits
    or synchronizes was cut down after it was written, as published profiles are.
    """
    names = [name for name in trace.api.name.texts if name]
    if not names or any(map(call_kind, names)) or len(trace.syncs):
        return trace
    if len(rows_by_key(trace.ops.process, trace.ops.device, trace.ops.stream)) < 2:
        return trace
    captures = tuple(replace(one, waits_logged=False) for one in trace.captures)
    return replace(trace, captures=captures).warn(
        "waits-not-recorded",
        "The capture holds launches alone, no call that records, waits or synchronizes: no missing wait can be told, "
        "and a full GPU not from a wait.",
    )


def _lacks(trace: Trace, vendor: Vendor, *, has_shapes: bool) -> tuple[str, ...]:
    """What the capture cannot answer, in words."""
    kinds = {kind: bool(trace.ranges.kind.is_one_of([kind]).any()) for kind in ("op", "annotation", "python")}
    waits = trace.syncs.kind.is_one_of(["stream_wait"])
    unlinked = waits.any() and not (trace.syncs.record_correlation[waits] >= 0).any()
    missing = (
        (f"{vendor.runtime} calls (what launched each op, what the host waited for)", not len(trace.api)),
        ("operators (cpu_op)", not kinds["op"]),
        ("annotations (record_function)", not kinds["annotation"]),
        ("synchronization records (enable_cuda_sync_events=True)", vendor.records_waits and not len(trace.syncs)),
        ("links from a stream's wait to its event record", bool(unlinked)),
        ("tensor shapes (record_shapes=True)", not has_shapes),
        ("call stacks (with_stack=True)", not kinds["python"]),
    )
    return (*vendor.lacks(trace), *(what for what, is_missing in missing if is_missing))
