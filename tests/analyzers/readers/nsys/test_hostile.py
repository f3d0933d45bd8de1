"""Which nsys is run, and how: never one that somebody may have put there, never through a shell."""

from __future__ import annotations

import ast
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from analyzers.common.errors import TracevizError
from analyzers.readers.nsys.export import exported, find_nsys
from traceviz.commands import collect

ROOT = Path(__file__).parents[4]
REPORT = ROOT / "tests/data/nsys/rowpar_s1.rank0.nsys2023.nsys-rep"
EXPORT = ROOT / "tests/data/nsys/rowpar_s1.rank0.nsys2025.sqlite"


def put(folder: Path, script: str = "echo NVIDIA Nsight Systems version 2099.1.1.1") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    nsys = folder / "nsys"
    nsys.write_text(f"#!/bin/sh\ntouch {folder}/was-run\n{script}\n")
    nsys.chmod(0o755)
    return nsys


@pytest.mark.parametrize("where", ["current", "relative", "empty", "world-writable"])
def test_an_nsys_that_anybody_may_have_put_there_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    folder = put(tmp_path / "here").parent
    monkeypatch.chdir(folder if where != "world-writable" else tmp_path)
    entry = {"current": str(folder), "relative": "../here", "empty": "", "world-writable": str(folder)}[where]
    if where == "world-writable":
        folder.chmod(0o777)
    monkeypatch.setenv("PATH", f"{entry}:/nowhere")
    monkeypatch.delenv("TRACEVIZ_NSYS", raising=False)
    assert folder / "nsys" not in [found.path for found in find_nsys()]
    assert not (folder / "was-run").exists()


def test_a_named_one_is_run_wherever_it_lies(tmp_path: Path) -> None:
    nsys = put(tmp_path / "mine")
    assert [found.path for found in find_nsys(str(nsys))] == [nsys]


def test_nothing_passes_through_a_shell() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in ("analyzers", "collectors", "traceviz")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and (
            any(word.arg == "shell" for word in node.keywords)
            or ast.unparse(node.func)
            in ("os.system", "os.popen", "subprocess.getoutput", "tempfile.mktemp", "eval", "exec")
        )
    ]
    assert not wrong


def test_two_processes_that_export_one_report_leave_one_good_export(tmp_path: Path) -> None:
    script = f"""case "$1" in
--version) echo NVIDIA Nsight Systems version 2099.1.1.1;;
*) for word; do case "$word" in --output=*)
    echo exporting >> '{tmp_path}/log'
    until [ "$(wc -l < '{tmp_path}/log')" -ge 3 ]; do sleep 0.05; done
    cp '{EXPORT}' "${{word#--output=}}";;
esac; done;;
esac"""
    nsys = put(tmp_path / "bin", script)
    cache = tmp_path / "cache"
    settings = {**os.environ, "TRACEVIZ_CACHE": str(cache), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "traceviz", "info", str(REPORT), "--nsys", str(nsys)]
    running = [subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, cwd=tmp_path) for _ in range(3)]
    answers = [process.communicate(timeout=120)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0, 0]
    assert len(set(answers)) == 1
    (entry,) = (cache / "nsys").iterdir()
    assert entry.read_bytes() == EXPORT.read_bytes()


def test_which_nsys_runs_is_said_on_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that stands on PATH is not run without a word: neither to export, in the progress line, nor to collect."""
    tool = tmp_path / "nsys"
    tool.write_text("#!/bin/sh\necho NVIDIA Nsight Systems version 2024.6.1.90-1v0\n")
    tool.chmod(0o755)
    said: list[str] = []
    with pytest.raises(TracevizError):  # it exports nothing
        exported(REPORT, str(tool), lambda what, done, total: said.append(what), tmp_path / "kept")
    assert set(said) == {f"exporting · nsys 2024.6.1 at {tool}"}

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream in (Terminal(), io.StringIO()):
        monkeypatch.setattr(sys, "stderr", stream)
        collect.find_nsys(str(tool))
        expected = f"traceviz: nsys 2024.6.1 at {tool}.\n" if stream.isatty() else ""
        assert stream.getvalue() == expected, "a log that nobody looks at stays as it was"
