"""What a selector picks out of a trace, and what to say when it picks nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial

import msgspec
import numpy as np
from msgspec.structs import replace

from analyzers.arrays.names import Names
from analyzers.arrays.types import Ids, Mask
from analyzers.common.errors import TracevizError, TraceWarning
from analyzers.common.frames import DataFrame
from analyzers.select import language
from analyzers.select.absence import explain_nothing, launches_in, ranges_of, work_of
from analyzers.select.language import Atom, Selector, parse
from analyzers.select.picking import RANGE_ATOMS, evaluate, named_ranges
from analyzers.trace.communication import Declared
from analyzers.trace.ranges import launched_by_others, launched_in
from analyzers.trace.tables import Trace
from analyzers.trace.unlaunched import LAUNCHED_BEFORE, launched_before

MOST_THREADS = 4  # named in a warning


class Threads(msgspec.Struct, frozen=True):
    """Who launched what for a range: parts of a run add up.

    ops : of the range; by_autograd : of them, those that only forward–backward links tie to it; others : by thread, ops
    launched while it was open that nothing ties to it.
    """

    atom: Atom
    ops: int
    by_autograd: int
    others: Mapping[int, int]

    def __add__(self, other: Threads) -> Threads:
        both = Counter(self.others) + Counter(other.others)
        others = {thread: both[thread] for thread in sorted(both)}
        return Threads(self.atom, self.ops + other.ops, self.by_autograd + other.by_autograd, others)


class Selection(msgspec.Struct, frozen=True):
    """The ops a selector picks.

    `picked` is a mask over `trace.ops`; `before` of those it would pick, had they not been launched before the capture
    began. `occurrence` is the row in `trace.ranges` of the innermost range it names that each was launched in (-1 where
    that is none); `ranges` a mask over `trace.ranges` of those it names; `reason` says why nothing was picked, ""
    where something was.
    """

    selector: Selector
    picked: Mask
    before: Mask
    occurrence: Ids
    ranges: Mask
    reason: str = ""
    threads: tuple[Threads, ...] = ()

    @property
    def warnings(self) -> tuple[TraceWarning, ...]:
        """What to say of the threads that launched it."""
        return tuple(warning for one in self.threads for warning in about_threads(one))


def select(trace: Trace, text: str) -> Selection:
    """Pick ops with a selector; see `analyzers.select.language` for the words.

    Raises
    ------
    TracevizError : the text is no selector.
    """
    selector = language.parse(text)
    occurrence = np.full(len(trace.ops), -1, np.int64)
    threads: list[Threads] = []
    known: dict[Atom, Mask] = {}
    named = [(atom, named_ranges(trace, atom)) for atom in language.atoms(selector) if atom.kind in RANGE_ATOMS]
    for atom, ranges in named:
        occurrence, by_autograd = launched_in(trace, ranges)
        known[atom] = occurrence >= 0
        others = launched_by_others(trace, ranges, occurrence)
        threads.append(Threads(atom, int(np.count_nonzero(known[atom])), by_autograd.size, others))
    every = np.logical_or.reduce([ranges for _, ranges in named]) if named else np.zeros(len(trace.ranges), dtype=bool)
    if len(named) > 1:
        occurrence, _ = launched_in(trace, every)
    named_ops, early = evaluate(trace, selector, known), launched_before(trace)
    picked, before = named_ops & ~early, named_ops & early
    reason = "" if picked.any() else LAUNCHED_BEFORE
    if not (picked.any() or before.any()):
        work, ranges_there = work_of(trace, selector), ranges_of(trace, selector)
        reason = explain_nothing(selector, work, ranges_there, partial(launches_in, trace))
    occurrence = np.where(picked, occurrence.astype(np.int32), -1)
    return Selection(selector, picked, before, occurrence, every, reason, tuple(threads))


def about_threads(threads: Threads) -> list[TraceWarning]:
    """Warn of work that other threads launched for a range, or while it was open."""
    found, others = [], threads.others
    if threads.by_autograd:
        text = (
            f"{threads.by_autograd} of the {threads.ops} ops of '{threads.atom}' were launched by an autograd thread; "
            "forward–backward links tie them to it."
        )
        found.append(TraceWarning("autograd-thread", text))
    if others:
        more = f" and {len(others) - MOST_THREADS} more" if len(others) > MOST_THREADS else ""
        thread_names = f"thread{'s' * (len(others) > 1)} {', '.join(map(str, list(others)[:MOST_THREADS]))}{more}"
        text = (
            f"While '{threads.atom}' was open, {thread_names} launched {sum(others.values())} GPU ops that nothing in "
            "the trace ties to it; they are not counted."
        )
        found.append(TraceWarning("other-thread", text))
    return found


# Ops that a selector picks, as data frames for people who go on in pandas.


def picked(trace: Trace, text: str) -> DataFrame:
    """The GPU ops that a selector picks; rows of `trace.ops` under their own numbers.

    Those that were launched before the capture began are among them; sides of a pair lack these.

    Raises
    ------
    TracevizError : the selector can't be read.
    """
    selection = select(trace, text)
    kept = selection.picked | selection.before
    return trace.ops.take(kept).to_frame().set_axis(np.flatnonzero(kept))


def in_ranges(trace: Trace, text: str) -> DataFrame:
    """The GPU ops launched in the ranges that NAME, `nvtx:NAME` or `op:NAME` names, each with its range.

    Returns
    -------
    DataFrame : rows of `trace.ops` under their own numbers, and two more columns: `range`, the name of the innermost
        such range around the launch, and `occurrence`, that range's row in `trace.ranges`.

    Raises
    ------
    TracevizError : more than a name is asked for.
    """
    atom = parse(text) if text.partition(":")[0] in RANGE_ATOMS else Atom("nvtx", text)
    if not isinstance(atom, Atom):
        raise TracevizError(f"{text!r} names no ranges.", hint="Write it as nvtx:NAME or op:NAME; NAME may hold *.")
    occurrence, _ = launched_in(trace, named_ranges(trace, atom))
    rows = np.flatnonzero(occurrence >= 0)
    name = trace.ranges.name.take(occurrence[rows]).used()
    return trace.ops.take(rows).to_frame().set_axis(rows).assign(range=name.to_pandas(), occurrence=occurrence[rows])


# What the user says is communication, beside what its name tells: selectors, each with where it was given.


def declare(trace: Trace, rules: Sequence[Declared]) -> Trace:
    """Mark ops that the rules pick as communication, each by the first rule that picks it.

    Selectors see the trace as it is without the rules: `comm` in one means communication by name.

    Raises
    ------
    TracevizError : a selector can't be read.
    """
    if not rules:
        return trace
    number = np.zeros(len(trace.ops), np.int64)
    for at, rule in enumerate(rules, 1):
        selection = select(trace, rule.selector)
        number[(number == 0) & (selection.picked | selection.before)] = at
    texts = ["", *map(str, rules)]
    distinct = list(dict.fromkeys(texts))
    code = np.array([distinct.index(text) for text in texts])[number]
    return replace(trace, ops=trace.ops.having(declared=Names(code, distinct)))
