"""The change that would bring most: what stands below a verdict."""

from __future__ import annotations

from analyzers.common.records import Record
from analyzers.common.wording import duration, from_to, percent, span


class Remedy(Record, frozen=True):
    """A change of the program, as `traceviz what-if` takes it, and what a replay predicts of it; times in ns.

    rank, device : that decides. recoverable_ns : more real overlap there, and its range. now_ratio, ratio : real
    overlap of what is possible there, as captured and predicted. now_step_ns, step_ns : on the slowest rank, and the
    range. assumes : what the change takes for granted, "" for nothing. advice : the change as one would ask for
    it, with what it takes for granted.
    """

    change: str
    rank: int
    device: int
    recoverable_ns: int
    recoverable_low_ns: int
    recoverable_high_ns: int
    now_ratio: float
    ratio: float
    now_step_ns: int
    step_ns: int
    step_low_ns: int
    step_high_ns: int
    assumes: str
    advice: str

    def sentence(self, device: str) -> str:
        """What it is worth, in words; `device` is what to call the device."""
        overlap = span(self.recoverable_low_ns, self.recoverable_high_ns)
        step = span(self.step_low_ns, self.step_high_ns)
        assumed = f" It assumes that {self.assumes}." if self.assumes else ""
        return (
            f"{self.change}. {duration(self.recoverable_ns)} more real overlap on {device} (range {overlap}), "
            f"{percent(self.now_ratio)} → {percent(self.ratio)}; step {from_to(self.now_step_ns, self.step_ns)} "
            f"(range {step}).{assumed} Predicted by replay: traceviz what-if has all changes."
        )
