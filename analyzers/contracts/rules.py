"""Rules of a contract, as a person writes them: one TOML table a rule, under the name that the rule is to have.

["DP's lookups may run beside the all-to-all"]
may_run_beside = ["nvtx:DP Embedding", "collective:all_to_all"]

["nothing blocks the host in the forward pass"]
no_host_sync_in = "forward"
except = ["log loss", "aten::_local_scalar_dense", "cudaEventSynchronize"]
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from analyzers.common.errors import TracevizError
from analyzers.common.records import Record
from analyzers.common.wording import percent
from analyzers.select.language import Atom, parse

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ALL, SOME = "all", "some"
RANGE, STEP = "range", "step"  # what one range of A is held against: the range of B of its number, or all of its step


class Kind(Record, frozen=True):
    """A kind of rule, by the key that names it in TOML.

    asks : what it asks for, to be filled in. counted : what it is held against. needs : what a capture has to hold.
    more : the other keys that it may have.
    """

    key: str
    asks: str
    counted: str
    needs: str
    more: tuple[str, ...] = ()


_ORDER = "CUDA calls, which op each one launched, and which stream each stream wait is for"
# No order between ops of A and ops of B in a step: between none of them, or not between all (`pairs`).
MAY_RUN_BESIDE = Kind(
    "may_run_beside", "{some}'{a}' may run beside {some}'{b}'", "instances", _ORDER, ("pairs", "within")
)
NO_HOST_SYNC = Kind(
    "no_host_sync_in", "no host sync in '{a}'{but}", "occurrences", "CUDA calls and ranges", ("except",)
)
# A stream (that of `by`, else B's own) waits for A before B's `last` or first op is launched.
WAIT_EARLY = Kind(
    "wait_on",
    "the wait on '{a}'{by} is issued before the {which} op of '{b}'",
    "instances",
    _ORDER,
    ("before_first_of", "before_last_of", "by", "within"),
)
OWN_STREAM = Kind("own_stream", "'{a}' runs on streams of its own", "streams", "GPU work with its streams")
# Every picked copy to pinned host memory is waited for by a host thread before the next one of its kind.
HOST_WAITS = Kind(
    "host_waits_for",
    "the host waits for the copies of '{a}' before it may read them",
    "copies",
    "CUDA calls, which op each one launched, and what host synchronizations are for",
)
NO_RACE = Kind("no_race_between", "no wait is missing between '{a}' and '{b}'", "instances", _ORDER, ("within",))
# On the worst rank.
REAL_OVERLAP = Kind(
    "real_overlap",
    "'{a}' beside '{b}' for at least {bar} of what is possible",
    "instances",
    "GPU work of all ranks, for communication",
    ("at_least",),
)
RULE_KINDS = {
    kind.key: kind for kind in (MAY_RUN_BESIDE, NO_HOST_SYNC, WAIT_EARLY, OWN_STREAM, HOST_WAITS, NO_RACE, REAL_OVERLAP)
}


class Rule(Record, frozen=True):
    """One rule: its sides, or its range (`a`), as selectors, and what its kind's other keys say."""

    name: str
    kind: Kind
    a: str
    b: str = ""
    pairs: str = ALL
    within: str = RANGE
    last: bool = False
    by: str = ""
    excepted: tuple[str, ...] = ()
    bar: float = 0.0

    @property
    def asked(self) -> str:
        """What the rule asks for."""
        return self.kind.asks.format(
            a=self.a,
            b=self.b,
            some="some of " * (self.pairs == SOME),
            but=f", but for {', '.join(self.excepted)}" if self.excepted else "",
            by=f" by '{self.by}'" if self.by else "",
            which="last" if self.last else "first",
            bar=percent(self.bar),
        )


class Contract(Record, frozen=True):
    """Rules in the order in which they are written; `path` is "" for one that is no file."""

    rules: tuple[Rule, ...]
    path: str = ""


class _Table:
    """One rule's table under reading, of some kind."""

    def __init__(self, name: str, table: Mapping[str, Any], path: str) -> None:
        self.name, self.given, self.path = name, table, path

    def wrong(self, message: str, hint: str) -> TracevizError:
        """An error that names the rule."""
        return TracevizError(f"rule {self.name!r}: {message}", path=self.path or None, hint=hint)

    def value(self, key: str, fits: Callable[[Any], bool], hint: str, usual: Any = None) -> Any:
        """A key's value, or the usual one; refused where it does not fit."""
        value = self.given.get(key, usual)
        if not fits(value):
            raise self.wrong(f"{key} is {value!r:.60}.", hint)
        return value

    def selector(self, key: str) -> str:
        """A selector."""
        value = self.value(key, lambda value: isinstance(value, str), f'Write it as {key} = "nvtx:forward".')
        return self.parsed(key, value)

    def pair(self, key: str) -> tuple[str, str]:
        """Two selectors."""
        hint = f'Give two selectors: {key} = ["nvtx:lookup", "comm"].'
        a, b = self.value(key, lambda value: _are_texts(value) and len(value) == 2, hint)
        return self.parsed(key, a), self.parsed(key, b)

    def parsed(self, key: str, text: str) -> str:
        """A selector as it is understood."""
        try:
            return str(parse(text))
        except TracevizError as error:
            raise self.wrong(f"{key}: {error.message}", error.hint or "") from error

    def names(self, key: str) -> tuple[str, ...]:
        """A list of names, or one."""
        hint = f'Give names: {key} = ["log loss", "aten::item"].'
        value = self.value(key, lambda value: _are_texts([value] if isinstance(value, str) else value), hint, ())
        return (value,) if isinstance(value, str) else tuple(value)

    def one_of(self, key: str, usual: str, other: str) -> str:
        """One of two words."""
        hint = f'Write {key} = "{usual}" (the default) or "{other}".'
        return str(self.value(key, lambda value: value in (usual, other), hint, usual))

    def range(self, key: str) -> str:
        """A range's name, or nvtx:NAME or op:NAME."""
        value = self.value(key, lambda value: _are_texts([value]), f'Name a range: {key} = "forward".')
        atom = range_atom(value)  # whose pattern may be wrong
        if atom is None:
            raise self.wrong(f"{key}: {value!r} names no range.", 'Write its name, as in "forward"; it may hold *.')
        return str(atom)

    def bar(self, key: str) -> float:
        """A share, as a number or in percent."""
        bar = self.given.get(key)
        if isinstance(bar, str) and bar.strip().removesuffix("%").strip().replace(".", "", 1).isdecimal():
            bar = float(bar.strip().removesuffix("%")) / 100 if "%" in bar else float(bar)
        if isinstance(bar, bool) or not isinstance(bar, int | float) or not 0 <= bar <= 1:
            raise self.wrong("real_overlap needs a bar between 0 and 100 %.", f'Write it as {key} = "60%".')
        return float(bar)

    def rule(self, kind: Kind) -> Rule:
        """The rule, of this kind."""
        bounds = [key for key in ("before_first_of", "before_last_of") if key in self.given]
        if kind == WAIT_EARLY and len(bounds) != 1:
            hint = 'Say which: before_first_of = "nvtx:optimizer", or before_last_of.'
            raise self.wrong(f"wait_on needs {'only ' * (len(bounds) > 1)}one op that it is to come before.", hint)
        if kind in (MAY_RUN_BESIDE, NO_RACE, REAL_OVERLAP):
            a, b = self.pair(kind.key)
        else:
            a = self.range(kind.key) if kind == NO_HOST_SYNC else self.selector(kind.key)
            b = self.selector(bounds[0]) if bounds else ""
        return Rule(
            self.name,
            kind,
            a,
            b,
            pairs=self.one_of("pairs", ALL, SOME),
            within=self.one_of("within", RANGE, STEP),
            last=bounds == ["before_last_of"],
            by=self.selector("by") if "by" in self.given else "",
            excepted=self.names("except"),
            bar=self.bar("at_least") if kind == REAL_OVERLAP else 0.0,
        )


def _are_texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(one, str) and one for one in value)


def range_atom(text: str) -> Atom | None:
    """What a name of a range stands for; None where it is another selector.

    >>> str(range_atom("forward")), str(range_atom("op:aten::mm")), range_atom("nvtx:x+comm")
    ('nvtx:forward', 'op:aten::mm', None)
    """
    if text.partition(":")[0] not in ("nvtx", "op") and not text.startswith("~"):
        return Atom("nvtx", text)
    selector = parse(f"nvtx:{text}" if text.startswith("~") else text)
    return selector if isinstance(selector, Atom) else None


def read_contract(source: str | Path | Mapping[str, Any]) -> Contract:
    """Read a contract: a TOML file, or what such a file would hold.

    Raises
    ------
    TracevizError : it can't be read, or a rule is none; says which keys there are.
    """
    if isinstance(source, Mapping):
        return _contract(source, "")
    path = str(source)
    try:
        return _contract(tomllib.loads(Path(source).read_text(encoding="utf-8")), path)
    except tomllib.TOMLDecodeError as error:
        hint = 'A rule is its name in brackets, ["wait early"], and lines of key = "value" below.'
        raise TracevizError(f"this is no TOML: {error}.", path=path, hint=hint) from error
    except UnicodeDecodeError as error:
        raise TracevizError("this is no text.", path=path, hint="Give the contract.toml last.") from error
    except OSError as error:
        raise TracevizError(f"the contract can't be read: {error.strerror}.", path=path) from error


def _contract(document: Mapping[str, Any], path: str) -> Contract:
    kinds = f"A rule has one of: {', '.join(RULE_KINDS)}."
    if not document:
        raise TracevizError("the contract has no rules.", path=path or None, hint=kinds)
    return Contract(tuple(_rule(name, table, path, kinds) for name, table in document.items()), path)


def _rule(name: str, content: Any, path: str, every: str) -> Rule:
    if not isinstance(content, Mapping):
        hint = f'Put it below a name of your choice: ["my rule"], then {name} = ….'
        raise TracevizError(f"{name!r} stands outside a rule.", path=path or None, hint=hint)
    table, kinds = _Table(name, content, path), [key for key in RULE_KINDS if key in content]
    unknown = [key for key in content if key not in RULE_KINDS]
    if len(kinds) > 1:
        raise table.wrong(f"{' and '.join(kinds)} are two rules.", every)
    if not kinds:
        near = difflib.get_close_matches(unknown[0], RULE_KINDS, 1) if unknown else []
        what = f"there is no {unknown[0]!r}." if unknown else "it says nothing."
        raise table.wrong(what, (f"Did you mean {near[0]}? " if near else "") + every)
    kind = RULE_KINDS[kinds[0]]
    if unknown := [key for key in unknown if key not in kind.more]:
        only = f"Beside {kind.key} there may be {', '.join(kind.more)}." if kind.more else f"There is only {kind.key}."
        raise table.wrong(f"there is no {unknown[0]!r}.", only)
    return table.rule(kind)
