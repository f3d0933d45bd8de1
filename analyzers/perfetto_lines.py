"""Events of a Chrome trace as lines of JSON, written column by column: no object per event is made.

Format: "Trace Event Format", Google. Times are decimal microseconds with all three decimals, so that a whole
nanosecond is written as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from analyzers.trace import Ints

ROWS = 1 << 15  # written at once
_DECIMALS = pa.array([f".{place:03d}" for place in range(1000)])

Column = Any  # int64 array, float64 array, Categorical, or list of texts


@dataclass(frozen=True)
class Events:
    """Events of one phase and category.

    pid, tid, start_ns, duration_ns : arrays of one length; `duration_ns` None where the phase has none.
    name : one text, or a column of them.
    args : what else is said; a value that equals its entry in `defaults` is left out, a missing text is null.
    head : fields of the event itself, such as "id" of a flow.
    """

    phase: str
    category: str
    name: str | pd.Categorical
    pid: Ints
    tid: Ints
    start_ns: Ints
    duration_ns: Ints | None = None
    args: Mapping[str, Column] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    head: Mapping[str, Column] = field(default_factory=dict)


def text(value: Any) -> str:
    """A value as JSON."""
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:  # half a character, from a name that was cut
        return msgspec.json.encode(str(value).encode("utf-8", "replace").decode()).decode()


def lines(events: Events, zero: int) -> Iterator[bytes]:
    """The events as bytes, each preceded by a comma and a new line.

    Parameters
    ----------
    zero : the time that becomes 0.
    """
    for low in range(0, events.start_ns.size, ROWS):
        yield _chunk(events, zero, slice(low, low + ROWS))


def _chunk(events: Events, zero: int, rows: slice) -> bytes:
    fixed = f',\n{{"ph":{text(events.phase)},"cat":{text(events.category)},"name":'
    name = text(events.name) if isinstance(events.name, str) else _json(events.name[rows])
    parts: list[Any] = [fixed, name, ',"pid":', _json(events.pid[rows]), ',"tid":', _json(events.tid[rows])]
    parts += [',"ts":', _microseconds(events.start_ns[rows] - zero)]
    if events.duration_ns is not None:
        parts += [',"dur":', _microseconds(events.duration_ns[rows])]
    for key, values in events.head.items():
        parts += [f",{text(key)}:", _json(values if isinstance(values, str) else values[rows])]
    parts += [',"args":{', _arguments(events, rows), "}}"] if events.args else ["}"]
    return _bytes(pc.binary_join_element_wise(*parts, ""))


def _arguments(events: Events, rows: slice) -> Any:
    """All args as `"key":value,…`; every one begins with a comma, of which the first is cut off."""
    parts = []
    for key, values in events.args.items():
        some = values[rows]
        said = pc.binary_join_element_wise(f",{text(key)}:", _json(some), "")
        if key in events.defaults:
            said = pc.if_else(pa.array(_differs(some, events.defaults[key])), said, "")
        parts.append(said)
    return pc.utf8_slice_codeunits(pc.binary_join_element_wise(*parts, ""), 1)


def _differs(values: Column, default: Any) -> np.ndarray:
    if isinstance(values, pd.Categorical):
        other = np.array([each != default for each in values.categories] + [True], bool)  # the last: a missing text
        return other[values.codes]
    if isinstance(values, list):
        return np.array([each != default for each in values], bool)
    return np.asarray(values != default)


def _json(values: Column) -> Any:
    """Each value as JSON text."""
    if isinstance(values, str):
        return text(values)
    if isinstance(values, pd.Categorical):
        known = pa.array([*(text(str(each)) for each in values.categories), "null"], pa.string())
        code = np.where(values.codes < 0, len(known) - 1, values.codes)
        return known.take(pa.array(code))
    if isinstance(values, list):
        return pa.array([text(each) for each in values], pa.string())
    array = pa.array(values)
    if pa.types.is_floating(array.type):
        return pc.if_else(pc.is_finite(array), pc.cast(array, pa.string()), "null")
    return pc.cast(array, pa.string())


def _microseconds(times: Ints) -> Any:
    """Times as decimal microseconds, exactly; negative ones are cut to 0 by nobody."""
    size = np.abs(times)
    whole = pc.cast(pa.array(size // 1000), pa.string())
    decimals = _DECIMALS.take(pa.array(size % 1000))
    sign = pc.if_else(pa.array(times < 0), "-", "")
    return pc.binary_join_element_wise(sign, whole, decimals, "")


def _bytes(array: Any) -> bytes:
    """The texts of an array, end to end."""
    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
    return bytes(memoryview(array.buffers()[2])[offsets[0] : offsets[-1]]) if len(array) else b""
