"""The run that a command is asked about: which captures, how they are read, what of it is looked at and believed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_type_hints

import msgspec
import typer

from analyzers.readers.reading import Reading
from traceviz.options import arguments as option
from traceviz.options.config import communication

if TYPE_CHECKING:
    from analyzers.common.progress import Progress
    from analyzers.trace.narrow import Narrowing
    from analyzers.trace.run import Run
    from analyzers.trace.tables import Trace

Value = TypeVar("Value")
Command = TypeVar("Command", bound=Callable[..., None])


class RunOptions(msgspec.Struct, frozen=True):
    """What the options on captures come to; `steps` are [first, last), `window` is [low, high) in ns.

    everything : whether figures are of all that was captured where neither is given, not only of the whole steps.
    accept_apparent : whether apparent figures decide where ranks were not captured.
    """

    paths: tuple[str, ...]
    reading: Reading
    align: bool = True
    ranks: tuple[int, ...] | None = None
    steps: tuple[int, int] | None = None
    window: tuple[int, int] | None = None
    everything: bool = False
    accept_apparent: bool = False

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> RunOptions:
        """Read the texts of a command's options (`Context.params`); one that it lacks is as if it were not given.

        Raises
        ------
        TracevizError : a text can't be read.
        """

        def read(name: str, how: Callable[[str], Value]) -> Value | None:
            text = given.get(name)
            return None if text is None else how(text)

        reading = Reading(
            nsys=given.get("nsys"),
            cache=not given.get("no_cache"),
            workers=given.get("workers"),
            skip_bad=given.get("skip_bad", False),
            memory=read("memory", option.read_bytes),
            dask=given.get("dask"),
            comm=communication(given.get("comm"), "--comm"),
            step_by=read("step_by", option.read_step_range),
        )
        return cls(
            paths=tuple(str(path) for path in given["traces"]),
            reading=reading,
            align=not given.get("no_align"),
            ranks=read("ranks", option.read_numbers),
            steps=read("steps", option.read_steps),
            window=read("window", option.read_window),
            everything=given.get("everything", False),
            accept_apparent=given.get("accept_apparent", False),
        )

    @property
    def narrowing(self) -> Narrowing:
        """The part that is looked at."""
        from analyzers.trace.narrow import Narrowing

        return Narrowing(self.ranks, self.steps, self.window, everything=self.everything)

    def opened(
        self, on_progress: Progress, *, lists: bool = False, calls_alone: bool = False
    ) -> AbstractContextManager[Run]:
        """All of the run, for the time of a block: for analyses that can go rank by rank, or process by process.

        With `calls_alone` a run whose calls launched work that it does not hold will do.
        """
        from analyzers.scale.parts import opened

        reading = msgspec.structs.replace(self.reading, calls_alone=calls_alone)
        return opened(self.paths, reading, align=self.align, lists=lists, progress=on_progress)

    def opened_together(
        self, runs: Sequence[Sequence[str]], on_progress: Progress, *, lists: bool = False
    ) -> AbstractContextManager[list[Run]]:
        """Several runs, named by their paths, which are read as these options say."""
        from analyzers.scale.parts import opened_together

        return opened_together(runs, self.reading, align=self.align, lists=lists, progress=on_progress)

    def loaded(self, on_progress: Progress) -> Trace:
        """All of the run as one trace: for what needs all ops at once."""
        from analyzers.load import load

        return load(self.paths, align=self.align, reading=self.reading, progress=on_progress)


def _option(kind: Any, *names: str, show_default: bool | str = False, **about: Any) -> Any:
    return Annotated[kind, typer.Option(*names, show_default=show_default, **about)]


def _text(help_text: str, metavar: str, *names: str, show_default: bool | str = False) -> Any:
    return _option(str | None, *names, metavar=metavar, help=help_text, show_default=show_default)


def _flag(name: str, help_text: str) -> Any:
    return _option(bool, name, help=help_text, show_default=True)


TRACES = Annotated[
    list[str],
    typer.Argument(
        metavar="TRACE",
        help="Captures of one run: .nsys-rep, .sqlite[.gz], torch.profiler .json[.gz], glob, folder, manifest, URL.",
        show_default=False,
    ),
]
# What stands in a command's help where its function takes `options`, in order.
OPTIONS: dict[str, Any] = {
    "ranks": _text("Only these ranks, such as 0,2 or 0-3.", "LIST"),
    "steps": _text("Only steps A up to, not including, B; or one step.", "A:B"),
    "step_by": _text(
        'The range that a step is told by, such as "train_step"; # stands for a number.',
        "RANGE",
        show_default="marks, else inferred",
    ),
    "everything": _flag(
        "--all", "Figures of everything captured, added up, and not of the whole steps and the median one."
    ),
    "window": _text("Clip to this time of the trace, such as 10ms:25ms.", "FROM:TO"),
    "no_align": _flag("--no-align", "Leave the clocks of captures and devices as they were recorded."),
    "nsys": option.Nsys,
    "comm": option.Comm,
    "workers": _option(
        int | None,
        metavar="N",
        min=1,
        help="Processes that read captures side by side.",
        show_default="processors",
    ),
    "skip_bad": _flag("--skip-bad", "Leave out captures that can't be read, with a warning naming them."),
    "no_cache": option.NoCache,
    "memory": _text("Look at as many ranks at once as fit into this, such as 8GB.", "SIZE"),
    "dask": _text(
        "Let the workers of this Dask scheduler look at ranks, such as tcp://host:8786. Not with --memory.", "ADDRESS"
    ),
}


def without(lacking: str) -> Callable[[Command], Command]:
    """Mark a command that lacks some of the options on captures, by their names with blanks between."""

    def marked(command: Command) -> Command:
        command.lacking = lacking  # type: ignore[attr-defined]
        return command

    return marked


def with_run_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command with captures and the options on them in place of `options`; one that takes none as it is."""
    own = get_type_hints(command, include_extras=True)
    if own.get("options") is not RunOptions:
        return command
    lacking = getattr(command, "lacking", "").split()
    offered = {
        name: (kind, False if get_args(kind)[0] is bool else None)
        for name, kind in OPTIONS.items()
        if name not in lacking
    }
    taken: dict[str, tuple[Any, Any]] = {"traces": (TRACES, inspect.Parameter.empty)}
    for name, one in inspect.signature(command).parameters.items():
        taken |= offered if name == "options" else {name: (own[name], one.default)}

    def called(**given: Any) -> None:
        command(options=RunOptions.of(given), **{name: given[name] for name in own if name in given})

    called.__doc__ = command.__doc__
    called.__annotations__ = {name: kind for name, (kind, _) in taken.items()}
    called.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for name, (kind, default) in taken.items()
        ]
    )
    return called
