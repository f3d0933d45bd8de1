"""What a trace says beside its tables (captures, processes, clocks, warnings), as JSON that can be read back."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd

from analyzers.clocks_solve import Clock, Clocks
from analyzers.errors import TraceWarning
from analyzers.trace import Capture, Process, Trace

# Columns of `Matches`; collectives' and calls' order is theirs.
MEMBERS = ("process", "device", "rank", "capture")
CALLS = ("collective", "op", "member", "rank", "start_ns", "end_ns", "confidence")
COLLECTIVES = (
    "operation",
    "bytes",
    "dtype",
    "group",
    "group_ranks",
    "group_size",
    "matched_by",
    "confidence",
    "sure",
)
TEXTS = ("operation", "dtype", "group", "group_ranks", "matched_by")


def about(trace: Trace) -> dict[str, Any]:
    """Everything of a trace that is no table of events; plain JSON values."""
    return {
        "origin_utc_ns": trace.origin_utc_ns,
        "captures": [asdict(one) for one in trace.captures],
        "processes": [asdict(one) for one in trace.processes],
        "clocks": None if trace.clocks is None else asdict(trace.clocks),
        "warnings": [asdict(one) for one in trace.warnings],
    }


def restored(said: dict[str, Any]) -> dict[str, Any]:
    """The same as arguments of `Trace`.

    Raises
    ------
    KeyError, TypeError, ValueError : this is not what `about` makes.
    """
    clocks = said["clocks"]
    return {
        "origin_utc_ns": said["origin_utc_ns"],
        "captures": tuple(Capture(**{**one, "lacks": tuple(one["lacks"])}) for one in said["captures"]),
        "processes": tuple(Process(**one) for one in said["processes"]),
        "clocks": clocks
        and Clocks(
            method=str(clocks["method"]),
            clocks=tuple(Clock(**one) for one in clocks["clocks"]),
            at_ns=int(clocks["at_ns"]),
            contradictions=tuple(tuple(found) for found in clocks["contradictions"]),
            doubtful=tuple(clocks["doubtful"]),
        ),
        "warnings": tuple(TraceWarning(**one) for one in said["warnings"]),
    }


def collectives_frame(columns: dict[str, Any]) -> pd.DataFrame:
    """`Matches.collectives` with its types, from plain columns (None: a missing text)."""
    typed: dict[str, Any] = {}
    for name in COLLECTIVES:
        values = columns[name]
        if name in TEXTS:
            known = sorted({str(text) for text in values if text is not None and text == text})
            typed[name] = pd.Categorical(values, categories=pd.Index(known, dtype="str"))
        elif name == "confidence":
            typed[name] = np.asarray(values, np.float64)
        else:
            typed[name] = np.asarray(values, bool if name == "sure" else np.int64)
    return pd.DataFrame(typed)
