"""The selectors that changes name places with, as far as suggestions use them; shares no code with the package.

`nvtx:NAME`, `op:NAME`, `kernel:NAME`, `collective:NAME`, `stream:N`, `memcpy[:DtoH]`, `comm`, `compute`; `,` is or,
`+` and, `!` not; a name in double quotes may hold any of these.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.simulator.flow_orders import Item
from tests.simulator.program import Copy, Launch
from tests.simulator.recorded import KERNELS, NAMES

OPERATIONS = {"allreduce": "all_reduce", "all_to_allv": "all_to_all"}
TOKEN = re.compile(
    r'\s*(?:(?P<mark>[,+!])|(?P<kind>[a-z]+)(?::(?P<regex>~)?(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^,+]*)))?)'
)
Picks = Callable[[Item], bool]


def selector(text: str) -> Picks:
    """Which items a selector picks: ops, and with the name of a range all that is done in it."""
    parts: list[list[Picks]] = [[]]
    negate, at = False, 0
    while at < len(text.rstrip()):
        token = TOKEN.match(text, at)
        if token is None:
            raise ValueError(f"{text!r} can't be read")
        at = token.end()
        mark = token["mark"]
        if mark == ",":
            parts.append([])
        elif mark == "!":
            negate = not negate
        elif not mark:
            quoted = token["quoted"]
            name = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else (token["plain"] or "").strip()
            parts[-1].append(_negated(_atom(token["kind"], name, bool(token["regex"])), negate))
            negate = False
    return lambda item: any(all(one(item) for one in every) for every in parts)


def _negated(picks: Picks, negate: bool) -> Picks:
    return (lambda item: not picks(item)) if negate else picks


def _atom(kind: str, name: str, regex: bool) -> Picks:
    if kind in ("nvtx", "op"):
        fits = _name(name, regex)
        return lambda item: any(fits(one) for one, _ in item.ranges)
    if kind == "kernel":
        return lambda item: bool(re.search(name if regex else re.escape(name), kernel(item)))
    if kind == "stream":
        return lambda item: isinstance(item.action, Launch | Copy) and item.action.stream == int(name)
    if kind in ("memcpy", "copy"):
        return lambda item: isinstance(item.action, Copy) and name in ("", "HtoD" if item.action.to_device else "DtoH")
    if kind == "comm":
        return lambda item: bool(operation(item))
    if kind == "collective":
        return lambda item: OPERATIONS.get(operation(item), operation(item)) == name
    if kind == "compute":
        return lambda item: isinstance(item.action, Launch) and not item.action.collective
    raise ValueError(f"{kind!r} is no selector that is known here")


def _name(name: str, regex: bool) -> Callable[[str], bool]:
    if regex:
        return lambda one: re.search(name, one) is not None
    pattern = re.compile(
        "".join({"*": ".*", "#": r"(#|\d+)"}.get(part, re.escape(part)) for part in re.split("([*#])", name))
    )
    return lambda one: pattern.fullmatch(one) is not None


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
