"""The skill for assistants: found, short, its commands those there are, and enough to answer ten questions.

A question about captures in tests/data names a row of the skill's first table, whose command is run. What it expects is
known without the package: from how the workload is built, from a measurement without a profiler, or from the raw file
by plain Python.
"""

from __future__ import annotations

import gzip
import json
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support import raw_captures
from tests.support.command_lines import commands, invoked

ROOT = Path(__file__).parents[2]
SKILL = ROOT / "skills" / "traceviz" / "SKILL.md"
TEXT = SKILL.read_text(encoding="utf-8")
DATA = Path("tests/data")
ITEM = "tests/data/torch/item_before.rank*.json.gz"
DP_MP = {"A": "nvtx:DP Embedding", "B": "nvtx:MP Embedding"}
_ROW = re.compile(r"^\| (?P<question>[^|]+\?) \| `(?P<command>traceviz [^`]+)` \| (?P<read>[^|]+) \|$", re.MULTILINE)


@dataclass(frozen=True)
class Question:
    """What a user asks, the row of the skill that it is a case of, and what stands for the words in capitals there."""

    text: str
    row: str
    words: Mapping[str, str]
    answer: Callable[[Any], object]  # out of the brief JSON
    expected: Callable[[], object]  # without the package


def rows() -> dict[str, str]:
    """The skill's table: the command for each question."""
    return {one["question"]: one["command"] for one in _ROW.finditer(TEXT)}


def command_of(question: Question) -> list[str]:
    """The skill's command with the user's captures and sides."""
    words = shlex.split(rows()[question.row])[1:]
    return [question.words.get(word, word) for word in words]


def ask(question: Question) -> tuple[object, object]:
    """(what the command answers, what is true)."""
    ran = invoked(*command_of(question))
    if ran.exit_code not in (0, 1, 3):
        return ran.output, question.expected()
    return question.answer(json.loads(ran.stdout)), question.expected()


def _events(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path) as file:
        found: list[dict[str, Any]] = json.load(file)["traceEvents"]
    return found


def _item_ranks() -> dict[int, list[dict[str, Any]]]:
    return {rank: _events(DATA / f"torch/item_before.rank{rank}.json.gz") for rank in range(4)}


def _steps_of_item() -> object:
    names = [
        {one["name"] for one in events if one.get("cat") == "user_annotation"} for events in _item_ranks().values()
    ]
    steps = sorted(int(name.partition("#")[2]) for name in names[0] if name.startswith("ProfilerStep#"))
    return len(names), f"{steps[0]}-{steps[-1]}"


def _overlap_by_brute_force() -> object:
    """On each rank, ns at which something of both runs; a fifth of what could, so partial."""
    raw = raw_captures.read_kineto([DATA / f"torch/dpmp_overlap.rank{rank}.json.gz" for rank in (0, 1)])
    sides = [raw_captures.picked(raw, name) for name in ("DP Embedding", "MP Embedding")]
    figures = raw_captures.figures(raw, *sides)
    return "partial", sorted(overlap for _, _, overlap in figures.values())


def _items_of_item() -> object:
    """How often `.item()` was called in all ranks."""
    names = [one["name"] for events in _item_ranks().values() for one in events if one.get("cat") == "cpu_op"]
    return "aten::item", "MP lookup", names.count("aten::item")


def _fastest_of_rows() -> object:
    """Of each all-reduce of the paste the shortest row, and whose it is: ends coincide, so it began last."""
    text = (DATA / "nsys-stats/config1_one_report_8gpu.txt").read_text(encoding="utf-8")
    all_rows = [
        (int(words[0]), int(words[1]), int(found[1]))
        for line in text.splitlines()
        if (words := line.split())[:2] and words[0].isdigit() and (found := re.search(r"HBM3 \((\d)\)", line))
    ]
    by_device: dict[int, list[tuple[int, int]]] = {}
    for _, length, device in sorted(all_rows):
        by_device.setdefault(device, []).append((length, device))
    return sorted(min(calls) for calls in zip(*by_device.values(), strict=True))


def _third_all_to_all() -> object:
    """The shortest of the four ranks' third all-to-all kernels, and the step whose mark holds their launches."""
    lengths = []
    for events in _item_ranks().values():
        kernels = [one for one in events if one.get("cat") == "kernel" and "nccl" in one["name"]]
        third = sorted(kernels, key=lambda one: one["ts"])[2]
        lengths.append(round(third["dur"] * 1000))
    return min(lengths), 4, [2]


def _measured_share() -> float:
    """Step time after the fix / before it, of the program without a profiler."""
    known = json.loads((DATA / "pairs/step_time_ms.json").read_text(encoding="utf-8"))
    return float(known["delta_sync_after"] / known["delta_sync_before"])


def _range_holds_the_measured(answer: Any) -> object:
    (change,) = answer["changes"]
    now = change["step_ns"] + change["gain_ns"]
    return change["tells"], change["step_low_ns"] <= _measured_share() * now <= change["step_high_ns"]


QUESTIONS = (
    Question(
        "How many ranks and which steps does this capture have?",
        "What is in this capture?",
        {"TRACE": ITEM},
        lambda answer: (len(range(*_ends(answer["ranks"]))), "{first}-{last}".format_map(answer["steps"])),
        _steps_of_item,
    ),
    Question(
        "Does the DP embedding run beside the MP embedding, and for how long?",
        "Did A and B overlap?",
        {"TRACE": "tests/data/torch/dpmp_overlap.rank*.json.gz", **DP_MP},
        lambda answer: (answer["verdict"], sorted(one["overlap_ns"] for one in answer["worst_ranks"])),
        _overlap_by_brute_force,
    ),
    Question(
        "One rank of a DDP job of four was captured: does its all-reduce hide?",
        "Does communication hide behind compute?",
        {"TRACE": "tests/data/workloads/ddp.step.4gpu.nsys-rank0"},
        lambda answer: (
            answer["verdict"],
            answer["job"]["apparent"],
            answer["job"]["ranks_given"],
            answer["job"]["ranks_known"],
        ),
        lambda: ("inconclusive", True, 1, 4),
    ),
    Question(
        "What keeps DP from running beside MP here?",
        "Why do they not overlap?",
        {"TRACE": "tests/data/workloads/dpmp.hidden-sync.2gpu.torch", **DP_MP},
        lambda answer: (
            answer["verdict"],
            answer["causes"][0]["cause"] in ("host-sync", "late-launch"),
            any("aten::item" in one for one in answer["lines"]),
        ),
        lambda: ("serialized", True, True),  # an .item() in MP's forward
    ),
    Question(
        "The host waits for rows streamed out: what would it be worth not to?",
        "What is a fix worth?",
        {
            "TRACE": "tests/data/pairs/delta_sync_before.rank*.json.gz",
            "A": "comm",
            "B": "compute",
            "CHANGE": "drop-sync nvtx:stream out",
        },
        _range_holds_the_measured,
        lambda: (True, True),
    ),
    Question(
        "Which operator blocks the host, where, and how often?",
        "Where does the host wait?",
        {"TRACE": ITEM},
        lambda answer: (
            answer["syncs"][0]["op"].split(" →")[0],
            answer["syncs"][0]["range"],
            answer["syncs"][0]["count"],
        ),
        _items_of_item,
    ),
    Question(
        "Is there a race between the two embeddings?",
        "Is a stream wait missing?",
        {"TRACE": "tests/data/torch/dpmp_race.rank*.json.gz"},
        lambda answer: (
            sorted({one["rank"] for one in answer["missing_waits"]}),
            all("DP Embedding" in one["message"] for one in answer["missing_waits"]),
        ),
        lambda: ([0, 1], True),  # its side stream never waits
    ),
    Question(
        "What do these all-reduces of eight GPUs really take, and who was late?",
        "What does a collective cost, and who is late?",
        {"TRACE": "tests/data/nsys-stats/config1_one_report_8gpu.txt"},
        lambda answer: sorted((one["fastest_ns"], one["last_arrival_rank"]) for one in answer["longest_waits"]),
        _fastest_of_rows,
    ),
    Question(
        "The two embeddings run 14.7 times faster overlapped. Can that be?",
        "Can the claimed speedup be?",
        {
            "BEFORE": "tests/data/torch/dpmp_serial.rank*.json.gz",
            "AFTER": "tests/data/torch/dpmp_overlap.rank*.json.gz",
            "CLAIM": "14.7x",
            **DP_MP,
        },
        lambda answer: (answer["claim"]["possible"], answer["claim"]["bound"] <= 2),
        lambda: (False, True),  # two tasks gain at most twofold
    ),
    Question(
        "What is coll:2, and when?",
        "What is behind this id?",
        {"TRACE": ITEM, "ID": "coll:2", "A": "comm", "B": "compute"},
        lambda answer: (answer["figures"]["fastest_ns"], answer["figures"]["ranks"], answer["steps"]),
        _third_all_to_all,
    ),
)


def _ends(ranks: str) -> tuple[int, int]:
    low, _, high = ranks.partition("-")
    return int(low), int(high or low) + 1


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
