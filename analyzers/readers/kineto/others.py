"""Kineto on devices of which it says little: busy times and overlap by stream, and what else is missing, by name."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from analyzers.readers.kineto.vendor import Raw, Vendor
from analyzers.trace.tables import Trace


def _complete(trace: Trace, _: Raw) -> Trace:
    return replace(trace, captures=tuple(replace(one, waits_logged=False) for one in trace.captures))


def _has(*starts: str) -> Callable[[Raw], bool]:
    """Whether work of a device, or calls of its host, have a category that begins so."""

    def is_one(raw: Raw) -> bool:
        heads = [*raw.rows["op"].heads, *raw.rows["api"].heads]
        return any(raw.heads[head].category.startswith(starts) for head in heads)

    return is_one


def _lacks(category: str) -> Callable[[Trace], tuple[str, ...]]:
    missing = (
        f"more than busy times and overlap by stream: of events of category '{category}…' nothing "
        "else is known here, such as waits, sizes of copies and grids; communication is told by names alone"
    )
    return lambda _: (missing,)


MTIA = Vendor("MTIA", _has("mtia_"), _complete, _lacks("mtia_"))
HPU = Vendor("HPU", _has("hpu_"), _complete, _lacks("hpu_"))
PRIVATE_USE = Vendor("PrivateUse1", _has("privateuse1_"), _complete, _lacks("privateuse1_"))
