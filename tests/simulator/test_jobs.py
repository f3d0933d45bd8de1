"""Jobs of several hosts: calls are matched as they belong together, and clocks are within what is said of them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from analyzers import load
from analyzers.readers.reading import Reading
from analyzers.trace.tables import Trace
from tests.simulator import kineto, nsys
from tests.simulator.jobs import GPUS, STREAMS, Job, Layout, job
from tests.simulator.machine import Op, Run, simulate
from tests.simulator.measure import ops_by_row
from tests.simulator.program import Launch
from tests.simulator.recorded import ORIGIN, message_of, recorded
from tests.support.nightly import mostly_nightly

BASE_NS = 1_790_000_000_000_000_000  # epoch of what `kineto` writes; nsys says its own


@dataclass
class Tally:
    """What was counted of some jobs; calls are of the whole job, `complete` were captured on all of their ranks.

    wrong : found collectives whose calls are of several; wrong_and_sure : such that are called sure; sure_in_part :
    such of one that are, though calls of it are missing. clocks : those held against the truth; unknown : those
    without a residual; outside : those beyond their residual or bounds.
    """

    complete: int = 0
    right: int = 0
    wrong: int = 0
    wrong_and_sure: int = 0
    sure_in_part: int = 0
    clocks: int = 0
    unknown: int = 0
    outside: int = 0
    missed: Counter[str] = field(default_factory=Counter)  # operations of complete calls that were not found
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


def read(one: Job, seen: Run, folder: Path) -> Trace:
    """The captures of a job as the package reads them."""
    if one.fmt == "nsys":
        paths = nsys.write_each(seen, folder, one.clocks, one.places.hosts)
    else:
        paths = kineto.write(seen, folder, one.clocks, places=one.places)
    return load.load(paths, reading=Reading(cache=False, workers=1))


def count(tally: Tally, seed: int, folder: Path) -> None:
    """Capture the job of a seed and hold its matches and clocks against the truth."""
    one = job(seed)
    seen = captured(one)
    trace = read(one, seen, folder)
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
    found: dict[int, set[int]] = {}
    for number, row in zip(matches.calls.collective.tolist(), matches.calls.op.tolist(), strict=True):
        found.setdefault(number, set()).add(row)
    sure = matches.collectives.sure.tolist()
    together = {frozenset(rows) for rows in found.values()}
    for number, rows in found.items():
        keys = {true[row] for row in rows}
        of_group = message_of(seen, ops[min(rows)])
        whole = of_group is not None and len(rows) == len(of_group.ranks)
        tally.wrong += len(keys) > 1
        tally.wrong_and_sure += len(keys) > 1 and sure[number]
        tally.sure_in_part += len(keys) == 1 and sure[number] and not whole
        if len(keys) > 1 and sure[number]:
            tally.notes.append(f"{about}: sure that {sorted(keys)[:3]} are one")
        if len(keys) == 1 and sure[number] and not whole and of_group is not None:
            text = f"{about}: sure of {len(rows)} of {len(of_group.ranks)} calls of {of_group.operation}, {min(keys)}"
            tally.notes.append(text)
    known = {id(call) for call in seen.calls}
    for key, rows in members.items():
        if _complete(seen, [ops[row] for row in rows], known):
            tally.complete += 1
            right = frozenset(rows) in together
            tally.right += right
            if not right:
                message = message_of(seen, ops[min(rows)])
                tally.missed[message.operation if message else ""] += 1
                tally.notes.append(f"{about}: {key}, {message.operation if message else ''}, was not found")


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
        tally.clocks += 1
        if clock.residual_ns is None:
            tally.unknown += 1
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
    assert tally.right >= MATCHED * tally.complete, f"{tally.right} of {tally.complete} {tally.missed}\n{notes}"
    assert tally.complete > 50 * len(seeds)


@pytest.mark.parametrize(("tensor", "stages"), [(2, 1), (4, 2), (8, 2)])
def test_every_rank_is_in_one_group_of_each_kind_with_those_that_say_so(tensor: int, stages: int) -> None:
    layout = Layout(4 * GPUS, tensor, stages)
    for kind in STREAMS:
        groups = {layout.group(kind, rank) for rank in range(4 * GPUS)}
        assert all(layout.group(kind, rank) == group for group in groups for rank in group)
    assert layout.group("tensor", 0) == tuple(range(tensor))
    assert len(layout.group("data", 0)) == 4 * GPUS // tensor // stages
    assert layout.group("pipeline", 1) == (1, 1 + 2 * GPUS)


@pytest.mark.parametrize("seed", [1, 2, 7, 8])
def test_calls_wait_for_those_they_need_and_all_ranks_make_them(seed: int) -> None:
    run = simulate(job(seed).program)
    together: dict[str, dict[int, Op]] = {}
    for op in run.ops:
        if isinstance(op.action, Launch) and op.action.message is not None:
            together.setdefault(op.action.collective, {})[op.where[0]] = op
    for by_rank in together.values():
        for rank, op in by_rank.items():
            message = message_of(run, op)
            assert message is not None and tuple(sorted(by_rank)) == message.ranks
            if message.operation == "recv":
                assert max(op.start, by_rank[message.peer].start) < op.end
            elif message.operation == "allreduce":
                assert max(each.start for each in by_rank.values()) < op.end
            assert rank in message.ranks


def test_cut_captures_lack_heads_and_tails() -> None:
    one = job(6)
    assert one.cut
    assert len(captured(one).calls) < 0.9 * len(simulate(one.program).calls)
