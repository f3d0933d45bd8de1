"""A Trace of one capture as Arrow files: written whole or not at all, read without copying.

Each table is an uncompressed Arrow IPC file that is mapped into memory, so that only the columns a question touches are
ever read. A column that holds one value throughout takes no room; texts are stored as the codes the tables have.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec

from analyzers.arrays.arrow import of_arrow, to_arrow
from analyzers.arrays.columns import repeated
from analyzers.arrays.names import Names
from analyzers.cache.folder import ABOUT_FILE, FORMAT
from analyzers.trace.about import about, restored
from analyzers.trace.schemas import TABLES
from analyzers.trace.table import Table
from analyzers.trace.tables import Trace

_COLUMNS = b"traceviz.columns"


class Unusable(Exception):
    """A folder does not hold a whole Trace of this format."""


def write_trace(trace: Trace, folder: Path) -> None:
    """Write a loader's Trace into an empty folder; what is to outlast a crash of the machine takes `flush` as well.

    Raises
    ------
    OSError : the disk is full, or can't be written, or memory is short.
    """
    sizes = {}
    import pyarrow as pa

    for name in TABLES:
        file = folder / f"{name}.arrow"
        try:
            _write_table(getattr(trace, name), file)
        except pa.ArrowException as error:  # whatever it is, without a cache it does not matter
            raise OSError(str(error)) from error
        sizes[file.name] = file.stat().st_size
    (folder / ABOUT_FILE).write_text(json.dumps({"format": FORMAT, "files": sizes, **about(trace)}))


def flush(folder: Path) -> None:
    """Have a folder and its files on the disk itself: no crash of the machine then leaves a name without its content.

    Raises
    ------
    OSError : the disk is full, or can't be written.
    """
    for path in (*folder.iterdir(), folder):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def read_trace(folder: Path, only: Collection[str] = tuple(TABLES)) -> Trace:
    """Read what `write_trace` wrote.

    Parameters
    ----------
    only : tables that are wanted; the others come without rows.

    Raises
    ------
    Unusable : it is not all there.
    """
    try:
        description = json.loads((folder / ABOUT_FILE).read_text())
        if description["format"] != FORMAT:
            raise Unusable(f"format {description['format']}")
        for name, size in description["files"].items():
            if (folder / name).stat().st_size != size:
                raise Unusable(f"{name} is cut short")
        tables: dict[str, Any] = {
            name: _read_table(name, folder / f"{name}.arrow") if name in only else TABLES[name].of() for name in TABLES
        }
        return Trace(**restored(description), **tables)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, msgspec.ValidationError) as error:
        raise Unusable(str(error)) from error


def _write_table(table: Table, path: Path) -> None:
    import pyarrow as pa  # which a small capture, that is not kept, never needs

    stored, arrays = [], []
    described: dict[str, dict[str, Any]] = {}
    for column, values in table.columns.items():
        texts, numbers = ([*values.texts], values.codes) if isinstance(values, Names) else (None, values)
        described[column] = {"type": str(numbers.dtype), "texts": texts}
        if numbers.size and (numbers[0] == numbers).all():
            described[column]["value"] = int(numbers[0])
        else:
            stored.append(column)
            arrays.append(to_arrow(numbers))
    description = {"rows": len(table), "columns": described}
    schema = pa.schema(
        [pa.field(column, array.type) for column, array in zip(stored, arrays, strict=True)],
        metadata={_COLUMNS: json.dumps(description).encode()},
    )
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(batch)


def _read_table(name: str, path: Path) -> Table:
    import pyarrow as pa

    reader = pa.ipc.open_file(pa.memory_map(str(path)))
    description = json.loads(reader.schema.metadata[_COLUMNS])
    batch, length = reader.get_batch(0), description["rows"]
    columns: dict[str, Any] = {}
    for column in TABLES[name].schema:
        stored = description["columns"][column]
        if "value" in stored:
            numbers = repeated(stored["value"], stored["type"], length)
        else:
            numbers = of_arrow(batch.column(column))
        columns[column] = numbers if stored["texts"] is None else Names(numbers, stored["texts"])
    return TABLES[name](columns, length)
