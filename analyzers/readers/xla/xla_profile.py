"""Make a Trace of a profile of XLA.

Only streams of devices hold ops: "XLA Ops", "XLA Modules" and their like are derived from them, and would count twice.
An op names its HLO op and module: each run of ops of one stream for one HLO op is a range of kind "hlo", and so is each
run of a module on a device. Communication is known by the names of kernels; the HLO op tells which operation it is, and
its name, without "-start", which calls of all devices belong together: all run the same program.
"""

from __future__ import annotations

import re
from collections import Counter
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from analyzers.arrays.groups import first_row, run_heads
from analyzers.arrays.names import Names
from analyzers.arrays.types import Ints, Mask
from analyzers.common.errors import TracevizError, TraceWarning
from analyzers.common.progress import Progress
from analyzers.readers.json_events import MOST_NS, nanoseconds
from analyzers.readers.reading import Reading
from analyzers.readers.xla.profile import HOST, NO_STREAM, Profile, profile_of_json, profile_of_planes
from analyzers.trace.columns import span
from analyzers.trace.kernels import is_communication_kernel
from analyzers.trace.ranks import claim_of_name
from analyzers.trace.schemas import COPY_KINDS, Calls, CommunicationCalls, Devices, Ops, Ranges
from analyzers.trace.tables import Capture, Process, Trace
from analyzers.trace.unread import with_unread

_COPY = re.compile(r"Memcpy([HDP])2([HDP])")
_SIZES = {
    **{name: re.compile(rf"\b{name}:(\d+(?:,\d+)*)") for name in ("grid", "block")},
    **{name: re.compile(rf"\b{name}:(\d+)") for name in ("regs", "static_shared", "dynamic_shared", "size")},
}
_MEMORY = re.compile(r"\bkind_(src|dst):(\w+)")
_MEMORIES = ("pageable", "pinned", "device", "array", "managed")
_COLLECTIVES = {
    "all-reduce": "all_reduce",
    "all-gather": "all_gather",
    "reduce-scatter": "reduce_scatter",
    "all-to-all": "all_to_all",
    "ragged-all-to-all": "all_to_all",
    "collective-permute": "send_recv",
    "collective-broadcast": "broadcast",
    "send": "send",
    "recv": "recv",
}
_COLLECTIVE = re.compile(rf"({'|'.join(sorted(_COLLECTIVES, key=len, reverse=True))})(-start|-done)?(\.[\w.]+)?")
_KINDS = {"Memcpy": "memcpy", "Memset": "memset", "CudaGraph": "graph"}
_MOST_SIZE = 2**31 - 1
_LACKS = (
    "waits between streams and missing ones: XLA's profiler logs no events",
    "the devices' limits, and so whether one was full",
    "sizes of messages and the ranks of a group: collectives are matched by the names of their HLO ops, in order",
    "which annotation an op was launched for: a thread of XLA's own launches it (select by hlo: instead)",
    "runs of one module right after another, where no line 'XLA Modules' tells them apart",
)


def collective_of(hlo_op: str) -> tuple[str, str]:
    """The operation of a collective's HLO op, and what its start and its done have in common; "" where it is none.

    >>> collective_of("all-reduce-start.12"), collective_of("all-gather.3"), collective_of("fusion.1")
    (('all_reduce', 'all-reduce.12'), ('all_gather', 'all-gather.3'), ('', ''))
    """
    found = _COLLECTIVE.fullmatch(hlo_op)
    return (_COLLECTIVES[found[1]], found[1] + (found[3] or "")) if found else ("", "")


def read_json(path: Path, progress: Progress, _: Reading) -> Trace:
    """Read a `.trace.json.gz`; raises a TracevizError as `profile_of_json` and `trace_of` do."""
    return trace_of(path, profile_of_json(path, progress))


def read_xplane(path: Path, progress: Progress, _: Reading) -> Trace:
    """Read an `.xplane.pb`; raises a TracevizError as `profile_of_planes` and `trace_of` do."""
    return trace_of(path, profile_of_planes(path, progress))


def trace_of(path: Path, profile: Profile) -> Trace:
    """Make the Trace.

    Raises
    ------
    TracevizError : there is no work of a GPU in it.
    """
    rows = _Rows(profile)
    if not rows.op.size:
        lost = profile.unreadable + profile.unread.count
        unread = f" {lost:,} of its events could not be read." if lost else ""
        raise TracevizError(
            f"This profile of XLA holds no work of a GPU.{unread}",
            path=path,
            hint="Was it recorded on GPUs? Lines of CPUs and TPUs are not read.",
            exit_code=3 if profile.unread.count else 2,
        )
    api = Calls.of(
        {
            "thread": rows.thread[rows.call],
            "name": rows.texts("name", rows.call),
            "start_ns": rows.start[rows.call],
            "end_ns": rows.end[rows.call],
            "correlation": rows.correlation[rows.call],
        }
    )
    hlo, of_op = _hlo(rows)
    ops = _ops(rows, api).having(hlo=of_op)
    ranges = _ranges(rows, hlo)
    names = api.name.texts
    runtime = "HIP" if any(name.startswith("hip") for name in names) else "CUDA" if names else "GPU"
    first_ns, last_ns = span(ops, api, ranges)
    start_utc_ns = None if profile.begun_ns is None else profile.begun_ns + rows.zero
    capture = Capture(
        path=str(path),
        format="xla",
        producer="XLA profiler",
        host=profile.host,
        start_utc_ns=start_utc_ns,
        first_ns=first_ns,
        last_ns=last_ns,
        runtime=runtime,
        waits_logged=False,
        lacks=_LACKS,
        unused={**rows.unused, **profile.unused},
    )
    made = Trace(
        captures=(capture,),
        processes=(Process(capture=0, pid=-1, host=profile.host, claims=claim_of_name(path)),),
        ops=ops,
        api=api,
        ranges=ranges,
        comms=_comms(rows, ops, api),
        devices=Devices.of({"device": np.unique(ops.device)}),
        origin_utc_ns=start_utc_ns,
        warnings=rows.warnings,
    )
    return with_unread(made, profile.unread)


class _Rows:
    """Rows of the profile that are ops, runs of modules, calls and ranges of the host; times count from `zero`."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        line = np.array(profile.line, np.int64)
        start, end = nanoseconds(profile.start_ps), nanoseconds(profile.end_ps)

        def of_line(name: str, kind: type) -> Any:
            return np.array([getattr(one, name) for one in profile.lines] or [0], kind)[line]

        device, stream, self.thread = (of_line(name, np.int64) for name in ("device", "stream", "thread"))
        named, modules, of_host = (of_line(name, bool) for name in ("named", "modules", "of_host"))
        correlation = np.array(profile.correlation, np.int64)
        told = np.array([text != "" for text in profile.details], bool)
        fine = (end >= start) & (np.abs(start) < MOST_NS) & (np.abs(end) < MOST_NS)
        unnamed = ~named & (told | (correlation >= 0))  # the file does not say that it is a stream
        is_op = fine & (device != HOST) & ((stream != NO_STREAM) | unnamed)
        on_host = fine & (device == HOST)
        # A launch may be called like what it launches, with the same details: its thread or its op says what it is.
        astray = on_host & told & ~of_host & ~np.isin(correlation, correlation[is_op & (correlation >= 0)])
        self.op, self.module_run = np.flatnonzero(is_op), np.flatnonzero(fine & modules)
        self.call = np.flatnonzero(on_host & ~astray & (correlation >= 0))
        self.range = np.flatnonzero(on_host & ~told & (correlation < 0))
        derived = fine & ~is_op & ~modules & (device != HOST)  # lines that were derived, and
        launches = on_host & told & ~astray & (correlation < 0)  # launches that launch nothing
        counts = np.bincount(line[derived], minlength=len(profile.lines)).tolist()
        unused = Counter[str]()
        for one, count in zip(profile.lines, counts, strict=True):
            unused["events on " + (f"lines '{one.name}'" if one.name else "lines without a name")] += count
        unused["launches on host lines without a correlation id"] = int(np.count_nonzero(launches))
        self.unused = dict(+unused)
        kept = np.concatenate([self.op, self.call, self.range])
        self.zero = int(start[kept].min()) if kept.size else 0
        self.start, self.end, self.device, self.correlation = start - self.zero, end - self.zero, device, correlation
        self.stream = np.where(stream != NO_STREAM, stream, self.thread)
        left_out = (
            ("unreadable-events", profile.unreadable, "have no readable name, line or time"),
            ("absurd-times", int(np.count_nonzero(~fine)), "end before they start, or lie beyond any date"),
            ("unnamed-lines", int(np.count_nonzero(astray)), "of a GPU stand on lines that the file does not name"),
        )
        found = [TraceWarning(code, f"{n:,} events {text}; they are left out.") for code, n, text in left_out if n]
        if profile.cut:
            text = "The file holds as many events as XLA writes for viewers; more are left out. Give the .xplane.pb."
            found.append(TraceWarning("lost-work", text))
        self.warnings = tuple(found)

    def texts(self, column: str, rows: Ints) -> list[str]:
        """Some rows of a column of texts."""
        values: list[str] = getattr(self.profile, column)
        return [values[row] for row in rows]


def _ops(rows: _Rows, api: Calls) -> Ops:
    names, details = rows.texts("name", rows.op), rows.texts("details", rows.op)
    kinds = [next((kind for sign, kind in _KINDS.items() if name.startswith(sign)), "kernel") for name in names]
    said = {one: _said(one) for one in set(details)}  # kernels repeat
    correlation = rows.correlation[rows.op]
    return Ops.of(
        {
            "device": rows.device[rows.op],
            "stream": rows.stream[rows.op],
            "kind": kinds,
            "name": names,
            "start_ns": rows.start[rows.op],
            "end_ns": rows.end[rows.op],
            "correlation": correlation,
            "launch": first_row(api.correlation, correlation),
            "copy": [_copy(name) if kind == "memcpy" else "" for name, kind in zip(names, kinds, strict=True)],
            **{field: [said[one][field] for one in details] for field in _said("")},
        }
    )


def _copy(name: str) -> str:
    found = _COPY.match(name)
    kind = f"{found[1]}to{found[2]}" if found else ""
    return kind if kind in COPY_KINDS else "unknown"


def _said(details: str) -> dict[str, Any]:
    """Columns of ops in a text such as "regs:32 static_shared:0 dynamic_shared:0 grid:64,1,1 block:256,1,1"."""
    number = {}
    for name, pattern in _SIZES.items():
        match = pattern.search(details)
        size = prod(int(each) for each in match[1].split(",")) if match else -1
        number[name] = size if size <= _MOST_SIZE else -1
    shared = [number[name] for name in ("static_shared", "dynamic_shared") if number[name] >= 0]
    memory = dict(_MEMORY.findall(details))
    source, target = (
        "" if end not in memory else memory[end] if memory[end] in _MEMORIES else "unknown" for end in ("src", "dst")
    )
    return {
        **{name: number[name] for name in ("grid", "block")},
        "registers": number["regs"],
        "shared_bytes": sum(shared) if shared else -1,
        "bytes": number["size"],
        "source_memory": source,
        "target_memory": target,
    }


class _Hlo(NamedTuple):
    """Ranges of HLO ops and of modules: where each begins and ends, its name, its number, its module's number."""

    start: Ints
    end: Ints
    name: npt.NDArray[np.object_]
    id: Ints
    module: Ints


def _hlo(rows: _Rows) -> tuple[_Hlo, Ints]:
    """The ranges, and of each op the number of the one that it ran for, -1 for none."""
    op, module, run = (np.array(rows.texts(name, rows.op), object) for name in ("hlo_op", "hlo_module", "run"))
    device, stream, start = rows.device[rows.op], rows.stream[rows.op], rows.start[rows.op]
    of_module = np.flatnonzero(module != "")
    of_module = of_module[np.lexsort((start[of_module], device[of_module]))]
    which = [Names.of(texts[of_module]).codes for texts in (module, run)]
    heads = run_heads(device[of_module], *which, _runs_of_modules(rows)[of_module])
    modules, number_of_module = _spans(rows, of_module, heads, module, 0)
    of_op = np.flatnonzero(op != "")
    of_op = of_op[np.lexsort((start[of_op], stream[of_op], device[of_op]))]
    heads = run_heads(device[of_op], stream[of_op], Names.of(op[of_op]).codes, number_of_module[of_op])
    ops, number_of_op = _spans(rows, of_op, heads, op, modules.id.size)
    ops = ops._replace(module=number_of_module[of_op[heads]])
    both = _Hlo(*(np.concatenate(column) for column in zip(modules, ops, strict=True)))
    return both, np.where(number_of_op >= 0, number_of_op, number_of_module)


def _runs_of_modules(rows: _Rows) -> Ints:
    """Of each op which run of a module it began in, by its device's line derived of them; -1 where there is none."""
    found = np.full(rows.op.size, -1, np.int64)
    device, start = rows.device[rows.op], rows.start[rows.op]
    for which in np.unique(rows.device[rows.module_run]).tolist():
        begins = np.sort(rows.start[rows.module_run[rows.device[rows.module_run] == which]])
        mine = np.flatnonzero(device == which)
        found[mine] = np.searchsorted(begins, start[mine], side="right") - 1
    return found


def _spans(rows: _Rows, ordered: Ints, heads: Mask, names: npt.NDArray[np.object_], first: int) -> tuple[_Hlo, Ints]:
    """One range for each run of ops, numbered from `first` on; and of each op the number of its range."""
    number = np.full(rows.op.size, -1, np.int64)
    at = np.flatnonzero(heads)
    number[ordered] = first + np.cumsum(heads) - 1
    end = np.maximum.reduceat(rows.end[rows.op[ordered]], at) if at.size else np.empty(0, np.int64)
    ids = first + np.arange(at.size)
    return _Hlo(rows.start[rows.op[ordered[at]]], end, names[ordered[at]], ids, np.full(at.size, -1, np.int64)), number


def _ranges(rows: _Rows, hlo: _Hlo) -> Ranges:
    """Ranges of the host, and below them those of HLO."""
    names, steps = rows.texts("name", rows.range), rows.texts("step", rows.range)
    kinds = [_range_kind(name) for name in names]
    names = [f"step {step}" if step.isdecimal() else name for name, step in zip(names, steps, strict=True)]
    none = np.full(rows.range.size, -1, np.int64)
    return Ranges.of(
        {
            "thread": np.concatenate([rows.thread[rows.range], np.full(hlo.id.size, -1)]),
            "kind": [*kinds, *["hlo"] * hlo.id.size],
            "name": [*names, *hlo.name],
            "start_ns": np.concatenate([rows.start[rows.range], hlo.start]),
            "end_ns": np.concatenate([rows.end[rows.range], hlo.end]),
            "id": np.concatenate([none, hlo.id]),
            "sequence": np.concatenate([none, hlo.module]),
        }
    )


def _range_kind(name: str) -> str:
    """Python functions begin with "$"; XLA's own marks are named as its functions; others are people's.

    >>> [_range_kind(name) for name in ("$train.py:7 step", "PjitFunction(step)", "Thunk::Run", "my block")]
    ['python', 'op', 'op', 'annotation']
    """
    return "python" if name.startswith("$") else "op" if "::" in name or "(" in name else "annotation"


def _comms(rows: _Rows, ops: Ops, api: Calls) -> CommunicationCalls:
    """A row for each kernel of a collective's HLO op that its correlation id tells from others."""
    communicates = ops.name.matching(is_communication_kernel)
    ids, counts = np.unique(rows.correlation[rows.op], return_counts=True)
    known = np.isin(rows.correlation[rows.op], ids[(counts == 1) & (ids >= 0)])
    told = [collective_of(text) for text in rows.texts("hlo_op", rows.op)]
    chosen = np.flatnonzero(communicates & known & np.array([one[0] != "" for one in told], bool))
    modules = rows.texts("hlo_module", rows.op[chosen])
    launch = ops.launch[chosen]
    return CommunicationCalls.of(
        {
            "correlation": rows.correlation[rows.op[chosen]],
            "thread": np.append(api.thread, -1)[launch],
            **{name: np.append(getattr(api, name), 0)[launch] for name in ("start_ns", "end_ns")},
            "operation": [told[row][0] for row in chosen],
            "group": [f"{module}/{told[row][1]}" for module, row in zip(modules, chosen, strict=True)],
        }
    )
