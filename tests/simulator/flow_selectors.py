"""What the selectors that changes name places with pick of a program's actions, as far as suggestions use them."""

from __future__ import annotations

from collections.abc import Callable

from analyzers.select.language import And, Atom, Not, Or, Selector, parse
from tests.simulator.order import Item
from tests.simulator.program import Copy, Launch
from tests.simulator.recorded import KERNELS, NAMES

OPERATIONS = {"allreduce": "all_reduce", "all_to_allv": "all_to_all"}
Picks = Callable[[Item], bool]


def selector(text: str) -> Picks:
    """Which items a selector picks: ops, and with the name of a range all that is done in it."""
    return _picks(parse(text))


def _picks(part: Selector) -> Picks:
    if isinstance(part, Not):
        taken_out = _picks(part.part)
        return lambda item: not taken_out(item)
    if isinstance(part, And | Or):
        picks, joined = [_picks(one) for one in part.parts], all if isinstance(part, And) else any
        return lambda item: joined(one(item) for one in picks)
    return _atom(part)


def _atom(atom: Atom) -> Picks:
    kind, fits = atom.meaning, atom.matcher(whole=atom.kind != "kernel")
    if kind in ("nvtx", "op"):
        return lambda item: any(fits(one) for one, _ in item.ranges)
    if kind == "kernel":
        return lambda item: fits(kernel(item))
    if kind == "stream":
        return lambda item: isinstance(item.action, Launch | Copy) and item.action.stream == int(atom.text)
    if kind == "memcpy":
        return lambda item: (
            isinstance(item.action, Copy) and atom.text in ("", "HtoD" if item.action.to_device else "DtoH")
        )
    if kind == "comm":
        return lambda item: bool(operation(item))
    if kind == "collective":
        return lambda item: fits(OPERATIONS.get(operation(item), operation(item)))
    if kind == "compute":
        return lambda item: isinstance(item.action, Launch) and not item.action.collective
    raise ValueError(f"{kind!r} is no selector that is known here")


def operation(item: Item) -> str:
    """The operation, as torch names it, of a communication kernel, "" of all else."""
    action = item.action
    if not isinstance(action, Launch) or not action.collective:
        return ""
    return action.message.operation if action.message else "allreduce"


def kernel(item: Item) -> str:
    action = item.action
    if not isinstance(action, Launch):
        return ""
    return KERNELS[operation(item)] if action.collective else action.name or NAMES[action.side]
