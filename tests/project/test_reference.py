"""docs/commands.md is made from the program: `python -m tests.project.test_reference` writes it anew."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from pathlib import Path
from typing import Any

from tests.support.command_lines import commands

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"
HEAD = """# Commands

`python -m tests.project.test_reference` makes this page from the program. `traceviz COMMAND --help` says the same.
Several TRACEs are the ranks of one run. In [brackets]: the default.

## Options that commands share

"""

OF_CAPTURES = re.findall(
    "`.+?`",
    "`TRACE...` `--ranks` `--steps` `--window` `--no-align` `--nsys` `--comm` `--workers` `--skip-bad` `--no-cache`",
)

# Notes of a help that a page of the manual has as a table.
ELSEWHERE = {
    "Selectors": "[Selectors](../README.md#selectors).",
    "A rule is its name in brackets, and one of these lines below": "[The rules](contracts.md#writing-one).",
    "Changes, all of one command line together; SEL, A and B are selectors, as for check-overlap": (
        "[The changes](what-if.md#the-changes)."
    ),
}
COMMANDS = {" ".join(("traceviz", *words)): command for words, command in commands().items()}


def reference() -> str:
    return "\n".join([shared(), *(section(name, command) for name, command in COMMANDS.items())])


def rows(name: str, command: Any) -> list[str]:
    """Arguments and options of a command, a row each."""
    context = command.make_context(name, [], resilient_parsing=True)
    found = [row(word(one), one.help, "") for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option" and one.name != "help"]
    return found + [row(*option_row(one, context)) for one in options]


def shared() -> str:
    """What three commands or more say alike, said once."""
    of_captures = [one for one in SHARED if option_of(one) in OF_CAPTURES]
    others = [one for one in SHARED if one not in of_captures]
    return "\n".join([HEAD + "**Of captures**:", "", *of_captures, "", "**Others**:", "", *others]) + "\n"


def option_of(line: str) -> str:
    """The option's long word, or its only one, or an argument's name."""
    words = re.findall(r"--?[a-z][a-z-]*", line.split("`")[1])
    return f"`{words[-1]}`" if words else f"`{line.split('`')[1]}`"


def section(name: str, command: Any) -> str:
    help_text = re.sub(r"\n(?!\n)", " ", inspect.cleandoc(command.help)).replace("\n ", "\n\n").strip()
    lines = [f"## {name}", "", help_text, ""]
    own = [one for one in ROWS[name] if one not in SHARED]
    if own:
        lines += [*own, ""]
    others = [option_of(one) for one in ROWS[name] if one in SHARED]
    if set(OF_CAPTURES) <= set(others):
        others = ["those of captures", *(one for one in others if one not in OF_CAPTURES)]
    if others:
        lines += [f"{'And' if own else 'Options'}: {', '.join(others)}.", ""]
    examples, *notes = (command.epilog or "").split("\b\n")[1:]
    lines += ["```text", examples.rstrip(), "```"]
    lines += [f"\n{ELSEWHERE.get(note.partition(':')[0], unfolded(note))}" for note in notes]
    return "\n".join(lines) + "\n"


def word(argument: Any) -> str:
    shown = argument.metavar or f"[{argument.name.upper()}]"
    return f"{shown}..." if argument.nargs != 1 and not shown.endswith("...") else shown


def option_row(option: Any, context: Any) -> tuple[str, str, str]:
    """What stands for an option in the help: words with their value, text, default."""
    words, text = option.get_help_record(context)
    extra = re.search(r"\s*\[(?:[^\[\]]*; )?(?:default: (.*?)|required)(?:; [^\[\]]*)?\]$", text)
    default = "" if extra is None else extra[1] or "needed"
    words = re.sub(r"[<\[](\w+(?:\|\w+)+)[>\]]", r"\1", words)  # versions of typer bracket choices as they like
    return words, option.help, re.sub(r"^\((.*)\)$", r"\1", default)


def row(words: str, text: str, default: str) -> str:
    """A line of a list; its default stands behind its text."""
    return f"- `{words}`: {text}" + (f" [{default}]" if default else "")


def unfolded(note: str) -> str:
    """A note of several lines, of which the indented ones go on from the one before."""
    return re.sub(r"\n  +", " ", note.strip()).replace("\n", "  \n")


ROWS = {name: rows(name, command) for name, command in COMMANDS.items()}
SHARED = [one for one, count in Counter(one for each in ROWS.values() for one in each).items() if count > 2]


def test_the_reference_is_what_the_program_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), "python -m tests.project.test_reference writes it anew"


def test_the_reference_has_every_option_and_example() -> None:
    """By the help itself, as click renders it."""
    text = PAGE.read_text(encoding="utf-8")
    for name, command in COMMANDS.items():
        part = text.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        part = part.replace("those of captures", " ".join(OF_CAPTURES))
        shown = command.get_help(command.make_context(name, [], resilient_parsing=True))
        options = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", shown.partition("Examples:")[0])) - {"--help"}
        assert {option for option in options if option not in part} == set()
        assert [
            line for line in re.findall(r"^  (traceviz .*)$", command.epilog, re.MULTILINE) if line not in part
        ] == []


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
