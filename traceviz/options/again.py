"""The command to run next: another one on the same captures, with the options that say what of them is looked at."""

from __future__ import annotations

import glob
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

MOST_LETTERS = 300  # of captures in a command; a reader needs no more of them than a glob says
CAPTURES_PLACEHOLDER = "TRACE..."  # where that is not to be had
_READING = ("nsys", "skip_bad", "no_cache")
_PART = ("ranks", "steps", "step_by", "everything", "window", "no_align")
_OF_PAIR = ("a", "b", *_PART, *_READING)
_OPTIONS = {
    "check-overlap": ("a", "b", "min_overlap", "accept_apparent", *_PART, *_READING),
    **dict.fromkeys(("what-if", "counters", "timeline", "show"), _OF_PAIR),
    **dict.fromkeys(("collectives", "syncs"), (*_PART, *_READING)),
    "info": ("step_by", *_READING),
}
_DEFAULTS = {"a": "comm", "b": "compute", "min_overlap": "60%"}


class CommandLine(msgspec.Struct, frozen=True):
    """What a command was given: `Context.params`."""

    given: Mapping[str, Any]

    def again(self, command: str, *more: str, traces: Sequence[str | Path] | None = None, **changed: str | None) -> str:
        """A command on the same captures, as a shell takes it.

        Parameters
        ----------
        more : words behind the captures, such as an id.
        traces : other captures than those given.
        changed : options that are set otherwise, None for left out.

        >>> CommandLine({"traces": ["a b.json"], "a": "nvtx:x", "ranks": None}).again("show", "coll:3")
        "traceviz show 'a b.json' coll:3 -a nvtx:x"
        """
        given = {**self.given, **changed}
        words = ["traceviz", command]
        options: list[str] = []
        for name in _OPTIONS[command]:
            value = given.get(name)
            if value is None or value is False or value == _DEFAULTS.get(name):
                continue
            flag = flag_of(name)
            options += [flag] if value is True else [flag, shlex.quote(str(value))]
        captures = as_words([str(one) for one in (self.given["traces"] if traces is None else traces)])
        return " ".join([*words, captures, *map(shlex.quote, more), *options])


def flag_of(name: str) -> str:
    """The option of a parameter's name.

    >>> flag_of("a"), flag_of("no_align"), flag_of("everything")
    ('-a', '--no-align', '--all')
    """
    name = {"everything": "all"}.get(name, name)
    return f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"


def as_words(paths: Sequence[str]) -> str:
    """Captures as words of a command: as given, else the glob that gives the same, else a word that stands for them.

    >>> as_words(["captures/", "x.sqlite"])
    'captures/ x.sqlite'
    """
    plain = " ".join(map(shlex.quote, paths))
    if len(plain) <= MOST_LETTERS:
        return plain
    first, last = _common(paths), _common([path[::-1] for path in paths])[::-1]
    if len(paths) > 1 and len(first) + len(last) < min(map(len, paths)):
        pattern = f"{glob.escape(first)}*{glob.escape(last)}"
        found = glob.glob(pattern)  # noqa: PTH207 (as paths are given)
        if sorted(found) == sorted(paths) and len(pattern) <= MOST_LETTERS:
            return shlex.quote(pattern)
    return CAPTURES_PLACEHOLDER


def _common(texts: Sequence[str]) -> str:
    """The letters that all texts begin with."""
    low, high = min(texts), max(texts)
    return low[: next((i for i, letter in enumerate(low) if high[i : i + 1] != letter), len(low))]
