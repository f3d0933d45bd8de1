"""What a selector picks out of a trace, and what to say when it picks nothing."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analyzers import names, selectors
from analyzers.communication import is_communication, is_compute, operations
from analyzers.errors import TraceWarning
from analyzers.regions import launched_by_others, launched_in
from analyzers.selectors import And, Atom, Not, Or, Selector
from analyzers.trace import Ints, Mask, Trace, codes, ints, is_one_of

MOST_THREADS = 4  # named in a warning
RANGE_ATOMS = {"nvtx": ("nvtx", "annotation"), "op": ("op",)}


@dataclass(frozen=True)
class Threads:
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
        return Threads(
            self.atom,
            self.ops + other.ops,
            self.by_autograd + other.by_autograd,
            {thread: both[thread] for thread in sorted(both)},
        )


@dataclass(frozen=True)
class Selection:
    """The ops a selector picks.

    `picked` is a mask over `trace.ops`; `occurrence` the row in `trace.ranges` of the innermost range it names that
    each was launched in (-1 where that is none); `ranges` a mask over `trace.ranges` of those it names; `reason` says
    why nothing was picked, "" where something was.
    """

    selector: Selector
    picked: Mask
    occurrence: Ints
    ranges: Mask
    reason: str = ""
    threads: tuple[Threads, ...] = ()

    @property
    def warnings(self) -> tuple[TraceWarning, ...]:
        """What to say of the threads that launched it."""
        return tuple(warning for one in self.threads for warning in about_threads(one))


def select(trace: Trace, text: str) -> Selection:
    """Pick ops with a selector; see `analyzers.selectors` for the words.

    Raises
    ------
    TracevizError : the text is no selector.
    """
    selector = selectors.parse(text)
    occurrence = np.full(len(trace.ops), -1, np.int64)
    threads: list[Threads] = []
    named = [(atom, named_ranges(trace, atom)) for atom in selectors.atoms(selector) if atom.kind in RANGE_ATOMS]
    for atom, ranges in named:
        inside, by_autograd = launched_in(trace, ranges)
        others = launched_by_others(trace, ranges, inside)
        threads.append(Threads(atom, int(np.count_nonzero(inside >= 0)), by_autograd.size, others))
    every = np.logical_or.reduce([ranges for _, ranges in named]) if named else np.zeros(len(trace.ranges), dtype=bool)
    if named:
        occurrence, _ = launched_in(trace, every)
    picked = _evaluate(trace, selector)
    reason = "" if picked.any() else explain_nothing(trace, selector)
    return Selection(selector, picked, np.where(picked, occurrence, -1), every, reason, tuple(threads))


def named_ranges(trace: Trace, atom: Atom) -> Mask:
    """Rows of `trace.ranges` an `nvtx:` or `op:` atom names; where a trace has no operators, NVTX ranges stand in."""
    fits = atom.matcher(whole=True)
    kinds = RANGE_ATOMS[atom.kind]
    of_kind = is_one_of(trace.ranges, "kind", kinds)
    if atom.kind == "op" and not of_kind.any():  # nsys: torch.autograd.profiler.emit_nvtx names ranges "op, seq = 1"
        of_kind = is_one_of(trace.ranges, "kind", ("nvtx",))
        return _fitting(trace, lambda name: fits(name.partition(",")[0])) & of_kind
    return _fitting(trace, fits) & of_kind


def _fitting(trace: Trace, fits: Callable[[str], bool]) -> Mask:
    code, texts = codes(trace.ranges, "name")
    return np.array([fits(text) for text in texts] + [False])[code]


def _evaluate(trace: Trace, selector: Selector) -> Mask:
    if isinstance(selector, Not):
        return ~_evaluate(trace, selector.part)
    if isinstance(selector, And):
        return np.logical_and.reduce([_evaluate(trace, part) for part in selector.parts])
    if isinstance(selector, Or):
        return np.logical_or.reduce([_evaluate(trace, part) for part in selector.parts])
    return _PICK[selector.kind](trace, selector)


def _pick_range(trace: Trace, atom: Atom) -> Mask:
    return launched_in(trace, named_ranges(trace, atom))[0] >= 0


def _pick_kernel(trace: Trace, atom: Atom) -> Mask:
    fits = atom.matcher(whole=False)
    code, texts = codes(trace.ops, "name")
    fitting = np.array([fits(text) or fits(names.function(text)) for text in texts] + [False])
    return fitting[code] & is_one_of(trace.ops, "kind", ("kernel",))


def _pick_copy(trace: Trace, atom: Atom) -> Mask:
    copies = is_one_of(trace.ops, "kind", ("memcpy",))
    if not atom.text:
        return copies
    fits = atom.matcher(whole=True)
    code, texts = codes(trace.ops, "copy")
    return copies & np.array([fits(text) for text in texts] + [False])[code]


def _pick_collective(trace: Trace, atom: Atom) -> Mask:
    fits = atom.matcher(whole=True)
    return is_communication(trace) & np.array([fits(text) for text in operations(trace)], dtype=bool)


_PICK: dict[str, Callable[[Trace, Atom], Mask]] = {
    "nvtx": _pick_range,
    "op": _pick_range,
    "kernel": _pick_kernel,
    "stream": lambda trace, atom: ints(trace.ops, "stream") == int(atom.text),
    "collective": _pick_collective,
    "comm": lambda trace, _: is_communication(trace),
    "compute": lambda trace, _: is_compute(trace),
    "memcpy": _pick_copy,
    "memset": lambda trace, _: is_one_of(trace.ops, "kind", ("memset",)),
    "graph": lambda trace, _: is_one_of(trace.ops, "kind", ("graph",)),
}


def explain_nothing(trace: Trace, selector: Selector) -> str:
    """Why a selector picks nothing: the first of its atoms that picks nothing, with names that come near."""
    if not len(trace.ops):
        return "there is no GPU work in what was selected"
    for atom in selectors.atoms(selector):
        if not _evaluate(trace, atom).any():
            return _explain_atom(trace, atom)
    return f"no op fits all of '{selector}'"


def _explain_atom(trace: Trace, atom: Atom) -> str:
    if atom.kind in RANGE_ATOMS:
        word = "range" if atom.kind == "nvtx" else "operator"
        if named_ranges(trace, atom).any():
            return f"{word} '{atom.text}' is in the trace, but no GPU op was launched inside it"
        kinds = is_one_of(trace.ranges, "kind", RANGE_ATOMS[atom.kind])
        code, texts = codes(trace.ranges, "name")
        there = [texts[index] for index in np.unique(code[kinds]) if index >= 0]
        near = nearest(atom.text, there)
        hints = [f"'{name}' ({_launches(trace, atom.kind, name)})" for name in near]
        return f"no {word} '{atom.text}'" + _did_you_mean(hints, f"the trace has no {word}s" if not there else "")
    if atom.kind == "kernel":
        code, texts = codes(trace.ops, "name")
        there = [texts[index] for index in np.unique(code[is_one_of(trace.ops, "kind", ("kernel",))]) if index >= 0]
        near = nearest(atom.text, [names.function(text) for text in there])
        return f"no kernel named like '{atom.text}'" + _did_you_mean([f"'{name}'" for name in near])
    if atom.kind == "stream":
        there = [str(stream) for stream in np.unique(ints(trace.ops, "stream"))]
        return f"no op ran on stream {atom.text}; there are {', '.join(there[:20])}{' …' if len(there) > 20 else ''}"
    if atom.kind in ("collective", "memcpy") and atom.text:
        there = sorted({text for text in (operations(trace) if atom.kind == "collective" else _copies(trace)) if text})
        return f"no {atom.kind} '{atom.text}'; there " + (f"are {', '.join(there)}" if there else "is none at all")
    what = {"comm": "communication", "compute": "compute kernels"}.get(atom.kind, atom.kind)
    return f"there is no {what} in the trace"


def _copies(trace: Trace) -> list[str]:
    code, texts = codes(trace.ops, "copy")
    return [texts[index] for index in np.unique(code)]


def _launches(trace: Trace, kind: str, name: str) -> str:
    count = int(np.count_nonzero(_evaluate(trace, Atom(kind, name))))
    return f"{count} launch{'es' * (count != 1)}"


def nearest(text: str, there: Sequence[str], count: int = 3) -> list[str]:
    """Names that come near a text, whatever their case, nearest first; only case apart, nothing else comes near."""
    same = [name for name in dict.fromkeys(there) if name.lower() == text.lower()]
    if same:
        return same[:count]
    by_lower: dict[str, str] = {}
    for name in there:
        by_lower.setdefault(name.lower(), name)
    near = difflib.get_close_matches(text.lower(), list(by_lower), n=count, cutoff=0.6)
    inside = [lower for lower in by_lower if text.lower() in lower and lower not in near]
    return [by_lower[lower] for lower in [*near, *sorted(inside, key=len)][:count]]


def _did_you_mean(near: Sequence[str], otherwise: str = "") -> str:
    if near:
        return f"; did you mean {' or '.join(near)}?"
    return f"; {otherwise}" if otherwise else ""


def about_threads(threads: Threads) -> list[TraceWarning]:
    """Warn of work that other threads launched for a range, or while it was open."""
    said, others = [], threads.others
    if threads.by_autograd:
        said.append(
            TraceWarning(
                "autograd-thread",
                f"{threads.by_autograd} of the {threads.ops} ops of '{threads.atom}' were launched by an autograd "
                "thread; forward–backward links tie them to it.",
            )
        )
    if others:
        more = f" and {len(others) - MOST_THREADS} more" if len(others) > MOST_THREADS else ""
        who = f"thread{'s' * (len(others) > 1)} {', '.join(map(str, list(others)[:MOST_THREADS]))}{more}"
        said.append(
            TraceWarning(
                "other-thread",
                f"While '{threads.atom}' was open, {who} launched {sum(others.values())} GPU ops that nothing in the "
                "trace ties to it; they are not counted.",
            )
        )
    return said
