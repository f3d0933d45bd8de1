"""What blocked the host inside a range.

A call is inside where it is made between begin and end of the range, on the range's own thread or on one that launches
the range's work for it, as autograd's does. Of another thread that launches work meanwhile nothing tells whose it is:
then it is open. Threads that launch nothing, such as one that takes over copies, are no business of the range's.

What depends on timing alone does not count: first loads of kernels, and allocations, which drain the device or do not.
"""

from __future__ import annotations

import numpy as np

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Ints, Mask
from analyzers.common.records import Record
from analyzers.common.wording import ranks_in_words
from analyzers.contracts.rules import NoHostSync, range_atom
from analyzers.select.language import Atom
from analyzers.select.picking import named_ranges
from analyzers.syncs.context import enclosing
from analyzers.syncs.points import host_syncs
from analyzers.trace.columns import as_int64, ints
from analyzers.trace.ranges import launched_in, launches, range_classes
from analyzers.trace.tables import Trace
from analyzers.trace.untrusted import names_lost

BY_CHANCE = ("memory", "module")  # kinds of sync points


class Blocked(Record, frozen=True):
    """A call, a row of `Trace.api`, that blocked the host inside a range; `where` is which of the range's."""

    rank: int
    call: int
    at_ns: int
    where: str


class BlockedIn(Record, frozen=True):
    """What blocked the host in `occurrences` of a range, `broken` of which have a call that is not excepted.

    `open` says what may have, `reason` why nothing can be told; "" where there is none.
    """

    occurrences: int = 0
    broken: int = 0
    syncs: tuple[Blocked, ...] = ()
    open: str = ""
    reason: str = ""


def blocked_in(trace: Trace, rule: NoHostSync) -> BlockedIn:
    """Look for the calls that a rule forbids in a trace, or a part of one."""
    whole = trace.whole or trace
    atom = range_atom(rule.inside)
    assert atom is not None
    named = _of_part(trace, whole, named_ranges(whole, atom))
    if not named.any():
        return BlockedIn(reason=f"the capture has no range '{atom}'")
    rows = np.flatnonzero(named)
    owner = as_int64(whole.ranges.process)
    unknown = np.setdiff1d(owner[rows], as_int64(whole.api.process))
    if unknown.size:
        ranks = ranks_in_words(whole.processes[process].rank for process in unknown.tolist())
        calls = f"no {whole.runtime} calls of {ranks} were recorded"
        return BlockedIn(reason=f"{calls}, so nothing tells what blocked the host")
    lost = names_lost(trace, least=0.0)
    syncs = host_syncs(whole).table
    syncs = syncs[~syncs["kind"].isin(BY_CHANCE)]
    call = ints(syncs, "call")
    call = np.sort(call)
    process, thread, start = (ints(whole.api, column)[call] for column in ("process", "thread", "start_ns"))
    point, around = enclosing(whole.ranges, process, thread, start)
    inside = np.full(call.size, -1, np.int64)  # the row of the range that each is in
    at_range = named[around]
    inside[point[at_range]] = around[at_range]
    tied, elsewhere = _other_threads(whole, rows, process, thread, start)
    inside = np.where(inside >= 0, inside, tied)
    excepted = _excepted(whole, rule.excepted, call, point, around, inside)
    found = np.flatnonzero((inside >= 0) & ~excepted)
    code, names = whole.ranges.name.codes, whole.ranges.name.texts
    number = np.full(len(whole.ranges), -1, np.int64)
    for of_process in rows_by_key(owner[rows]).values():
        mine = rows[of_process]
        number[mine[np.argsort(whole.ranges.start_ns[mine], kind="stable")]] = np.arange(mine.size)
    blocked = tuple(
        Blocked(
            whole.processes[int(process[at])].rank,
            int(call[at]),
            int(start[at]),
            f"{names[code[inside[at]]]}, occurrence {number[inside[at]]}",
        )
        for at in found.tolist()
    )
    is_open = (inside < 0) & (elsewhere >= 0) & ~_excepted(whole, rule.excepted, call, point, around, elsewhere)
    open_text = lost
    if is_open.any():
        threads = ", ".join(map(str, np.unique(thread[is_open]).tolist()[:4]))
        open_text = f"thread {threads} blocked while '{rule.inside}' was open elsewhere, and nothing tells for whom"
    return BlockedIn(rows.size, np.unique(inside[found]).size, blocked, open_text)


def _of_part(trace: Trace, whole: Trace, named: Mask) -> Mask:
    """Ranges of the part's ranks, from its first launch to its last."""
    ranks = np.array([one.rank for one in whole.processes])
    kept = named & np.isin(ranks[as_int64(whole.ranges.process)], trace.rank_ids)
    launched = launches(trace)[1][as_int64(trace.ops.launch) >= 0]
    if trace.whole is not None and launched.size:
        kept &= (whole.ranges.end_ns >= launched.min()) & (whole.ranges.start_ns <= launched.max())
    return kept


def _other_threads(whole: Trace, rows: Ints, process: Ints, thread: Ints, start: Ints) -> tuple[Ints, Ints]:
    """The range open while another thread made a call: one that launches for it, or one that launches at all."""
    wanted = np.zeros(len(whole.ranges), dtype=bool)
    wanted[rows] = True
    occurrence, _ = launched_in(whole, wanted)
    op_thread, op_process = launches(whole)[0], as_int64(whole.ops.process)
    launched = as_int64(whole.ops.launch) >= 0
    low, high, owner, own = (ints(whole.ranges, c) for c in ("start_ns", "end_ns", "process", "thread"))
    tied, elsewhere = np.full(process.size, -1, np.int64), np.full(process.size, -1, np.int64)
    of_call = rows_by_key(process, thread)
    for (one, its_thread), calls in of_call.items():
        mine = launched & (op_process == one) & (op_thread == its_thread)
        if not mine.any():
            continue
        launched_for = np.unique(occurrence[mine])
        for which, candidates in ((tied, launched_for[launched_for >= 0]), (elsewhere, rows[owner[rows] == one])):
            candidates = candidates[own[candidates] != its_thread]
            candidates = candidates[np.argsort(low[candidates], kind="stable")]
            if candidates.size:
                reach = np.maximum.accumulate(high[candidates])
                at = np.searchsorted(low[candidates], start[calls], side="right") - 1
                open_then = (at >= 0) & (start[calls] <= reach[np.maximum(at, 0)])
                which[calls] = np.where(open_then, candidates[np.maximum(at, 0)], which[calls])
    return tied, elsewhere


def _excepted(whole: Trace, texts: tuple[str, ...], call: Ints, point: Ints, around: Ints, inside: Ints) -> Mask:
    """Which calls a text excepts: by their own name, or by an operator or a range around them within the range."""
    found = np.zeros(call.size, dtype=bool)
    api_code, api_names = whole.api.name.codes, whole.api.name.texts
    range_code, range_names = whole.ranges.name.codes, whole.ranges.name.texts
    is_op, is_range, _ = whole.once(range_classes)
    start = whole.ranges.start_ns
    within = (inside[point] >= 0) & (around != inside[point]) & (start[around] >= start[inside[point]])
    for text in texts:
        kind, _, name = text.partition(":")
        named = kind in ("api", "op", "nvtx") and not name.startswith(":")
        fits = Atom("nvtx", name if named else text).matcher(whole=True)
        if not named or kind == "api":
            plain = np.array([fits(each) or fits(each.rsplit("_v", 1)[0]) for each in api_names] + [False])
            found |= plain[api_code[call]]
        if not named or kind != "api":
            fitting = np.array([fits(each) for each in range_names] + [False])[range_code[around]] & within
            fitting &= (is_op | is_range)[around] if not named else (is_op if kind == "op" else is_range)[around]
            found[point[fitting]] = True
    return found
