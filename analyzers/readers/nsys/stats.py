"""Read pasted output of `nsys stats --report cuda_gpu_trace` into a Trace.

Three forms, any line order, one row an op: the CSV with its header; the text table with its header, units row and
dashes; the table's rows alone, as `grep` leaves them. Columns of a headless row are counted from both ends: eleven
numbers stand before the device's name, which ends in its index, "NVIDIA H100 80GB HBM3 (3)"; then follow context and
stream (the stream may be printed as "-"), and the name. Kernels leave the memory columns empty, copies the launch ones.

One paste may hold several reports, each with its own zero, and rows do not say which: so each device is taken as a
capture of its own, and times across devices are only as good as the collectives that align them.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from analyzers.arrays.groups import first_of_each, label
from analyzers.common.errors import TracevizError, TraceWarning
from analyzers.common.progress import Progress, silent
from analyzers.readers.reading import READING, Reading
from analyzers.trace.columns import span
from analyzers.trace.schemas import Devices, Ops, Streams
from analyzers.trace.tables import Capture, Process, Trace

_NUMBER = r"-?[\d,]+(?:\.\d+)?"
# Start Duration CorrId, nine launch columns or four memory columns, Device (index), Ctx, perhaps GreenCtx, Strm, Name
_ROW = re.compile(
    rf"""^\s*(?P<start>{_NUMBER})\s+(?P<duration>{_NUMBER})\s+(?P<correlation>{_NUMBER})
    \s+(?P<middle>.*?)\s*
    (?P<device>[^\W\d][^()]*?(?:\([^\d)][^)]*\)[^()]*?)*)\s*\((?P<index>\d+)\)
    \s+(?P<context>\d+)(?:\s+\d+(?=\s+(?:\d+|-)\s))?(?:\s+(?P<stream>\d+|-))?\s+(?P<name>\S.*?)\s*$""",
    re.VERBOSE,
)
_HEADER = re.compile(r"^\s*Start\s*(\(\w+\)|:\w+)?\s*,?\s*Duration", re.IGNORECASE)
_NANOSECONDS = {"": 1, "ns": 1, "us": 1_000, "μs": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000,
                "nsec": 1, "usec": 1_000, "msec": 1_000_000, "sec": 1_000_000_000}  # fmt: skip
_BYTES = {"b": 1, "kb": 1_000, "mb": 1_000_000, "gb": 1_000_000_000, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_COPIES = {"Host-to-Device": "HtoD", "Device-to-Host": "DtoH", "Device-to-Device": "DtoD", "Peer-to-Peer": "PtoP",
           "HtoD": "HtoD", "DtoH": "DtoH", "DtoD": "DtoD", "PtoP": "PtoP", "P2P": "PtoP", "HtoH": "HtoH"}  # fmt: skip
_MEMORY = {"Pageable": "pageable", "Pinned": "pinned", "Device": "device", "Array": "array", "Managed": "managed"}
MOST_BYTES = 64 << 20
MOST_LETTERS = 20_000  # of a line; a demangled kernel's name may have thousands
MOST_BEFORE_NAME = 600  # letters in which a row's columns stand
_LARGEST = 2**62  # leaves room to add and subtract
_DEVICE = re.compile(r"(?P<name>.*?)\s*\((?P<index>\d+)\)\s*$")
_MEMORY_KINDS = ("SrcMemKd", "DstMemKd")
_LAUNCH = ("GrdX", "GrdY", "GrdZ", "BlkX", "BlkY", "BlkZ", "Reg/Trd", "StcSMem", "DymSMem")

Row = dict[str, Any]  # of `ops`, and its device's name


class _Units(msgspec.Struct, frozen=True):
    start: int = 1
    duration: int = 1
    shared: int = 1_000_000
    bytes: int = 1_000_000


def read(path: Path, _progress: Progress = silent, _: Reading = READING) -> Trace:
    """Read a pasted GPU trace: CSV or text table, with or without its header.

    Rank is the device's index (the "gpu" claim). Rows that repeat another one wholly are one op.

    Raises
    ------
    TracevizError : the file cannot be read, or holds no row of a GPU trace.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            hint = "Give the report itself, or its .sqlite export."
            raise TracevizError(f"is over {MOST_BYTES:,} bytes, more than anybody pastes.", path=path, hint=hint)
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise TracevizError(f"cannot be read: {error.strerror}.", path=path) from error
    rows, skipped = _rows(text)
    if not rows:
        hint = "Give the output of `nsys stats --report cuda_gpu_trace`, best with `--format csv`."
        raise TracevizError("holds no row of a GPU trace.", path=path, hint=hint)
    once = [*{tuple(row.values()): row for row in rows}.values()]
    return _trace(path, once, _warnings(once, len(rows) - len(once), skipped))


def _rows(text: str) -> tuple[list[Row], int]:
    """Rows of all tables in the text, and the number of lines that look like none."""
    rows: list[Row] = []
    skipped, lines = 0, text.splitlines()
    columns: list[str] = []
    units = _Units()
    for line in lines:
        if len(line) > MOST_LETTERS:
            skipped += 1
            continue
        if not line.strip() or set(line.strip()) <= set("-= "):
            continue
        if _HEADER.match(line):
            columns = next(csv.reader([line])) if "," in line else []
            units = _units(columns or re.findall(r"\S+\s?\([^)]*\)|\S+", line))
            continue
        found = (_row(_csv_row(line, columns), units) if columns else None) or _row(_text_row(line), units)
        if found:
            rows.append(found)
        elif re.match(r"^\s*[\d,]", line):  # others are what `nsys stats` prints around a table
            skipped += 1
    return rows, skipped


def _units(columns: Iterable[str]) -> _Units:
    found = {}
    for column in columns:
        match = re.match(r"\s*(?P<name>[^(:]+?)\s*(?:\((?P<unit>[^)]*)\)|:\w+_(?P<raw>\w+))", column)
        if match:
            found[match["name"].strip()] = (match["unit"] or match["raw"] or "").lower()
    return _Units(
        start=_NANOSECONDS.get(found.get("Start", ""), 1),
        duration=_NANOSECONDS.get(found.get("Duration", ""), 1),
        shared=_BYTES.get(found.get("DymSMem", "mb"), 1_000_000),
        bytes=_BYTES.get(found.get("Bytes", "mb"), 1_000_000),
    )


def _csv_row(line: str, columns: list[str]) -> dict[str, str]:
    values = next(csv.reader([line]))
    if len(values) < len(columns):
        return {}
    return {re.split("[(:]", column)[0].strip(): one.strip() for column, one in zip(columns, values, strict=False)}


def _text_row(line: str) -> dict[str, str]:
    """A line of the text table by the names of the CSV's columns; empty where it is no row."""
    line = " ".join(line.split())  # runs of blanks, and long lines that are no rows, take the pattern forever
    match = _ROW.match(line[:MOST_BEFORE_NAME])
    if not match:
        return {}
    middle, device = match["middle"].split(), match["device"].split()
    row = {
        "Start": match["start"],
        "Duration": match["duration"],
        "CorrId": match["correlation"],
        "Ctx": match["context"],
        "Strm": match["stream"] or "",
        "Name": line[match.start("name") :],
    }
    is_launch = len(middle) >= len(_LAUNCH)
    while device[0] in _MEMORY and len(device) > 1:  # the columns before the device's name are words, too
        middle.append(device.pop(0))
    row["Device"] = f"{' '.join(device)} ({match['index']})"
    if is_launch:
        return row | dict(zip(_LAUNCH, middle, strict=False))
    kinds = [word for word in middle if word in _MEMORY]
    return row | {"Bytes": next(iter(middle), "")} | dict(zip(_MEMORY_KINDS, kinds, strict=False))


def _row(value: Mapping[str, str], units: _Units) -> Row | None:
    """A row of `ops`; None where it is no row, or a number in it is larger than any profiler prints."""
    device = _DEVICE.match(value.get("Device", ""))
    if not device or not re.fullmatch(_NUMBER, value.get("Start", "")):
        return None
    start, name = _scaled(value["Start"], units.start), value.get("Name", "")
    launch = [value.get(column, "") for column in _LAUNCH]
    sizes = [_scaled(text, 1) for text in launch[:7]]
    copy = re.search(r"\[CUDA mem(?P<kind>cpy|set)\s*(?P<way>[^\]]*)\]", name)
    kinds = [_MEMORY[text] for column in _MEMORY_KINDS if (text := value.get(column, "")) in _MEMORY] + ["", ""]
    row: Row = {
        "device": int(device["index"]),
        "device_name": device["name"].strip(),
        "context": _scaled(value.get("Ctx", ""), 1),
        "stream": _scaled(value.get("Strm", ""), 1),
        "kind": f"mem{copy['kind']}" if copy else "kernel",
        "name": name,
        "start_ns": start,
        "end_ns": start + _scaled(value.get("Duration", "0"), units.duration),
        "correlation": _scaled(value.get("CorrId", ""), 1),
        "bytes": _scaled(value.get("Bytes", ""), units.bytes) if copy else -1,
        "copy": (_COPIES.get(copy["way"].strip(), "unknown") if copy["kind"] == "cpy" else "") if copy else "",
        "source_memory": kinds[0],
        "target_memory": kinds[1],
        "grid": sizes[0] * sizes[1] * sizes[2] if any(launch) else -1,
        "block": sizes[3] * sizes[4] * sizes[5] if any(launch) else -1,
        "registers": sizes[6] if any(launch) else -1,
        "shared_bytes": sum(_scaled(text, units.shared) for text in launch[7:]) if any(launch) else -1,
    }
    too_large = any(isinstance(number, int) and abs(number) > _LARGEST for number in row.values())
    return None if too_large or row["end_ns"] < start else row


def _scaled(text: str, scale: int) -> int:
    """A printed number times a unit, rounded once; -1 for none.

    >>> _scaled("13,077,591", 1), _scaled("0.037", 1_000_000), _scaled("12.5", 1000), _scaled("-", 1)
    (13077591, 37000, 12500, -1)
    """
    plain = text.replace(",", "").strip()
    return round(Decimal(plain) * scale) if re.fullmatch(r"-?\d+(\.\d+)?", plain) else -1


def _warnings(rows: Sequence[Row], repeated: int, skipped: int) -> list[TraceWarning]:
    warnings = []
    if repeated:
        text = f"{repeated} lines repeat another one wholly and are counted once."
        warnings.append(TraceWarning("repeated-lines", text))
    if skipped:
        warnings.append(TraceWarning("unread-lines", f"{skipped} lines start like a row but could not be read."))
    if len({row["device"] for row in rows}) > 1:
        text = "Pasted rows do not name their report: each device is taken as a rank with a clock of its own."
        warnings.append(TraceWarning("pasted-clocks", text))
    if all(row["kind"] == "kernel" and "nccl" in row["name"].lower() for row in rows):
        text = "The paste holds communication kernels only: nothing can be said about overlap with compute."
        warnings.append(TraceWarning("communication-only", text))
    return warnings


def _trace(path: Path, rows: Sequence[Row], warnings: list[TraceWarning]) -> Trace:
    rows = sorted(rows, key=itemgetter("start_ns", "end_ns", "device"))
    columns = {name: [row[name] for row in rows] for name in rows[0] if name != "device_name"}
    names: dict[int, str] = {}
    for row in rows:
        names.setdefault(row["device"], row["device_name"])
    gpus = sorted(names)
    process = np.searchsorted(gpus, columns["device"])
    ops = Ops.of({"process": process, **columns})
    lanes = first_of_each(label(process, ops.context, ops.stream))
    lacks = ("launch calls", "ranges", "synchronizations", "absolute times")
    captures = []
    for number in range(len(gpus)):
        first_ns, last_ns = span(ops.take(process == number))
        captures.append(Capture(str(path), "nsys-stats", "nsys stats", first_ns=first_ns, last_ns=last_ns, lacks=lacks))
    devices = {"process": np.arange(len(gpus)), "device": gpus, "gpu": gpus, "name": [names[gpu] for gpu in gpus]}
    return Trace(
        captures=tuple(captures),
        processes=tuple(Process(number, pid=-1, claims={"gpu": gpu}) for number, gpu in enumerate(gpus)),
        warnings=tuple(warnings),
        ops=ops,
        devices=Devices.of(devices),
        streams=Streams.of({name: ops.columns[name][lanes] for name in ("process", "context", "stream")}),
    )
