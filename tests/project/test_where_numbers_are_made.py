"""CONTRIBUTING's table "Where each number is made", held against what the commands answer and the code there is."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_lines import run_json

ROOT = Path(__file__).parents[2]
TORCH, NSYS = ROOT / "tests" / "data" / "torch", ROOT / "tests" / "data" / "nsys"
DPMP = [str(TORCH / f"dpmp_overlap.rank{rank}.json.gz") for rank in (0, 1)]
SERIAL = [str(TORCH / f"dpmp_serial.rank{rank}.json.gz") for rank in (0, 1)]
SIDES = ["-a", "nvtx:DP Embedding", "-b", "nvtx:MP Embedding"]
ROWPAR = str(NSYS / "rowpar_s4.4gpu.sqlite")
# Command lines whose answers have all keys of each schema between them.
ASKED = {
    "overlap": [
        ["check-overlap", *DPMP, *SIDES],
        ["check-overlap", ROWPAR],
        ["check-overlap", str(ROOT / "tests" / "data" / "counters" / "contend_after.sqlite.gz")],
        [
            "check-overlap",
            *DPMP,
            *SIDES,
            *(word for path in SERIAL for word in ("--baseline", path)),
            "--claimed",
            "1.3x",
        ],
    ],
    "collectives": [["collectives", *DPMP]],
    "syncs": [
        ["syncs", *(str(TORCH / f"{name}.rank0.json.gz") for name in ["dpmp_race"])],
        ["syncs", ROWPAR],
        ["syncs", str(TORCH / "a2a_async.rank0.json.gz")],
    ],
    "streams": [["streams", *DPMP]],
    "info": [["info", *DPMP]],
    "counters": [["counters", str(ROOT / "tests" / "data" / "counters" / "contend_after.sqlite.gz")]],
    "what-if": [
        ["what-if", str(TORCH / "item_before.rank*.json.gz"), "--critical-path"],
    ],
    "contract": [
        [
            "contract",
            str(ROOT / "tests/data/workloads/dpmp.hidden-sync.2gpu.torch"),
            str(ROOT / "docs/contracts/dpmp.toml"),
        ]
    ],
    "compare": [
        ["compare", str(TORCH / "dpmp_serial.rank*.json.gz"), str(TORCH / "dpmp_overlap.rank*.json.gz"), *SIDES],
        ["compare", str(TORCH / "ddp.rank*.json.gz"), str(TORCH / "ddp.rank*.json.gz"), "--claimed", "2x"],
    ],
}
ROW = re.compile(r"^\| (?P<keys>`.*?`) \| (?P<printed>.*?) \| (?P<made>.*?) \|$")


def rows() -> Iterator[tuple[str, list[str], list[str]]]:
    """Each row's schema, patterns of keys, and files."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Where each number is made")[2]
    schemas: list[str] = []
    for line in text.partition("\n## ")[0].splitlines():
        schemas = re.findall(r"`traceviz\.([\w-]+)/\d`", line) or schemas
        row = ROW.match(line)
        if row is None:
            continue
        keys = re.findall(r"`(?:([\w-]+): )?([^`]+)`", row["keys"])
        for schema in {schema or schemas[0] for schema, _ in keys}:
            mine = [key for of, key in keys if (of or schemas[0]) == schema]
            yield schema, mine, re.findall(r"`(\w[\w/]*\.py)`", row["made"])


def keys_of(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, dict) and value and not all(key.isdecimal() for key in value):
        for key, inner in value.items():
            yield from keys_of(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for inner in value:
            yield from keys_of(inner, f"{path}[]")
    else:
        yield path


def matches(key: str, pattern: str) -> bool:
    escaped = pattern.replace("[]", "[[][]]")
    return fnmatch.fnmatchcase(key, escaped) or (pattern.endswith(".*") and key in (pattern[:-2], pattern[:-4]))


@pytest.mark.parametrize("schema", ASKED)
def test_each_key_of_an_answer_has_its_row(schema: str) -> None:
    patterns = [pattern for of, keys, _ in rows() if of == schema for pattern in keys]
    answers = [run_json(*command) for command in ASKED[schema]]
    assert all(answer["schema"].startswith(f"traceviz.{schema}/") for answer in answers)
    keys = {key for answer in answers for key in keys_of(answer)} - {"schema"}
    assert keys, json.dumps(answers)[:300]
    assert not [key for key in sorted(keys) if not any(matches(key, pattern) for pattern in patterns)]
    assert not [pattern for pattern in patterns if not any(matches(key, pattern) for key in keys)], "no such keys"


def test_each_row_names_files_that_are_there() -> None:
    files = {file for _, _, made in rows() for file in made}
    assert len(files) > 20
    assert not [file for file in sorted(files) if not (ROOT / "analyzers" / file).is_file()]


def test_a_key_with_a_row_of_its_own_stands_in_the_file_named() -> None:
    """By its name, or its parent's: what is renamed in the code has to be renamed in the table."""
    wrong = []
    for schema, keys, files in rows():
        text = "".join((ROOT / "analyzers" / file).read_text(encoding="utf-8") for file in files)
        for key in keys:
            words = [word.strip("[]*") for word in key.split(".")]
            names = [word for word in words[-2:] if word] or words[:1]
            if not key.endswith("*") and not any(
                re.search(rf"\b{re.escape(name.removesuffix('s'))}", text) for name in names
            ):
                wrong.append(f"{schema}: {key} in {files}")
    assert not wrong


def test_each_package_says_what_is_made_there() -> None:
    packages = sorted((ROOT / "analyzers").glob("*/__init__.py"))
    assert packages
    made_in = {file.split("/")[0] for _, _, files in rows() for file in files if "/" in file}
    silent = [one.parent.name for one in packages if one.parent.name in made_in and "ade here" not in one.read_text()]
    assert not silent
