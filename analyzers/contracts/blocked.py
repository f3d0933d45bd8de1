"""What blocked the host inside a range.

A call is inside where it is made between begin and end of the range, on the range's own thread or on one that launches
the range's work for it, as autograd's does. Of another thread that launches work meanwhile nothing tells whose it is:
then it is open. Threads that launch nothing, such as one that takes over copies, are no business of the range's.

What depends on timing alone does not count: first loads of kernels, and allocations, which drain the device or do not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Ints, Mask
from analyzers.common.records import Record
from analyzers.common.wording import ranks_in_words
from analyzers.contracts.rules import Rule, range_atom
from analyzers.ordering.lanes import MIN_NS, take_or
from analyzers.select.language import Atom
from analyzers.select.picking import named_ranges
from analyzers.syncs.context import enclosing, ranks_of, text_of
from analyzers.syncs.points import host_syncs
from analyzers.trace.columns import ints
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

    `open` says what may have, or why nothing can be told; "" where there is none.
    """

    occurrences: int = 0
    broken: int = 0
    syncs: tuple[Blocked, ...] = ()
    open: str = ""


def blocked_in(trace: Trace, rule: Rule) -> BlockedIn:
    """Look for the calls that a rule forbids in a trace, or a part of one."""
    whole = trace.whole or trace
    atom = range_atom(rule.a)
    assert atom is not None
    named = _of_part(trace, whole, named_ranges(whole, atom))
    if not named.any():
        return BlockedIn(open=f"the capture has no range '{atom}'")
    rows = np.flatnonzero(named)
    owner, start_ns = whole.ranges.process, whole.ranges.start_ns
    unknown = np.setdiff1d(owner[rows], whole.api.process)
    if unknown.size:
        ranks = ranks_in_words(whole.processes[process].rank for process in unknown.tolist())
        calls = f"no {whole.runtime} calls of {ranks} were recorded"
        return BlockedIn(open=f"{calls}, so nothing tells what blocked the host")
    syncs = host_syncs(whole)
    call = np.sort(syncs.call[~syncs.kind.is_one_of(BY_CHANCE)])
    process, thread, start = (ints(whole.api, column)[call] for column in ("process", "thread", "start_ns"))
    point, around = enclosing(whole.ranges, process, thread, start)
    inside = np.full(call.size, -1, np.int64)  # the row of the range that each is in
    at_range = named[around]
    inside[point[at_range]] = around[at_range]
    tied, elsewhere = _other_threads(whole, rows, process, thread, start)
    inside = np.where(inside >= 0, inside, tied)
    excepted = _excepted(whole, rule.excepted, call, point, around, inside)
    found = np.flatnonzero((inside >= 0) & ~excepted)
    number = np.full(len(whole.ranges), -1, np.int64)
    for of_process in rows_by_key(owner[rows]).values():
        mine = rows[of_process]
        number[mine[np.argsort(start_ns[mine], kind="stable")]] = np.arange(mine.size)
    names = text_of(whole.ranges.name, inside[found])
    blocked = tuple(
        Blocked(
            whole.processes[int(process[at])].rank,
            int(call[at]),
            int(start[at]),
            f"{name}, occurrence {number[inside[at]]}",
        )
        for at, name in zip(found.tolist(), names, strict=True)
    )
    is_open = (inside < 0) & (elsewhere >= 0) & ~_excepted(whole, rule.excepted, call, point, around, elsewhere)
    open_text = names_lost(trace, least=0.0)
    if is_open.any():
        threads = ", ".join(map(str, np.unique(thread[is_open]).tolist()[:4]))
        open_text = f"thread {threads} blocked while '{rule.a}' was open elsewhere, and nothing tells for whom"
    return BlockedIn(rows.size, np.unique(inside[found]).size, blocked, open_text)


def _of_part(trace: Trace, whole: Trace, named: Mask) -> Mask:
    """Ranges of the part's ranks, from its first launch to its last."""
    kept = named & np.isin(ranks_of(whole, whole.ranges.process), trace.rank_ids)
    launched = launches(trace)[1][trace.ops.launch >= 0]
    if trace.whole is not None and launched.size:
        kept &= (whole.ranges.end_ns >= launched.min()) & (whole.ranges.start_ns <= launched.max())
    return kept


def _other_threads(whole: Trace, rows: Ints, process: Ints, thread: Ints, start: Ints) -> tuple[Ints, Ints]:
    """The range open while another thread made a call: one that launches for it, or one that launches at all."""
    wanted = np.zeros(len(whole.ranges), dtype=bool)
    wanted[rows] = True
    occurrence, op_thread = launched_in(whole, wanted)[0], launches(whole)[0]
    ranges, launched = whole.ranges, whole.ops.launch >= 0
    tied, elsewhere = np.full((2, process.size), -1, np.int64)
    for (one, its_thread), calls in rows_by_key(process, thread).items():
        mine = launched & (whole.ops.process == one) & (op_thread == its_thread)
        launched_for = np.unique(occurrence[mine])
        of_process = rows[(ranges.process[rows] == one) & mine.any()]
        for which, candidates in ((tied, launched_for[launched_for >= 0]), (elsewhere, of_process)):
            candidates = candidates[ranges.thread[candidates] != its_thread]
            candidates = candidates[np.argsort(ranges.start_ns[candidates], kind="stable")]
            reach = np.maximum.accumulate(ranges.end_ns[candidates])
            at = np.searchsorted(ranges.start_ns[candidates], start[calls], side="right") - 1
            which[calls] = np.where(start[calls] <= take_or(reach, at, MIN_NS), take_or(candidates, at), -1)
    return tied, elsewhere


def _excepted(whole: Trace, texts: tuple[str, ...], call: Ints, point: Ints, around: Ints, inside: Ints) -> Mask:
    """Which calls a text excepts: by their own name, or by an operator or a range around them within the range."""
    found = np.zeros(call.size, dtype=bool)
    is_op, is_range, _ = whole.once(range_classes)
    start = whole.ranges.start_ns
    within = (inside[point] >= 0) & (around != inside[point]) & (start[around] >= start[inside[point]])
    for text in texts:
        kind, _, name = text.partition(":")
        named = kind in ("api", "op", "nvtx") and not name.startswith(":")
        fits = Atom("nvtx", name if named else text).matcher(whole=True)
        if not named or kind == "api":
            found |= whole.api.name.matching(partial(_is_call, fits))[call]
        if not named or kind != "api":
            of_kind = is_op | is_range if not named else is_op if kind == "op" else is_range
            found[point[within & (of_kind & whole.ranges.name.matching(fits))[around]]] = True
    return found


def _is_call(fits: Callable[[str], bool], name: str) -> bool:
    return fits(name) or fits(name.rsplit("_v", 1)[0])
