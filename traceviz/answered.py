"""A command that asks something of captures: what it says, printed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import typer

from traceviz.document import Block
from traceviz.terminal import write

Result = TypeVar("Result")


@dataclass(frozen=True)
class Said:
    """What a command has to say.

    blocks, contract : for people, and as JSON; only what is asked for is made.
    afterwards : what is left to do when the answer is out.
    """

    blocks: Callable[[], Sequence[Block]]
    contract: Callable[[], dict[str, Any]]
    exit_code: int = 0
    afterwards: Callable[[], object] | None = None


def said(
    result: Result,
    blocks: Callable[[Result], Sequence[Block]],
    contract: Callable[[Result], dict[str, Any]],
    afterwards: Callable[[], object] | None = None,
) -> Said:
    """Say an analysis's result."""
    code = getattr(result, "exit_code", 0)
    return Said(lambda: blocks(result), lambda: contract(result), code, afterwards)


def answers(command: Callable[..., Said]) -> Callable[..., None]:
    """Have a command print what it says, and end with its exit code."""

    @functools.wraps(command)
    def answering(**given: Any) -> None:
        found = command(**given)
        write(given["output"], found.blocks, found.contract)
        if found.afterwards is not None:
            found.afterwards()
        if found.exit_code:
            raise typer.Exit(found.exit_code)

    return answering
