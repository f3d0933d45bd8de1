"""Tables of records: a column names a field, whose name says how its value is shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from msgspec.structs import replace

from analyzers.trace.devices import DeviceLabels
from traceviz.output.document import Table
from traceviz.output.quantities import duration, percent, size, unshown

Column = str | Callable[[Any], str]  # a field, such as "a.busy_ns", or what makes a record's cell
_IDS = frozenset(("rank", "device", "stream", "main", "turn", "index", "id", "streams", "steps", "collectives"))


def table(
    title: str,
    records: Sequence[Any],
    columns: Mapping[str, Column],
    *,
    words: Sequence[str] = (),
    most: int | None = None,
    more: str = "more",
    note: str = "",
    first: Sequence[str] = (),
) -> Table:
    """A row for each record, a column for each header.

    Parameters
    ----------
    words : headers of columns that hold words: they are set to the left.
    most : rows shown; below them stands how many `more` there are.
    note : what explains the table below it.
    first : cells of a row above all others; those that it lacks are empty.
    """
    cells = [column if callable(column) else _reader(column) for column in columns.values()]
    rows: list[Sequence[str]] = [[cell(one) for cell in cells] for one in records[:most]]
    above = [[*first, *[""] * (len(columns) - len(first))]] if first else []
    notes = [note, unshown(len(records) - most, more) if most is not None else ""]
    return Table([*columns], [*above, *rows], title, frozenset(columns) - set(words), "\n".join(filter(None, notes)))


def rank_column(labels: DeviceLabels) -> Column:
    """A cell with the rank of what has one, and its device where that is needed to tell them apart."""
    return lambda one: labels.short(one.rank, one.device)


def without_columns(found: Table, left_out: Sequence[int]) -> Table:
    """A table without some of its columns, by their numbers."""
    kept = [k for k in range(len(found.headers)) if k not in left_out]
    rows = [[row[k] for k in kept] for row in found.rows]
    return replace(found, headers=[found.headers[k] for k in kept], rows=rows)


def _reader(field: str) -> Callable[[Any], str]:
    value, name = attrgetter(field), field.rpartition(".")[2]
    return lambda one: shown(name, value(one))


def shown(name: str, value: Any) -> str:
    """A field's value: times, sizes and shares in their units, "–" for what is not known.

    >>> shown("busy_ns", 162_879), shown("bytes", 1536), shown("ops", 1200), shown("rank", 1200), shown("group", "")
    ('163 µs', '1.5 KiB', '1,200', '1200', '–')
    """
    if value is None or value == "":
        return "–"
    if isinstance(value, str):
        return value
    if name.endswith("_ns") or name == "ns":
        return duration(value)
    if name == "bytes" or name.endswith("_bytes"):
        return size(value)
    if name.endswith(("ratio", "share", "overlap")):
        return percent(value)
    return str(value) if name in _IDS else f"{value:,}"
