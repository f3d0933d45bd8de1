"""A command that asks something of captures: what it says, printed; and found again when the same is asked again."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import typer

from analyzers.cache.folder import is_off
from traceviz.arguments import Format, shown
from traceviz.document import Block, from_plain, to_plain
from traceviz.terminal import as_json, as_text, put

UNDECIDING = ("workers", "memory", "dask", "no_cache")  # how an answer is come by, not what it is
WRITING = ("save", "timeline")  # options by which a command does more than to answer
Runs = Callable[[Mapping[str, Any]], Sequence[Sequence[Any]]]
Result = TypeVar("Result")


@dataclass(frozen=True)
class Said:
    """What a command has to say.

    blocks, contract : for people, and as JSON; only what is asked for is made.
    passing : whether the same question may be answered otherwise next time, the captures being the same.
    afterwards : what is left to do when the answer is out.
    """

    blocks: Callable[[], Sequence[Block]]
    contract: Callable[[], dict[str, Any]]
    exit_code: int = 0
    passing: bool = False
    afterwards: Callable[[], object] | None = None


def said(
    result: Result,
    blocks: Callable[[Result], Sequence[Block]],
    contract: Callable[[Result], dict[str, Any]],
    afterwards: Callable[[], object] | None = None,
) -> Said:
    """Say an analysis's result; one that lacks captures which could not be read is not for the next time."""
    warnings: Sequence[Any] = getattr(result, "warnings", ())
    passing = any(one.code == "skipped-bad" for one in warnings)
    code = getattr(result, "exit_code", 0)
    return Said(lambda: blocks(result), lambda: contract(result), code, passing, afterwards)


def answers(command: Callable[..., Said]) -> Callable[..., None]:
    """Have a command print what it says, and end with its exit code; answers once given are found again.

    All of its options but those of UNDECIDING decide the answer, so that a new one needs no mention here.
    """
    return answers_of(_run_and_baseline)(command)


def answers_of(runs: Runs) -> Callable[[Callable[..., Said]], Callable[..., None]]:
    """The same for a command whose options say otherwise which captures are those of one run."""

    def decorated(command: Callable[..., Said]) -> Callable[..., None]:
        @functools.wraps(command)
        def answering(**given: Any) -> None:
            _answer(command, given, runs)

        return answering

    return decorated


def _run_and_baseline(given: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
    return [paths for paths in (given["traces"], given.get("baseline")) if paths]


def _answer(command: Callable[..., Said], given: Mapping[str, Any], runs: Runs) -> None:
    output, afterwards = given["output"], None
    name = _name(command.__name__, given, runs)
    answer = _kept(name)
    if answer is None:
        found = command(**given)
        content = as_json(found.contract()) if output is Format.json else to_plain(found.blocks())
        answer, afterwards = [found.exit_code, content], found.afterwards
        if name and not found.passing and name == _name(command.__name__, given, runs):  # nothing changed meanwhile
            _keep(name, answer)
    code, content = answer
    put(content if output is Format.json else as_text(output, from_plain(content)))
    if afterwards is not None:
        afterwards()
    if code:
        raise typer.Exit(code)


def _name(command: str, given: Mapping[str, Any], runs: Runs) -> str:
    if given["no_cache"] or is_off() or any(given.get(option) is not None for option in WRITING):
        return ""
    from analyzers.scale import answer_cache

    words = {option: value for option, value in given.items() if option not in (*UNDECIDING, "output")}
    form = "json" if given["output"] is Format.json else "blocks"
    said = json.loads(json.dumps(words, default=str, sort_keys=True))
    paths = [shown(paths) for paths in runs(given)]
    return answer_cache.name_of([command, form, said], paths, skip_bad=given["skip_bad"])


def _kept(name: str) -> Any:
    if not name:
        return None
    from analyzers.scale import answer_cache

    text = answer_cache.kept(name)
    return None if text is None else json.loads(text)


def _keep(name: str, answer: Any) -> None:
    from analyzers.scale import answer_cache

    answer_cache.keep(name, json.dumps(answer))
