"""Why a selector picks nothing, with the names that come near; told by what all parts of a run hold."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Ints, Mask
from analyzers.common.records import Addable
from analyzers.common.wording import count_of
from analyzers.select.language import And, Atom, Not, Or, Selector, atoms
from analyzers.select.picking import RANGE_ATOMS, evaluate, named_ranges
from analyzers.trace import kernels as names
from analyzers.trace.advice import is_migration
from analyzers.trace.groups import groups_of, named
from analyzers.trace.kernels import operations
from analyzers.trace.numbered import between_numbers, families
from analyzers.trace.schemas import Ops
from analyzers.trace.tables import Trace

MOST_GROUPS = 12  # named in a message
Launches = Callable[[str, Sequence[str]], Mapping[str, int]]  # kind of range, names -> GPU ops launched in each


class WorkSeen(Addable, frozen=True):
    """What there is of a selector's words in GPU ops; parts of a run add up.

    picking : atoms that pick any op. kernels, streams, operations, copies, groups : what there is of each.
    migrations : how many page migrations there are.
    kernel_ns : by stream, how long kernels ran on it, all together; where communication is asked for.
    """

    ops: int = 0
    picking: frozenset[Atom] = frozenset()
    kernels: frozenset[str] = frozenset()
    streams: frozenset[int] = frozenset()
    operations: frozenset[str] = frozenset()
    copies: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    kernel_ns: Counter[int] = msgspec.field(default_factory=Counter)
    migrations: int = 0


class RangesSeen(Addable, frozen=True):
    """What there is of a selector's words in ranges: atoms that name any; each name, with its kind. Parts add up."""

    naming: frozenset[Atom] = frozenset()
    names: frozenset[tuple[str, str]] = frozenset()


def work_of(trace: Trace, selector: Selector) -> WorkSeen:
    """Look at a trace's GPU ops."""
    every, ops = atoms(selector), trace.ops
    kinds = {atom.meaning for atom in every}
    kernels, copies = ops.kind.is_one_of(("kernel",)), ops.kind.is_one_of(("memcpy",))
    kernel_ns = Counter[int]()
    if kinds & {"comm", "collective", "group"}:
        rows, took = np.flatnonzero(kernels), ops.end_ns - ops.start_ns
        for (stream,), own in rows_by_key(ops.stream[rows]).items():
            kernel_ns[stream] = int(took[rows[own]].sum())
    return WorkSeen(
        len(ops),
        frozenset(atom for atom in every if evaluate(trace, atom).any()),
        frozenset(ops.name.take(kernels).used().texts) if "kernel" in kinds else frozenset(),
        frozenset(np.unique(ops.stream).tolist()) if "stream" in kinds else frozenset(),
        frozenset(operations(trace)) if "collective" in kinds else frozenset(),
        frozenset(ops.copy.take(copies).used().texts) if "memcpy" in kinds else frozenset(),
        frozenset(named(groups_of(trace)[0])) if "group" in kinds else frozenset(),
        kernel_ns,
        int(np.count_nonzero(is_migration(trace))),
    )


def ranges_of(trace: Trace, selector: Selector) -> RangesSeen:
    """Look at a trace's ranges."""
    wanted = [atom for atom in atoms(selector) if atom.kind in RANGE_ATOMS]
    names = set()
    for kind in {atom.kind for atom in wanted}:
        own = trace.ranges.kind.is_one_of(RANGE_ATOMS[kind])
        names |= {(kind, text) for text in trace.ranges.name.take(own).used().texts}
    return RangesSeen(frozenset(atom for atom in wanted if named_ranges(trace, atom).any()), frozenset(names))


def launches_in(trace: Trace, kind: str, wanted: Sequence[str]) -> Counter[str]:
    """How many GPU ops each of some ranges or operators launched; parts of a run add up."""
    return Counter({name: int(np.count_nonzero(evaluate(trace, Atom(kind, name)))) for name in wanted})


def explain_nothing(selector: Selector, work: WorkSeen, ranges: RangesSeen, launches: Launches) -> str:
    """Why a selector picks nothing: the first of its atoms that picks nothing, with names that come near.

    Parameters
    ----------
    launches : asks how many GPU ops some ranges launched.
    """
    if not work.ops:
        return "there is no GPU work in what was selected"
    for atom in atoms(selector):
        if atom not in work.picking:
            return _explain_range(atom, ranges, launches) if atom.kind in RANGE_ATOMS else _explain_work(atom, work)
    return f"no op fits all of '{selector}'"


def _explain_range(atom: Atom, ranges: RangesSeen, launches: Launches) -> str:
    word = {"nvtx": "range", "op": "operator", "hlo": "HLO op or module"}[atom.kind]
    if atom in ranges.naming:
        return f"{word} '{atom.text}' is in the trace, but no GPU op was launched inside it"
    present = {name for kind, name in ranges.names if kind == atom.kind}
    numbered = families(present)
    named = {one.name: one for one in numbered.values()}
    near = nearest(atom.text, sorted({*named, *(name for name in present if between_numbers(name) not in numbered)}))
    count = launches(atom.kind, near) if near else {}
    hints = []
    for name in near:
        one = named.get(name)
        numbers = f"# is {one.first} to {one.last}; " if one and one.first is not None else ""
        hints.append(f"'{name}' ({numbers}{count_of(count[name], 'launch')})")
    return f"no {word} '{atom.text}'" + _did_you_mean(hints, f"the trace has no {word}s" if not present else "")


def _explain_work(atom: Atom, work: WorkSeen) -> str:
    if atom.kind == "kernel":
        near = nearest(atom.text, [names.function(text) for text in sorted(work.kernels)])
        return f"no kernel named like '{atom.text}'" + _did_you_mean([f"'{name}'" for name in near])
    if atom.meaning == "stream":
        present = [str(stream) for stream in sorted(work.streams)]
        more = " …" if len(present) > 20 else ""
        return f"no op ran on {atom.kind} {atom.text}; there are {', '.join(present[:20])}{more}"
    if atom.meaning in ("collective", "memcpy") and atom.text:
        present = sorted(text for text in (work.operations if atom.kind == "collective" else work.copies) if text)
        none = "there is none at all" if atom.meaning == "memcpy" else _no_communication(work)
        found = f"there are {', '.join(present)}" if present else none
        return f"no {atom.kind} '{atom.text}'; {found}" + _but_migrations(atom, work)
    if atom.kind == "group":
        near = sorted(work.groups, key=lambda text: (len(text), text))
        none = "the capture names no process groups; nsys records NCCL's communicators, torch.profiler groups"
        more = " …" if len(near) > MOST_GROUPS else ""
        known = f"there are {', '.join(near[:MOST_GROUPS])}{more}, and group:size=N, group:ranks=0-3" if near else none
        return f"no communication of a group '{atom.text}'; {known}"
    if atom.kind == "comm":
        return _no_communication(work)
    what = "are no compute kernels" if atom.kind == "compute" else f"is no {atom.kind}"
    return f"there {what} in the trace" + _but_migrations(atom, work)


def _but_migrations(atom: Atom, work: WorkSeen) -> str:
    """What to say of page migrations where a selector asks for copies: they look like such."""
    if atom.meaning != "memcpy" or not work.migrations:
        return ""
    return (
        f"; its {count_of(work.migrations, 'page migration')} of unified memory are no copies of the program: kernels "
        "stand still for pages that they touch ('migration' picks them)"
    )


def _no_communication(work: WorkSeen) -> str:
    """Communication is known by names alone: say where some of other names may be."""
    if not work.kernel_ns:
        return "there are no kernels and no peer copies in the trace"
    (first, _), *others = sorted(work.kernel_ns.items(), key=lambda one: (-one[1], one[0]))
    where = f"busiest other stream: {others[0][0]}" if others else f"all kernels ran on stream {first}"
    return f"no kernel known as communication; {where}. If yours have other names, give them: --comm kernel:NAME"


def nearest(text: str, names: Sequence[str], count: int = 3) -> list[str]:
    """Names that come near a text, whatever their case, nearest first; only case apart, nothing else comes near."""
    same_but_case = [name for name in dict.fromkeys(names) if name.lower() == text.lower()]
    if same_but_case:
        return same_but_case[:count]
    by_lower: dict[str, str] = {}
    for name in names:
        by_lower.setdefault(name.lower(), name)
    near = difflib.get_close_matches(text.lower(), list(by_lower), n=count, cutoff=0.6)
    inside = [lower for lower in by_lower if text.lower() in lower and lower not in near]
    return [by_lower[lower] for lower in [*near, *sorted(inside, key=len)][:count]]


def _did_you_mean(near: Sequence[str], otherwise: str = "") -> str:
    if near:
        return f"; did you mean {' or '.join(near)}?"
    return f"; {otherwise}" if otherwise else ""


# Which launches, whose work a capture lacks, a selector may stand for.
#
# A call says which ranges it lies in, and whether it launches a kernel, a copy or a memset. Which kernel it was, and on
# which stream, nobody knows: it may be any.


def may_pick(trace: Trace, selector: Selector, calls: Ints) -> Mask:
    """Of some calls (rows of `Trace.api`) without an op, those whose work the selector may have picked."""
    if not calls.size:
        return np.zeros(0, dtype=bool)
    return _picks(_as_ops(trace, calls), selector, surely=False)


def _picks(work: Trace, selector: Selector, *, surely: bool) -> Mask:
    """What a selector picks of some work, at least (`surely`) or at most."""
    if isinstance(selector, Not):
        return ~_picks(work, selector.part, surely=not surely)
    if isinstance(selector, And):
        return np.logical_and.reduce([_picks(work, part, surely=surely) for part in selector.parts])
    if isinstance(selector, Or):
        return np.logical_or.reduce([_picks(work, part, surely=surely) for part in selector.parts])
    if selector.kind in RANGE_ATOMS:
        return evaluate(work, selector)
    nothing = np.zeros(len(work.ops), dtype=bool)
    if selector.meaning in ("memcpy", "memset"):
        is_sure = not (surely and selector.text)
        return work.ops.kind.is_one_of((selector.meaning,)) if is_sure else nothing
    if surely or selector.meaning == "graph":
        return nothing
    return ~nothing if selector.meaning == "stream" else work.ops.kind.is_one_of(("kernel",))


def _as_ops(trace: Trace, calls: Ints) -> Trace:
    """A trace whose ops are what some calls launched, as far as these say."""
    api = trace.api.take(calls)
    is_copy, is_set = (api.name.matching(re.compile(text).search) for text in ("Memcpy", "Memset"))
    columns = {
        "process": api.process,
        "kind": np.where(is_copy, "memcpy", np.where(is_set, "memset", "kernel")),
        "start_ns": api.start_ns,
        "end_ns": api.start_ns,
        "launch": calls,
    }
    return replace(trace, ops=Ops.of(columns), whole=None, rows=None)
