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


class MayRunBeside(Record, frozen=True):
    """No order between ops of A and ops of B in a step: between none of them, or not between all (`pairs`)."""

    name: str
    a: str
    b: str
    pairs: str = ALL
    within: str = RANGE
    key = "may_run_beside"
    counted = "instances"
    needs = "CUDA calls, which op each one launched, and which stream each stream wait is for"

    @property
    def asked(self) -> str:
        """What the rule asks for."""
        of = "some of " * (self.pairs == SOME)
        return f"{of}'{self.a}' may run beside {of}'{self.b}'"


class NoHostSync(Record, frozen=True):
    """The host is not blocked in a range, but where listed."""

    name: str
    inside: str
    excepted: tuple[str, ...] = ()
    key = "no_host_sync_in"
    counted = "occurrences"
    needs = "CUDA calls and ranges"

    @property
    def asked(self) -> str:
        """What the rule asks for."""
        but = f", but for {', '.join(self.excepted)}" if self.excepted else ""
        return f"no host sync in '{self.inside}'{but}"


class WaitEarly(Record, frozen=True):
    """A stream (that of `by`, else B's own) waits for A before B's `last` or first op is launched."""

    name: str
    a: str
    b: str
    last: bool
    by: str = ""
    within: str = RANGE
    key = "wait_on"
    counted = "instances"
    needs = MayRunBeside.needs

    @property
    def asked(self) -> str:
        """What the rule asks for."""
        who = f" by '{self.by}'" if self.by else ""
        return f"the wait on '{self.a}'{who} is issued before the {'last' if self.last else 'first'} op of '{self.b}'"


class RunsOnOwnStream(Record, frozen=True):
    """What is picked shares its streams with nothing else."""

    name: str
    a: str
    key = "own_stream"
    counted = "streams"
    needs = "GPU work with its streams"

    @property
    def asked(self) -> str:
        """What the rule asks for."""
        return f"'{self.a}' runs on streams of its own"


class HostWaits(Record, frozen=True):
    """Every picked copy to pinned host memory is waited for by a host thread before the next one of its kind."""

    name: str
    a: str
    key = "host_waits_for"
    counted = "copies"
    needs = "CUDA calls, which op each one launched, and what host synchronizations are for"

    @property
    def asked(self) -> str:
        """What the rule asks for."""
        return f"the host waits for the copies of '{self.a}' before it may read them"


class NoRace(Record, frozen=True):
    """No wait is missing between A and B."""

    name: str
    a: str
    b: str
    within: str = RANGE
    key = "no_race_between"
    counted = "instances"
    needs = MayRunBeside.needs

    @property
    def asked(self) -> str:
        """What the rule asks for."""
        return f"no wait is missing between '{self.a}' and '{self.b}'"


class RealOverlap(Record, frozen=True):
    """Real overlap of A and B reaches a bar on the worst rank."""

    name: str
    a: str
    b: str
    bar: float
    key = "real_overlap"
    counted = "instances"
    needs = "GPU work of all ranks, for communication"

    @property
    def asked(self) -> str:
        """What the rule asks for."""
        return f"'{self.a}' beside '{self.b}' for at least {percent(self.bar)} of what is possible"


Rule = MayRunBeside | NoHostSync | WaitEarly | RunsOnOwnStream | HostWaits | NoRace | RealOverlap


class Contract(Record, frozen=True):
    """Rules in the order in which they are written; `path` is "" for one that is no file."""

    rules: tuple[Rule, ...]
    path: str = ""


class _Table:
    """One rule's table under reading: each key is taken once, and what is left is an error."""

    def __init__(self, name: str, table: Mapping[str, Any], path: str) -> None:
        self.name, self.left, self.path = name, dict(table), path

    def wrong(self, message: str, hint: str) -> TracevizError:
        """An error that names the rule."""
        return TracevizError(f"rule {self.name!r}: {message}", path=self.path or None, hint=hint)

    def selector(self, key: str) -> str:
        """A selector."""
        value = self.left.pop(key)
        if not isinstance(value, str):
            raise self.wrong(f"{key} is {value!r:.60}.", f'Write it as {key} = "nvtx:forward".')
        return self._parsed(key, value)

    def pair(self, key: str) -> tuple[str, str]:
        """Two selectors."""
        value = self.left.pop(key)
        if not isinstance(value, list) or len(value) != 2 or not all(isinstance(one, str) for one in value):
            raise self.wrong(f"{key} is {value!r:.60}.", f'Give two selectors: {key} = ["nvtx:lookup", "comm"].')
        return self._parsed(key, value[0]), self._parsed(key, value[1])

    def _parsed(self, key: str, text: str) -> str:
        try:
            return str(parse(text))
        except TracevizError as error:
            raise self.wrong(f"{key}: {error.message}", error.hint or "") from error

    def names(self, key: str) -> tuple[str, ...]:
        """A list of names, or one."""
        value = self.left.pop(key, [])
        value = [value] if isinstance(value, str) else value
        if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
            raise self.wrong(f"{key} is {value!r:.60}.", f'Give names: {key} = ["log loss", "aten::item"].')
        return tuple(value)

    def one_of(self, key: str, usual: str, other: str) -> str:
        """One of two words."""
        value = self.left.pop(key, usual)
        if value not in (usual, other):
            raise self.wrong(f"{key} is {value!r:.60}.", f'Write {key} = "{usual}" (the default) or "{other}".')
        return str(value)

    def range(self, key: str) -> str:
        """A range's name, or nvtx:NAME or op:NAME."""
        value = self.left.pop(key)
        if not isinstance(value, str) or not value:
            raise self.wrong(f"{key} is {value!r:.60}.", f'Name a range: {key} = "forward".')
        atom = range_atom(value)  # whose pattern may be wrong
        if atom is None:
            raise self.wrong(f"{key}: {value!r} names no range.", 'Write its name, as in "forward"; it may hold *.')
        return str(atom)


def range_atom(text: str) -> Atom | None:
    """What a name of a range stands for; None where it is another selector.

    >>> str(range_atom("forward")), str(range_atom("op:aten::mm")), range_atom("nvtx:x+comm")
    ('nvtx:forward', 'op:aten::mm', None)
    """
    if text.partition(":")[0] not in ("nvtx", "op") and not text.startswith("~"):
        return Atom("nvtx", text)
    selector = parse(f"nvtx:{text}" if text.startswith("~") else text)
    return selector if isinstance(selector, Atom) else None


def _beside(table: _Table) -> Rule:
    a, b = table.pair(MayRunBeside.key)
    return MayRunBeside(table.name, a, b, table.one_of("pairs", ALL, SOME), table.one_of("within", RANGE, STEP))


def _no_host_sync(table: _Table) -> Rule:
    return NoHostSync(table.name, table.range(NoHostSync.key), table.names("except"))


def _wait_early(table: _Table) -> Rule:
    bounds = [key for key in ("before_first_of", "before_last_of") if key in table.left]
    if len(bounds) != 1:
        hint = 'Say which: before_first_of = "nvtx:optimizer", or before_last_of.'
        raise table.wrong(f"wait_on needs {'only ' * (len(bounds) > 1)}one op that it is to come before.", hint)
    a, b = table.selector(WaitEarly.key), table.selector(bounds[0])
    by, within = table.selector("by") if "by" in table.left else "", table.one_of("within", RANGE, STEP)
    return WaitEarly(table.name, a, b, bounds[0] == "before_last_of", by, within)


def _own_stream(table: _Table) -> Rule:
    return RunsOnOwnStream(table.name, table.selector(RunsOnOwnStream.key))


def _host_waits(table: _Table) -> Rule:
    return HostWaits(table.name, table.selector(HostWaits.key))


def _no_race(table: _Table) -> Rule:
    return NoRace(table.name, *table.pair(NoRace.key), table.one_of("within", RANGE, STEP))


def _real_overlap(table: _Table) -> Rule:
    a, b = table.pair(RealOverlap.key)
    bar = table.left.pop("at_least", None)
    if isinstance(bar, str) and bar.strip().removesuffix("%").strip().replace(".", "", 1).isdecimal():
        bar = float(bar.strip().removesuffix("%")) / 100 if "%" in bar else float(bar)
    if isinstance(bar, bool) or not isinstance(bar, int | float) or not 0 <= bar <= 1:
        raise table.wrong("real_overlap needs a bar between 0 and 100 %.", 'Write it as at_least = "60%".')
    return RealOverlap(table.name, a, b, float(bar))


_READ: dict[str, tuple[Callable[[_Table], Rule], tuple[str, ...]]] = {
    MayRunBeside.key: (_beside, ("pairs", "within")),
    NoHostSync.key: (_no_host_sync, ("except",)),
    WaitEarly.key: (_wait_early, ("before_first_of", "before_last_of", "by", "within")),
    RunsOnOwnStream.key: (_own_stream, ()),
    HostWaits.key: (_host_waits, ()),
    NoRace.key: (_no_race, ("within",)),
    RealOverlap.key: (_real_overlap, ("at_least",)),
}


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
        text = Path(source).read_text(encoding="utf-8")
        return _contract(tomllib.loads(text), path)
    except tomllib.TOMLDecodeError as error:
        hint = 'A rule is its name in brackets, ["wait early"], and lines of key = "value" below.'
        raise TracevizError(f"this is no TOML: {error}.", path=path, hint=hint) from error
    except UnicodeDecodeError as error:
        raise TracevizError("this is no text.", path=path, hint="Give the contract.toml last.") from error
    except OSError as error:
        raise TracevizError(f"the contract can't be read: {error.strerror}.", path=path) from error


def _contract(document: Mapping[str, Any], path: str) -> Contract:
    if not document:
        raise TracevizError("the contract has no rules.", path=path or None, hint=_kinds())
    return Contract(tuple(_rule(name, table, path) for name, table in document.items()), path)


def _rule(name: str, content: Any, path: str) -> Rule:
    if not isinstance(content, Mapping):
        hint = f'Put it below a name of your choice: ["my rule"], then {name} = ….'
        raise TracevizError(f"{name!r} stands outside a rule.", path=path or None, hint=hint)
    table = _Table(name, content, path)
    kinds = [key for key in _READ if key in content]
    if len(kinds) != 1:
        unknown = [key for key in content if key not in _READ]
        near = difflib.get_close_matches(unknown[0], _READ, 1) if unknown and not kinds else []
        what = f"{' and '.join(kinds)} are two rules." if kinds else _says_nothing(unknown)
        raise table.wrong(what, (f"Did you mean {near[0]}? " if near else "") + _kinds())
    read, more = _READ[kinds[0]]
    unknown = [key for key in content if key not in (kinds[0], *more)]
    if unknown:
        allowed = f"Beside {kinds[0]} there may be {', '.join(more)}." if more else f"There is only {kinds[0]}."
        raise table.wrong(f"there is no {unknown[0]!r}.", allowed)
    return read(table)


def _says_nothing(unknown: list[str]) -> str:
    return f"there is no {unknown[0]!r}." if unknown else "it says nothing."


def _kinds() -> str:
    return f"A rule has one of: {', '.join(_READ)}."
