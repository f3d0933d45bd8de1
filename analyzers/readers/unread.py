"""Formats that aren't read, by name: what a file is, and what to export in its place."""

from __future__ import annotations

import re

import msgspec

from analyzers.readers.formats import FileHead


class Unread(msgspec.Struct, frozen=True):
    """One such format: what its files are, and what to do; they are told by names, by first bytes, or by a sign.

    sign : what the first bytes hold of JSON of another tool, which would pass for a trace of torch.profiler.
    """

    what: str
    hint: str
    suffixes: tuple[str, ...] = ()
    start: bytes | None = None
    sign: re.Pattern[bytes] | None = None


UNREAD = (
    Unread(
        "This is a report of Nsight Compute, which runs kernels one by one: nothing overlaps in it.",
        "Capture with nsys profile -t cuda,nvtx.",
        (".ncu-rep",),
        b"NVR\0",
    ),
    Unread(
        "This is nsys's raw stream, before it becomes a report.",
        "Make a report of it: QdstrmImporter -i FILE, which comes with nsys.",
        (".qdstrm",),
    ),
    Unread("This is an OTF2 archive, which isn't read.", "Export JSON: rocprofv3 --output-format json.", (".otf2",)),
    Unread(
        "This is an HDF5 file, which isn't read.",
        "Export the report: nsys export --type sqlite, or parquetdir.",
        (".h5", ".hdf"),
        b"\x89HDF",
    ),
    Unread(
        "This is a protocol buffer of no known kind.",
        "Of JAX's and XLA's profiles give HOST.xplane.pb or HOST.trace.json.gz.",
        (".pb",),
    ),
    Unread("This is one table.", "Give the folder: nsys export --type arrowdir.", (".arrow",)),
    Unread("This is one table.", "Give the folder: nsys export --type parquetdir.", (".parquet",), b"PAR1"),
    Unread(
        "This is a pickled object, which isn't read.",
        "Give the JSON that torch.profiler's export_chrome_trace writes.",
        (".pickle", ".pkl", ".pt"),
        b"\x80",
    ),
)
_OF_TORCH = b'"schemaVersion"'  # stands first in what Kineto writes
_OTHERWISE = "Capture the same with torch.profiler or nsys."
_PROTON = "This is {} of Triton's Proton, which isn't read."
_NCCL_EVENTS = rb"(GROUP|COLL|P2P)(_API)?|KERNEL_LAUNCH|PROXY|NET(_\w+)?|GPU|CE_\w+"
UNREAD_JSON = (
    Unread(
        _PROTON.format("a trace"),
        _OTHERWISE,
        sign=re.compile(rb'"call_stack"\s*:\s*\[|"displayTimeUnit"\s*:\s*"us".*"(GPU|Graph:) Stream \d', re.DOTALL),
    ),
    Unread(
        _PROTON.format("a tree of metrics (hatchet)") + " It has no times at which kernels ran.",
        _OTHERWISE,
        sign=re.compile(rb'\A\s*\[\s*\{\s*"(children|frame|metrics)"\s*:'),
    ),
    Unread(
        "This is JSON of rocprof (v1 or v2), which isn't read.",
        "Capture with rocprofv3 --sys-trace --output-format json -- COMMAND.",
        sign=re.compile(rb'"BeginNs"\s*:|"name"\s*:\s*"CPU HIP API"'),
    ),
    Unread(
        "This is of NCCL's profiler plugin, which isn't read: host times of collectives, without the GPU's kernels.",
        _OTHERWISE,
        sign=re.compile(rb'"cat"\s*:\s*"(' + _NCCL_EVENTS + rb')"\s*,\s*"ph"\s*:\s*"[be]"'),
    ),
    Unread(
        "This is a profile of ONNX Runtime, which isn't read: host times of its operators.",
        "Capture the program's GPU work with nsys.",
        sign=re.compile(rb'\A\s*\[\s*\{\s*"cat"\s*:\s*"Session"\s*,'),
    ),
)


def unread(head: FileHead) -> Unread | None:
    """The format that a file is of, if it is none of those read; first by its name, then by how it begins."""
    by_name = (one for one in UNREAD if head.name.lower().endswith(one.suffixes))
    by_start = (one for one in UNREAD if one.start and head.raw.startswith(one.start))
    return next(by_name, None) or next(by_start, None)


def unread_json(head: FileHead) -> Unread | None:
    """The tool that wrote a file of JSON events, if its events aren't read; by its first bytes."""
    if _OF_TORCH in head.plain:
        return None
    return next((one for one in UNREAD_JSON if one.sign and one.sign.search(head.plain)), None)
