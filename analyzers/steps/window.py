"""Which whole steps time figures leave out, by default and on all ranks.

- A step of which the profiler's own work took over a quarter, and twice what it took of the median step.
- A first step that waits for a rank whose profiler started late: the others wait in the first collective that they
  capture, often for longer than a step takes. On a device it waits longer than the median of the other steps does, by
  over a quarter of a step, and by over three times what their waiting typically differs from it. Steps of 3.4 ms that
  wait for 9.5, 0, 0.1 and 0 ms: the first waits 9.5 ms longer. A step is from the end of the communication of the one
  before to the end of its own.

Where fewer than three would be left, none of these is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec
import numpy as np
from msgspec.structs import replace

from analyzers.arrays.columns import repeated
from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.intervals import measure, union
from analyzers.arrays.types import Ints
from analyzers.common.wording import percent, ranks_in_words
from analyzers.steps.choose import whole_by_window
from analyzers.trace.columns import as_int64, ints_at
from analyzers.trace.kernels import is_communication
from analyzers.trace.lost import unrecorded
from analyzers.trace.overhead import overhead_in_steps
from analyzers.trace.ranks import captured
from analyzers.trace.step_table import LateStart, LeftOut, Steps
from analyzers.trace.steps import numbers_of_ops, step_index
from analyzers.trace.tables import Trace

MUCH, TIMES_THE_USUAL = 0.25, 2.0  # of a step that the profiler took; and of what it took of the median step
FAR, SCATTERS = 0.25, 3.0  # of the median step; times what the other steps' waiting differs from its median
MIN_STEPS_LEFT = 3  # steps that have to be left


def with_window(trace: Trace) -> Trace:
    """The trace, on one clock and with its collectives' waits, whose steps say which of them are left out."""
    steps = trace.steps
    if steps is None or not steps.size:
        return trace
    cut_off = _cut_off(trace, steps)
    whole = tuple(number for number in steps.whole if number not in cut_off)
    if 2 * len(whole) > len(steps.whole):  # else those left speak for none
        steps = replace(steps, whole=whole)
    cut = [
        LeftOut(number, _why_not_whole(trace, steps, number) or cut_off[number])
        for number in steps.present
        if number not in steps.whole
    ]
    left = {one.step: one for one in _profiled(trace, steps)}
    late = [one for whole in whole_by_window(trace, steps) if (one := late_start(trace, replace(steps, whole=whole)))]
    left |= {one.step: LeftOut(one.step, one.reason) for one in late}
    if len(steps.whole) - len(left) < MIN_STEPS_LEFT:
        left, late = {}, []
    left_out = tuple(sorted([*cut, *left.values()], key=lambda one: one.step))
    return replace(trace, steps=replace(steps, left_out=left_out, late_start=late[0] if late else None))


def _cut_off(trace: Trace, steps: Steps) -> dict[int, str]:
    """Steps that launched what had not ended when the capture did, and of which ranks."""
    lost = unrecorded(trace)
    calls = lost.call[lost.at_end]
    if not calls.size:
        return {}
    process, start = (ints_at(trace.api, column, calls) for column in ("process", "start_ns"))
    at = step_index(trace).innermost(process, repeated(0, np.int64, calls.size), start)
    by_step: dict[int, set[int]] = {}
    for row, one in zip(at[at >= 0].tolist(), process[at >= 0].tolist(), strict=True):
        by_step.setdefault(int(steps.numbers[row]), set()).add(one)
    return {
        number: f"the capture ended before its GPU work did on {_ranks(trace, sorted(some))}"
        for number, some in by_step.items()
    }


def _why_not_whole(trace: Trace, steps: Steps, number: int) -> str:
    """On which ranks a step is marked more than once, or else is not there, or may be cut at an end of the capture.

    "" where it is whole on the host.
    """
    own = np.flatnonzero(steps.numbers == number)
    count = Counter(steps.process[own].tolist())
    if several := [process for process, times in count.items() if times > 1]:
        return f"marked more than once on {_ranks(trace, several)}"
    wanted = {trace.processes[process].rank for process in captured(trace, steps)}
    if absent := wanted - {trace.processes[process].rank for process in count}:
        return f"not captured on {ranks_in_words(sorted(absent))}"
    cut = own[~steps.complete[own]]
    first = {process: int(steps.numbers[steps.process == process].min()) for process in count}
    begun = [process for process in steps.process[cut].tolist() if number == first[process]]
    running = [process for process in steps.process[cut].tolist() if number != first[process]]
    why = {"begun before the capture": begun, "run on behind the capture": running}
    return "; ".join(f"may have {how} on {_ranks(trace, some)}" for how, some in why.items() if some)


def _ranks(trace: Trace, processes: Iterable[int]) -> str:
    return ranks_in_words([trace.processes[process].rank for process in processes])


def _profiled(trace: Trace, steps: Steps) -> Iterator[LeftOut]:
    """Steps that the profiler's own work takes much of, on any rank."""
    share = trace.once(overhead_in_steps)
    if not share.size:
        return
    whole = np.isin(steps.numbers, steps.whole)
    for (process,), rows in rows_by_key(steps.process).items():
        rows = rows[whole[rows]]
        usual = float(np.median(share[rows])) if rows.size else 0.0
        for row in rows[(share[rows] > MUCH) & (share[rows] > TIMES_THE_USUAL * usual)].tolist():
            rank = trace.processes[process].rank
            reason = f"the profiler's own work took {percent(float(share[row]))} of it on rank {rank}"
            yield LeftOut(int(steps.numbers[row]), reason)


class _Lane(msgspec.Struct, frozen=True):
    """One device's whole steps by its communication: how long all but the first took, and each only waited, ns.

    late_rank : for whom it waited over half of that in the first one; -1 where for none.
    """

    rank: int
    device: int
    times: Ints
    waits: Ints
    late_rank: int


def late_start(trace: Trace, steps: Steps) -> LateStart | None:
    """The first whole step, where a device waits in it for a late profiler."""
    lanes = [lane for lane in _lanes(trace, steps) if _is_late(lane)]
    if not lanes:
        return None
    worst = max(lanes, key=lambda lane: int(lane.waits[0]))
    usual = round(float(np.median(worst.waits[1:])))
    return LateStart(steps.whole[0], worst.rank, worst.device, worst.late_rank, int(worst.waits[0]), usual)


def _is_late(lane: _Lane) -> bool:
    others = lane.waits[1:]
    if lane.late_rank == lane.rank:  # devices of one process have one profiler
        return False
    usual = float(np.median(others))
    scatter = float(np.median(np.abs(others - usual)))
    return bool(lane.waits[0] - usual > max(FAR * float(np.median(lane.times)), SCATTERS * scatter))


def _lanes(trace: Trace, steps: Steps) -> Iterator[_Lane]:
    """The devices that communicate in all whole steps, of which it takes three to tell."""
    wanted, number = np.array(steps.whole, np.int64), numbers_of_ops(trace)
    if wanted.size < MIN_STEPS_LEFT:
        return
    rows = np.flatnonzero(is_communication(trace) & (as_int64(trace.ops.collective) >= 0) & np.isin(number, wanted))
    keys = [ints_at(trace.ops, column, rows) for column in ("rank", "device")]
    for (rank, device), own in rows_by_key(*keys).items():
        by_step = rows_by_key(number[rows[own]])
        if len(by_step) < wanted.size:
            continue
        of_step = [rows[own[by_step[step,]]] for step in wanted.tolist()]
        last = np.array([ints_at(trace.ops, "end_ns", some).max() for some in of_step])
        waits = np.array([_waiting(trace, some) for some in of_step], np.int64)
        yield _Lane(rank, device, np.diff(last), waits, _mostly_for(trace, of_step[0]))


def _mostly_for(trace: Trace, ops: Ints) -> int:
    """The rank for which some collectives wait longer than for all others together; -1 where there is none."""
    whom, wait = (ints_at(trace.ops, column, ops) for column in ("last_rank", "wait_ns"))
    waits = {rank: int(wait[own].sum()) for (rank,), own in rows_by_key(whom).items()}
    longest = max(waits, key=lambda rank: waits[rank])
    return longest if 2 * waits[longest] > sum(waits.values()) else -1


def _waiting(trace: Trace, ops: Ints) -> int:
    """How long some collectives only waited for a late rank, ns."""
    start, wait = (ints_at(trace.ops, column, ops) for column in ("start_ns", "wait_ns"))
    return measure(union(start, start + wait))
