"""The options on captures: commands that take `options: RunOptions` are given all of them, but for those they lack."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, get_args, get_type_hints

from traceviz.options import arguments as option
from traceviz.options.run import RunOptions

Command = TypeVar("Command", bound=Callable[..., None])

# Where `options` stands in a command's parameters: which part of the captures is looked at.
_PART: dict[str, Any] = {
    "ranks": option.Ranks,
    "steps": option.StepRange,
    "step_by": option.StepBy,
    "everything": option.Everything,
    "window": option.Window,
    "no_align": option.NoAlign,
    "nsys": option.Nsys,
    "comm": option.Comm,
}
# In front of how the answer is printed, else at the end: how captures are read.
_READING: dict[str, Any] = {
    "workers": option.Workers,
    "skip_bad": option.SkipBad,
    "no_cache": option.NoCache,
    "memory": option.Memory,
    "dask": option.Dask,
}


def without(lacking: str) -> Callable[[Command], Command]:
    """Mark a command that lacks some of the options on captures, by their names with blanks between."""

    def marked(command: Command) -> Command:
        command.lacking = lacking  # type: ignore[attr-defined]
        return command

    return marked


def with_run_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the options on captures in place of `options`; one that has no such parameter as it is."""
    own = get_type_hints(command, include_extras=True)
    if own.get("options") is not RunOptions:
        return command
    found = [*_expanded(inspect.signature(command), own, getattr(command, "lacking", "").split())]

    def called(**given: Any) -> None:
        named = {name: given[name] for name in own if name in given}
        command(options=RunOptions.of(given), **named)

    called.__doc__ = command.__doc__
    called.__annotations__ = {one.name: one.annotation for one in found}
    called.__signature__ = inspect.Signature(found)  # type: ignore[attr-defined]
    return called


def _expanded(signature: inspect.Signature, hints: dict[str, Any], lacking: list[str]) -> Iterator[inspect.Parameter]:
    """A command's parameters and those on captures, in the order of its help."""
    parameters, is_reading_due = signature.parameters, True
    if "traces" not in parameters:
        yield _keyword("traces", option.Traces, inspect.Parameter.empty)
    for one in parameters.values():
        annotation = hints[one.name]
        if is_reading_due and (annotation is option.OutputFormat or one.name in ("brief", "verbose")):
            is_reading_due = False
            yield from _of(_READING, lacking)
        if one.name == "options":
            yield from _of(_PART, lacking)
        else:
            yield _keyword(one.name, annotation, one.default)
    if is_reading_due:
        yield from _of(_READING, lacking)


def _of(group: dict[str, Any], lacking: list[str]) -> Iterator[inspect.Parameter]:
    for name, annotation in group.items():
        if name not in lacking:
            yield _keyword(name, annotation, False if get_args(annotation)[0] is bool else None)


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
