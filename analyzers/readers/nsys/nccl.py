"""Communication calls in an nsys export: NCCL's NVTX ranges, joined to the GPU work they launched.

A call launches its kernel inside its own range, or, between ncclGroupStart and ncclGroupEnd, inside the outermost
ncclGroupEnd that follows: there, several calls may share one kernel.
"""

from __future__ import annotations

import json
from contextlib import suppress

import msgspec
import numpy as np
import numpy.typing as npt

from analyzers.arrays.groups import label, rows_by_key, runs
from analyzers.arrays.types import Ints
from analyzers.readers.nsys.events import ExportedRanges
from analyzers.readers.nsys.file import NsysFile
from analyzers.trace.kernels import is_communication_kernel, operation_of
from analyzers.trace.schemas import Calls, CommunicationCalls, Ops

DOMAINS = ("NCCL", "")  # "" where the export does not tell domains apart
GROUP_START, GROUP_END = "ncclGroupStart", "ncclGroupEnd"


def read_comms(ranges: ExportedRanges, payload: Payload, ops: Ops, api: Calls) -> CommunicationCalls:
    """One row a call and launched op; `correlation` is -1 where the capture does not tell which op is the call's."""
    ours = ranges.domain.is_one_of(DOMAINS)
    is_call = ours & ranges.name.matching(lambda name: name.startswith("nccl") and operation_of(name) != "")
    opens, closes = (ours & ranges.name.is_one_of([name]) for name in (GROUP_START, GROUP_END))
    if not is_call.any():
        return CommunicationCalls.of()
    starts, ends = ranges.start_ns, ranges.end_ns
    communicator = payload.at(ranges.row, "communicator")
    launched, nothing = _launches(ops, api), np.empty(0, np.int64)
    found: list[tuple[Ints, Ints]] = []
    for lane, those in rows_by_key(ranges.process, ranges.thread).items():
        at, correlation = launched.get(lane, (nothing, nothing))
        own = those[is_call[those]]
        own = own[np.argsort(starts[own], kind="stable")]
        first, count = _inside(at, starts[own], ends[own])
        inside, which = runs(first, count)
        found.append((own[which], correlation[inside]))
        rest = own[count == 0]
        groups = _Groups(starts, ends, those[opens[those]], those[closes[those]])
        found.append((rest, groups.correlations(rest, communicator[rest], at, correlation)))
    row, correlation = (np.concatenate(column) for column in zip(*found, strict=True))
    order = np.lexsort((correlation, starts[row], ranges.process[row]))
    row = row[order]
    calls = ranges.take(row)
    return CommunicationCalls.of(
        {
            **{name: getattr(calls, name) for name in ("process", "thread", "start_ns", "end_ns")},
            "operation": calls.name.used(),
            "correlation": correlation[order],
            "bytes": payload.at(calls.row, "bytes"),
            "communicator": communicator[row],
            "peer": payload.at(calls.row, "peer"),
            "group_size": _group_sizes(payload, communicator[row]),
        }
    )


def _launches(ops: Ops, api: Calls) -> dict[tuple[int, ...], tuple[Ints, Ints]]:
    """Per (process, thread): launch times of communication, ascending, and their correlation ids.

    Kernels by name; copies too, since NCCL may move data by copy engine.
    """
    may_communicate = ops.name.matching(is_communication_kernel) | ops.kind.is_one_of(["memcpy"])
    launched = np.flatnonzero((ops.launch >= 0) & may_communicate)
    calls = ops.launch[launched]
    at, correlation = api.start_ns[calls], ops.correlation[launched]
    result = {}
    for lane, those in rows_by_key(api.process[calls], api.thread[calls]).items():
        order = those[np.argsort(at[those], kind="stable")]
        result[lane] = (at[order], correlation[order])
    return result


def _inside(at: Ints, starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    first = np.searchsorted(at, starts, side="left")
    return first, np.searchsorted(at, ends, side="right") - first


class _Groups:
    """The ncclGroupEnd calls of one thread that really end a group, and what they launch."""

    def __init__(self, starts: Ints, ends: Ints, opened: Ints, closed: Ints) -> None:
        self._starts, self._ends = starts, ends
        closed = closed[np.argsort(starts[closed], kind="stable")]
        at = np.concatenate([starts[opened], starts[closed]])
        order = np.argsort(at, kind="stable")
        change = np.concatenate([np.ones(opened.size, np.int64), -np.ones(closed.size, np.int64)])[order]
        depth = np.cumsum(change)
        # a capture that begins inside a group sees its end alone: depth starts again from there
        depth -= np.minimum.accumulate(np.minimum(depth, 0))
        after = depth[change < 0]
        self._depth_at, self._depth = at[order], depth
        self.closing = closed[after == 0] if closed.size else closed

    def correlations(self, calls: Ints, communicator: Ints, at: Ints, correlation: Ints) -> Ints:
        """Correlation id of the op each call's group launched for it, -1 where that can't be told."""
        result = np.full(calls.size, -1, np.int64)
        if calls.size == 0 or self.closing.size == 0:
            return result
        depth_row = np.searchsorted(self._depth_at, self._starts[calls], side="right") - 1
        within = (depth_row >= 0) & (self._depth[np.maximum(depth_row, 0)] > 0)
        group = np.searchsorted(self._starts[self.closing], self._starts[calls], side="left")
        known = np.flatnonzero(within & (group < self.closing.size))
        group = group[known]
        first, count = _inside(at, self._starts[self.closing], self._ends[self.closing])
        chosen = _share(group, communicator[known], count[group])
        useful = chosen >= 0
        result[known[useful]] = correlation[first[group[useful]] + chosen[useful]]
        return result


def _share(group: Ints, communicator: Ints, launched: Ints) -> Ints:
    """Which of its group's launches serves each call: the only one, or by order, or one a communicator; else -1."""
    if group.size == 0:
        return group
    _, head, size = np.unique(group, return_index=True, return_counts=True)
    position = np.arange(group.size) - np.repeat(head, size)
    pairs = label(group, communicator)
    of_communicator = pairs - np.repeat(pairs[head], size)
    communicators = np.repeat(np.maximum.reduceat(of_communicator, head) + 1, size)
    calls = np.repeat(size, size)
    return np.select(
        [launched == 1, launched == calls, (launched == communicators) & (communicator != -1)],
        [np.zeros_like(group), position, of_communicator],
        -1,
    )


def _group_sizes(payload: Payload, communicator: Ints) -> Ints:
    """Ranks in each call's communicator, -1 where the capture did not see it created."""
    made = payload.ranks > 0
    sizes = dict(zip(payload.communicator[made].tolist(), payload.ranks[made].tolist(), strict=True))
    distinct, number = np.unique(communicator, return_inverse=True)
    return np.array([sizes.get(one, -1) for one in distinct.tolist()] or [-1], np.int64)[number]


# What NCCL says about its calls in the payload of their NVTX ranges: communicator, message size, peer.
#
# nsys exports payloads as binary data (`--include-blobs`), as JSON (`--include-json`), or, by default, not at all.

NVTX = "NVTX_EVENTS"
PAYLOAD_HEADER_BYTES = 32  # domain, schema, payload size, header size, each 8 bytes, little-endian
SCHEMA_AT = 8
FIELDS = {  # as NCCL names them -> our name and how many bytes it takes
    "NCCL communicator ID": ("communicator", 8),
    "Message size [bytes]": ("bytes", 8),
    "Peer rank": ("peer", 4),
    "No. of ranks": ("ranks", 4),
}


class Payload(msgspec.Struct, frozen=True):
    """Columns by NVTX row; -1 where the payload lacks a field. Communicators are 64-bit ids as signed numbers."""

    rows: Ints
    communicator: Ints
    bytes: Ints
    peer: Ints
    ranks: Ints

    def at(self, rows: Ints, column: str) -> Ints:
        """One column's values for any NVTX rows, -1 where a row has no payload."""
        if self.rows.size == 0:
            return np.full(rows.size, -1, np.int64)
        position = np.minimum(np.searchsorted(self.rows, rows), self.rows.size - 1)
        values: Ints = getattr(self, column)
        return np.where(self.rows[position] == rows, values[position], -1)


def read_payload(file: NsysFile) -> Payload:
    """Payloads of all NVTX ranges that have NCCL's fields."""
    rows, columns = _binary(file)
    if rows.size == 0:
        rows, columns = _json(file)
    return Payload(rows, **columns)


def _empty(size: int) -> dict[str, Ints]:
    return {name: np.full(size, -1, np.int64) for name, _ in FIELDS.values()}


def _binary(file: NsysFile) -> tuple[Ints, dict[str, Ints]]:
    schemas = _schemas(file)
    if not schemas or not file.has(NVTX, "binaryData"):
        return np.empty(0, np.int64), _empty(0)
    sql = 'CASE typeof("binaryData") WHEN \'text\' THEN "binaryData" ELSE hex("binaryData") END'
    rows, texts = file.texts(NVTX, sql, '"binaryData" IS NOT NULL')
    blobs = []
    for text in texts.texts:
        try:
            blobs.append(bytes.fromhex(text))
        except ValueError:
            blobs.append(b"")
    values = _empty(len(blobs))
    lengths = np.array([len(blob) for blob in blobs], np.int64)
    for length in np.unique(lengths[lengths >= PAYLOAD_HEADER_BYTES]):
        those = np.flatnonzero(lengths == length)
        data = np.frombuffer(b"".join(blobs[index] for index in those), np.uint8).reshape(those.size, length)
        of_schema = _field(data, SCHEMA_AT, 4)
        for schema in np.unique(of_schema):
            chosen = of_schema == schema
            for name, offset, size in schemas.get(int(schema), []):
                if PAYLOAD_HEADER_BYTES + offset + size <= length:
                    values[name][those[chosen]] = _field(data[chosen], PAYLOAD_HEADER_BYTES + offset, size)
    return rows, {name: column[texts.codes] for name, column in values.items()}


def _field(data: npt.NDArray[np.uint8], offset: int, size: int) -> Ints:
    kind = {4: "<i4", 8: "<i8"}[size]
    return np.ascontiguousarray(data[:, offset : offset + size]).view(kind)[:, 0].astype(np.int64)


def _schemas(file: NsysFile) -> dict[int, list[tuple[str, int, int]]]:
    """Schema id -> (our name, offset, size) of the fields we know."""
    source = "NVTX_PAYLOAD_SCHEMA_ENTRIES"
    if not file.has(source, "schemaId", "name", "offset"):
        return {}
    schemas: dict[int, list[tuple[str, int, int]]] = {}
    for schema, name, offset in file.rows(f'SELECT DISTINCT schemaId, name, coalesce("offset", 0) FROM {source}'):
        if name in FIELDS:
            ours, size = FIELDS[name]
            schemas.setdefault(int(schema), []).append((ours, int(offset), size))
    return schemas


def _json(file: NsysFile) -> tuple[Ints, dict[str, Ints]]:
    if not file.has(NVTX, "jsonText"):
        return np.empty(0, np.int64), _empty(0)
    rows, texts = file.texts(NVTX, '"jsonText"', "\"jsonText\" LIKE '%NCCL%' OR \"jsonText\" LIKE '%Message size%'")
    values = _empty(len(texts.texts))
    for index, text in enumerate(texts.texts):
        with suppress(ValueError, RecursionError):
            said = json.loads(text)
            for name, value in said.items() if isinstance(said, dict) else ():
                if name in FIELDS and isinstance(value, int):
                    values[FIELDS[name][0]][index] = np.uint64(value % (1 << 64)).astype(np.int64)
    return rows, {name: column[texts.codes] for name, column in values.items()}
