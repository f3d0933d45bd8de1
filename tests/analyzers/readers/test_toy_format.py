"""A reader is a module and an entry in the table of formats: a toy format, added so, is found, told and checked."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from analyzers.common.progress import Progress
from analyzers.readers import formats, inputs
from analyzers.readers.formats import Format
from analyzers.readers.reading import Reading
from analyzers.trace.columns import table
from analyzers.trace.tables import Capture, Process, Trace
from tests.support.command_lines import run_json

TOY = Format("toy", lambda head: head.raw.startswith(b"TOY\n"), "toy:read", "a toy (.toy)", (".toy",))


def read(path: Path, progress: Progress, reading: Reading) -> Trace:
    """A line an op: stream, name, start and end in ns."""
    lines = [line.split() for line in path.read_text().splitlines()[1:]]
    stream, name, start, end = zip(*lines, strict=True)
    ops = {
        "device": [0] * len(lines),
        "stream": [*map(int, stream)],
        "name": name,
        "start_ns": [*map(int, start)],
        "end_ns": [*map(int, end)],
    }
    capture = Capture(path=str(path), format="toy", producer="nobody", last_ns=max(map(int, end)))
    return Trace(captures=(capture,), processes=(Process(capture=0, pid=1),), ops=table("ops", ops))


@pytest.fixture(autouse=True)
def _toys_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("analyzers.readers.toy")
    module.read = read  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for place in (formats, inputs):
        monkeypatch.setattr(place, "FORMATS", (TOY, *formats.FORMATS))
    monkeypatch.setattr(inputs, "SUFFIXES", (*formats.SUFFIXES, *TOY.suffixes))


@pytest.mark.parametrize("named", ["run.toy", "."], ids=["a file", "its folder"])
def test_a_format_is_a_module_and_an_entry(named: str, tmp_path: Path) -> None:
    (tmp_path / "run.toy").write_text("TOY\n7 ncclDevKernel_AllReduce 0 100\n9 gemm 60 200\n")
    answer = run_json("check-overlap", str(tmp_path / named), "-a", "comm", "-b", "compute")
    (rank,) = answer["ranks"]
    assert (rank["a"]["busy_ns"], rank["b"]["busy_ns"], rank["overlap_ns"]) == (100, 140, 40)
