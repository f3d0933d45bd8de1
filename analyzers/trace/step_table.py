"""The steps of a run, and which of them time figures leave out: data that a trace carries."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
import numpy as np

from analyzers.arrays.types import Ints, Mask
from analyzers.common.records import Record
from analyzers.common.wording import duration, numbers_in_words

NO_STEP_MARKS = "no range is named like one (ProfilerStep#3, step 3, iteration 3)"
MARKED, INFERRED, GIVEN = "marked", "inferred", "given"  # values of `Steps.source`
EVERYTHING, STEPS, WINDOW = "everything", "steps", "window"  # values of `StepsUsed.asked`
MAX_NAME_LETTERS = 60  # letters of a range's name in a sentence


class LateStart(Record, frozen=True):
    """A first step in which a device waits for a rank whose profiler started late.

    rank, device : who waits longest; late_rank : for whom mostly, -1 where for none. wait_ns, usual_ns : in this step,
    and the median of the others.
    """

    step: int
    rank: int
    device: int
    late_rank: int
    wait_ns: int
    usual_ns: int

    @property
    def reason(self) -> str:
        """Why it is left out."""
        whom = f", mostly for rank {self.late_rank}" if self.late_rank >= 0 else ""
        return (
            f"rank {self.rank} waits {duration(self.wait_ns)} in it{whom}, in others {duration(self.usual_ns)} in the "
            "median, as where a rank's profiler starts late"
        )


class LeftOut(Record, frozen=True):
    """A step that time figures leave out, and why."""

    step: int
    reason: str


class Steps(Record, frozen=True):
    """Steps of a run.

    process, start_ns, end_ns, numbers : a row a process and step, by process and start; ns of the trace's clock on the
        host. All processes share one numbering. complete : whether each process captured all of it.
    source : MARKED, INFERRED, GIVEN, or "" where there are none; by : what marks or bounds them, in words.
    whole : numbers of the steps that are complete on all ranks, ascending.
    left_out : of those and of the others, the ones that time figures leave out, by number.
    late_start : the first of them, where a late profiler is why.
    unknown : why no steps were found, "" where some were.
    named : whether the program itself numbers them, in marks or names; else they are counted, process by process.
    unnumbered : processes of which times do not tell which of the others' steps theirs are.
    """

    process: Ints
    start_ns: Ints
    end_ns: Ints
    numbers: Ints
    complete: Mask
    source: str = ""
    by: str = ""
    whole: tuple[int, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    late_start: LateStart | None = None
    unknown: str = ""
    named: bool = True
    unnumbered: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """How many rows there are."""
        return int(self.numbers.size)

    @property
    def present(self) -> list[int]:
        """Step numbers there are, ascending."""
        return [int(number) for number in np.unique(self.numbers)]

    @property
    def counted(self) -> tuple[int, ...]:
        """Whole steps that time figures are of, ascending."""
        excluded = {one.step for one in self.left_out}
        return tuple(number for number in self.whole if number not in excluded)

    def used(self, numbers: tuple[int, ...] | None, asked: str = "") -> StepsUsed:
        """In short, with the steps that some figures are of."""
        return StepsUsed(
            count=len(self.present),
            whole=len(self.whole),
            source=self.source,
            by=self.by,
            first=next(iter(self.whole), None),
            last=next(iter(self.whole[::-1]), None),
            left_out=self.left_out,
            unknown=self.unknown,
            numbers=numbers,
            asked=asked,
        )

    def take(self, rows: Ints | Mask) -> Steps:
        """Some of the rows."""
        columns = ("process", "start_ns", "end_ns", "numbers", "complete")
        return msgspec.structs.replace(self, **{column: getattr(self, column)[rows] for column in columns})


class StepsUsed(Record, frozen=True):
    """The steps of a run in short, and which of them figures are of.

    count : steps seen; whole : those complete on all ranks, of which first and last are the ends, None without any.
    source, by, left_out, unknown : as in `Steps`. numbers : the steps that figures are of; None where they are of all
    that was captured, or of a window of time. asked : EVERYTHING, STEPS or WINDOW, where the user says what counts.
    """

    count: int
    whole: int
    source: str
    by: str
    first: int | None
    last: int | None
    left_out: tuple[LeftOut, ...]
    unknown: str
    numbers: tuple[int, ...] | None
    asked: str = ""

    @property
    def in_words(self) -> str:
        """How many there are, and how they were found."""
        if not self.count:
            return f"No steps: {self.unknown or NO_STEP_MARKS}."
        named = f" ({self.first} to {self.last})" if self.first is not None else ""
        text = (
            f"{self.whole} whole step{'s' * (self.whole != 1)}{named} of {self.count} seen, {self._found or 'marked'}"
        )
        return f"{text}.{self._left}"

    @property
    def _found(self) -> str:
        by = f"'{self.by}'" if len(self.by) <= MAX_NAME_LETTERS else f"'{self.by[:MAX_NAME_LETTERS]}…'"
        how = {MARKED: f"marked by {by}", INFERRED: f"inferred from {by}", GIVEN: f"by {by}, as given"}
        return how.get(self.source, "")

    @property
    def _left(self) -> str:
        reasons: dict[str, list[int]] = {}
        for one in self.left_out:
            reasons.setdefault(one.reason, []).append(one.step)
        more = "; ".join(f"step{'s' * (len(some) > 1)} {in_spans(some)}: {why}" for why, some in reasons.items())
        return f" Left out of figures: {more} (--all keeps everything)." if more else ""

    @property
    def sentence(self) -> str:
        """Which steps the figures are of, how they were found, and what is left out; "" where time was asked for."""
        if self.asked == WINDOW:
            return ""
        if self.asked == EVERYTHING:
            return f"Figures are of everything captured, {self.count} steps." if self.count > 1 else ""
        if self.numbers is None:
            why = self.unknown or (NO_STEP_MARKS if not self.count else "no step is complete on all ranks")
            return f"Figures are of everything captured, not of steps: {why}."
        count = len(self.numbers)
        which = f"all {count} steps" if count == self.count > 1 else f"{count} of {self.count} steps"
        found = "" if self.source == MARKED else f", {self._found}"
        left = "" if self.asked == STEPS else self._left
        return f"Figures are of {which} ({in_spans(self.numbers)}){found}.{left}"


def in_spans(numbers: Sequence[int]) -> str:
    """Numbers in words, runs of them as spans.

    >>> in_spans([1, 2, 3, 5, 7, 8])
    '1–3, 5, 7–8'
    """
    return numbers_in_words(numbers, "step").partition(" ")[2]


def excluded(steps: Steps | None, *, is_given: bool) -> tuple[int, ...]:
    """Numbers of the steps that figures leave out; none where the user says which time counts, or nothing was found."""
    if steps is None or is_given or not steps.counted:
        return ()
    return tuple(one.step for one in steps.left_out)


def whole_on(steps: Steps, processes: Collection[int]) -> tuple[int, ...]:
    """Numbers of the steps that each of some processes has, once, and all of."""
    found: set[int] | None = None
    for process in processes:
        own = steps.process == process
        numbers, count = np.unique(steps.numbers[own], return_counts=True)
        once = set(numbers[count == 1].tolist()) & set(steps.numbers[own & steps.complete].tolist())
        found = once if found is None else found & once
    return tuple(sorted(found or ()))


_NONE = np.empty(0, np.int64)
NO_STEPS = Steps(_NONE, _NONE, _NONE, _NONE, np.empty(0, bool))
