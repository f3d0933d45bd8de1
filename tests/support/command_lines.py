"""The commands of traceviz, and running them within the test's own process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import typer
from typer.testing import CliRunner

from traceviz.cli import app


def run_text(*arguments: str) -> str:
    """What a command prints as JSON, as it stands; any verdict will do."""
    result = CliRunner().invoke(app, [*arguments, "--format", "json"])
    assert result.exit_code in (0, 1, 3), result.output
    return result.stdout


def run_json(*arguments: str) -> Any:
    """The same, read."""
    return json.loads(run_text(*arguments))


def commands() -> dict[tuple[str, ...], Any]:
    """Every command, by the words that call it."""
    return dict(_commands(typer.main.get_command(app)))


def _commands(group: Any, *names: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, *names, name)
        else:
            yield (*names, name), command
