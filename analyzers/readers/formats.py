"""The formats of captures, each a line: whose description comes first of those that fit a file, it has that format.

A description stands in a file of the format's reader, which knows its files' first bytes and how to read them.
"""

from __future__ import annotations

from analyzers.readers.ascend.format import ASCEND
from analyzers.readers.format import Format
from analyzers.readers.kineto.format import KINETO
from analyzers.readers.nsys.formats import EXPORT, GZIPPED_EXPORT, REPORT, STATS, TABLES
from analyzers.readers.perfetto.format import PERFETTO
from analyzers.readers.rocprof.format import ROCPROF, ROCPROF_CSV
from analyzers.readers.xla.format import XLA, XPLANE

FORMATS = (
    EXPORT,
    REPORT,
    GZIPPED_EXPORT,
    TABLES,
    ROCPROF,
    ROCPROF_CSV,
    ASCEND,
    XLA,
    XPLANE,
    PERFETTO,
    KINETO,
    STATS,
)
SUFFIXES = tuple(suffix for one in FORMATS for suffix in one.suffixes)
*_FIRST, _LAST = [one.called for one in FORMATS if one.called]
KNOWN = f"{', '.join(_FIRST)} or {_LAST}"  # for users who gave something else
_OF_KIND = {one.kind: one for one in FORMATS}


def format_of(kind: str) -> Format:
    """The format of a kind; what is no capture, such as a manifest behind a URL, the reader of pasted text refuses."""
    return _OF_KIND.get(kind, STATS)
