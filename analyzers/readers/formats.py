"""The formats of captures: how files of each are told and found, and which module reads them; and what isn't read.

`FORMATS` has an entry a format: the first that fits a file has it. To add one, write a module with a function
`read(path, progress, reading)` and an entry here. A reader is imported when a file of its format is read: most commands
read from the cache, or one format.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import cast

import msgspec

from analyzers.cache.folder import is_worth_keeping
from analyzers.common.progress import Progress
from analyzers.readers.reading import Reading
from analyzers.trace.tables import Trace

GZIP = b"\x1f\x8b"
HEAD_BYTES = 4096  # of a file, by which its format is told


class FileHead(msgspec.Struct, frozen=True, dict=True):
    """A file's name and its first bytes, which tell its format."""

    name: str
    raw: bytes

    @property
    def is_gzip(self) -> bool:
        """Whether the file is gzipped."""
        return self.raw.startswith(GZIP)

    @cached_property
    def plain(self) -> bytes:
        """The first bytes of what was gzipped, none where it is damaged; else the bytes as they are."""
        if not self.is_gzip:
            return self.raw
        try:
            return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(self.raw, HEAD_BYTES)
        except zlib.error:
            return b""  # for the reader to say what is wrong


class MemoryPerByte(msgspec.Struct, frozen=True):
    """Planned peak memory per input byte. Measured for JSON: 0.9 read, 0.03 kept.

    read : of the process that reads and analyses it.
    kept, listed : of the process that puts all answers together, for each capture; of answers that list sync points.
    """

    read: float = 1.0
    kept: float = 0.04
    listed: float = 0.04


class Format(msgspec.Struct, frozen=True):
    """A format of captures.

    kind : its name.
    is_one : whether a file is of this format, by its head.
    reader : "module:function", below `analyzers.readers`, which makes a Trace of (path, progress, reading).
    called : what users call its files; "" where the words of another format cover it.
    suffixes : how the names of its files end; files of a folder are found by that.
    is_likely : whether a file with such a name, which nobody named, is one: other programs may use the suffix.
    fold : bytes to read for each byte of a file, unless it is gzipped.
    memory : what one of these bytes takes.
    check : "module:function" that refuses a file that can't be read as it is now, whatever the cache has of it.
    keeps : whether the cache may have its tables.
    whole : bytes of a capture, of which the file that stands for it may be a part.
    twins : files beside one that would say the same, and more: where one of them is given, too, that is read.
    """

    kind: str
    is_one: Callable[[FileHead], bool]
    reader: str
    called: str = ""
    suffixes: tuple[str, ...] = ()
    is_likely: Callable[[Path], bool] = lambda _: True
    fold: int = 1
    memory: MemoryPerByte = MemoryPerByte()
    check: str = ""
    keeps: bool = True
    whole: Callable[[Path], int] = lambda path: path.stat().st_size
    twins: Callable[[Path], set[Path]] = lambda _: set()

    def read(self, path: Path, progress: Progress, reading: Reading) -> Trace:
        """Read one file; the reader says what it raises."""
        return cast(Trace, _function(self.reader)(path, progress, reading))

    def refuse_unreadable(self, path: Path) -> None:
        """Raise a TracevizError where a file can't be read as it is now, such as a database that somebody writes."""
        if self.check:
            _function(self.check)(path)

    def is_worth_keeping(self, path: Path) -> bool:
        """Whether looking a capture's tables up is quicker than reading it."""
        return self.keeps and is_worth_keeping(path, packed=self.fold > 1 or path.name.endswith(".gz"))


def _function(name: str) -> Callable[..., object]:
    module, _, function = name.partition(":")
    return cast(Callable[..., object], getattr(import_module(f"analyzers.readers.{module}"), function))


# Nsight Systems: reports, their exports, and what `nsys stats` printed.

REPORTS = (".nsys-rep", ".qdrep")
_SQLITE = b"SQLite format 3\x00"
_TABLES_OF_TEXTS = ("StringIds.parquet", "StringIds.arrow")  # every folder of tables has one, which stands for all
_FOLDER_FOLD = 2  # bytes of an SQLite export in one of such a folder
_REPORT_FOLD = 3  # bytes of an export in one of its report
_NO_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1a]")  # bytes that no text has
# Of exports without any other tables 4.3, 0.3 and, where every third kernel has a host sync, 0.9 were measured.
_EXPORT_MEMORY = MemoryPerByte(read=5.0, kept=0.35, listed=1.0)


def _is_stats(head: FileHead) -> bool:
    is_named_so = Path(head.name).suffix.lower() in (".txt", ".csv")
    is_text = not _NO_TEXT.search(head.raw)  # other profiles name such kernels, too
    return is_named_so or (is_text and (b"ncclDev" in head.raw or b"Start (ns)" in head.raw))


NSYS_EXPORT = Format(
    "nsys-sqlite",
    lambda head: head.raw.startswith(_SQLITE),
    "nsys.nsys_export:read_export",
    "an Nsight Systems report (.nsys-rep, .sqlite[.gz])",
    (".sqlite",),
    memory=_EXPORT_MEMORY,
    check="nsys.file:check",
)
REPORT = Format(
    "nsys-report",
    lambda head: head.name.endswith(REPORTS) or head.raw.startswith(b"NVIDIA Tegra Profiler Report"),
    "nsys.nsys_export:read_report",
    suffixes=REPORTS,
    fold=_REPORT_FOLD,
    memory=_EXPORT_MEMORY,
)
GZIPPED_EXPORT = Format(
    "nsys-sqlite-gz",
    lambda head: head.is_gzip and head.plain.startswith(_SQLITE),
    "nsys.nsys_export:read_gzipped",
    suffixes=(".sqlite.gz",),
    memory=_EXPORT_MEMORY,
)
TABLES = Format(
    "nsys-tables",
    lambda head: head.name in _TABLES_OF_TEXTS,
    "nsys.nsys_export:read_tables",
    suffixes=_TABLES_OF_TEXTS,
    memory=_EXPORT_MEMORY,
    keeps=False,
    whole=lambda path: sum(one.stat().st_size for one in path.parent.glob("*.*") if one.is_file()) * _FOLDER_FOLD,
)
STATS = Format("nsys-stats", _is_stats, "nsys.stats:read", "nsys stats output", keeps=False)

# rocprofv3, which may write several formats at once.

_RECORDS = ("_results.json", "_results.json.gz")
_KERNELS_CSV = "kernel_trace.csv"


def _csv_twins(path: Path) -> set[Path]:
    plain = path.name.removesuffix(f"_{_KERNELS_CSV}")
    return {path.with_name(plain + one) for one in (*_RECORDS, "_results.pftrace")} if plain != path.name else set()


ROCPROF = Format(
    "rocprof",
    lambda head: b'"rocprofiler-sdk-tool"' in head.plain,
    "rocprof.rocprof_json:read",
    "rocprofv3's JSON",
    _RECORDS,
    memory=MemoryPerByte(read=5),
)
ROCPROF_CSV = Format(
    "rocprof-csv",
    lambda head: all(one in head.plain.lower() for one in (b"agent_id", b"queue_id", b"kernel_name")),
    "rocprof.kernels_csv:read",
    suffixes=(_KERNELS_CSV,),
    memory=MemoryPerByte(read=30),
    twins=_csv_twins,
)

# torch_npu.

_ASCEND_NAME = "trace_view.json"
_ASCEND_SIGNS = (b'"Ascend Hardware"', b'"CANN"')


def _is_ascend(head: FileHead) -> bool:
    is_named_so = head.name.removesuffix(".gz").endswith(_ASCEND_NAME)  # what names its processes may stand at its end
    is_json = head.plain.lstrip()[:1] in (b"[", b"{")
    return is_json and (is_named_so or any(sign in head.plain for sign in _ASCEND_SIGNS))


ASCEND = Format(
    "ascend",
    _is_ascend,
    "ascend:read",
    suffixes=(_ASCEND_NAME, _ASCEND_NAME + ".gz"),
    memory=MemoryPerByte(read=10),
)

# JAX and other users of XLA.

XLA_VIEWER, XLA_SPACE = ".trace.json.gz", ".xplane.pb"  # how names of its files end
XLA_SPACES = (XLA_SPACE, XLA_SPACE + ".gz")
XLA_PERFETTO = "perfetto_trace.json.gz"
_XLA_SIGNS = (b'"highres-ticks"', b'"name":"/host:', b'"name": "/host:', b'"name":"/device:', b'"name": "/device:')


def _is_xla(head: FileHead) -> bool:
    return head.plain.lstrip()[:1] == b"{" and any(sign in head.plain for sign in _XLA_SIGNS)


def _xla_twins(path: Path) -> set[Path]:
    """Of `perfetto_trace.json.gz`, any host's file beside it."""
    if path.name == XLA_PERFETTO:
        return {one for one in path.parent.glob(f"*{XLA_VIEWER}") if one != path}
    plain = path.name.removesuffix(".gz")
    return {path.with_name(plain.removesuffix(XLA_SPACE) + XLA_VIEWER)} if plain.endswith(XLA_SPACE) else set()


XLA = Format(
    "xla",
    _is_xla,
    "xla.xla_profile:read_json",
    "a JAX profile",
    (XLA_VIEWER,),
    memory=MemoryPerByte(read=6),
    twins=_xla_twins,
)
XPLANE = Format(
    "xplane",
    lambda head: head.name.lower().endswith(XLA_SPACES),
    "xla.xla_profile:read_xplane",
    suffixes=XLA_SPACES,
    memory=MemoryPerByte(read=16),
    twins=_xla_twins,
)

# Perfetto; torch gzips its own, whatever their names.

_PERFETTO_SUFFIXES = tuple(one + packed for one in (".pftrace", ".perfetto-trace") for packed in ("", ".gz"))


def _perfetto_twins(path: Path) -> set[Path]:
    plain = next(path.name.removesuffix(one) for one in (*_PERFETTO_SUFFIXES, "") if path.name.endswith(one))
    return {path.with_name(plain + suffix) for suffix in (".json", ".json.gz")}


PERFETTO = Format(
    "perfetto",
    lambda head: head.name.lower().endswith(_PERFETTO_SUFFIXES),
    "perfetto.perfetto_trace:read",
    "a .pftrace",
    _PERFETTO_SUFFIXES,
    memory=MemoryPerByte(read=16),
    twins=_perfetto_twins,
)

# torch.profiler, after the other formats of JSON.

_KINETO_KEYS = (b'"traceEvents"', b'"distributedInfo"', b'"deviceProperties"', b'"schemaVersion"')
_KINETO_KEYS_WITHIN = 1 << 16  # bytes


def _is_kineto(head: FileHead) -> bool:
    start = head.plain.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    if not start:
        return head.is_gzip  # whose data are damaged or missing, as its reader says
    return start in (b"{", b"[") or any(key in head.plain for key in _KINETO_KEYS)  # a log may stand in front


def _is_likely_kineto(path: Path) -> bool:
    if path.name.endswith(".gz"):
        return True
    try:
        with path.open("rb") as file:
            head = file.read(_KINETO_KEYS_WITHIN)
    except OSError:
        return True  # for the reader to say what is wrong
    return head.lstrip()[:1] == b"[" or any(key in head for key in _KINETO_KEYS)


KINETO = Format(
    "kineto",
    _is_kineto,
    "kineto.kineto_trace:read",
    "a torch.profiler trace (.json[.gz])",
    (".json", ".json.gz"),
    is_likely=_is_likely_kineto,
)

FORMATS = (
    NSYS_EXPORT,
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


def format_of(kind: str) -> Format:
    """The format of a kind; what is no capture, such as a manifest behind a URL, the reader of pasted text refuses."""
    return next((one for one in FORMATS if one.kind == kind), STATS)


# Formats that aren't read, by name: what a file is, and what to export in its place.


class Unread(msgspec.Struct, frozen=True):
    """One such format: what its files are, and what to do; they are told by names, by first bytes, or by a sign.

    sign : what the first bytes hold of JSON of another tool, which would pass for a trace of torch.profiler.
    """

    what: str
    hint: str
    suffixes: tuple[str, ...] = ()
    start: bytes | None = None
    sign: re.Pattern[bytes] | None = None


UNREAD_FORMATS = (
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
    by_name = (one for one in UNREAD_FORMATS if head.name.lower().endswith(one.suffixes))
    by_start = (one for one in UNREAD_FORMATS if one.start and head.raw.startswith(one.start))
    return next(by_name, None) or next(by_start, None)


def unread_json(head: FileHead) -> Unread | None:
    """The tool that wrote a file of JSON events, if its events aren't read; by its first bytes."""
    if _OF_TORCH in head.plain:
        return None
    return next((one for one in UNREAD_JSON if one.sign and one.sign.search(head.plain)), None)
