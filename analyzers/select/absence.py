"""Why a selector picks nothing, with the names that come near; told by what all parts of a run hold."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Ints, Mask
from analyzers.common.wording import count_of
from analyzers.select.language import And, Atom, Not, Or, Selector, atoms
from analyzers.select.picking import RANGE_ATOMS, evaluate, named_ranges
from analyzers.trace import kernels as names
from analyzers.trace.advice import is_migration
from analyzers.trace.columns import as_int64, codes, ints_at, table
from analyzers.trace.groups import groups_of, named
from analyzers.trace.kernels import operations
from analyzers.trace.numbered import Family, between_numbers, families
from analyzers.trace.tables import Trace

MOST_GROUPS = 12  # named in a message
Launches = Callable[[str, Sequence[str]], Mapping[str, int]]  # kind of range, names -> GPU ops launched in each


class Work(msgspec.Struct, frozen=True):
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

    def __add__(self, other: Work) -> Work:
        return Work(
            self.ops + other.ops,
            self.picking | other.picking,
            self.kernels | other.kernels,
            self.streams | other.streams,
            self.operations | other.operations,
            self.copies | other.copies,
            self.groups | other.groups,
            self.kernel_ns + other.kernel_ns,
            self.migrations + other.migrations,
        )


class Ranges(msgspec.Struct, frozen=True):
    """What there is of a selector's words in ranges: atoms that name any, and all names of their kind; parts add up."""

    naming: frozenset[Atom] = frozenset()
    names: Mapping[str, frozenset[str]] = msgspec.field(default_factory=dict)

    def __add__(self, other: Ranges) -> Ranges:
        kinds = {**self.names, **other.names}
        either = {kind: self.names.get(kind, frozenset()) | other.names.get(kind, frozenset()) for kind in kinds}
        return Ranges(self.naming | other.naming, either)


def work_of(trace: Trace, selector: Selector) -> Work:
    """Look at a trace's GPU ops."""
    every = atoms(selector)
    kinds = {atom.meaning for atom in every}
    return Work(
        len(trace.ops),
        frozenset(atom for atom in every if evaluate(trace, atom).any()),
        _texts(trace, "name", trace.ops.kind.is_one_of(("kernel",))) if "kernel" in kinds else frozenset(),
        frozenset(np.unique(as_int64(trace.ops.stream)).tolist()) if "stream" in kinds else frozenset(),
        frozenset(operations(trace)) if "collective" in kinds else frozenset(),
        _texts(trace, "copy", trace.ops.kind.is_one_of(("memcpy",))) if "memcpy" in kinds else frozenset(),
        frozenset(named(groups_of(trace)[0])) if "group" in kinds else frozenset(),
        _kernel_times(trace) if kinds & {"comm", "collective", "group"} else Counter(),
        int(np.count_nonzero(is_migration(trace))),
    )


def _kernel_times(trace: Trace) -> Counter[int]:
    kernels = np.flatnonzero(trace.ops.kind.is_one_of(("kernel",)))
    took = trace.ops.end_ns[kernels] - trace.ops.start_ns[kernels]
    streams = rows_by_key(as_int64(trace.ops.stream)[kernels])
    return Counter({stream: int(took[rows].sum()) for (stream,), rows in streams.items()})


def ranges_of(trace: Trace, selector: Selector) -> Ranges:
    """Look at a trace's ranges."""
    wanted = [atom for atom in atoms(selector) if atom.kind in RANGE_ATOMS]
    code, texts = trace.ranges.name.codes, trace.ranges.name.texts
    found = {}
    for kind in {atom.kind for atom in wanted}:
        present = np.unique(code[trace.ranges.kind.is_one_of(RANGE_ATOMS[kind])])
        found[kind] = frozenset(texts[index] for index in present if index >= 0)
    return Ranges(frozenset(atom for atom in wanted if named_ranges(trace, atom).any()), found)


def launches_in(trace: Trace, kind: str, wanted: Sequence[str]) -> Counter[str]:
    """How many GPU ops each of some ranges or operators launched; parts of a run add up."""
    return Counter({name: int(np.count_nonzero(evaluate(trace, Atom(kind, name)))) for name in wanted})


def explain_nothing(selector: Selector, work: Work, ranges: Ranges, launches: Launches) -> str:
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


def _explain_range(atom: Atom, ranges: Ranges, launches: Launches) -> str:
    word = {"nvtx": "range", "op": "operator", "hlo": "HLO op or module"}[atom.kind]
    if atom in ranges.naming:
        return f"{word} '{atom.text}' is in the trace, but no GPU op was launched inside it"
    present = ranges.names[atom.kind]
    numbered = families(present)
    named = {one.name: one for one in numbered.values()}
    near = nearest(atom.text, sorted({*named, *(name for name in present if between_numbers(name) not in numbered)}))
    count = launches(atom.kind, near) if near else {}
    hints = [f"'{name}' ({_numbers(named.get(name))}{count[name]} launch{'es' * (count[name] != 1)})" for name in near]
    return f"no {word} '{atom.text}'" + _did_you_mean(hints, f"the trace has no {word}s" if not present else "")


def _numbers(family: Family | None) -> str:
    return f"# is {family.first} to {family.last}; " if family and family.first is not None else ""


def _explain_work(atom: Atom, work: Work) -> str:
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


def _but_migrations(atom: Atom, work: Work) -> str:
    """What to say of page migrations where a selector asks for copies: they look like such."""
    if atom.meaning != "memcpy" or not work.migrations:
        return ""
    return (
        f"; its {count_of(work.migrations, 'page migration')} of unified memory are no copies of the program: kernels "
        "stand still for pages that they touch ('migration' picks them)"
    )


def _no_communication(work: Work) -> str:
    """Communication is known by names alone: say where some of other names may be."""
    if not work.kernel_ns:
        return "there are no kernels and no peer copies in the trace"
    (first, _), *others = sorted(work.kernel_ns.items(), key=lambda one: (-one[1], one[0]))
    where = f"busiest other stream: {others[0][0]}" if others else f"all kernels ran on stream {first}"
    return f"no kernel known as communication; {where}. If yours have other names, give them: --comm kernel:NAME"


def _texts(trace: Trace, column: str, rows: Mask) -> frozenset[str]:
    code, texts = codes(trace.ops, column)
    return frozenset(texts[index] for index in np.unique(code[rows]) if index >= 0)


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
    code, names = trace.api.name.codes, trace.api.name.texts
    kinds = np.array([_kind(name) for name in names] or [""])
    start = ints_at(trace.api, "start_ns", calls)
    columns = {
        "process": ints_at(trace.api, "process", calls),
        "kind": kinds[code[calls]],
        "start_ns": start,
        "end_ns": start,
        "launch": calls,
    }
    return replace(trace, ops=table("ops", columns), whole=None, rows=None)


def _kind(call: str) -> str:
    return "memcpy" if "Memcpy" in call else "memset" if "Memset" in call else "kernel"
