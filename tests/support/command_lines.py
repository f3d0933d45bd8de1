"""The commands of traceviz, and running them within the test's own process."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import typer
from typer.testing import CliRunner, Result

from traceviz.cli import app


def invoked(*arguments: str, env: Mapping[str, str] | None = None) -> Result:
    """A command, run to its exit code.

    What it raises goes on to the test: click's runner would make of any exception exit code 1, which is a verdict's.
    """
    return CliRunner().invoke(app, list(arguments), env=env, catch_exceptions=False)


def run_text(*arguments: str) -> str:
    """What a command prints as JSON, as it stands; any verdict will do."""
    result = invoked(*arguments, "--format", "json")
    assert result.exit_code in (0, 1, 3), result.output
    return result.stdout


def run_json(*arguments: str) -> Any:
    """The same, read."""
    return json.loads(run_text(*arguments))


def without_replay(answer: Any) -> Any:
    """An answer as JSON without what is replayed only where all of a run is at hand."""
    if isinstance(answer, list):
        return [without_replay(one) for one in answer]
    if not isinstance(answer, dict):
        return answer
    replayed = ("fix", "cause_fix", "remedy", "worth_unknown")
    replayed += ("recoverable_ns", "recoverable_low_ns", "recoverable_high_ns")
    kept = {key: without_replay(one) for key, one in answer.items() if key not in replayed}
    if "lines" in kept:
        kept["lines"] = [line for line in kept["lines"] if line["kind"] != "fix"]
    return kept


def in_parts(*arguments: str) -> Any:
    """What a command prints as JSON, but for what is replayed: the same of a run that is looked at in parts."""
    return without_replay(run_json(*arguments))


def commands() -> dict[tuple[str, ...], Any]:
    """Every command, by the words that call it."""
    return dict(_commands(typer.main.get_command(app)))


def _commands(group: Any, *names: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, *names, name)
        else:
            yield (*names, name), command
