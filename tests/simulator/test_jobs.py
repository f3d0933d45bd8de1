"""Jobs of several hosts: calls are matched as they belong together, and clocks are within what is said of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from analyzers.trace.tables import Trace
from tests.simulator.jobs import Job, job
from tests.simulator.machine import Op, Run, simulate
from tests.simulator.measure import loaded, ops_by_row
from tests.simulator.program import Launch
from tests.simulator.recorded import ORIGIN, message_of, recorded
from tests.support import match_calls
from tests.support.nightly import mostly_nightly

BASE_NS = 1_790_000_000_000_000_000  # epoch of what `kineto` writes; nsys says its own


@dataclass
class Tally:
    """What was counted of some jobs; calls are of the whole job, `complete` were captured on all of their ranks.

    wrong : found collectives whose calls are of several; wrong_and_sure : such that are called sure; sure_in_part :
    such of one that are, though calls of it are missing. outside : clocks beyond their residual or bounds.
    """

    complete: int = 0
    right: int = 0
    wrong: int = 0
    wrong_and_sure: int = 0
    sure_in_part: int = 0
    outside: int = 0
    notes: list[str] = field(default_factory=list)


def captured(one: Job) -> Run:
    """What profilers see of a job; where it is cut, each rank lacks up to a third of its calls at its head and tail."""
    run = simulate(one.program)
    if not one.cut:
        return run
    draw = random.Random(f"cut {one.program.seed}")
    since, until = {}, {}
    for rank in range(len(one.program.ranks)):
        calls = sorted(call.start for call in run.calls if call.where[0] == rank)
        since[rank] = calls[draw.randint(0, len(calls) // 3)] - draw.randint(0, 300_000)
        until[rank] = calls[-1 - draw.randint(0, len(calls) // 3)] + draw.randint(0, 300_000)
    return recorded(run, since, until)


def count(tally: Tally, seed: int, folder: Path) -> None:
    """Capture the job of a seed and hold its matches and clocks against the truth."""
    one = job(seed)
    seen = captured(one)
    trace = loaded(seen, one.fmt, folder, one.clocks, one.places)
    count_matches(tally, seen, trace, f"{seed} [{one.name}]")
    count_clocks(tally, one, trace, f"{seed} [{one.name}]")


def count_matches(tally: Tally, seen: Run, trace: Trace, about: str) -> None:
    """Count calls that are matched, rightly and wrongly."""
    ops, matches = ops_by_row(trace, seen), trace.matches
    assert matches is not None
    true = {row: op.action.collective for row, op in ops.items() if isinstance(op.action, Launch)}
    members: dict[str, set[int]] = {}
    for row, key in true.items():
        if key:
            members.setdefault(key, set()).add(row)
    found = [frozenset(rows) for rows in match_calls.together(matches)]
    together = set(found)
    sure = matches.collectives.sure.tolist()
    for number, rows in enumerate(found):
        keys = {true[row] for row in rows}
        of_group = message_of(seen, ops[min(rows)])
        whole = of_group is not None and len(rows) == len(of_group.ranks)
        tally.wrong += len(keys) > 1
        tally.wrong_and_sure += len(keys) > 1 and sure[number]
        tally.sure_in_part += len(keys) == 1 and sure[number] and not whole
        if sure[number] and (len(keys) > 1 or not whole):
            tally.notes.append(f"{about}: sure that {len(rows)} calls of {sorted(keys)[:3]} are one of {of_group}")
    known = {id(call) for call in seen.calls}
    for key, rows in members.items():
        if _complete(seen, [ops[row] for row in rows], known):
            tally.complete += 1
            right = frozenset(rows) in together
            tally.right += right
            if not right:
                tally.notes.append(f"{about}: {key}, {message_of(seen, ops[min(rows)])}, was not found")


def _complete(seen: Run, ops: Sequence[Op], known: set[int]) -> bool:
    message = message_of(seen, ops[0])
    return message is not None and len(ops) == len(message.ranks) and all(id(op.call) in known for op in ops)


def count_clocks(tally: Tally, one: Job, trace: Trace, about: str) -> None:
    """Hold offsets against the true ones, all relative to the reference's."""
    found = trace.clocks
    assert found is not None and trace.origin_utc_ns is not None
    base = BASE_NS if one.fmt == "kineto" else min(capture.start_utc_ns or 0 for capture in trace.captures)
    at = found.at_ns + trace.origin_utc_ns - base - ORIGIN
    ahead = {clock.rank: one.clocks.device(clock.rank, at) - ORIGIN - at for clock in found.clocks}
    reference = next(clock.rank for clock in found.clocks if clock.offset_ns == 0 and clock.drift == 0)
    for clock in found.clocks:
        true = ahead[clock.rank] - ahead[reference]
        if clock.residual_ns is None:
            continue
        error = abs(clock.offset_ns - true)
        low, high = clock.lower_ns, clock.upper_ns
        beyond = (low is not None and true < low - 1) or (high is not None and true > high + 1)
        if error > clock.residual_ns + 1 or beyond:
            tally.outside += 1
            text = f"{clock.offset_ns}±{clock.residual_ns} in {low}..{high}, truly {true}"
            tally.notes.append(f"{about}: rank {clock.rank} is ahead of {reference} by {text}")


MATCHED = 0.999  # of the calls that were captured on all of their ranks
FEW, MANY = range(0, 6, 3), range(96)  # of few one in each format


@pytest.mark.parametrize("seeds", mostly_nightly((FEW, MANY), lambda seeds: seeds == FEW))
def test_calls_are_matched_and_clocks_are_as_true_as_they_are_said_to_be(seeds: range, tmp_path: Path) -> None:
    tally = Tally()
    for seed in seeds:
        count(tally, seed, tmp_path)
    notes = "\n".join(tally.notes[:40])
    assert not tally.wrong_and_sure, notes
    assert not tally.sure_in_part, notes
    assert not tally.outside, notes
    assert tally.right >= MATCHED * tally.complete, f"{tally.right} of {tally.complete}\n{notes}"
    assert tally.complete > 50 * len(seeds)
