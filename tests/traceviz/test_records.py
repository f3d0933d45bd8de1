"""Records as JSON and as tables; a new command needs its file, and a line in `COMMANDS`."""

from __future__ import annotations

import importlib
import json
import pkgutil
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
import pytest

import analyzers
from analyzers.verdict.against import StepsAgainst
from traceviz.output.records import KEYS_OF_RECORDS, picked, rows, to_json
from traceviz.output.tables import shown, table
from traceviz.output.views import claim

ROOT = Path(__file__).parents[2]


class Part(msgspec.Struct):
    bytes: int
    start_ns: int = 5


class Whole(msgspec.Struct):
    name: str
    part: Part | None
    parts: tuple[Part, ...] = ()
    by_rank: dict[int, Part] = {}

    @property
    def length(self) -> int:
        return len(self.name)


def records() -> Iterator[type[msgspec.Struct]]:
    for module in pkgutil.walk_packages(analyzers.__path__, "analyzers."):
        importlib.import_module(module.name)
    importlib.import_module("traceviz.history.trends")
    found = [msgspec.Struct]
    for kind in found:
        found += kind.__subclasses__()
    return iter(found)


def test_each_key_is_a_field_or_property_of_the_record_that_it_is_declared_for() -> None:
    named: dict[str, list[type[msgspec.Struct]]] = {}
    for kind in records():
        named.setdefault(kind.__name__, []).append(kind)
    for name, keys in KEYS_OF_RECORDS.items():
        attributes = [word.partition("=")[2] or word.rstrip("?") for word in keys.split() if word != "*"]
        fitting = [
            kind
            for kind in named.get(name, ())
            if all(hasattr(kind, one.lstrip("-").split(".")[0]) for one in attributes)
        ]
        assert len(fitting) == 1, (name, named.get(name))


def test_a_record_is_an_object_with_its_fields_whatever_they_hold() -> None:
    whole = Whole("abc", Part(7), (Part(-1, 6),), {3: Part(2)})
    assert to_json(whole) == {
        "name": "abc",
        "part": {"bytes": 7, "start_ns": 5},
        "parts": [{"bytes": None, "start_ns": 6}],
        "by_rank": {3: {"bytes": 2, "start_ns": 5}},
    }
    assert to_json([0.5, float("nan"), float("inf"), np.float64(2), np.int64(3), True]) == [
        0.5,
        None,
        None,
        2.0,
        3,
        True,
    ]
    assert to_json({"path": Path("a"), "matrix": np.eye(2, dtype=int)}) == {"path": "a", "matrix": [[1, 0], [0, 1]]}


def test_keys_can_be_picked_renamed_added_and_left_out() -> None:
    whole = Whole("abc", Part(7))
    assert picked(whole, "length size=part.bytes") == {"length": 3, "size": 7}
    assert list(picked(whole, "length * -parts -by_rank")) == ["length", "name", "part"]
    assert picked({"a": 1, "b": -1}, "b") == {"b": -1}
    assert picked(whole, "both=name+length") == {"both": {"name": "abc", "length": 3}}
    assert [picked(Whole(name, None), "name?") for name in ("", "x")] == [{"name": None}, {"name": "x"}]


def test_a_table_is_a_list_of_rows_with_null_for_what_is_not_known() -> None:
    frame = pd.DataFrame({"op": [1, 2], "bytes": [-1, 8], "stream": [-1, 7]})
    assert to_json(frame) == rows(frame)
    assert rows(frame, "op") == [{"bytes": None, "stream": -1}, {"bytes": 8, "stream": 7}]


def test_step_times_are_null_where_nothing_was_compared() -> None:
    names = ("before_ns", "after_ns", "low_ns", "high_ns")
    for step, times in ((StepsAgainst("INCONCLUSIVE"), [None] * 4), (StepsAgainst("SAME", 9, 8, -2, 1), [9, 8, -2, 1])):
        found = claim.against(step)
        assert found is not None
        assert [found[name] for name in names] == times


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [("ns", 1500, "1.50 µs"), ("real_ratio", 0.5, "50 %"), ("count", 1200, "1,200"), ("stream", 1200, "1200"),
     ("peak_bytes", 2048, "2.0 KiB"), ("size", "x", "x"), ("host", None, "–"), ("host", "", "–")],
)  # fmt: skip
def test_a_field_s_name_says_how_it_is_shown(name: str, value: object, text: str) -> None:
    assert shown(name, value) == text


def test_a_table_has_a_column_a_field_and_counts_what_it_leaves_out() -> None:
    found = table("t", [Part(1), Part(2), Part(3)], {"size": "bytes", "word": lambda one: "x"}, words=["word"], most=2)
    assert (found.headers, found.numeric, found.rows) == (["size", "word"], {"size"}, [["1 B", "x"], ["2 B", "x"]])
    assert found.note == "… and 1 more (--format json has all)"
    above = table("", [Part(1)], {"size": "bytes", "b": "bytes"}, first=["now"])
    assert above.rows == [["now", ""], ["1 B", "1 B"]]


TOY = '''"""`traceviz toy`."""

from __future__ import annotations

import typer

from traceviz.options import arguments as option
from traceviz.options.run import RunOptions, without
from traceviz.output.document import Paragraph
from traceviz.output.terminal import emit, progress

EPILOG = "Examples:\\n  traceviz toy x"


@without("window")
def toy(context: typer.Context, options: RunOptions, output: option.OutputFormat = "text") -> None:
    """How many ops there are."""
    with progress() as on_progress:
        trace = options.loaded(on_progress)
    emit(context.params, {"ops": len(trace.ops)}, lambda found: [Paragraph(f"{found['ops']} ops")])
'''


def test_a_new_command_is_a_file_and_a_line(tmp_path: Path) -> None:
    for name in ("traceviz", "analyzers", "collectors"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "traceviz" / "commands" / "toy.py").write_text(TOY)
    cli = tmp_path / "traceviz" / "cli.py"
    cli.write_text(cli.read_text().replace("COMMANDS = (\n", 'COMMANDS = (\n    "toy",\n'))
    capture = ROOT / "tests" / "data" / "torch" / "dpmp_overlap.rank0.json.gz"

    def ran(*words: str) -> str:
        command = [sys.executable, "-m", "traceviz", "toy", str(capture), *words]
        return subprocess.run(
            command, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True
        ).stdout

    assert ran("--no-cache") == "57 ops\n"
    assert json.loads(ran("--no-cache", "--ranks", "0", "--format", "json")) == {"ops": 57}
    assert "--skip-bad" in ran("--help")
    assert "--window" not in ran("--help")
