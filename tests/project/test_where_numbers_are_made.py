"""docs/keys.md is made from what commands answer and what results say of their fields: where each number is made.

`python -m tests.project.test_where_numbers_are_made` writes it anew. A key's record is the one that its object was
written from; its meaning stands in the record's docstring; it is made in the functions that make such records.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tests.support.command_lines import run_json
from traceviz.output import records

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "keys.md"
DATA = ROOT / "tests" / "data"
TORCH, NSYS = DATA / "torch", DATA / "nsys"
DPMP = [str(TORCH / f"dpmp_overlap.rank{rank}.json.gz") for rank in (0, 1)]
SERIAL = [part for rank in (0, 1) for part in ("--baseline", str(TORCH / f"dpmp_serial.rank{rank}.json.gz"))]
SIDES = ["-a", "nvtx:DP Embedding", "-b", "nvtx:MP Embedding"]
ROWPAR, COUNTERS = str(NSYS / "rowpar_s4.4gpu.sqlite"), str(DATA / "counters" / "contend_after.sqlite.gz")
RACE = [str(TORCH / "dpmp_race.rank0.json.gz")]
# Command lines whose answers have all keys of each schema between them.
ASKED = {
    "overlap": [
        ["check-overlap", *DPMP, *SIDES],
        ["check-overlap", ROWPAR],
        ["check-overlap", COUNTERS],
        ["check-overlap", *DPMP, *SIDES, *SERIAL, "--claimed", "1.3x"],
    ],
    "collectives": [["collectives", *DPMP]],
    "syncs": [["syncs", *RACE], ["syncs", ROWPAR], ["syncs", str(TORCH / "a2a_async.rank0.json.gz")]],
    "streams": [["streams", *DPMP]],
    "info": [["info", *DPMP]],
    "counters": [["counters", COUNTERS]],
    "what-if": [["what-if", str(TORCH / "item_before.rank*.json.gz"), "--critical-path"]],
    "contract": [
        ["contract", str(DATA / "workloads/dpmp.hidden-sync.2gpu.torch"), str(ROOT / "docs/contracts/dpmp.toml")]
    ],
    "compare": [
        ["compare", str(TORCH / "dpmp_serial.rank*.json.gz"), str(TORCH / "dpmp_overlap.rank*.json.gz"), *SIDES],
        ["compare", str(TORCH / "ddp.rank*.json.gz"), str(TORCH / "ddp.rank*.json.gz"), "--claimed", "2x"],
    ],
}
MOST_MAKERS = 3  # that are named
HEAD = """# All keys, and where each number is made

`python -m tests.project.test_where_numbers_are_made` makes this page of what commands answer and of what the records
say that they are written from. What is printed is made in `analyzers/`; `traceviz/output/` only words it. Brief JSON
takes its figures out of these answers, and `show` looks one of their findings up.
"""
Origin = tuple[type, str]  # a record and one of its fields or properties


class Origins:
    """Which record and field each object's keys came from, as answers are written."""

    def __init__(self) -> None:
        self.written: list[tuple[type, dict[str, str], dict[str, Any]]] = []

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        plain = records.picked

        def picked(record: Any, keys: str) -> dict[str, Any]:
            found = plain(record, keys)
            if not isinstance(record, dict):
                attributes = dict(named(type(record), keys))
                self.written.append((type(record), attributes, found))
            return found

        for path in (ROOT / "traceviz" / "output" / "views").glob(
            "[a-z]*.py"
        ):  # those, too, that no command has asked for yet
            importlib.import_module(f"traceviz.output.views.{path.stem}")
        with contextlib.ExitStack() as patched:
            for module in [one for name, one in sys.modules.items() if name.startswith("traceviz.output")]:
                if vars(module).get("picked") is plain:
                    patched.enter_context(patch.object(module, "picked", picked))
            yield

    def of(self, answer: Any, path: str = "") -> Iterator[tuple[str, Origin | None]]:
        """Each key's path and origin; None where it was written by hand."""
        if isinstance(answer, list):
            for inner in answer[:200]:
                yield from self.of(inner, f"{path}[]")
        elif isinstance(answer, dict):
            own = {
                key: (record, attributes[key])
                for record, attributes, found in self.written
                if found.items() and all(key in answer and answer[key] is value for key, value in found.items())
                for key in attributes
            }
            for key, inner in answer.items():
                at = f"{path}.{key}".lstrip(".")
                is_named = isinstance(inner, dict) and inner and not all(str(each).isdecimal() for each in inner)
                is_listed = isinstance(inner, list) and inner and isinstance(inner[0], dict)
                yield at, own.get(key)
                if is_named or is_listed:
                    yield from self.of(inner, at)


def named(record: type, keys: str) -> list[tuple[str, str]]:
    """Each key with the field or property that its value is read from, itself where it is made of several."""
    return [(key, (re.findall(r"'(.*)'", repr(read)) or [key])[0]) for key, read in records._attributes(record, keys)]


def origins(schema: str) -> dict[str, Origin | None]:
    """The keys of a schema, by path, in the order in which answers have them."""
    found: dict[str, Origin | None] = {}
    for command in ASKED[schema]:
        watch, answers = Origins(), list[Any]()

        def kept(answer: Any, answers: list[Any] = answers) -> str:
            answers.append(answer)
            return "{}"

        with watch.watched(), patch("traceviz.output.terminal.as_json", kept):
            run_json(*command)
        assert answers[0]["schema"].startswith(f"traceviz.{schema}/")
        for path, origin in watch.of(answers[0]):
            found[path] = origin or found.get(path)
    del found["schema"]
    return found


def meanings(record: type) -> dict[str, str]:
    """What docstrings say of a record's fields, by `field : …` or a sentence that names one, and of its properties."""
    found: dict[str, str] = {}
    for each in reversed(record.__mro__):
        if names := tuple(vars(each).get("__annotations__", ())):
            found |= stated(" ".join(inspect.cleandoc(each.__doc__ or "").split()), names)
    properties = inspect.getmembers(record, lambda member: isinstance(member, property))
    return found | {name: sentence(member.__doc__ or "") for name, member in properties}


def stated(text: str, names: Iterable[str]) -> dict[str, str]:
    """Each name's part of a docstring.

    >>> stated("It took `ns`. first, last : its ends. op : what ran.", ["op", "first", "last", "ns"])
    {'ns': 'It took `ns`', 'first': 'its ends', 'last': 'its ends', 'op': 'what ran'}
    """
    either = "|".join(names)
    parts = re.split(rf"(?:^|(?<=[.;] )|(?<=, and ))((?:{either})(?:, (?:{either}))*) : ", text)
    in_sentences = re.findall(r"(?:^|(?<=\. ))(?:[^.`]|\.\w|`[^`]*`)+", parts[0])
    named_in = {name: told.strip() for told in reversed(in_sentences) for name in re.findall(r"`(\w+)`", told)}
    by_line = {
        name: sentence(said).rstrip(";,. ")
        for each, said in zip(parts[1::2], parts[2::2], strict=True)
        for name in each.split(", ")
    }
    return {name: said for name, said in (named_in | by_line).items() if name in names}


def sentence(text: str) -> str:
    return re.split(r"(?<=\.)\s", " ".join(text.split()))[0].removesuffix(".")


def makers() -> dict[str, list[str]]:
    """Functions of `analyzers` that make each record, by its name."""
    found = defaultdict[str, list[str]](list)
    for path in sorted((ROOT / "analyzers").rglob("*.py")):
        for scope in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for function in ast.iter_child_nodes(scope):
                if isinstance(function, ast.FunctionDef):
                    own = scope.name if isinstance(scope, ast.ClassDef) else ""
                    where = f"{path.relative_to(ROOT / 'analyzers')}: {function.name}"
                    for name in sorted(made_by(function, own)):
                        found[name].append(where)
    return found


def made_by(function: ast.FunctionDef, own: str) -> set[str]:
    """Names of classes that a function calls, or hands to what it calls, such as `table_of`."""
    given = [each for call in ast.walk(function) if isinstance(call, ast.Call) for each in (call.func, *call.args[:1])]
    names = {each.id for each in given if isinstance(each, ast.Name)}
    return names | {own} if own and "cls" in names else names


def page() -> str:
    lines, made, told = [HEAD], makers(), set[str]()
    for schema in ASKED:
        lines += [f"## {schema}", ""]
        groups = defaultdict[tuple[str, type | None], dict[str, str]](dict)
        for path, origin in origins(schema).items():
            at, _, key = path.rpartition(".")
            groups[at, origin and origin[0]][key] = origin[1] if origin else ""
        for (at, record), keys in groups.items():
            place = f"`{at}.`" if at else "the answer"
            if record is None:
                lines += [
                    f"**{place}** put together in `traceviz/output/`: " + ", ".join(f"`{key}`" for key in keys),
                    "",
                ]
                continue
            name = record.__name__
            if name in told:
                lines += [f"**{place}** {name}, as above: " + ", ".join(f"`{key}`" for key in keys), ""]
                continue
            told.add(name)
            where = f"`{record.__module__.partition('.')[2].replace('.', '/')}.py`"
            by = ", ".join(f"`{one}`" for one in made[name][:MOST_MAKERS]) or where
            lines += [f"**{place}** {name} ({where}), made by {by}", ""]
            says = meanings(record)
            plain = [f"`{key}`" for key, field in keys.items() if not says.get(field)]
            lines += [f"- `{key}`: {says[field]}" for key, field in keys.items() if says.get(field)]
            lines += ["- " + ", ".join(plain)] * bool(plain) + [""]
    return "\n".join(lines)


def test_the_page_is_what_answers_and_records_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tests.project.test_where_numbers_are_made"


# By hand: who wrote these functions knows what they make.
MADE = {
    "ranks[].": ("RankOverlap", "overlap/measure.py"),
    "ranks[].missed[].": ("Missed", "causes/missed.py"),
    "ranks[].median_step.": ("Typical", "overlap/measure.py"),
    "bound.": ("Bound", "verdict/bound.py"),
    "clocks.": ("Clocks", "clocks/solve.py"),
    "collectives[].": ("Collective", "collectives/costs.py"),
    "changes[].": ("Prediction", "replay/predict.py"),
    "rules[].": ("RuleResult", "contracts/checks.py"),
    "captures[].": ("Capture", "trace/tables.py"),
}


@pytest.mark.parametrize("place", MADE)
def test_a_number_is_made_where_its_record_is(place: str) -> None:
    record, module = MADE[place]
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    (line,) = [one for one in lines if one.startswith(f"**`{place}`** {record} (")]
    assert f"`{module}" in line


def test_each_package_says_what_is_made_there() -> None:
    made_in = set(re.findall(r"\(`(\w+)/[\w/]+\.py`\)", PAGE.read_text(encoding="utf-8"))) - {"common"}
    packages = {
        path.parent.name: path.read_text(encoding="utf-8") for path in (ROOT / "analyzers").glob("*/__init__.py")
    }
    assert {"collectives", "overlap", "replay", "verdict"} <= made_in
    assert not [name for name in made_in & packages.keys() if "ade here" not in packages[name]]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
