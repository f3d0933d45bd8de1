"""Times that can't be meant: in another unit than the host's, none at all, or running past the next op of a stream."""

from __future__ import annotations

import re
from math import log10

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import label, rows_by_key
from analyzers.arrays.types import Ints, Mask
from analyzers.common.wording import count_of, duration
from analyzers.trace.columns import as_int64, ints_at, lanes
from analyzers.trace.tables import Process, Trace
from analyzers.trace.unread import noted

# GPU times in another unit than the host's: a file that was converted, or written, with µs for ns.
#
# An op starts after its launch, and what the host waited for has ended once it goes on. So a process's ops are in
# another unit than its calls where
#
# - they all lie outside the span of their launches, and theirs is a thousandth of that span, or a thousand times it:
#   launches from 2.0 s to 2.1 s, kernels from 2.0 ms to 2.1 ms. Before their launches no ops can be, so that half or
#   twice that will do; behind, where a queue may hold them, they have to be far off and to fit well;
# - most of them start before their launch, all within a tenth of the time in which they were launched: launches from
#   0 to 40 ms, kernels from 0 to 100 µs. A queue holds ops until all are launched; it runs none before;
# - the host waited for the device, and those launched before lasted over ten times as long as it had had for them:
#   launches from 0 on, the wait over at 70 ms, kernels until 70 s. In real captures they last at most as long;
# - they last over ten times as long as their launches, and these took less than 100 ns each, or ops that were launched
#   long before follow each other after 500 µs and more: in real captures launches take µs, and such ops follow at once.

OTHER_UNIT = "unit-differs"
MIN_OPS_FOR_A_SPAN = 3  # ops below which their span tells nothing
UNITS = (1e-6, 1e-3, 1e3, 1e6)
_WIDE, _NARROW = 2.0, 1.25  # factors by which a ratio may be off
_FAR_NS = 1_000_000_000
_APART = 10.0  # so many times shorter or longer than ops can be
_SHORTEST_CALL_NS, _LONGEST_GAP_NS = 100, 500_000  # measured: 400 and more, 13,000 and less
_GAPS = 10  # that tell
_WAIT = re.compile(r"(cudaDevice|cudaThread|cuCtx|hipDevice|hipCtx)Synchronize")


def about_units(trace: Trace) -> Trace:
    """Warn of a capture's processes whose ops can't be in the unit of the calls that launched them."""
    launch, start = as_int64(trace.ops.launch), trace.ops.start_ns
    launched = np.flatnonzero(launch >= 0)
    if not launched.size:
        return trace
    called, waits = trace.api.start_ns[launch[launched]], _last_waits(trace)
    kind, kinds = trace.ops.kind.codes, trace.ops.kind.texts  # each is a table of its own
    keys = as_int64(trace.ops.process)[launched], kind[launched].astype(np.int64)
    for (process, which), rows in rows_by_key(*keys).items():
        own, at = launched[rows], called[rows]
        ops, calls = _span(start[own]), _span(at)
        unit = None
        if rows.size >= MIN_OPS_FOR_A_SPAN:
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
    if before.size < MIN_OPS_FOR_A_SPAN or np.unique(ints_at(trace.ops, "device", ops)).size > 1:
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
    waits = np.flatnonzero(trace.api.name.matching(_WAIT.fullmatch))
    start, end = (ints_at(trace.api, column, waits) for column in ("start_ns", "end_ns"))
    last = {
        key: rows[int(np.argmax(start[rows]))]
        for key, rows in rows_by_key(ints_at(trace.api, "process", waits)).items()
    }
    return {key: (int(start[row]), int(end[row])) for key, row in last.items()}


def _nearest(ratio: float) -> float:
    """The unit that a ratio is closest to, by magnitude."""
    return min(UNITS, key=lambda unit: abs(log10(max(ratio, min(UNITS))) - log10(unit)))


# Durations that no GPU work has: none on record, or in another unit than the starts.
#
# A kernel takes about 1 µs, however little it does: 0 ns, or 45 ns, is none of its times. Files that were converted or
# repaired have such. A kernel with a few of them among its runs is left as it is; where many are, a side of its rank is
# far shorter than it was, so that the rank may not even decide.

ABSURD = "absurd-times"
SHORTEST_NS = 300  # measured: no kernel, copy or memset of CUDA takes less than 640
MIN_UNTIMED_OPS, MIN_UNTIMED_SHARE = 3, 0.1  # so many ops of a process, of names of which such a share of runs has none
_WORK = ("kernel", "memcpy", "memset")


def about_durations(trace: Trace) -> Trace:
    """Warn of a capture's processes whose ops have no usable duration."""
    without = _without(trace)
    if not without.any():
        return trace
    counts = np.bincount(as_int64(trace.ops.process)[without], minlength=len(trace.processes)).tolist()
    for process, count in enumerate(counts):
        if count >= MIN_UNTIMED_OPS:
            which = f"{count_of(count, 'GPU op')} without a usable duration ({_bound(trace)})"
            text = f"Process {trace.processes[process].pid} has {which}. No figure of them holds. Capture again."
            trace = noted(trace.warn(ABSURD, text), which, process=process)
    return trace


def _least(trace: Trace) -> int:
    """The shortest that work may take, ns: of runtimes other than CUDA only nothing at all is too short."""
    is_cuda = all(one.format in FORMATS_WITH_STREAMS and one.runtime == "CUDA" for one in trace.captures)
    return SHORTEST_NS if is_cuda else 1


def _bound(trace: Trace) -> str:
    return "0 ns" if _least(trace) == 1 else f"under {_least(trace)} ns"


def _without(trace: Trace) -> Mask:
    """Ops that are too short, of kernels and copies of which more than a few are."""
    short: Mask = trace.ops.end_ns - trace.ops.start_ns < _least(trace)
    short &= trace.ops.kind.is_one_of(_WORK)
    if not short.any():
        return short
    name: Ints = trace.ops.name.codes.astype(np.int64)
    kernel = label(as_int64(trace.ops.process), name)
    too_short, runs = np.bincount(kernel, weights=short), np.bincount(kernel)
    return short & (too_short >= MIN_UNTIMED_SHARE * runs)[kernel]


# Durations that can't be: on a CUDA or HIP stream, work launched op by op ends before the next op starts.
#
# Profilers now and then write an end that belongs to another op, ms too late. It is cut at the next op's start, and
# counted; `cut_ns` keeps by how much. Nodes of CUDA graphs and XLA's lanes do run together. So may two kernels of which
# the second was launched to begin before the first has ended, and waits for that (programmatic dependent launch): its
# call is a launch with attributes, and it ends after the first. For more than some µs only such pairs do that always
# do.

FORMATS_WITH_STREAMS = ("kineto", "nsys")  # whose lanes are streams of the runtime
IN_ORDER = ("CUDA", "HIP")  # runtimes whose streams keep order; a queue of SYCL need not
TOLERATED_NS = 1_000  # no timestamp of a GPU is trusted to better than this
DEPENDENT_NS = 20_000  # how long a kernel may run before the one that it depends on has ended, whatever others do
PAIRS, MOST = 5, 0.9  # of so many pairs of two kernels such a share overlaps, where their launch has them overlap
MOST_NAMED = 8


def cut_spoiled(trace: Trace) -> Trace:
    """A trace of one capture whose ops end by the start of the next on their stream; counted by process."""
    if not all(one.format in FORMATS_WITH_STREAMS and one.runtime in IN_ORDER for one in trace.captures):
        return trace
    cut = _past_the_next(trace)
    if not cut.any():
        return trace
    ops = trace.ops.having(end_ns=trace.ops.end_ns - cut, cut_ns=cut)
    process = as_int64(trace.ops.process)
    count = np.bincount(process[cut > 0], minlength=len(trace.processes)).tolist()
    total = np.bincount(process, weights=cut, minlength=len(trace.processes)).tolist()
    processes = tuple(
        replace(one, cut=count[number], cut_ns=round(total[number])) for number, one in enumerate(trace.processes)
    )
    return replace(trace, ops=ops, processes=processes)


def _past_the_next(trace: Trace) -> Ints:
    """By how much each op runs past the start of the next on its stream, ns; 0 where that may be."""
    ops, cut = trace.ops, np.zeros(len(trace.ops), np.int64)
    lane, start, end = lanes(ops), ops.start_ns, ops.end_ns
    order = np.lexsort((start, lane))
    one, following = order[:-1], order[1:]
    past = end[one] - start[following]
    wrong = (lane[one] == lane[following]) & (past > TOLERATED_NS) & (start[following] > start[one])
    if not wrong.any():
        return cut
    by_itself = _launched_by_itself(trace)
    dependent = may_begin_early(trace, following) & (end[one] <= end[following] + TOLERATED_NS)
    dependent &= (past <= DEPENDENT_NS) | _mostly(trace, one, following, wrong & dependent)
    wrong &= by_itself[one] & by_itself[following] & ~dependent
    cut[one[wrong]] = past[wrong]
    return cut


def _mostly(trace: Trace, one: Ints, following: Ints, early: Mask) -> Mask:
    """Pairs of ops, one after the other, of which most of the same two kernels are such as `early` says."""
    names = trace.ops.name.codes.astype(np.int64)
    pair = label(names[one], names[following])
    count, of_those = np.bincount(pair), np.bincount(pair, weights=early)
    return ((count >= PAIRS) & (of_those >= MOST * count))[pair]


def _launched_by_itself(trace: Trace) -> Mask:
    """Ops on a known stream whose launch launched nothing else, and that are no node of a graph or of a module."""
    ops, launch = trace.ops, as_int64(trace.ops.launch)
    of_each = np.bincount(launch[launch >= 0], minlength=len(trace.api) + 1)
    alone: Mask = (launch >= 0) & (of_each[launch] == 1) & (ops.stream >= 0)
    return alone & (ops.graph < 0) & (ops.hlo < 0) & ~ops.kind.is_one_of(("graph",))


def may_begin_early(trace: Trace, ops: Ints) -> Mask:
    """Which ops are kernels whose launch has attributes; one may be that they begin before the one before them ends."""
    with_attributes = np.append(trace.api.name.matching(lambda name: "LaunchKernelEx" in name), False)
    return with_attributes[ints_at(trace.ops, "launch", ops)]


def about_spoiled(trace: Trace) -> Trace:
    """Warn of durations that were cut, by rank."""
    cut = [one for one in trace.processes if one.cut]
    if not cut:
        return trace
    named = "; ".join(map(_of, cut[:MOST_NAMED]))
    more = f" and {len(cut) - MOST_NAMED} ranks more" if len(cut) > MOST_NAMED else ""
    text = f"Ops ran past the start of the next one on their stream, which can't be: {named}{more}. They are cut there."
    return trace.warn("cut-durations", text)


def _of(process: Process) -> str:
    return f"{count_of(process.cut, 'op')} of rank {process.rank}, by {duration(process.cut_ns)} in all"
