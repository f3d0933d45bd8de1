"""Did it really overlap? A verdict, the cause and the evidence from GPU profiles.

>>> import traceviz as tv
>>> trace = tv.load("rank0.json.gz", "rank1.json.gz")  # doctest: +SKIP
>>> tv.check_overlap(trace, a="nvtx:DP Embedding", b="nvtx:MP Embedding")  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from traceviz._packages import check_packages

check_packages()

from traceviz.api import (  # noqa: E402
    TracevizError,
    check_overlap,
    check_ranks,
    collectives,
    compare,
    info,
    load,
    streams,
    sync_points,
    trend,
)
from traceviz.api_making import capture, report, timeline  # noqa: E402

if TYPE_CHECKING:
    from analyzers.trace import Trace

__version__ = "0.1.0"
__all__ = [
    "Trace",
    "TracevizError",
    "__version__",
    "capture",
    "check_overlap",
    "check_ranks",
    "collectives",
    "compare",
    "info",
    "load",
    "report",
    "streams",
    "sync_points",
    "timeline",
    "trend",
]


def __getattr__(name: str) -> object:
    """`Trace` is imported when asked for: pandas takes long to load, and `--help` doesn't need it."""
    if name == "Trace":
        from analyzers.trace import Trace

        return Trace
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
