"""Did it really overlap? A verdict, the cause and the evidence from GPU profiles.

>>> import traceviz as tv
>>> trace = tv.load("rank0.json.gz", "rank1.json.gz")  # doctest: +SKIP
>>> tv.check_overlap(trace, a="nvtx:DP Embedding", b="nvtx:MP Embedding")  # doctest: +SKIP
"""

from traceviz._packages import check_packages

check_packages()

TYPE_CHECKING = False  # without typing, which takes its time, as all that is imported here

if TYPE_CHECKING:
    from traceviz.api import (
        TracevizError,
        capture,
        check_contract,
        check_overlap,
        collectives,
        compare,
        contention,
        info,
        load,
        report,
        show,
        streams,
        sync_points,
        timeline,
        trend,
        what_if,
    )
    from traceviz.changes import (
        DropSync,
        DropWait,
        Graph,
        Level,
        MoreRoom,
        MoveWait,
        OnTime,
        OwnStream,
        Pin,
        Scale,
        Split,
    )
    from traceviz.results import (
        Capture,
        Collectives,
        Comparison,
        ContractResult,
        OrderReport,
        OverlapResult,
        PairTrend,
        Prediction,
        Report,
        Shown,
        StreamContention,
        StreamsResult,
        TraceInfo,
        WhatIf,
    )
    from traceviz.trace import Trace
    from traceviz.version import __version__

__all__ = [
    "Capture",
    "Collectives",
    "Comparison",
    "ContractResult",
    "CountersResult",
    "DropSync",
    "DropWait",
    "Graph",
    "Level",
    "MoreRoom",
    "MoveWait",
    "OnTime",
    "OrderReport",
    "OverlapResult",
    "OwnStream",
    "PairTrend",
    "Pin",
    "Prediction",
    "Report",
    "Scale",
    "Shown",
    "Split",
    "StreamContention",
    "StreamsResult",
    "Trace",
    "TraceInfo",
    "TracevizError",
    "WhatIf",
    "__version__",
    "capture",
    "check_contract",
    "check_overlap",
    "collectives",
    "compare",
    "contention",
    "counters",
    "info",
    "load",
    "report",
    "show",
    "streams",
    "sync_points",
    "timeline",
    "trend",
    "what_if",
]
_RESULTS = [name for name in __all__ if name[0].isupper()]
_CHANGES = [
    "DropSync",
    "DropWait",
    "Graph",
    "Level",
    "MoreRoom",
    "MoveWait",
    "OnTime",
    "OwnStream",
    "Pin",
    "Scale",
    "Split",
]
_HOMES = dict.fromkeys(_RESULTS, "traceviz.results") | dict.fromkeys(_CHANGES, "traceviz.changes")
_HOMES |= {
    "Trace": "traceviz.trace",
    "TracevizError": "traceviz.api",
    "__version__": "traceviz.version",
}


def __getattr__(name: str) -> object:
    """What is public is imported when it is asked for: a command needs none of it, and pandas takes long to load."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    found = getattr(importlib.import_module(_HOMES.get(name, "traceviz.api")), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
