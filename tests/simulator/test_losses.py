"""A loss is never a pass: captures that lost something give none that the whole run denies, and change none unsaid.

Whole, the same run has an answer that is known. Lost at random: some of a rank's ops amid the run, all of a side, all
behind an instant, all of a rank's GPU work, a rank's capture, names in an nsys export, phases in which kernels of
torch.profiler stand, and the numbers of a rank's steps.
"""

from __future__ import annotations

import json
import random
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from analyzers.common.errors import TracevizError
from analyzers.load import load
from analyzers.readers.reading import Reading
from analyzers.verdict.check import check_overlap
from analyzers.verdict.result import OverlapResult
from tests.simulator.generate import COMMUNICATING, generate
from tests.simulator.machine import Op, Run, simulate
from tests.simulator.measure import A, B, captured
from tests.support.nightly import few_by_default

BARS = (0.3, 0.6, 0.9)
SAYS = {  # warnings that tell of a loss
    *("lost-work", "ranks-missing", "unread-work", "names-lost", "no-gpu-work", "unknown-work", "steps-renumbered"),
    *("excluded-step", "empty-side", "no-side"),
}


@dataclass
class Tally:
    """Answers to captures that lost something, by what was lost and what became of the answer of the whole.

    That is "same", "open", "changed and said", "changed" or "denied": a pass that the whole denies.
    """

    counted: Counter[tuple[str, str]] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    def of(self, outcome: str) -> int:
        return sum(number for (_, each), number in self.counted.items() if each == outcome)


Keep = Callable[[Op], bool]


def _kept(run: Run, keep: Keep) -> Run:
    return replace(run, ops=[op for op in run.ops if keep(op)])


def _amid(run: Run, draw: random.Random) -> Run:
    rank, share = draw.randrange(len(run.program.ranks)), draw.choice([0.05, 0.3, 0.8])
    return _kept(run, lambda op: op.where[0] != rank or draw.random() >= share)


def _side(run: Run, draw: random.Random) -> Run:
    rank, side = draw.randrange(len(run.program.ranks)), draw.choice("ab")
    return _kept(run, lambda op: op.where[0] != rank or op.side != side)


def _tail(run: Run, draw: random.Random) -> Run:
    ranks = {draw.randrange(len(run.program.ranks))} if draw.random() < 0.5 else set(range(len(run.program.ranks)))
    until = draw.uniform(0.2, 0.9) * max(op.end for op in run.ops)
    return _kept(run, lambda op: op.where[0] not in ranks or op.end <= until)


def _work(run: Run, draw: random.Random) -> Run:
    rank = draw.randrange(len(run.program.ranks))
    return _kept(run, lambda op: op.where[0] != rank)


def _numbers(run: Run, draw: random.Random) -> Run:
    """Steps of one rank are numbered otherwise, by marks."""
    rank, by = draw.randrange(1, len(run.program.ranks)), draw.choice([1, 7])
    moved = []
    for one in run.ranges:
        name = one[2]
        if one[0] == rank and name.startswith("ProfilerStep#"):
            name = f"ProfilerStep#{int(name.partition('#')[2]) + by}"
        moved.append((one[0], one[1], name, *one[3:]))
    return replace(run, ranges=moved)


Lose = Callable[[Run, random.Random], Run]
OF_RUNS: dict[str, Lose] = {"ops amid": _amid, "a side": _side, "a tail": _tail, "a rank's work": _work}
OF_RUNS["step numbers"] = _numbers


def _names_lost(paths: list[Path], draw: random.Random) -> list[Path]:
    with closing(sqlite3.connect(paths[0])) as db, db:
        named = [row[0] for row in db.execute("SELECT DISTINCT shortName FROM CUPTI_ACTIVITY_KIND_KERNEL")]
        db.execute("DELETE FROM StringIds WHERE id = ?", (draw.choice(named),))
    return paths


def _phases_unread(paths: list[Path], draw: random.Random) -> list[Path]:
    """Some kernels of a rank stand as a begin and an end, each by itself."""
    path = draw.choice(paths)
    document = json.loads(path.read_text())
    events = []
    for event in document["traceEvents"]:
        if event.get("cat") == "kernel" and draw.random() < 0.7:
            begin = {**event, "ph": "B"}
            begin.pop("dur")
            events += [begin, {**begin, "ph": "E", "ts": event["ts"] + event["dur"]}]
        else:
            events.append(event)
    path.write_text(json.dumps({**document, "traceEvents": events}))
    return paths


def _gone(paths: list[Path], draw: random.Random) -> list[Path]:
    left = list(paths)
    left.remove(draw.choice(paths))
    return left


OF_FILES = {
    "nsys": {"names": _names_lost},
    "kineto": {"phases": _phases_unread, "a rank's capture": _gone},
}


def _answers(paths: list[Path]) -> list[OverlapResult | None]:
    """The answer to each bar; None where the captures are refused, which is no silence."""
    try:
        trace = load(paths, reading=Reading(cache=False))
        return [check_overlap(trace, A, B, min_overlap=bar, explain=False) for bar in BARS]
    except TracevizError:
        return [None] * len(BARS)


def count(tally: Tally, seed: int, folder: Path) -> None:
    """Lose each kind of thing once of one program, and hold the answers against those of the whole."""
    run = simulate(generate(seed, ranks=2 + seed % 3, shape=COMMUNICATING[seed % len(COMMUNICATING)]))
    form = ("nsys", "kineto")[seed // len(COMMUNICATING) % 2]
    whole = _answers(captured(run, form, folder))
    for name in (*OF_RUNS, *OF_FILES[form]):
        draw = random.Random(f"losses {seed} {name}")
        if name in OF_RUNS:
            paths = captured(OF_RUNS[name](run, draw), form, folder)
        else:
            paths = OF_FILES[form][name](captured(run, form, folder), draw)
        for bar, before, after in zip(BARS, whole, _answers(paths), strict=True):
            if before is None:
                continue
            if after is None or after.passed is None:
                tally.counted[name, "open"] += 1
            elif after.passed == before.passed:
                tally.counted[name, "same"] += 1
            else:
                is_said = any(one.code in SAYS for one in after.warnings)
                denied = after.passed and before.passed is False
                tally.counted[name, "denied" if denied else "changed and said" if is_said else "changed"] += 1
                text = f"{seed} {form} {name} bar {bar}: {before.passed} {before.job.real_overlap_ratio} -> "
                tally.notes.append(f"{text}{after.passed} {after.job.real_overlap_ratio} said {is_said}")


UNSAID = 0.005  # of the answers, at most


@pytest.mark.parametrize("seeds", few_by_default(6, 300))
def test_no_loss_makes_a_pass_that_the_whole_denies_and_few_change_an_answer_unsaid(seeds: int, tmp_path: Path) -> None:
    tally = Tally()
    for seed in range(seeds):
        count(tally, seed, tmp_path)
    notes = "\n".join(tally.notes)
    assert not tally.of("denied"), notes
    assert tally.of("changed") <= UNSAID * tally.counted.total(), notes
    kinds = {*OF_RUNS, *(name for of_format in OF_FILES.values() for name in of_format)}
    assert {lost for lost, _ in tally.counted} == kinds
