"""What a trace says beside its tables (captures, processes, clocks, warnings) as plain JSON values, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from analyzers.common.errors import TraceWarning
from analyzers.trace.alignment import Clocks
from analyzers.trace.tables import Capture, Process, Trace

_FIELDS: Mapping[str, Any] = {
    "origin_utc_ns": int | None,
    "captures": tuple[Capture, ...],
    "processes": tuple[Process, ...],
    "clocks": Clocks | None,
    "warnings": tuple[TraceWarning, ...],
}


def about(trace: Trace) -> dict[str, Any]:
    """Everything of a trace that is no table of events."""
    return {field: msgspec.to_builtins(getattr(trace, field)) for field in _FIELDS}


def restored(description: Mapping[str, Any]) -> dict[str, Any]:
    """The same as arguments of `Trace`.

    Raises
    ------
    KeyError, msgspec.ValidationError : this is not what `about` makes.
    """
    return {field: msgspec.convert(description[field], kind) for field, kind in _FIELDS.items()}
