"""Formats that aren't read, by name: what a file is, and what to export in its place."""

from __future__ import annotations

import re

import msgspec

from analyzers.readers.format import Head


class Unread(msgspec.Struct, frozen=True):
    """One such format: how its files are told, what they are, and what to do."""

    suffixes: tuple[str, ...]
    start: bytes
    what: str
    hint: str


_JSON = "Give the JSON that torch.profiler's export_chrome_trace writes."
UNREAD = (
    Unread(
        (".ncu-rep",),
        b"NVR\0",
        "This is a report of Nsight Compute, which runs kernels one by one: nothing overlaps in it.",
        "Capture with nsys profile -t cuda,nvtx.",
    ),
    Unread(
        (".qdstrm",),
        b"",
        "This is nsys's raw stream, before it becomes a report.",
        "Make a report of it: QdstrmImporter -i FILE, which comes with nsys.",
    ),
    Unread(
        (".otf2",), b"", "This is an OTF2 archive, which isn't read.", "Export JSON: rocprofv3 --output-format json."
    ),
    Unread(
        (".h5", ".hdf"),
        b"\x89HDF",
        "This is an HDF5 file, which isn't read.",
        "Export the report: nsys export --type sqlite, or parquetdir.",
    ),
    Unread(
        (".pb",),
        b"",
        "This is a protocol buffer of no known kind.",
        "Of JAX's and XLA's profiles give HOST.xplane.pb or HOST.trace.json.gz.",
    ),
    Unread((".arrow",), b"", "This is one table.", "Give the folder: nsys export --type arrowdir."),
    Unread((".parquet",), b"PAR1", "This is one table.", "Give the folder: nsys export --type parquetdir."),
    Unread((".pickle", ".pkl", ".pt"), b"\x80", "This is a pickled object, which isn't read.", _JSON),
)


class UnreadJson(msgspec.Struct, frozen=True):
    """JSON of another tool, which would pass for a trace of torch.profiler: what its first bytes hold, and as above."""

    sign: re.Pattern[bytes]
    what: str
    hint: str


_OF_TORCH = b'"schemaVersion"'  # stands first in what Kineto writes
_OTHERWISE = "Capture the same with torch.profiler or nsys."
_PROTON = "This is {} of Triton's Proton, which isn't read."
_NCCL_EVENTS = rb"(GROUP|COLL|P2P)(_API)?|KERNEL_LAUNCH|PROXY|NET(_\w+)?|GPU|CE_\w+"
UNREAD_JSON = (
    UnreadJson(
        re.compile(rb'"call_stack"\s*:\s*\[|"displayTimeUnit"\s*:\s*"us".*"(GPU|Graph:) Stream \d', re.DOTALL),
        _PROTON.format("a trace"),
        _OTHERWISE,
    ),
    UnreadJson(
        re.compile(rb'\A\s*\[\s*\{\s*"(children|frame|metrics)"\s*:'),
        _PROTON.format("a tree of metrics (hatchet)") + " It has no times at which kernels ran.",
        _OTHERWISE,
    ),
    UnreadJson(
        re.compile(rb'"BeginNs"\s*:|"name"\s*:\s*"CPU HIP API"'),
        "This is JSON of rocprof (v1 or v2), which isn't read.",
        "Capture with rocprofv3 --sys-trace --output-format json -- COMMAND.",
    ),
    UnreadJson(
        re.compile(rb'"cat"\s*:\s*"(' + _NCCL_EVENTS + rb')"\s*,\s*"ph"\s*:\s*"[be]"'),
        "This is of NCCL's profiler plugin, which isn't read: host times of collectives, without the GPU's kernels.",
        _OTHERWISE,
    ),
    UnreadJson(
        re.compile(rb'\A\s*\[\s*\{\s*"cat"\s*:\s*"Session"\s*,'),
        "This is a profile of ONNX Runtime, which isn't read: host times of its operators.",
        "Capture the program's GPU work with nsys.",
    ),
)


def unread(head: Head) -> Unread | None:
    """The format that a file is of, if it is none of those read; first by its name, then by how it begins."""
    by_name = (one for one in UNREAD if head.name.lower().endswith(one.suffixes))
    by_start = (one for one in UNREAD if one.start and head.raw.startswith(one.start))
    return next(by_name, None) or next(by_start, None)


def unread_json(head: Head) -> UnreadJson | None:
    """The tool that wrote a file of JSON events, if its events aren't read; by its first bytes."""
    if _OF_TORCH in head.plain:
        return None
    return next((one for one in UNREAD_JSON if one.sign.search(head.plain)), None)
