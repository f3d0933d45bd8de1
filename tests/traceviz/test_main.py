"""The process ends early, and nothing is missing for that: no output, no exit code, no function that runs at exit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.endings import answered

DATA = Path(__file__).parents[1] / "data"
FILES = [str(path) for path in sorted(DATA.glob("torch/item_before.rank?.json.gz"))]
LONG = str(DATA / "workloads" / "a2a.event.4gpu.nsys-per-rank")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "traceviz", *words]
    return answered(subprocess.run(command, capture_output=True, text=True, check=False))


@pytest.mark.parametrize(
    ("words", "code"),
    [(["--version"], 0), (["check-overlap", *FILES], 1), (["info", "nowhere"], 2), (["info", "--format", "odd"], 2)],
)
def test_exit_codes_stay(words: list[str], code: int) -> None:
    assert run(*words).returncode == code


def test_all_of_a_long_output_arrives() -> None:
    shown = run("syncs", LONG, "--format", "json").stdout
    assert len(shown) > 1 << 16  # more than a pipe holds
    assert json.loads(shown)["schema"] == "traceviz.syncs/2"


def test_what_others_do_at_exit_is_done() -> None:
    code = """if True:
        import atexit, sys
        from traceviz import __main__, cli
        begun = cli.main
        def main():
            atexit.register(print, "done at exit")
            begun()
        cli.main = main
        sys.argv = ["traceviz", "--version"]
        __main__.main()
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "done at exit")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_output_that_can_not_be_written_is_told() -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    python, done = (
        subprocess.run([sys.executable, *words], stdout=full, stderr=subprocess.PIPE, check=False)
        for words in (["-c", "print(1)"], ["-m", "traceviz", "--version"])
    )
    os.close(full)
    assert done.returncode == python.returncode != 0
    assert b"No space left" in done.stderr
