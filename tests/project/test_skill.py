"""The skill for assistants: found, short, its commands those there are; their answers hold what it says to read."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_lines import commands, invoked

ROOT = Path(__file__).parents[2]
SKILL = ROOT / "skills" / "traceviz" / "SKILL.md"
TEXT = SKILL.read_text(encoding="utf-8")
ROW = re.compile(r"^\| (?P<question>[^|]+\?) \| `traceviz (?P<command>[^`]+)` \| (?P<read>[^|]+) \|$", re.MULTILINE)
ROWS = {row["question"]: row for row in ROW.finditer(TEXT)}
DATA = "tests/data"
ITEM, SERIAL, OVERLAP = (
    f"{DATA}/torch/{name}.rank*.json.gz" for name in ("item_before", "dpmp_serial", "dpmp_overlap")
)
DP_MP = {"A": "nvtx:DP Embedding", "B": "nvtx:MP Embedding"}
STREAMED = {"TRACE": f"{DATA}/pairs/delta_sync_before.rank*.json.gz", "A": "comm", "B": "compute"}
# Of each question what stands for the words in capitals.
WORDS = {
    "What is in this capture?": {"TRACE": ITEM},
    "Did A and B overlap?": {"TRACE": OVERLAP, **DP_MP},
    "Does communication hide behind compute?": {"TRACE": f"{DATA}/workloads/ddp.step.4gpu.nsys-rank0"},
    "Why do they not overlap?": {"TRACE": f"{DATA}/workloads/dpmp.hidden-sync.2gpu.torch", **DP_MP},
    "What is a fix worth?": {**STREAMED, "CHANGE": "drop-sync nvtx:stream out"},
    "What should be fixed first?": STREAMED,
    "Where does the host wait?": {"TRACE": ITEM},
    "Is a stream wait missing?": {"TRACE": f"{DATA}/torch/dpmp_race.rank*.json.gz"},
    "What does a collective cost, and who is late?": {"TRACE": f"{DATA}/nsys-stats/config1_one_report_8gpu.txt"},
    "Did it get faster?": {"BEFORE": SERIAL, "AFTER": OVERLAP},
    "Can the claimed speedup be?": {"BEFORE": SERIAL, "AFTER": OVERLAP, "CLAIM": "14.7x", **DP_MP},
    "What is behind this id?": {"TRACE": ITEM, "ID": "coll:2", "A": "comm", "B": "compute"},
}


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
    assert ROWS.keys() == WORDS.keys()
    for row in ROWS.values():
        name, *words = shlex.split(row["command"])
        given = commands()[(name,)].make_context(name, words).params
        assert given["output"] == "json"
        assert given.get("brief", True), "brief, where there is a choice"


def test_other_commands_and_files_it_names_are_there() -> None:
    named = set(re.findall(r"`traceviz ([a-z-]+)", TEXT))
    assert named <= {words[0] for words in commands()}
    assert "## When an answer is no answer" in TEXT


def keys_of(value: Any) -> Iterator[str]:
    """All keys of an answer, at any depth."""
    if isinstance(value, dict):
        yield from value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from keys_of(one)


@pytest.mark.parametrize("question", WORDS)
def test_what_it_says_to_read_is_in_the_answer(question: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    row = ROWS[question]
    ran = invoked(*(WORDS[question].get(word, word) for word in shlex.split(row["command"])))
    assert ran.exit_code in (0, 1, 3), ran.output
    assert {*re.findall("`(.*?)`", row["read"])} <= {*keys_of(json.loads(ran.stdout))}
