"""What a vendor's Kineto traces have of their own; each vendor is a file beside this one and a line in `vendors`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from analyzers.readers.kineto.events import Head, Rows
from analyzers.trace.tables import Trace


class Raw(msgspec.Struct, frozen=True):
    """What was read, before it became tables.

    rows : of each group; host calls of HIP stand at the end of "api", too. zero : the time that became 0.
    """

    rows: Mapping[str, Rows]
    heads: Sequence[Head]
    header: Mapping[str, Any]
    zero: int


def _as_it_is(trace: Trace, _: Raw) -> Trace:
    return trace


def _nothing(_: Trace) -> tuple[str, ...]:
    return ()


class Vendor(msgspec.Struct, frozen=True):
    """One kind of devices.

    runtime : what its host calls are called. is_one : whether a trace is of it.
    complete : mends what its profiler writes otherwise. lacks : what no capture of it can tell, in words.
    records_waits : whether a setting of the profiler makes it record which stream waits for what.
    """

    runtime: str
    is_one: Callable[[Raw], bool]
    complete: Callable[[Trace, Raw], Trace] = _as_it_is
    lacks: Callable[[Trace], tuple[str, ...]] = _nothing
    records_waits: bool = False
