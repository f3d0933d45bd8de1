"""The skill for assistants: found, short, its commands those there are, and enough to answer ten questions."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.evaluation.questions import QUESTIONS, SKILL, Question, ask, rows
from tests.support.command_lines import commands

ROOT = Path(__file__).parents[2]
TEXT = SKILL.read_text(encoding="utf-8")


def test_it_is_short_and_begins_with_its_name_and_what_it_is_for() -> None:
    assert len(TEXT.splitlines()) < 200
    head = re.match(r"---\nname: (?P<name>[a-z-]+)\ndescription: (?P<description>.+)\n---\n", TEXT)
    assert head is not None
    assert head["name"] == SKILL.parent.name == "traceviz"
    assert len(head["description"]) <= 1024
    assert ": " not in head["description"], "YAML would take it for a key"


def test_assistants_find_it() -> None:
    """Claude Code and Copilot look in .claude/skills, Codex and others read AGENTS.md."""
    assert (ROOT / ".claude/skills/traceviz/SKILL.md").resolve() == SKILL
    assert "skills/traceviz/SKILL.md" in (ROOT / "AGENTS.md").read_text(encoding="utf-8")


def test_each_command_of_its_table_is_one() -> None:
    assert len(rows()) >= 10
    for command in rows().values():
        _, name, *words = shlex.split(command)
        given = commands()[(name,)].make_context(name, words).params
        assert given["output"] == "json"
        assert given.get("brief", True), "brief, where there is a choice"


def test_other_commands_and_files_it_names_are_there() -> None:
    named = set(re.findall(r"`traceviz ([a-z-]+)", TEXT))
    assert named <= {words[0] for words in commands()}
    assert "## When an answer is no answer" in TEXT


def test_there_are_ten_questions_and_each_is_a_row_of_the_table() -> None:
    assert len(QUESTIONS) == 10
    assert {one.row for one in QUESTIONS} <= rows().keys()
    assert len({one.row for one in QUESTIONS}) == 10


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda one: one.row)
def test_the_command_answers_it(question: Question, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    found, expected = ask(question)
    assert found == expected, question.text
