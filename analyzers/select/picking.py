"""Which ops and ranges each word of a selector stands for."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from analyzers.arrays.types import Mask
from analyzers.select.language import And, Atom, Not, Or, Selector
from analyzers.trace import kernels
from analyzers.trace.advice import is_migration
from analyzers.trace.groups import groups_of
from analyzers.trace.kernels import is_communication, is_compute, operation_codes
from analyzers.trace.ranges import launched_in
from analyzers.trace.tables import Trace

RANGE_ATOMS = {"nvtx": ("nvtx", "annotation"), "op": ("op",), "hlo": ("hlo",)}


def named_ranges(trace: Trace, atom: Atom) -> Mask:
    """Rows of `trace.ranges` an `nvtx:`, `op:` or `hlo:` atom names; with no operators in it, NVTX's stand in."""
    fits = atom.matcher(whole=True)
    kinds = RANGE_ATOMS[atom.kind]
    of_kind = trace.ranges.kind.is_one_of(kinds)
    if atom.kind == "op" and not of_kind.any():  # nsys: torch.autograd.profiler.emit_nvtx makes ranges of operators
        of_kind = trace.ranges.kind.is_one_of(("nvtx",))
    return trace.ranges.name.matching(fits) & of_kind


def evaluate(trace: Trace, selector: Selector, known: Mapping[Atom, Mask] | None = None) -> Mask:
    """GPU ops that a selector picks; `known` holds what some of its atoms pick."""
    if isinstance(selector, Not):
        return ~evaluate(trace, selector.part, known)
    if isinstance(selector, And):
        return np.logical_and.reduce([evaluate(trace, part, known) for part in selector.parts])
    if isinstance(selector, Or):
        return np.logical_or.reduce([evaluate(trace, part, known) for part in selector.parts])
    if known and selector in known:
        return known[selector]
    return _PICK[selector.meaning](trace, selector)


def _pick_range(trace: Trace, atom: Atom) -> Mask:
    return launched_in(trace, named_ranges(trace, atom))[0] >= 0


def _pick_kernel(trace: Trace, atom: Atom) -> Mask:
    fits = atom.matcher(whole=False)
    fitting = trace.ops.name.matching(lambda text: fits(text) or fits(kernels.function(text)))
    return fitting & trace.ops.kind.is_one_of(("kernel",))


def _pick_group(trace: Trace, atom: Atom) -> Mask:
    groups, number = groups_of(trace)
    fitting = np.array([one.fits(atom.text, atom.matcher(whole=True)) for one in groups] + [False])
    return fitting[number] & is_communication(trace)


def _pick_copy(trace: Trace, atom: Atom) -> Mask:
    copies = trace.ops.kind.is_one_of(("memcpy",))
    return copies & trace.ops.copy.matching(atom.matcher(whole=True)) if atom.text else copies


def _pick_migration(trace: Trace, atom: Atom) -> Mask:
    migrations = is_migration(trace)
    return migrations & trace.ops.name.matching(atom.matcher(whole=False)) if atom.text else migrations


def _pick_collective(trace: Trace, atom: Atom) -> Mask:
    fits = atom.matcher(whole=True)
    number, texts = operation_codes(trace)
    return is_communication(trace) & np.array([fits(text) for text in texts])[number]


_PICK: dict[str, Callable[[Trace, Atom], Mask]] = {
    "nvtx": _pick_range,
    "op": _pick_range,
    "hlo": _pick_range,
    "kernel": _pick_kernel,
    "stream": lambda trace, atom: trace.ops.stream == int(atom.text),
    "collective": _pick_collective,
    "group": _pick_group,
    "comm": lambda trace, _: is_communication(trace),
    "compute": lambda trace, _: is_compute(trace),
    "memcpy": _pick_copy,
    "migration": _pick_migration,
    "memset": lambda trace, _: trace.ops.kind.is_one_of(("memset",)),
    "graph": lambda trace, _: trace.ops.kind.is_one_of(("graph",)),
}
