"""Number the steps of ranks alike by their collectives: a call that ranks share is of one step on all of them.

Steps that nobody numbers are counted rank by rank, first by when hosts began them. But a host may run ahead of another,
and clocks of two hosts are some ms apart. From the lowest rank on, to the ranks that share collectives with it and on
from those: if rank 1 launches in its steps 0, 1, 2 … what rank 0 launches in its steps 1, 2, 3 …, rank 1's numbers are
one more. Where that differs from call to call nothing is numbered, and there are no steps; nor are there where no sure
collective leads to a rank, and clocks of several hosts would have to tell.

Numbers that the program gives itself are believed, unless nine in ten of the calls that ranks share say that one's are
all so many higher: then it is counted as the lowest rank counts, with a warning. Where fewer than half are of one
number, the marks tell no steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import rows_by_key
from analyzers.common.wording import ranks_in_words
from analyzers.steps.choose import numbered_on, whole_in_windows
from analyzers.trace.columns import as_int64
from analyzers.trace.step_table import NO_STEPS, Steps
from analyzers.trace.steps import numbers_of_ops
from analyzers.trace.tables import Trace
from analyzers.trace.windows import window_count

MIN_AGREEING_SHARE = 0.9  # of the calls that two ranks share
MIN_BELIEVED_SHARE = 0.5  # of them, from which on numbers that the program gives are believed
MIN_CALLS = 2  # calls
NO_NUMBERS = "ranks begin at different steps, and neither their clocks nor their collectives tell which are the same"
OTHER_NUMBERS = "ranks' marks number their steps differently, as the collectives that they share show"


def renumbered(trace: Trace) -> Trace:
    """The trace, whose collectives are matched, with its steps numbered alike; without steps where nothing tells."""
    steps = trace.steps
    if steps is None or not steps.size or len(set(steps.process.tolist())) < 2:
        return trace
    shift = _shifts_of_windows(trace, steps)
    if shift is None:
        return replace(trace, steps=replace(NO_STEPS, unknown=OTHER_NUMBERS if steps.named else NO_NUMBERS))
    if steps.named:
        if not any(shift.values()):
            return trace
        trace = trace.warn("steps-renumbered", _in_words(trace, shift))
    processes = sorted(shift)
    by = np.zeros(max(processes) + 1, np.int64)
    by[processes] = [shift[process] for process in processes]
    numbers = steps.numbers + by[steps.process]
    least = 0 if steps.named else numbers.min()
    found = numbered_on(trace, replace(steps, numbers=numbers - least, unnumbered=()))
    return replace(trace, steps=replace(found, whole=whole_in_windows(trace, found, processes)))


def _shifts_of_windows(trace: Trace, steps: Steps) -> dict[int, int] | None:
    """By how much to move each process's numbers; None where that is not the same throughout, or unknown.

    Ranks share no collective of two windows: each window is numbered by itself.
    """
    apart, found = _apart(trace), dict[int, int]()
    for window in range(window_count(trace)):
        own = [one for one in dict.fromkeys(steps.process.tolist()) if trace.processes[one].window == window]
        shift = _shifts(trace, steps, own, apart) if own else {}
        if shift is None:
            return None
        found |= shift
    return found


def _shifts(
    trace: Trace, steps: Steps, processes: Sequence[int], apart: Mapping[tuple[int, int], Counter[int]]
) -> dict[int, int] | None:
    first = min(processes, key=lambda process: (trace.processes[process].rank, process))
    shift, edge = {first: 0}, [first]
    while edge:
        one = edge.pop()
        for other in processes:
            if other in shift or not (counts := apart.get((one, other))):
                continue
            by, calls = counts.most_common(1)[0]
            if calls < MIN_AGREEING_SHARE * counts.total():
                if not steps.named or counts[0] < MIN_BELIEVED_SHARE * counts.total():
                    return None
                by = 0
            shift[other] = shift[one] + by
            edge.append(other)
    alone = [process for process in processes if process not in shift]
    told = steps.named or _on_one_clock(trace)
    if any(process in steps.unnumbered for process in alone) or (alone and not told):
        return None
    return shift | dict.fromkeys(alone, 0)


def _in_words(trace: Trace, shift: Mapping[int, int]) -> str:
    """Which ranks' marks count differently from the lowest rank's, and by how much."""
    by_shift: dict[int, list[int]] = {}
    for process, by in shift.items():
        by_shift.setdefault(by, []).append(trace.processes[process].rank)
    lowest = ranks_in_words(sorted(by_shift.pop(0))[:1])
    others = "; ".join(
        f"{ranks_in_words(sorted(ranks))} by {abs(by)} {'lower' if by > 0 else 'higher'}"
        for by, ranks in sorted(by_shift.items())
    )
    return (
        f"The collectives that ranks share show that some number their steps otherwise than {lowest}: {others}. Steps "
        f"are counted as {lowest} does."
    )


def _on_one_clock(trace: Trace) -> bool:
    """Whether hosts' clocks tell when steps began on all of them: those of one report, or of captures of one host."""
    return len(trace.captures) == 1 or (trace.clocks is not None and trace.clocks.hosts_agree_ns > 0)


def _apart(trace: Trace) -> dict[tuple[int, int], Counter[int]]:
    """Of two processes, how much higher the first one's step is in collectives that both surely came to."""
    if trace.matches is None or not len(trace.matches.calls):
        return {}
    op, collective = as_int64(trace.matches.calls.op), as_int64(trace.matches.calls.collective)
    number, process = numbers_of_ops(trace)[op], as_int64(trace.ops.process)[op]
    kept = trace.matches.collectives.sure[collective] & (number >= 0)
    number, process, collective = number[kept], process[kept], collective[kept]
    own = rows_by_key(process)
    found: dict[tuple[int, int], Counter[int]] = {}
    for (one,), rows in own.items():
        for (other,), others in own.items():
            if one != other:
                shared, at, its = np.intersect1d(collective[rows], collective[others], return_indices=True)
                if shared.size >= MIN_CALLS:
                    difference = number[rows[at]] - number[others[its]]
                    found[one, other] = Counter(difference.tolist())
    return found
