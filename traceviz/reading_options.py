"""Options on how captures are read, which all commands that read some share."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

import typer

from analyzers.common.errors import TracevizError
from analyzers.readers.captures import Reading

Result = TypeVar("Result")
_BYTES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def read_bytes(text: str) -> int:
    """A number of bytes.

    >>> read_bytes("8GB"), read_bytes("512 MiB"), read_bytes("1.5g")
    (8000000000, 536870912, 1500000000)
    """
    match = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,6})?)\s*([kmgt]?i?)b?\s*", text, re.IGNORECASE)
    unit = _BYTES.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise TracevizError(f"{text!r} is no number of bytes.", hint="Write it as 8GB or 512MiB.")
    return int(float(match[1]) * unit)


SIDE_BY_SIDE = "Processes that read captures side by side"


def _workers(help: str) -> tuple[Any, None]:
    return Annotated[int | None, typer.Option(metavar="N", min=1, help=help, show_default="processors")], None


_OPTIONS: dict[str, tuple[Any, Any]] = {
    "workers": _workers(f"{SIDE_BY_SIDE}; this command then holds all ranks in memory."),
    "skip_bad": (
        Annotated[
            bool, typer.Option("--skip-bad", help="Leave out captures that can't be read, with a warning naming them.")
        ],
        False,
    ),
    "no_cache": (
        Annotated[bool, typer.Option("--no-cache", help="Neither use nor fill the cache (see: traceviz cache).")],
        False,
    ),
}

_BY_PARTS: dict[str, tuple[Any, Any]] = {
    "workers": _workers(f"{SIDE_BY_SIDE}."),
    "memory": (
        Annotated[
            str | None,
            typer.Option(
                metavar="SIZE",
                help="Look at ranks one by one, as many at once as this much memory has room for, such as 8GB; "
                "a rank that needs more is an error. Not with --dask.",
                show_default=False,
            ),
        ],
        None,
    ),
    "dask": (
        Annotated[
            str | None,
            typer.Option(
                metavar="ADDRESS",
                help="Let the workers of this Dask scheduler look at ranks, such as tcp://host:8786; their memory is "
                "bounded by dask worker --memory-limit.",
                show_default=False,
            ),
        ],
        None,
    ),
}


def reads_captures(command: Callable[..., Result]) -> Callable[..., Result]:
    """Give a command the options of reading, and them to its parameter `reading`."""
    return _with(command, _OPTIONS)


def reads_by_parts(command: Callable[..., Result]) -> Callable[..., Result]:
    """The same for a command that can look at captures one by one, and need not hold all of them."""
    return _with(command, {**_OPTIONS, **_BY_PARTS})


def _with(command: Callable[..., Result], options: Mapping[str, tuple[Any, Any]]) -> Callable[..., Result]:
    @functools.wraps(command)
    def wrapper(**given: Any) -> Result:
        reading = _reading(**{name: given.pop(name) for name in options})
        return command(**given, reading=reading)

    signature = inspect.signature(command, eval_str=True)
    own = [parameter for name, parameter in signature.parameters.items() if name not in ("reading", "output")]
    last = [parameter for name, parameter in signature.parameters.items() if name == "output"]
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in options.items()
    ]
    last = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in last]
    parameters = [*own, *more, *last]
    wrapper.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapper


def _reading(
    workers: int | None, skip_bad: bool, no_cache: bool, memory: str | None = None, dask: str | None = None
) -> Reading:
    budget = None if memory is None else read_bytes(memory)
    return Reading(cache=not no_cache, workers=workers, skip_bad=skip_bad, memory=budget, dask=dask)
