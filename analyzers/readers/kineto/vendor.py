"""What a vendor's Kineto traces have of their own.

A vendor of which much is known has a file beside this one; all have a place in `VENDORS` of `read`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from msgspec.structs import replace

from analyzers.readers.kineto.events import Rows
from analyzers.trace.tables import Trace


class Raw(msgspec.Struct, frozen=True):
    """What was read, before it became tables.

    rows : of each group; host calls of HIP stand at the end of "api", too. zero : the time that became 0, ns.
    """

    rows: Mapping[str, Rows]
    zero: int

    def has(self, start: str) -> bool:
        """Whether work of a device, or calls of its host, have a category that begins so."""
        heads = [*self.rows["op"].heads.values(), *self.rows["api"].heads.values()]
        return any(head.category.startswith(start) for head in heads)


class Vendor(msgspec.Struct, frozen=True):
    """One kind of devices.

    runtime : what its host calls are called. is_one : whether a trace is of it.
    complete : mends what its profiler writes otherwise. lacks : what no capture of it can tell, in words.
    records_waits : whether a setting of the profiler makes it record which stream waits for what.
    """

    runtime: str
    is_one: Callable[[Raw], bool]
    complete: Callable[[Trace, Raw], Trace] = lambda trace, _: trace
    lacks: Callable[[Trace], tuple[str, ...]] = lambda _: ()
    records_waits: bool = False


def _little_known(runtime: str, category: str) -> Vendor:
    """Devices of which Kineto says little: busy times and overlap by stream, and what else is missing."""

    def complete(trace: Trace, _: Raw) -> Trace:
        return replace(trace, captures=tuple(replace(one, waits_logged=False) for one in trace.captures))

    missing = (
        f"more than busy times and overlap by stream: of events of category '{category}…' nothing "
        "else is known here, such as waits, sizes of copies and grids; communication is told by names alone"
    )
    return Vendor(runtime, lambda raw: raw.has(category), complete, lambda _: (missing,))


MTIA = _little_known("MTIA", "mtia_")
HPU = _little_known("HPU", "hpu_")
PRIVATE_USE = _little_known("PrivateUse1", "privateuse1_")
CUDA = Vendor("CUDA", lambda _: True, records_waits=True)
