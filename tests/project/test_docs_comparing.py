"""What docs/comparing.md shows is what its command prints."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_example_prints_what_is_shown() -> None:
    text = (ROOT / "docs" / "comparing.md").read_text(encoding="utf-8")
    command, shown = (re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL)[0] for kind in ("bash", "text"))
    command = command.replace("traceviz", f"{shlex.quote(sys.executable)} -m traceviz", 1)
    environment = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
    ran = subprocess.run(["bash", "-c", command], cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout == shown
