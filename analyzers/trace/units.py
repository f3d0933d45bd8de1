"""GPU times in another unit than the host's: a file that was converted, or written, with µs for ns.

An op starts after its launch, and what the host waited for has ended once it goes on. So a process's ops are in another
unit than its calls where

- they all lie outside the span of their launches, and theirs is a thousandth of that span, or a thousand times as long:
  launches from 2.0 s to 2.1 s, kernels from 2.0 ms to 2.1 ms. Before their launches no ops can be, so that half or
  twice that will do; behind, where a queue may hold them, they have to be far off and to fit well;
- most of them start before their launch, and all within a tenth of the time in which they were launched: launches from
  0 to 40 ms, kernels from 0 to 100 µs. A queue holds ops until all are launched; it runs none before;
- the host waited for the device, and those launched before lasted over ten times as long as it had had for them:
  launches from 0 on, the wait over at 70 ms, kernels until 70 s. In real captures they last at most as long;
- they last over ten times as long as their launches, and these took less than 100 ns each, or ops that were launched
  long before follow each other after 500 µs and more: in real captures launches take µs, and such ops follow at once.
"""

from __future__ import annotations

import re
from math import log10

import numpy as np

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Ints
from analyzers.common.wording import count_of, duration
from analyzers.trace.columns import codes, ints, ints_at, lanes, of_codes
from analyzers.trace.tables import Trace
from analyzers.trace.unread import noted

OTHER_UNIT = "unit-differs"
FEW = 3  # ops below which their span tells nothing
UNITS = (1e-6, 1e-3, 1e3, 1e6)
_WIDE, _NARROW = 2.0, 1.25  # factors by which a ratio may be off
_FAR_NS = 1_000_000_000
_APART = 10.0  # so many times shorter or longer than ops can be
_SHORTEST_CALL_NS, _LONGEST_GAP_NS = 100, 500_000  # measured: 400 and more, 13,000 and less
_GAPS = 10  # that tell
_WAIT = re.compile(r"(cudaDevice|cudaThread|cuCtx|hipDevice|hipCtx)Synchronize")


def about_units(trace: Trace) -> Trace:
    """Warn of a capture's processes whose ops can't be in the unit of the calls that launched them."""
    launch, start = ints(trace.ops, "launch"), ints(trace.ops, "start_ns")
    launched = np.flatnonzero(launch >= 0)
    if not launched.size:
        return trace
    called, waits = ints(trace.api, "start_ns")[launch[launched]], _last_waits(trace)
    kind, kinds = codes(trace.ops, "kind")  # each is a table of its own
    keys = ints(trace.ops, "process")[launched], kind[launched].astype(np.int64)
    for (process, which), rows in rows_by_key(*keys).items():
        own, at = launched[rows], called[rows]
        ops, calls = _span(start[own]), _span(at)
        unit = None
        if rows.size >= FEW:
            wait = waits.get((process,))
            unit = _unit(ops, calls) or _of_early(start[own], at) or (wait and _of_late(trace, own, at, wait))
            unit = unit or _of_queued(trace, launched[keys[0] == process])
        if unit is not None:
            those, began, called_at = count_of(rows.size, kinds[which]), _in_words(ops), _in_words(calls)
            text = (
                f"GPU times of process {trace.processes[process].pid} are not in the unit of the host's: its {those} "
                f"begin {began}, the calls that launched them {called_at}, as if they were multiplied by {unit:g}. No "
                "figure of them holds. Convert or export the capture again."
            )
            which_ops = f"the times of {those}, which are not in the unit of the host's"
            trace = noted(trace.warn(OTHER_UNIT, text), which_ops, process=process)
    return trace


def _span(times: Ints) -> tuple[int, int]:
    return int(times.min()), int(times.max())


def _in_words(span: tuple[int, int]) -> str:
    return f"between {duration(span[0])} and {duration(span[1])}"


def _unit(ops: tuple[int, int], calls: tuple[int, int]) -> float | None:
    """What ops' times are multiplied by, against their calls'; None where they may be in one unit."""
    before, behind = ops[1] < calls[0], ops[0] - calls[1] > _FAR_NS
    if not (before or behind) or calls[0] == calls[1]:
        return None
    ratio = (ops[1] - ops[0]) / (calls[1] - calls[0])
    allowed = _WIDE if before else _NARROW
    return next((unit for unit in UNITS if unit / allowed <= ratio <= unit * allowed), None)


def _of_early(starts: Ints, calls: Ints) -> float | None:
    """What times of ops are multiplied by that begin before their launch, and too close to each other."""
    first, last = _span(calls)
    ratio = (int(starts.max()) - int(starts.min())) / max(last - first, 1)
    is_early = 2 * np.count_nonzero(starts < calls) > starts.size
    return _nearest(ratio) if is_early and ratio < 1 / _APART else None


def _of_late(trace: Trace, ops: Ints, calls: Ints, wait: tuple[int, int]) -> float | None:
    """What times of ops of one device are multiplied by that lasted longer than the host had waited for them.

    Parameters
    ----------
    wait : begin and end of the process's last wait for the device.
    """
    before = np.flatnonzero(calls < wait[0])
    if before.size < FEW or np.unique(ints_at(trace.ops, "device", ops)).size > 1:
        return None
    start, end = (ints_at(trace.ops, column, ops[before]) for column in ("start_ns", "end_ns"))
    ratio = (int(end.max()) - int(start.min())) / max(wait[1] - int(calls[before].min()), 1)
    return _nearest(ratio) if ratio > _APART else None


def _of_queued(trace: Trace, ops: Ints) -> float | None:
    """What times of a process's ops are multiplied by that last far longer than launches, which take no time.

    So, too, where what stood in a stream's queue begins long after the op before it has ended.
    """
    calls = ints_at(trace.ops, "launch", ops)
    start, end = (ints_at(trace.ops, column, ops) for column in ("start_ns", "end_ns"))
    called, returned = (ints_at(trace.api, column, calls) for column in ("start_ns", "end_ns"))
    ratio = (int(end.max()) - int(start.min())) / max(int(returned.max()) - int(called.min()), 1)
    if ratio <= _APART:
        return None
    is_short = np.median(returned - called) < _SHORTEST_CALL_NS
    return _nearest(ratio) if is_short or _idles(lanes(trace.ops)[ops], start, end, returned) else None


def _idles(lane: Ints, start: Ints, end: Ints, returned: Ints) -> bool:
    """Whether streams mostly wait before ops that were launched before the one before them began."""
    order = np.lexsort((start, lane))
    one, following = order[:-1], order[1:]
    queued = (lane[one] == lane[following]) & (returned[following] < start[one])
    gaps = (start[following] - end[one])[queued]
    return gaps.size >= _GAPS and float(np.percentile(gaps, 25)) > _LONGEST_GAP_NS


def _last_waits(trace: Trace) -> dict[tuple[int, ...], tuple[int, int]]:
    """Of each process's last host call that waits for all of a device: begin and end."""
    code, names = codes(trace.api, "name")
    waits = np.flatnonzero(of_codes(code, [_WAIT.fullmatch(name) is not None for name in names]))
    start, end = (ints_at(trace.api, column, waits) for column in ("start_ns", "end_ns"))
    last = {
        key: rows[int(np.argmax(start[rows]))]
        for key, rows in rows_by_key(ints_at(trace.api, "process", waits)).items()
    }
    return {key: (int(start[row]), int(end[row])) for key, row in last.items()}


def _nearest(ratio: float) -> float:
    """The unit that a ratio is closest to, by magnitude."""
    return min(UNITS, key=lambda unit: abs(log10(max(ratio, min(UNITS))) - log10(unit)))
