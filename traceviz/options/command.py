"""Commands that take values as they are, where they are right as they are.

typer has pydantic read every value, also of options that are not given; it takes long to import.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from typer.core import TyperCommand, TyperGroup

Reader = Callable[[Any, Any], Any]  # of a context, and of what was written, or the default


class _TakesAsGiven:
    """Reads texts, choices and what is not given; typer does the rest, and says what is wrong."""

    def get_params(self, ctx: Any) -> list[Any]:
        """All parameters, `--help` among them."""
        found: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        hints = get_type_hints(self.callback)  # type: ignore[attr-defined]
        for one in found:
            if "process_value" not in vars(one):  # not yet
                one.process_value = _reader(one, hints.get(one.name), one.process_value)
        return found


class Command(_TakesAsGiven, TyperCommand):
    """One command."""


class Analysis(Command):
    """A command that looks at captures: threads that numpy starts for linear algebra sleep until there is some to do.

    By themselves they first look for work for up to a tenth of a second of a processor. A program that another command
    starts is left as it is.
    """

    def invoke(self, ctx: Any) -> Any:
        """Run it, before which nothing loads numpy."""
        os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")  # 2 ** 4 ticks, the fewest there are
        return super().invoke(ctx)


class Group(_TakesAsGiven, TyperGroup):
    """The program, with options of its own."""


def _reader(parameter: Any, hint: Any, otherwise: Reader) -> Reader:
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    choices = [choice for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind)]

    def read(context: Any, value: Any) -> Any:
        if value is None and not parameter.required:
            value = () if list[str] in kinds else None
        elif isinstance(value, list | tuple) and value and list[str] in kinds:
            value = list(value)
        elif not isinstance(value, str) or not (str in kinds or value in choices):
            return otherwise(context, value)
        return value if parameter.callback is None else parameter.callback(context, parameter, value)

    return read
