"""How the code is laid out: one direction of imports, quiet analyzers, documented and runnable help."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from analyzers.select import language
from tests.support.command_lines import commands
from traceviz.options import arguments

ROOT = Path(__file__).parents[2]
PACKAGES = ("traceviz", "analyzers", "collectors")

MAY_NOT_IMPORT = {
    "analyzers": {"traceviz", "collectors", "typer", "click", "plotly", "rich", "torch"},
    "collectors": {"traceviz", "analyzers"},
    "traceviz": {"torch"},
}
# What ends a process or talks to its user; both are the commands' business.
NOT_AN_ANALYZERS_BUSINESS = {"print", "input", "exit", "quit", "sys.exit", "os._exit", "sys.stdout", "sys.stderr"}


def sources(*packages: str) -> list[Path]:
    return sorted(path for package in packages for path in (ROOT / package).rglob("*.py"))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module or ""


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_go_one_way(package: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sources(package)
        for name in imported(parsed(path))
        if name.partition(".")[0] in MAY_NOT_IMPORT[package]
    ]
    assert not wrong


def test_analyzers_neither_talk_nor_end_the_process() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"
        for path in sources("analyzers")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node) in NOT_AN_ANALYZERS_BUSINESS
    ]
    assert not wrong


def test_what_is_public_has_a_docstring() -> None:
    missing = []
    for path in sources(*PACKAGES):
        tree = parsed(path)
        if not ast.get_docstring(tree):
            missing.append(str(path.relative_to(ROOT)))
        missing += [
            f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}"
            for node in public_definitions(tree)
            if not ast.get_docstring(node)
        ]
    assert not missing


def public_definitions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from (
                    inner
                    for inner in node.body
                    if isinstance(inner, ast.FunctionDef) and not inner.name.startswith("_")
                )


COMMANDS = commands()
BY_NAME = pytest.mark.parametrize("words", COMMANDS, ids=" ".join)

# How an option's text is read where its type alone doesn't say.
READERS: dict[str, Callable[[str], object]] = {
    "a": language.parse,
    "b": language.parse,
    "min_overlap": arguments.read_ratio,
    "ranks": arguments.read_numbers,
    "steps": arguments.read_steps,
    "window": arguments.read_window,
}


@BY_NAME
def test_help_gives_examples_that_parse(words: tuple[str, ...]) -> None:
    command = COMMANDS[words]
    examples = re.findall(r"^  (traceviz .*)$", (command.epilog or "").partition("Examples:")[2], re.MULTILINE)
    assert examples, "the help has no 'Examples:' with commands below"
    for example in examples:
        given = shlex.split(example)
        assert tuple(given[1 : 1 + len(words)]) == words
        context = command.make_context(words[-1], given[1 + len(words) :])
        for option, value in context.params.items():
            if option in READERS and isinstance(value, str):  # `workload` counts its steps
                READERS[option](value)


@BY_NAME
def test_help_says_what_each_option_does(words: tuple[str, ...]) -> None:
    command = COMMANDS[words]
    assert inspect.cleandoc(command.help or "")
    silent = [parameter.name for parameter in command.params if not getattr(parameter, "help", None)]
    assert not silent


BARE = {"FEW", "FEWEST", "MANY", "MOST", "LEAST", "KINDS", "RULES", "NAMES", "TABLE", "KEYS", "WORDS", "STATES", "NEAR"}


def test_names_say_their_subject() -> None:
    """No class name stands for three things, no file name for five, and no constant is a bare word of quantity or kind.

    A hook that goes into the user's Python has names of its own.
    """
    of_project = [path for path in sources(*PACKAGES) if path.parent.name != "inject"]
    classes: dict[str, list[str]] = {}
    bare = []
    for path in of_project:
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
            targets = node.targets if isinstance(node, ast.Assign) else ()
            named = {target.id for target in targets if isinstance(target, ast.Name)}
            bare += [f"{path.relative_to(ROOT)}: {name}" for name in named & BARE]
    assert not {name: where for name, where in classes.items() if len(where) > 2}
    files = [path.name for path in of_project if path.name != "__init__.py"]
    assert not {name for name in files if files.count(name) > 4}
    assert not bare
