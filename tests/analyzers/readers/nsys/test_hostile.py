"""Which nsys is run, and how: never one that somebody may have put there, never through a shell."""

from __future__ import annotations

import ast
import io
import sys
from pathlib import Path

import pytest

from analyzers.common.errors import TracevizError
from analyzers.readers.nsys.export import exported, find_nsys
from traceviz.commands import collect

ROOT = Path(__file__).parents[4]
REPORT = ROOT / "tests/data/nsys/rowpar_s1.rank0.nsys2023.nsys-rep"
EXPORT = ROOT / "tests/data/nsys/rowpar_s1.rank0.nsys2025.sqlite"


def test_an_nsys_in_a_folder_that_anybody_may_write_to_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nsys = tmp_path / "here" / "nsys"
    nsys.parent.mkdir()
    nsys.write_text(f"#!/bin/sh\ntouch {tmp_path}/was-run\necho NVIDIA Nsight Systems version 2099.1.1.1\n")
    nsys.chmod(0o755)
    nsys.parent.chmod(0o777)
    monkeypatch.setenv("PATH", f"{nsys.parent}:/nowhere")
    monkeypatch.delenv("TRACEVIZ_NSYS", raising=False)
    assert nsys not in [found.path for found in find_nsys()]
    assert not (tmp_path / "was-run").exists()


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


def test_which_nsys_runs_is_said_on_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that stands on PATH is not run without a word: neither to export, in the progress line, nor to collect."""
    tool = tmp_path / "nsys"
    tool.write_text("#!/bin/sh\necho NVIDIA Nsight Systems version 2024.6.1.90-1v0\n")
    tool.chmod(0o755)
    reported: list[str] = []
    with pytest.raises(TracevizError):  # it exports nothing
        exported(REPORT, str(tool), lambda what, done, total: reported.append(what), tmp_path / "kept")
    assert set(reported) == {f"exporting · nsys 2024.6.1 at {tool}"}

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream in (Terminal(), io.StringIO()):
        monkeypatch.setattr(sys, "stderr", stream)
        collect.find_nsys(str(tool))
        expected = f"traceviz: nsys 2024.6.1 at {tool}.\n" if stream.isatty() else ""
        assert stream.getvalue() == expected, "a log that nobody looks at stays as it was"
