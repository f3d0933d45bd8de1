"""Commands that take values as they are, where they are right as they are.

typer has pydantic read every value, also of options that are not given; no import but pandas' takes longer.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from typer.core import TyperCommand, TyperGroup

OWN_PROCESS = "own process"  # `Context.obj` of a program that is nothing but a command of traceviz

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
        """Run it, before which nothing loads numpy or pandas."""
        self.prepare(ctx)
        return super().invoke(ctx)

    def prepare(self, ctx: Any) -> None:
        """Do what has to be done before they are loaded."""
        os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")  # 2 ** 4 ticks, the fewest there are


class TextAnswer(Analysis):
    """An analysis that is printed; where it reads JSON alone, pandas does without pyarrow, which takes a while to load.

    That holds until the process ends, and so is done only where it is traceviz's own. With pyarrow pandas 3 keeps texts
    in Arrow's arrays, else in objects of Python, which is as quick for as few as tables have. A pandas without it takes
    none of Arrow's, which worker processes hand back that look at captures for a budget or a cluster.
    """

    def prepare(self, ctx: Any) -> None:
        """Do what has to be done before numpy and pandas are loaded."""
        super().prepare(ctx)
        if ctx.obj == OWN_PROCESS and _needs_no_arrow(ctx.params) and not {"pandas", "pyarrow"} & set(sys.modules):
            sys.modules["pyarrow"] = None  # type: ignore[assignment]  # importing it fails, as if it were not installed
            try:
                import pandas  # noqa: F401
            finally:
                del sys.modules["pyarrow"]


def _needs_no_arrow(given: Mapping[str, Any]) -> bool:
    """Whether a command reads nothing but JSON, and workers hand it at most files."""
    if any(given.get(name) for name in ("memory", "dask")):
        return False
    paths = [Path(path) for name in ("traces", "baseline") for path in given.get(name) or ()]
    try:
        files = [file for path in paths for file in (path.iterdir() if path.is_dir() else [path])]
    except OSError:  # for the reader to say what is wrong
        return False
    return bool(files) and all(file.name.endswith((".json", ".json.gz")) and file.is_file() for file in files)


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
