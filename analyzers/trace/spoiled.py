"""Durations that can't be: on a CUDA or HIP stream, work launched op by op ends before the next op starts.

Profilers now and then write an end that belongs to another op, ms too late. It is cut at the next op's start, and
counted; `cut_ns` keeps by how much. Nodes of CUDA graphs and XLA's lanes do run together. So may two kernels of which
the second was launched to begin before the first has ended, and waits for that (programmatic dependent launch): its
call is a launch with attributes, and it ends after the first. For more than some µs only such pairs do that always do.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import label
from analyzers.arrays.types import Ints, Mask
from analyzers.common.wording import count_of, duration
from analyzers.trace.columns import assigned, codes, ints, ints_at, is_one_of, lanes, of_codes
from analyzers.trace.tables import Process, Trace

FORMATS = ("kineto", "nsys")  # whose lanes are streams of the runtime
IN_ORDER = ("CUDA", "HIP")  # runtimes whose streams keep order; a queue of SYCL need not
TOLERATED_NS = 1_000  # no timestamp of a GPU is trusted to better than this
DEPENDENT_NS = 20_000  # how long a kernel may run before the one that it depends on has ended, whatever others do
PAIRS, MOST = 5, 0.9  # of so many pairs of two kernels such a share overlaps, where their launch has them overlap
MOST_NAMED = 8


def cut_spoiled(trace: Trace) -> Trace:
    """A trace of one capture whose ops end by the start of the next on their stream; counted by process."""
    if not all(one.format in FORMATS and one.runtime in IN_ORDER for one in trace.captures):
        return trace
    cut = _past_the_next(trace)
    if not cut.any():
        return trace
    ops = assigned(trace.ops, {"end_ns": ints(trace.ops, "end_ns") - cut, "cut_ns": cut})
    process = ints(trace.ops, "process")
    count = np.bincount(process[cut > 0], minlength=len(trace.processes)).tolist()
    total = np.bincount(process, weights=cut, minlength=len(trace.processes)).tolist()
    processes = tuple(
        replace(one, cut=count[number], cut_ns=round(total[number])) for number, one in enumerate(trace.processes)
    )
    return replace(trace, ops=ops, processes=processes)


def _past_the_next(trace: Trace) -> Ints:
    """By how much each op runs past the start of the next on its stream, ns; 0 where that may be."""
    ops, cut = trace.ops, np.zeros(len(trace.ops), np.int64)
    lane, start, end = lanes(ops), ints(ops, "start_ns"), ints(ops, "end_ns")
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
    names = codes(trace.ops, "name")[0].astype(np.int64)
    pair = label(names[one], names[following])
    count, of_those = np.bincount(pair), np.bincount(pair, weights=early)
    return ((count >= PAIRS) & (of_those >= MOST * count))[pair]


def _launched_by_itself(trace: Trace) -> Mask:
    """Ops on a known stream whose launch launched nothing else, and that are no node of a graph or of a module."""
    ops, launch = trace.ops, ints(trace.ops, "launch")
    of_each = np.bincount(launch[launch >= 0], minlength=len(trace.api) + 1)
    alone: Mask = (launch >= 0) & (of_each[launch] == 1) & (ints(ops, "stream") >= 0)
    return alone & (ints(ops, "graph") < 0) & (ints(ops, "hlo") < 0) & ~is_one_of(ops, "kind", ("graph",))


def may_begin_early(trace: Trace, ops: Ints) -> Mask:
    """Which ops are kernels whose launch has attributes; one may be that they begin before the one before them ends."""
    code, names = codes(trace.api, "name")
    with_attributes = np.append(of_codes(code, ["LaunchKernelEx" in name for name in names]), False)
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
