"""Which change is named first: the order to try them, what is enough, and that all answers name the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest
from msgspec.structs import replace

import traceviz as tv
from analyzers.replay.answer import MOST_UNITS, Tried, explored, in_order, what_if
from analyzers.replay.change import Change
from analyzers.replay.host_changes import DropSync, Graph, Level, MoveWait, OnTime, Pin
from analyzers.replay.model import Tasks
from analyzers.replay.predict import Replayed
from analyzers.replay.result import Prediction, WhatIf, first_fix
from analyzers.replay.safety import Safety
from analyzers.replay.scenarios import Outcome
from analyzers.replay.stream_changes import DropWait, MoreRoom, OwnStream, Split
from analyzers.replay.suggest import Suggestion, suggested
from analyzers.replay.worth import with_worth
from analyzers.verdict.check import check_overlap
from tests.analyzers.replay.test_fewer import UNITS
from tests.analyzers.replay.test_fewer import program as long_program
from tests.analyzers.replay.test_pairs import captures
from tests.support.nightly import mostly_nightly

LEVEL, PIN, GRAPH, SPLIT = Level("nvtx:x"), Pin("nvtx:x"), Graph("nvtx:x"), Split("nvtx:x", 4)
SYNC, MOVE, WAIT, OWN = (
    DropSync("nvtx:x"),
    MoveWait("nvtx:x", "nvtx:y"),
    DropWait("nvtx:x", "nvtx:y"),
    OwnStream("nvtx:x"),
)
KINDS: tuple[Change, ...] = (LEVEL, PIN, GRAPH, SPLIT, SYNC, MOVE, WAIT, OWN)  # by what they take for granted
OTHERS: tuple[Change, ...] = (MoreRoom("nvtx:x"), OnTime(1))


def tried(change: Change, gain: float, safety: Safety = Safety.SAFE) -> Tried:
    """A suggestion that gains a part of the step."""
    return Tried(Suggestion(change, safety), cast(Tasks, None), (), gain)


# The order to try.


ASKED = Safety.CONDITIONAL


@pytest.mark.parametrize(
    "some",  # in the order to try them
    [
        [tried(OWN, 0.3), tried(SYNC, 0.1), tried(LEVEL, 0.05)],  # what gains most first
        # Of 0.1, 0.0901 and 0.0899: the last, that takes least for granted, is alike to the second, not to the first.
        [tried(MOVE, 0.0901), tried(OWN, 0.1), tried(LEVEL, 0.0899)],
        [tried(SYNC, 0.19, ASKED), tried(OWN, 0.1)],  # a question is alike by what counts of it
        [tried(OWN, 0.1), tried(SYNC, 0.1, ASKED)],
        # What may not be made stands last, and what lengthens before that.
        [
            tried(LEVEL, 0.001),
            tried(SPLIT, -0.1),
            tried(OnTime(1), 0.4, Safety.DIAGNOSIS),
            tried(WAIT, 0.5, Safety.UNSAFE),
        ],
        # What may be named comes before what gains too little for that: of a safe one and a question both worth a
        # little under 2 % the first alone may be; and of two that are alike, of which one is just under.
        [tried(WAIT, 0.0201), tried(MOVE, 0.0399, ASKED)],
        [tried(SYNC, 0.0205), tried(SPLIT, 0.0199)],
        # Of changes that no replay tells apart the one that takes least for granted, though each gains a little more.
        [tried(one, 0.1 + 0.001 * at) for at, one in enumerate(KINDS)],
    ],
)
def test_the_order_to_try(some: list[Tried]) -> None:
    assert in_order(some) == in_order(some[::-1]) == some


@pytest.mark.parametrize(
    ("gain", "safety", "first"),
    [
        (0.22, Safety.SAFE, MOVE),
        (0.43, Safety.CONDITIONAL, MOVE),  # over twice as much
        (0.25, Safety.CONDITIONAL, LEVEL),
        (0.22, Safety.LIKELY, MOVE),  # counts whole
        (0.20, Safety.LIKELY, LEVEL),
        (0.90, Safety.DOUBTFUL, LEVEL),  # counts a tenth
        (0.90, Safety.UNSAFE, LEVEL),
        (0.90, Safety.DIAGNOSIS, LEVEL),
    ],
)
def test_a_question_comes_first_where_it_gains_over_twice_as_much(gain: float, safety: Safety, first: Change) -> None:
    """Beside a safe one that gains 0.19, which takes less for granted."""
    assert in_order([tried(LEVEL, 0.19), tried(MOVE, gain, safety)])[0].suggestion.change == first


# What is enough.


def predicted(step: int, safety: Safety = Safety.SAFE, *, least: float = 0.02, suggested: int | None = 1) -> Prediction:
    """Of a step of 10,000 ns."""
    return Prediction(
        ("split comm 4",),
        10_000,
        step,
        step - 100,
        step + 100,
        (),
        (),
        "",
        0.0,
        likely=safety.weight,
        suggested=suggested,
        safety=safety.named,
        least_gain=least,
    )


@pytest.mark.parametrize(
    ("step", "safety", "least", "named"),
    [
        (9_800, Safety.SAFE, 0.02, True),
        (9_801, Safety.SAFE, 0.02, False),
        (9_600, Safety.CONDITIONAL, 0.04, True),
        (9_601, Safety.CONDITIONAL, 0.04, False),
        (9_800, Safety.LIKELY, 0.02, True),
        (9_801, Safety.LIKELY, 0.02, False),
        (9_600, Safety.DOUBTFUL, 0.04, True),
        (9_601, Safety.DOUBTFUL, 0.04, False),
        (5_000, Safety.UNSAFE, 0.04, False),
        (5_000, Safety.DIAGNOSIS, 0.04, False),
        (10_000, Safety.SAFE, 0.02, False),
        (11_000, Safety.SAFE, 0.02, False),
        (11_000, Safety.CONDITIONAL, 0.04, False),
    ],
)
def test_what_is_named_gains_enough_and_may_be_made(step: int, safety: Safety, least: float, named: bool) -> None:
    one = predicted(step, safety, least=least)
    assert (first_fix([one]) is one) == named
    result = WhatIf("comm", "compute", None, (one,))
    assert (result.fix is not None) == named
    if result.fix is not None:
        steps = result.fix.now_step_ns, result.fix.step_ns, result.fix.step_low_ns, result.fix.step_high_ns
        assert steps == (10_000, step, step - 100, step + 100)
        assert result.fix.safety == safety.named


def test_the_first_to_try_is_named_and_none_that_is_together_or_was_asked_for() -> None:
    first, second, both = predicted(9_700, suggested=1), predicted(9_000, suggested=2), predicted(8_000, suggested=None)
    assert first_fix([both, second, first]) is first
    assert first_fix([both]) is first_fix([]) is None
    assert WhatIf("comm", "compute", None, (both, second, first)).best == first
    assert WhatIf("comm", "compute", None, (first,), given=True).fix is None


# Of made programs.


def test_few_are_run_in_every_way_where_only_the_best_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of six suggestions four, and the one that is wanted."""
    trace = long_program(6, marked=True)
    replayed = Replayed(trace, "comm", "compute")
    checked = check_overlap(trace, min_overlap=0.0)
    suggestions = suggested(trace, replayed.tasks, "comm", "compute", checked)
    (every, _), (few, more) = (explored(replayed, suggestions, few=only) for only in (False, True))
    alone = [one for one in every if one.suggested]
    assert len(alone) > 4
    assert [one.suggested for one in alone] == list(range(1, len(alone) + 1))
    assert few == alone[:4]
    assert more == len(alone) - 4
    changes = {str(one.change): one.change for one in suggestions}
    wanted, _ = explored(replayed, suggestions, few=True, wanted=[changes[alone[-1].change]])
    assert [one.change for one in wanted] == [*(one.change for one in alone[:4]), alone[-1].change]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many units each run of a program has, as they are made."""
    found: list[int] = []
    run = Replayed._run

    def counted(self: Replayed, *given: object) -> Outcome:
        found.append(self.tasks.units.op.size)
        return run(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Replayed, "_run", counted)
    yield found


MOST_RUNS = 60


def test_a_run_of_10_000_ops_is_run_again_few_times(runs: list[int]) -> None:
    """With fewer steps, and each cause and suggestion a few times: what a large program costs is in this number."""
    trace = long_program(10_000 // UNITS + 1, marked=True)
    assert len(trace.ops) >= 10_000
    checked = check_overlap(trace)
    assert with_worth(checked, trace).was_replayed
    assert 0 < len(runs) <= MOST_RUNS
    assert max(runs) <= MOST_UNITS
    runs.clear()
    found = what_if(trace, overlap=checked)
    assert found.fix is not None
    assert 0 < len(runs) <= MOST_RUNS
    assert max(runs) <= MOST_UNITS
    (said,) = (one for one in found.to_try[0].assumptions if "run again" in one)
    assert said.endswith(f"of {10_000 // UNITS + 1} are run again, for the run is large")


# All answers name the same.

QUICK = ("dpmp_item", "launch_graph", "moe_late")


@pytest.mark.parametrize("name", mostly_nightly((*QUICK, "select", "ddp_log", "moe_split"), lambda name: name in QUICK))
def test_check_overlap_and_what_if_name_the_same_change_with_the_same_figures(name: str) -> None:
    trace = tv.load(captures(f"{name}_before", "torch")).data
    checked, found = tv.check_overlap(trace), tv.what_if(trace)
    assert checked.was_replayed
    if checked.fix is None:
        assert found.fix is None
        return
    overlap = ("rank", "device", "recoverable_ns", "recoverable_low_ns", "recoverable_high_ns", "now_ratio", "ratio")
    assert replace(checked.fix, **dict.fromkeys(overlap)) == found.fix
    assert found.fix is not None
    assert found.fix.step_ns < found.fix.now_step_ns
    assert found.fix.safety in ("safe", "conditional")
    best = found.best
    assert best is not None and first_fix([best]) is best
    assert (best.change, best.step_ns) == (found.fix.change, found.fix.step_ns)
