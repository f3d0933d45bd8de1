"""A part of a trace: some ranks, some steps, a window of time. Windows clip; they never drop what they cut."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from analyzers.arrays.types import Ints, Mask
from analyzers.common.errors import TracevizError
from analyzers.common.wording import duration
from analyzers.trace.ranks import in_words
from analyzers.trace.schemas import WAIT_RANGE
from analyzers.trace.step_table import EVERYTHING as ALL_OF_IT
from analyzers.trace.step_table import NO_STEP_MARKS, STEPS, WINDOW, StepsUsed
from analyzers.trace.steps import find_steps, step_of_ops
from analyzers.trace.tables import Trace


class Narrowing(msgspec.Struct, frozen=True):
    """A part of a run by ranks, steps [first, last) and window [low, high) ns; None where all of it.

    numbers : of what is left, steps of these numbers alone. everything : whether nothing is left out where neither
        steps nor a window is given, as `counted` does by default.
    """

    ranks: tuple[int, ...] | None = None
    steps: tuple[int, int] | None = None
    window: tuple[int, int] | None = None
    numbers: tuple[int, ...] | None = None
    everything: bool = False

    @property
    def is_given(self) -> bool:
        """Whether it says itself which time counts."""
        return self.everything or (self.steps, self.window, self.numbers) != (None, None, None)

    def of(self, trace: Trace) -> Trace:
        """That part of a trace.

        Raises
        ------
        TracevizError : there is no such part.
        """
        if self.ranks is not None:
            trace = only_ranks(trace, self.ranks)
        if self.steps is not None:
            trace = only_steps(trace, *self.steps)
        if self.window is not None:
            trace = clip(trace, *self.window)
        return trace if self.numbers is None else these_steps(trace, self.numbers)

    def of_capture(self, trace: Trace) -> Trace:
        """That part of a capture of the run, which need not have all of the ranks.

        Raises
        ------
        TracevizError : nothing of it is here.
        """
        here = None if self.ranks is None else tuple(sorted(set(self.ranks) & set(trace.rank_ids)))
        return msgspec.structs.replace(self, ranks=here).of(trace)


EVERYTHING = Narrowing(everything=True)
_LIMITS = np.iinfo(np.int64)


def speaks_by_step(run: Trace, narrowing: Narrowing) -> bool:
    """Whether the median step speaks for what is looked at: where steps were found, and some of them are asked for."""
    part = counted(run, narrowing)
    return run.steps is not None and run.whole is None and (part.steps, part.numbers) != (None, None)


def steps_used(run: Trace, narrowing: Narrowing) -> StepsUsed | None:
    """The steps of a run, and which of them figures are of; None where nobody looked for steps."""
    if run.steps is None:
        return None
    numbers, asked = counted(run, narrowing).numbers, ""
    if narrowing.window is not None or run.whole is not None:
        asked = WINDOW
    elif narrowing.steps is not None:
        first, last = narrowing.steps
        numbers, asked = tuple(number for number in run.steps.present if first <= number < last), STEPS
    elif narrowing.everything:
        asked = ALL_OF_IT
    return run.steps.used(numbers, asked)


def counted(run: Trace, narrowing: Narrowing) -> Narrowing:
    """What time figures of a run are of: the whole steps but for those left out, where nothing else is asked for.

    Parameters
    ----------
    run : the run's trace, or what concerns all of it. Of a part of a trace, all is asked for.
    """
    numbers = run.steps.counted if run.steps is not None and run.whole is None else ()
    return msgspec.structs.replace(narrowing, numbers=numbers) if numbers and not narrowing.is_given else narrowing


def only_ranks(trace: Trace, ranks: tuple[int, ...]) -> Trace:
    """Keep the GPU ops of some ranks.

    Raises
    ------
    TracevizError : one of them is not in the trace.
    """
    check_ranks(trace, ranks)
    return replace(_keep(trace, np.isin(trace.ops.rank, ranks)), ranks_asked=tuple(sorted(ranks)))


def check_ranks(trace: Trace, ranks: tuple[int, ...]) -> None:
    """Refuse ranks that a trace does not have.

    Raises
    ------
    TracevizError : one of them is not in the trace.
    """
    missing = sorted(set(ranks) - set(trace.rank_ids))
    idle = [one for one in trace.processes if one.rank in missing and one.without_work]
    if idle:
        raise TracevizError(f"Of {in_words(trace, idle[0])}.")
    if missing:
        there = f"there are {_listed(trace.rank_ids)}" if trace.rank_ids else "none has GPU work"
        raise TracevizError(f"There is no rank {_listed(missing)}; {there}.")


def only_steps(trace: Trace, first: int, last: int) -> Trace:
    """Keep the GPU ops launched in steps `first` up to, not including, `last`.

    Raises
    ------
    TracevizError : the trace has no step marks, none of these steps, or they launched nothing.
    """
    steps = find_steps(trace)
    if not steps.size:
        raise TracevizError(
            f"No steps: {steps.unknown or NO_STEP_MARKS}.", hint="Select by time with --window instead."
        )
    wanted = (steps.numbers >= first) & (steps.numbers < last)
    if not wanted.any():
        raise TracevizError(f"There is no step from {first} up to {last}; there are {_listed(steps.present)}.")
    kept = _launched_in_steps(trace, wanted)
    if not kept.any():
        raise TracevizError(f"No GPU op was launched in steps from {first} up to {last}.")
    return _keep(trace, kept)


def these_steps(trace: Trace, numbers: Sequence[int]) -> Trace:
    """Keep the GPU ops launched in steps of these numbers, wherever they lie; none where there are none."""
    kept = _launched_in_steps(trace, np.isin(find_steps(trace).numbers, list(numbers)))
    return trace if kept.all() and len(trace.ops) else _keep(trace, kept)


def only_ops(trace: Trace, rows: Ints) -> Trace:
    """Keep some GPU ops of a whole trace, by their rows, ascending: those that a part of another one keeps."""
    return _keep(trace, rows)


def _launched_in_steps(trace: Trace, wanted: Mask) -> Mask:
    position = step_of_ops(trace)
    return (position >= 0) & np.append(wanted, False)[position]


def clip(trace: Trace, low: int, high: int) -> Trace:
    """Cut the GPU ops to the window [low, high), ns on the trace's clock.

    Raises
    ------
    TracevizError : the window is empty or no op lies in it.
    """
    low, high = (min(max(int(edge), _LIMITS.min), _LIMITS.max) for edge in (low, high))
    if high <= low:
        raise TracevizError(f"The window from {low} to {high} ns is empty.")
    starts, ends = trace.ops.start_ns, trace.ops.end_ns
    # A zero-length op at an instant of the window stays.
    kept = (ends > low) & (starts < high) | ((starts == ends) & (starts >= low) & (starts < high))
    if not kept.any():
        work = f"; GPU work runs from {duration(int(starts.min()))} to {duration(int(ends.max()))}"
        span = work if len(trace.ops) else ""
        raise TracevizError(f"No GPU work lies in the window from {duration(low)} to {duration(high)}{span}.")
    cut_starts = np.clip(starts, low, high)
    cut_waits = {}
    for column in ("wait_ns", *WAIT_RANGE):
        waits = trace.ops.columns[column]
        cut_waits[column] = (np.clip(starts + waits, low, high) - cut_starts).astype(waits.dtype)  # none gets longer
    ops = trace.ops.having(start_ns=cut_starts, end_ns=np.clip(ends, low, high), **cut_waits)
    return _keep(replace(trace, ops=ops, whole=trace.whole or trace), kept)


def in_whole(trace: Trace, values: Ints, missing: int = -1) -> Ints:
    """Spread values of a trace's ops over the ops of the trace it is a part of; the others get `missing`."""
    if trace.whole is None or trace.rows is None:
        return values
    spread = np.full(len(trace.whole.ops), missing, np.int64)
    spread[trace.rows] = values
    return spread


def whole_with_cuts(trace: Trace) -> Trace:
    """The trace that this one is a part of, with the times of this part's ops cut as they are here.

    Where no window cut any, that is the whole trace itself, with what was made of it once.
    """
    if trace.whole is None:
        return trace
    cut = {}
    for column in ("start_ns", "end_ns", "wait_ns", *WAIT_RANGE):
        before, here = trace.whole.ops.columns[column], trace.ops.columns[column]
        if not np.array_equal(before[trace.rows], here):
            cut[column] = before.copy()
            cut[column][trace.rows] = here
    return replace(trace.whole, ops=trace.whole.ops.having(**cut)) if cut else trace.whole


def _keep(trace: Trace, kept: Mask | Ints) -> Trace:
    rows = np.flatnonzero(kept) if kept.dtype == bool else kept
    before = rows if trace.rows is None else trace.rows[rows]
    return replace(trace, ops=trace.ops.take(rows), whole=trace.whole or trace, rows=before)


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:20])) + (" …" if len(numbers) > 20 else "")
