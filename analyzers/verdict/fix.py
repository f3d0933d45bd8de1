"""The fix that an answer names: a change of the program, and what a replay predicts that a step takes with it."""

from __future__ import annotations

from analyzers.common.records import Record
from analyzers.common.wording import Times

SAFE, CONDITIONAL, UNSAFE, DIAGNOSIS = "safe", "conditional", "unsafe", "diagnosis"
GAINS = 0.02  # of the step: a change that is predicted to gain less is no fix


class Fix(Record, frozen=True):
    """A change of the program, as `traceviz what-if` takes it, and what a replay predicts of it; times in ns.

    safety : "safe" (no order goes), "conditional" (an order goes whose purpose nothing tells: it is a question),
    "unsafe" or "diagnosis" (`analyzers.replay.safety`). now_step_ns, step_ns : on the slowest rank, and the range.
    assumes : what the change takes for granted, "" for nothing. advice : the change as one would ask for it, with what
    it takes for granted. where : in the program, in words, "" where nothing says. rank, device : that decide overlap,
    of which recoverable_ns is how much more there is, with its range, and now_ratio and ratio what it is of what is
    achievable, as captured and predicted; None where no overlap is predicted. tells : whether the range says
    that the step gets shorter.
    """

    change: str
    safety: str
    now_step_ns: int
    step_ns: int
    step_low_ns: int
    step_high_ns: int
    assumes: str
    advice: str
    where: str = ""
    rank: int | None = None
    device: int | None = None
    recoverable_ns: int | None = None
    recoverable_low_ns: int | None = None
    recoverable_high_ns: int | None = None
    now_ratio: float | None = None
    ratio: float | None = None
    tells: bool = True

    @property
    def gain_ns(self) -> int:
        """How much shorter a step gets; less than zero where it gets longer."""
        return self.now_step_ns - self.step_ns

    @property
    def step_in_words(self) -> str:
        """The step now and then, with its range."""
        open_ = "" if self.tells else ": may gain nothing"
        times = self.now_step_ns, self.step_ns, self.step_low_ns, self.step_high_ns
        return Times(f"step {{}} → {{}} {{unit}} (range {{}}–{{}} {{unit}}{open_})", *times)
