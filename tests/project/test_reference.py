"""docs/commands.md is made from the program: `python -m tests.project.test_reference` writes it anew."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

from tests.support.command_lines import commands

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"
HEAD = """# Commands

Made from the program by `python -m tests.project.test_reference`; `traceviz COMMAND --help` says the same.
A TRACE is an `.nsys-rep`, an nsys `.sqlite`, a `torch.profiler` `.json`, either as `.gz` too, an exported trace,
a glob, a folder or a manifest; several are the ranks of one run.
"""

COMMANDS = {" ".join(("traceviz", *words)): command for words, command in commands().items()}


def reference() -> str:
    return "\n".join([HEAD, *(section(name, command) for name, command in COMMANDS.items())])


def section(name: str, command: Any) -> str:
    context = command.make_context(name, [], resilient_parsing=True)
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option" and one.name != "help"]
    usage = " ".join([name, *sorted([*(word(one) for one in arguments), "[OPTIONS]"], key=lambda one: one[:2] == "--")])
    help_text = re.sub(r"\n(?!\n)", " ", inspect.cleandoc(command.help)).replace("\n ", "\n\n").strip()
    lines = [f"## {name}", "", f"`{usage}`", "", help_text, "", "| | | default |", "|---|---|---|"]
    lines += [row(word(one), one.help, "") for one in arguments]
    lines += [row(*option_row(one, context)) for one in options]
    examples, *notes = (command.epilog or "").split("\b\n")[1:]
    lines += ["", "```text", examples.rstrip(), "```"]
    lines += [f"\n{unfolded(note)}" for note in notes]
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


def row(*cells: str) -> str:
    words, *more = (cell.replace("|", r"\|") for cell in cells)
    return f"| `{words}` | {' | '.join(more)} |"


def unfolded(note: str) -> str:
    """A note of several lines, of which the indented ones go on from the one before."""
    return re.sub(r"\n  +", " ", note.strip()).replace("\n", "  \n")


def test_the_reference_is_what_the_program_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), "python -m tests.project.test_reference writes it anew"


def test_the_reference_has_every_option_and_example() -> None:
    """By the help itself, as click renders it."""
    text = PAGE.read_text(encoding="utf-8")
    for name, command in COMMANDS.items():
        part = text.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        shown = command.get_help(command.make_context(name, [], resilient_parsing=True))
        options = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", shown.partition("Examples:")[0])) - {"--help"}
        assert {option for option in options if option not in part} == set()
        assert [
            line for line in re.findall(r"^  (traceviz .*)$", command.epilog, re.MULTILINE) if line not in part
        ] == []


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
