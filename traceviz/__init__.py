"""Did it really overlap? A verdict, the cause and the evidence from GPU profiles.

>>> import traceviz as tv
>>> trace = tv.load("rank0.json.gz", "rank1.json.gz")  # doctest: +SKIP
>>> tv.check_overlap(trace, a="nvtx:DP Embedding", b="nvtx:MP Embedding")  # doctest: +SKIP
"""

from traceviz._packages import check_packages

check_packages()

TYPE_CHECKING = False  # without typing, which takes its time, as all that is imported here

if TYPE_CHECKING:
    from analyzers.trace.tables import Trace
    from traceviz.api import (
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
    from traceviz.api_making import capture, report, timeline

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
_MADE_BY = {"Trace": "analyzers.trace.tables"} | dict.fromkeys(("capture", "report", "timeline"), "traceviz.api_making")


def __getattr__(name: str) -> object:
    """What is public is imported when it is asked for: a command needs none of it, and pandas takes long to load."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    found = getattr(importlib.import_module(_MADE_BY.get(name, "traceviz.api")), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
