"""Run traceviz commands within the test's own process."""

from __future__ import annotations

import json
from typing import Any

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
