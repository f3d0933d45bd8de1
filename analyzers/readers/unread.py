"""Formats that aren't read, by name: what a file is, and what to export in its place."""

from __future__ import annotations

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


def unread(head: Head) -> Unread | None:
    """The format that a file is of, if it is none of those read; first by its name, then by how it begins."""
    by_name = (one for one in UNREAD if head.name.lower().endswith(one.suffixes))
    by_start = (one for one in UNREAD if one.start and head.raw.startswith(one.start))
    return next(by_name, None) or next(by_start, None)
