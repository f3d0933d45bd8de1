"""What NCCL says about its calls in the payload of their NVTX ranges: communicator, message size, peer.

nsys exports payloads as binary data (`--include-blobs`), as JSON (`--include-json`), or, by default, not at all.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analyzers.nsys_file import NsysFile
from analyzers.trace import Ints

NVTX = "NVTX_EVENTS"
HEADER = 32  # bytes before a binary payload: domain, schema, payload size, header size, each 8 bytes, little-endian
SCHEMA_AT = 8
FIELDS = {  # as NCCL names them -> our name and how many bytes it takes
    "NCCL communicator ID": ("communicator", 8),
    "Message size [bytes]": ("bytes", 8),
    "Peer rank": ("peer", 4),
    "No. of ranks": ("ranks", 4),
}


@dataclass(frozen=True)
class Payload:
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
        place = np.minimum(np.searchsorted(self.rows, rows), self.rows.size - 1)
        values: Ints = getattr(self, column)
        return np.where(self.rows[place] == rows, values[place], -1)


def read_payload(file: NsysFile) -> Payload:
    """Payloads of all NVTX ranges that have NCCL's fields."""
    rows, columns = _binary(file)
    if rows.size == 0:
        rows, columns = _json(file)
    return Payload(rows, *(columns[name] for name in ("communicator", "bytes", "peer", "ranks")))


def _empty(size: int) -> dict[str, Ints]:
    return {name: np.full(size, -1, np.int64) for name, _ in FIELDS.values()}


def _binary(file: NsysFile) -> tuple[Ints, dict[str, Ints]]:
    schemas = _schemas(file)
    if not schemas or not file.has(NVTX, "binaryData"):
        return np.empty(0, np.int64), _empty(0)
    sql = 'CASE typeof("binaryData") WHEN \'text\' THEN "binaryData" ELSE hex("binaryData") END'
    rows, texts = file.texts(NVTX, sql, '"binaryData" IS NOT NULL')
    blobs = [_bytes(text) for text in texts.categories]
    values = _empty(len(blobs))
    lengths = np.array([len(blob) for blob in blobs], np.int64)
    for length in np.unique(lengths[lengths >= HEADER]):
        those = np.flatnonzero(lengths == length)
        data = np.frombuffer(b"".join(blobs[index] for index in those), np.uint8).reshape(those.size, length)
        of_schema = _field(data, SCHEMA_AT, 4)
        for schema in np.unique(of_schema):
            chosen = of_schema == schema
            for name, offset, size in schemas.get(int(schema), []):
                if HEADER + offset + size <= length:
                    values[name][those[chosen]] = _field(data[chosen], HEADER + offset, size)
    codes = texts.codes
    return rows, {name: column[codes] for name, column in values.items()}


def _bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


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
    values = _empty(len(texts.categories))
    for index, text in enumerate(texts.categories):
        for name, value in _said(text).items():
            if name in FIELDS and isinstance(value, int):
                values[FIELDS[name][0]][index] = np.uint64(value % (1 << 64)).astype(np.int64)
    return rows, {name: column[texts.codes] for name, column in values.items()}


def _said(text: str) -> dict[str, object]:
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}
