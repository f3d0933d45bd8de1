"""What every command about a pair is asked, declared once: captures, the two sides, the bar, how much to look at."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

from traceviz.arguments import NoAlign, Nsys, Ranks, StepRange, Traces, Window, narrowed, read_ratio, read_window, shown

if TYPE_CHECKING:
    from analyzers.common.progress import Progress
    from analyzers.readers.captures import Reading
    from analyzers.trace.tables import Trace

Result = TypeVar("Result")


@dataclass(frozen=True)
class Asked:
    """The answers; each field is an argument or option of the same name."""

    traces: Traces
    a: Annotated[str, typer.Option("-a", metavar="SEL", help="One side.")] = "comm"
    b: Annotated[str, typer.Option("-b", metavar="SEL", help="The other side.")] = "compute"
    min_overlap: Annotated[
        str, typer.Option(metavar="SHARE", help="The bar: real overlap / the shorter side's busy time.")
    ] = "60%"
    ranks: Ranks = None
    steps: StepRange = None
    window: Window = None
    no_align: NoAlign = False
    nsys: Nsys = None

    @property
    def bar(self) -> float:
        """The bar as a ratio; TracevizError where it is none."""
        return read_ratio(self.min_overlap)

    @property
    def opening(self) -> tuple[int, int] | None:
        """The window, ns, where one was asked for."""
        return None if self.window is None else read_window(self.window)

    @property
    def narrowing(self) -> list[str]:
        """The words of the command line that narrow the trace or leave its clocks alone."""
        given = (("--ranks", self.ranks), ("--steps", self.steps), ("--window", self.window))
        words = [word for option, value in given if value is not None for word in (option, value)]
        return words + ["--no-align"] * self.no_align

    def load(self, tell: Progress, reading: Reading) -> Trace:
        """Read the captures, and take the part that was asked for."""
        return narrowed(self.whole(shown(self.traces), tell, reading), self.ranks, self.steps, self.window)

    def whole(self, paths: list[str], tell: Progress, reading: Reading) -> Trace:
        """Read captures of one run as they were asked to be read."""
        from analyzers import load

        return load.load(paths, nsys_command=self.nsys, align=not self.no_align, reading=reading, progress=tell)


def asks(command: Callable[..., Result]) -> Callable[..., Result]:
    """Give a command, whose first parameter is an `Asked`, all of its fields for arguments and options."""
    hints = get_type_hints(Asked, include_extras=True)
    common = inspect.signature(Asked).parameters
    # Not get_type_hints of a function: before Python 3.11 a default of None hides what is annotated.
    _, *others = inspect.signature(command, eval_str=True).parameters.values()

    @functools.wraps(command)
    def asking(**given: Any) -> Result:
        asked = Asked(**{one.name: given.pop(one.name) for one in fields(Asked)})
        return command(asked, **given)

    parameters = [one.replace(annotation=hints[one.name]) for one in common.values()]
    parameters += others
    by_name = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    asking.__signature__ = inspect.Signature(by_name)  # type: ignore[attr-defined]
    asking.__annotations__ = {one.name: one.annotation for one in parameters}
    return asking
