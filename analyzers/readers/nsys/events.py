"""NVTX ranges, synchronizations and event records from an nsys export."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from analyzers.arrays.arrow import numbered
from analyzers.arrays.names import Names
from analyzers.arrays.types import Ids, Ints
from analyzers.readers.nsys.about import LOW_24, THREAD_BITS, Processes
from analyzers.readers.nsys.file import NO_TIME, NsysFile
from analyzers.trace.schemas import SYNC_KINDS, Calls, Ranges, Records, Syncs
from analyzers.trace.sizes import MAX_SIZES, sizes_number
from analyzers.trace.table import number

NVTX = "NVTX_EVENTS"
SYNC = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
EVENT_RECORDS = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
PUSH_POP, START_END, DOMAIN_CREATE = 59, 60, 75
NO_ID = (1 << 32) - 1  # how a 32-bit "none" is exported
SYNC_CALLS = {
    "stream": ("cudaStreamSynchronize", "cuStreamSynchronize"),
    "event": ("cudaEventSynchronize", "cuEventSynchronize"),
    "device": ("cudaDeviceSynchronize", "cuCtxSynchronize"),
    "stream_wait": ("cudaStreamWaitEvent", "cuStreamWaitEvent"),
}
CALLS, KERNELS, RANGES = "CUDA calls", "kernels", "NVTX ranges"  # what has names in `StringIds`
CODED_AT_ONCE = 1_000_000  # rows of which the texts are numbered at a time: the numbers take 8 times as much as codes
QUERIES = ("cudaEventQuery", "cuEventQuery", "cudaStreamQuery", "cuStreamQuery")


class ExportedRanges(Ranges):
    """Ranges with the row of each in the export."""

    row: Ints = number("int64", -1)

    def without_rows(self) -> Ranges:
        """As the Trace has them."""
        return Ranges({name: values for name, values in self.columns.items() if name != "row"}, len(self))


def read_ranges(file: NsysFile, names: StringIds, processes: Processes) -> ExportedRanges:
    """NVTX push/pop and start/end ranges; one never closed ends at `NO_TIME`."""
    raw = file.ints(
        NVTX,
        {
            "start_ns": file.time(NVTX, "start"),
            "end_ns": file.time(NVTX, "end"),
            "thread": file.column(NVTX, "globalTid"),
            "text": file.column(NVTX, "textId"),
            "domain": file.column(NVTX, "domainId", missing="0"),
            "row": "rowid",
        },
        where=f"eventType IN ({PUSH_POP}, {START_END})" if file.has(NVTX, "eventType") else "",
    )
    owner = raw.pop("thread")
    rows = raw.pop("row")
    name, sizes = _range_texts(file, names, raw.pop("text"), rows)
    domain = _domains(file, names, owner >> THREAD_BITS, raw.pop("domain"))
    ranges = {"process": processes.number(owner), "thread": owner & LOW_24, "name": name, "domain": domain, **raw}
    return ExportedRanges.of({**ranges, "sizes": sizes, "row": rows})


def _range_texts(file: NsysFile, names: StringIds, numbers: Ints, rows: Ints) -> tuple[Any, Ints]:
    """Each range's name, and the number of the sizes in its text."""
    registered = names.column(numbers, what=RANGES, may_lack=True)
    code, texts = registered.codes, list(registered.texts)
    if file.has(NVTX, "text"):
        where, literals = file.texts(NVTX, '"text"', '"text" IS NOT NULL')
        if where.size:
            position = np.minimum(np.searchsorted(where, rows), where.size - 1)
            code = np.where(
                where[position] == rows, literals.codes[position].astype(np.int64) + len(texts), code
            )  # narrow
            texts += literals.texts
    of_text = np.array([range_sizes(text) for text in texts] or [-1], np.int64)
    return merged(code, [range_name(text) for text in texts]).used(), of_text[code]


def _domains(file: NsysFile, names: StringIds, process: Ints, domain: Ints) -> Any:
    known: dict[tuple[int, int], str] = {}
    if file.has(NVTX, "eventType", "domainId", "globalTid"):
        text = '"text"' if file.has(NVTX, "text") else "NULL"
        known = {
            (owner, number): str(literal) if literal is not None else names.text(registered)
            for owner, number, literal, registered in file.rows(
                f"SELECT globalTid >> {THREAD_BITS}, domainId, {text}, {file.column(NVTX, 'textId')} "
                f"FROM {file.stored(NVTX)} WHERE eventType = {DOMAIN_CREATE}"
            )
        }
    (owner, owners), (number, numbers) = numbered(process), numbered(domain)
    texts = [known.get((key, one), "") for key in owners for one in numbers]
    return merged(owner * len(numbers) + number, texts)


def read_syncs(file: NsysFile, processes: Processes) -> Syncs:
    """Rows of the synchronization table; `kind` is not final before `name_syncs`."""
    raw = file.ints(
        SYNC,
        {
            "start_ns": file.time(SYNC, "start"),
            "end_ns": file.time(SYNC, "end"),
            "context": file.column(SYNC, "contextId"),
            "stream": file.column(SYNC, "streamId"),
            "correlation": file.column(SYNC, "correlationId"),
            "event": file.column(SYNC, "eventId"),
            "event_sync": file.column(SYNC, "eventSyncId"),
            "owner": file.column(SYNC, "globalPid"),
        },
    )
    owner = raw.pop("owner")
    stream, event = _id(raw.pop("stream")), _id(raw.pop("event"))
    # What it waits for shows in which ids are set. The export's own syncType is shifted in some versions: 2023.4 calls
    # a stream wait a stream synchronize, 2025.3 the other way round.
    kind = np.select([(stream >= 0) & (event >= 0), stream >= 0, event >= 0], [3, 0, 1], 2).astype(np.int8)
    known = {"stream": stream, "event": event, "event_sync": _id(raw["event_sync"]), "kind": Names(kind, SYNC_KINDS)}
    return Syncs.of({**raw, "process": processes.number(owner), **known})


def name_syncs(syncs: Syncs, calls: Ids, api: Calls) -> Syncs:
    """Correct `kind` by the call each sync was made in, and leave out polls, which never wait.

    Parameters
    ----------
    calls : row in `api` of each sync's call, -1 where the export lacks it.
    """
    kind, seen = np.array(syncs.kind.codes), np.flatnonzero(calls >= 0)
    made = api.name.take(calls[seen])
    for name, texts in SYNC_CALLS.items():
        kind[seen[made.is_one_of(texts)]] = SYNC_KINDS.index(name)
    waits = np.ones(len(syncs), bool)
    waits[seen[made.is_one_of(QUERIES)]] = False
    return syncs.having(kind=Names(kind, SYNC_KINDS)).take(waits)


def read_records(file: NsysFile, processes: Processes) -> Records:
    """Event records."""
    raw = file.ints(
        EVENT_RECORDS,
        {
            "context": file.column(EVENT_RECORDS, "contextId"),
            "stream": file.column(EVENT_RECORDS, "streamId"),
            "correlation": file.column(EVENT_RECORDS, "correlationId"),
            "event": file.column(EVENT_RECORDS, "eventId"),
            "event_sync": file.column(EVENT_RECORDS, "eventSyncId"),
            "owner": file.column(EVENT_RECORDS, "globalPid"),
        },
    )
    owner = raw.pop("owner")
    raw = {**raw, "event": _id(raw["event"]), "event_sync": _id(raw["event_sync"])}
    return Records.of({"process": processes.number(owner), **raw})


def _id(values: Ints) -> Ints:
    return np.where(values == NO_ID, -1, values)


def close_ranges(ranges: ExportedRanges, last_ns: int) -> tuple[ExportedRanges, int]:
    """End ranges that were never closed at the capture's end; also how many there were."""
    still_open = ranges.end_ns == NO_TIME
    if not still_open.any():
        return ranges, 0
    closed = np.where(still_open, np.maximum(last_ns, ranges.start_ns), ranges.end_ns)
    return ranges.having(end_ns=closed), int(still_open.sum())


# Names in an nsys export: text kept once in StringIds, referred to by number.

# cudaStreamSynchronize_v3020, cuMemcpyHtoDAsync_v2_ptsz: which version was called, and which default stream it means
_SUFFIX = re.compile(r"(_v\d+|_ptsz|_ptds)+$")
# What torch.autograd.profiler.emit_nvtx adds to an operator's name: it differs from call to call.
_OF_ONE_CALL = re.compile(r", (seq|op_id) = -?\d+(, (seq|op_id|sizes|input_op_ids) = .*)?$", re.DOTALL)
_SIZES = re.compile(r", sizes = (\[[][0-9, ]*\])")


def call_name(name: str) -> str:
    """A CUDA call's name without its version.

    >>> call_name("cudaStreamSynchronize_v3020"), call_name("cuMemcpyHtoDAsync_v2_ptsz"), call_name("cuLaunchKernelEx")
    ('cudaStreamSynchronize', 'cuMemcpyHtoDAsync', 'cuLaunchKernelEx')
    """
    return _SUFFIX.sub("", name)


def range_name(text: str) -> str:
    """A range's text without what `emit_nvtx` adds to it for one call: all calls are occurrences of one range.

    >>> range_name("aten::embedding_bag, seq = 45440, op_id = 990760"), range_name("step 3, seq 4")
    ('aten::embedding_bag', 'step 3, seq 4')
    """
    return _OF_ONE_CALL.sub("", text)


def range_sizes(text: str) -> int:
    """The number of the sizes that `emit_nvtx(record_shapes=True)` wrote into a range's text; -1 where it wrote none.

    >>> range_sizes("aten::mm, op_id = 7, sizes = [[8, 16], [16, 4]]") == sizes_number([8, 16, 16, 4])
    True
    """
    found = _OF_ONE_CALL.search(text)
    sizes = _SIZES.search(found[0]) if found else None
    return sizes_number([int(size) for size in re.findall("[0-9]+", sizes[1])[:MAX_SIZES]]) if sizes else -1


def merged(codes: Any, texts: Sequence[str]) -> Any:
    """A categorical of codes into texts of which some may be alike."""
    categories = list(dict.fromkeys(texts))
    code_of = {text: code for code, text in enumerate(categories)}
    return Names(np.array([code_of[text] for text in texts], np.int32)[codes], categories)


def kernel_name(name: str) -> str:
    """A kernel's demangled name as everybody but nsys spells it.

    >>> kernel_name("void at::native::<unnamed>::copy<float>(float *)")
    'void at::native::(anonymous namespace)::copy<float>(float *)'
    """
    return name.replace("<unnamed>", "(anonymous namespace)")


class StringIds:
    """The texts of an export by their number."""

    def __init__(self, file: NsysFile) -> None:
        self._texts = {int(number): str(text) for number, text in file.select("StringIds", "id", "value")}
        self.lost: Counter[str] = Counter()  # by what was named: how many rows have the number of no text

    def text(self, number: int) -> str:
        """The text of one number, "" where there is none."""
        return self._texts.get(number, "")

    def column(
        self,
        numbers: Any,
        change: Callable[[str], str] = str,
        more: Mapping[int, str] | None = None,
        *,
        what: str,
        may_lack: bool = False,
    ) -> Names:
        """The texts of many numbers, each first put through `change`; a number without text is "", and counted.

        Parameters
        ----------
        more : texts of numbers that are in no table.
        what : is named, in words, for `lost`.
        may_lack : whether a row may have no number at all (-1).
        """
        known, code_of = more or {}, dict[str, int]()
        parts = [np.empty(0, np.int8)]
        for start in range(0, len(numbers), CODED_AT_ONCE):
            codes, distinct = numbered(numbers[start : start + CODED_AT_ONCE])
            texts = [known[number] if number in known else change(self.text(number)) for number in distinct]
            nowhere = [number not in known and number not in self._texts for number in distinct]
            if may_lack:
                nowhere = [each and number >= 0 for each, number in zip(nowhere, distinct, strict=True)]
            if any(nowhere):
                self.lost[what] += int(np.count_nonzero(np.array(nowhere)[codes]))
            of_text = [code_of.setdefault(text, len(code_of)) for text in texts]
            parts.append(np.array(of_text, np.min_scalar_type(-len(code_of)))[codes])
        return Names(np.concatenate(parts), list(code_of))
