"""A change of a program: how it is written, what it takes for granted, and what it does to the program's tasks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from analyzers.common.errors import TracevizError
from analyzers.common.records import Record, values
from analyzers.replay.model import Tasks
from analyzers.select.language import in_plain_words, parse
from analyzers.trace.tables import Trace

if TYPE_CHECKING:
    from typing_extensions import Self

_FIELD = re.compile(r"\b[A-Z]+\b")  # of `usage`, in the order of a change's fields


class Change(Record, frozen=True):
    """A change of a program; `str` of it is how the command line writes it.

    usage : how, in general. assumes : what it takes for granted. left_open : what no capture says of it, where
    `at_best` makes a difference. advised, asked : `advice` and `asks`, around the change's fields.
    """

    usage: ClassVar[str]
    assumes: ClassVar[str] = ""
    left_open: ClassVar[str] = ""
    advised: ClassVar[str] = ""
    asked: ClassVar[str] = ""

    def __str__(self) -> str:
        fields = iter(values(self).values())
        return _FIELD.sub(lambda _: field if isinstance(field := next(fields), str) else f"{field:g}", self.usage)

    @classmethod
    def written(cls, fields: str) -> Self:
        """The change that a text behind its verb describes.

        Raises ValueError: the text is none.
        """
        return cls(*cls._fields(fields))

    @classmethod
    def _fields(cls, fields: str) -> list[str]:
        found = re.fullmatch(_FIELD.sub("(.+)", cls.usage.partition(" ")[2]), fields)
        if found is None:
            raise ValueError(fields)
        return [field.strip() for field in found.groups()]

    @property
    def advice(self) -> str:
        """The change as one would ask for it, with what it takes for granted."""
        return self._worded(self.advised)

    def advice_at(self, where: str) -> str:
        """The same, of a place in the program that is known in words."""
        return self.advice

    @property
    def asks(self) -> str:
        """What has to hold where the change is not safe, beyond what its advice says."""
        return self._worded(self.asked)

    def _worded(self, text: str) -> str:
        shown = {name: values(self)[name] for name in re.findall(r"{(\w+)", text)}
        return text.format(**{name: in_words(one) if isinstance(one, str) else one for name, one in shown.items()})

    @property
    def at_best(self) -> Change:
        """The change as it gains most, of what the capture leaves open."""
        return self

    def unsafe(self, trace: Trace, tasks: Tasks) -> str:
        """What the change would put out of order, in a sentence; "" for nothing that is known."""
        return ""

    def _apply(self, trace: Trace, tasks: Tasks) -> Tasks:
        """The tasks of the changed program.

        Raises TracevizError where the capture has nothing to change in this way.
        """
        raise NotImplementedError


def combined(trace: Trace, tasks: Tasks, changes: Sequence[Change]) -> Tasks:
    """All changes, one after the other."""
    for change in changes:
        tasks = change._apply(trace, tasks)
    return tasks


def in_words(selector: str) -> str:
    """What a selector picks, in plain words."""
    return in_plain_words(parse(selector))


def require(some: bool | np.bool_, change: Change, reason: str) -> None:
    """Refuse a change that would change nothing."""
    if not some:
        raise TracevizError(f"{change}: {reason}.")
