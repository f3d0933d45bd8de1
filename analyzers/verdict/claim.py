"""Can a speedup be what it is said to be, and does the measurement show it?

The most that two tasks can gain by overlapping: alone A takes a and B takes b; run one after the other they take a + b,
and together no less than the longer of them. The speedup is at most (a + b) / max(a, b), which is never more than 2.
Tasks of 3.2 ms and 2.9 ms can gain 6.1 / 3.2 = 1.91x; 14.7x measures something else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal

import msgspec
import numpy as np
from msgspec.structs import replace

from analyzers.arrays.resampling import DRAWS, LEAST_STEPS, LEVEL
from analyzers.common.errors import TracevizError
from analyzers.common.records import Record
from analyzers.common.wording import count_of, duration
from analyzers.overlap.measure import RankOverlap
from analyzers.verdict.against import INCONCLUSIVE, SAME, TOO_FEW_STEPS, StepsAgainst
from analyzers.verdict.gain import Gain, instances_of, speedup_bound


class StatedSpeedup(msgspec.Struct, frozen=True):
    """A speedup as somebody wrote it: "14.7x" stands for what rounds to it, `half_digit` below and above."""

    value: float
    half_digit: float
    text: str


def read_speedup(stated: float | str) -> StatedSpeedup:
    """Read a speedup such as 14.7x, 1.3, or 30%, which is 1.3x: as much more work in the same time.

    >>> read_speedup("14.7x")
    StatedSpeedup(value=14.7, half_digit=0.05, text='14.7x')
    >>> read_speedup("30%")
    StatedSpeedup(value=1.3, half_digit=0.005, text='30 % (1.3x)')

    Raises
    ------
    TracevizError : it is no positive number.
    """
    unit, number = "", Decimal("NaN")
    if not isinstance(stated, str):
        number = Decimal(repr(float(stated)))
    elif match := re.fullmatch(r"\s*(\d{1,9}(?:\.\d{0,9})?|\.\d{1,9})\s*([x×%]?)\s*", stated):
        unit, number = match[2], Decimal(match[1])
    if not number.is_finite() or number <= 0:
        raise TracevizError(
            f"{stated!r} is no speedup.", hint="Write it as 14.7x or 1.3; 30% is 1.3x, and 30 % less time is 1.43x."
        )
    half_digit = Decimal(5).scaleb(int(number.as_tuple().exponent) - 1)
    if unit == "%":
        value = 1 + number / 100
        return StatedSpeedup(float(value), float(half_digit / 100), f"{float(number):g} % ({float(value):g}x)")
    return StatedSpeedup(float(number), float(half_digit), f"{float(number):g}x")


IMPOSSIBLE, SHOWN, NOT_SHOWN, POSSIBLE, UNSURE = "IMPOSSIBLE", "SHOWN", "NOT SHOWN", "POSSIBLE", "UNSURE"
OF_STEP, OF_PAIR = "step", "pair"


class Claim(Record, frozen=True):
    """A stated speedup of the step, or of two tasks against the most that they can gain.

    about : "step" or "pair".
    a_ns, b_ns : of a pair, medians of A and B in the first run; bound : (a + b) / max(a, b). None of a step, which
        other changes than overlap may shorten.
    measured : how much longer the step, or the pair, took in the first run than in the other, the largest where there
        are several, in run `measured_in`; None where that can't be told, or waits unseen may be part of it. The claim
        is `shown` where that reaches it, as exactly as it was written.
    bound_high : the bound's 97.5th percentile when instances are drawn anew (2, which no two tasks pass, where there
        are fewer than `LEAST_STEPS`, or their times are apparent); `possible` holds the claim, as exactly as it was
        written, against it.
    """

    claimed: float
    a_ns: int | None
    b_ns: int | None
    bound: float | None
    bound_high: float | None
    possible: bool
    measured: float | None = None
    measured_in: str = ""
    half_digit: float = 0.0
    stated: str = ""
    about: str = OF_PAIR

    @property
    def shown(self) -> bool | None:
        """Whether what was measured reaches the claim; None where nothing was."""
        if self.measured is None:
            return None
        return self.claimed - self.half_digit <= self.measured

    @property
    def impossible(self) -> bool:
        """Whether the claim is beyond the bound and beyond what was measured: what was seen is possible."""
        return not self.possible and not self.shown

    @property
    def words(self) -> str:
        """What the claim is worth, in one sentence that says what it is about."""
        if self.a_ns is None or self.b_ns is None or self.bound is None or self.bound_high is None:
            measured = "not measured" if self.measured is None else f"{self.measured:.2f}x measured"
            return f"of step time, {self.stated} was claimed, and {measured}."
        tasks = f"two tasks of {duration(self.a_ns)} and {duration(self.b_ns)} can gain at most {self.bound:.2f}x"
        if self.impossible:
            return f"{tasks}; {self.stated} measures something else."
        if self.measured is not None:
            measured = f"{self.measured:.2f}x measured (ceiling {self.bound:.2f}x)"
            return f"of the pair's time, {self.stated} was claimed, and {measured}."
        if self.claimed > self.bound:
            scatter = f"and as their times scatter up to {self.bound_high:.2f}x"
            return f"{tasks}, {scatter}; {self.stated} can't be ruled out."
        return f"{tasks}; {self.stated} is possible."


def word_of(claim: Claim | None, reason: str = "") -> str:
    """One word for a claim; "" where none was made.

    Parameters
    ----------
    reason : why it can't be told; "" where it can.
    """
    if claim is None:
        return UNSURE if reason else ""
    if claim.impossible:
        return IMPOSSIBLE
    if claim.shown is None:
        return POSSIBLE if claim.about == OF_PAIR else UNSURE
    if not claim.shown:
        return NOT_SHOWN
    return UNSURE if reason else SHOWN


def claim_code(claim: Claim | None, reason: str = "") -> int:
    """What a command ends with: 0 a claim that is shown, or none; 1 impossible or not reached; 3 no way to tell."""
    return {"": 0, SHOWN: 0, IMPOSSIBLE: 1, NOT_SHOWN: 1}.get(word_of(claim, reason), 3)


def check_claim(
    claimed: float | str, baseline: Sequence[RankOverlap], rank: int | None, *, apparent: bool = False
) -> Claim | None:
    """Hold a stated speedup against the bound of a rank's instances; None where it has none with both sides.

    Parameters
    ----------
    apparent : whether waits that can't be seen are part of the instances' times.

    Raises
    ------
    TracevizError : the claim is no positive number.
    """
    value, half_digit, text = msgspec.structs.astuple(read_speedup(claimed))
    alone = [] if rank is None else instances_of(baseline, rank)
    if not alone:
        return None
    a, b = (np.array([getattr(one, side) for one in alone], np.int64) for side in ("a_busy_ns", "b_busy_ns"))
    medians = np.median(a), np.median(b)
    high = 2.0
    if not apparent and len(alone) >= LEAST_STEPS:
        drawn = np.random.default_rng(0).integers(a.size, size=(DRAWS, a.size))
        first, second = np.median(a[drawn], axis=1), np.median(b[drawn], axis=1)
        longer = np.maximum(np.maximum(first, second), 1)
        high = float(np.quantile((first + second) / longer, 1 - LEVEL / 2))
    bound, possible = speedup_bound(*medians) or 1.0, value - half_digit <= high
    a_ns, b_ns = (round(one) for one in medians)
    return Claim(value, a_ns, b_ns, bound, high, possible, half_digit=half_digit, stated=text)


class JudgedClaim(msgspec.Struct, frozen=True):
    """A claim, None where nothing could be held against it, and why it can't be told; "" where it can."""

    claim: Claim | None
    reason: str = ""


def judge(
    claimed: float | str,
    baseline: Sequence[RankOverlap],
    rank: int | None,
    gain: Gain | None,
    *,
    apparent: bool = False,
    unseen: str = "",
    names: tuple[str, str] = ("the baseline", "this run"),
) -> JudgedClaim:
    """Hold a stated speedup against a baseline's tasks, and against what the run gained over it.

    Parameters
    ----------
    rank : the rank that decides.
    apparent : as `check_claim` takes it.
    unseen : which of the runs may owe its overlap to waits that can't be seen; "" where none does, or nobody minds.
    names : what the baseline and the run are called.
    """
    claim = check_claim(claimed, baseline, rank, apparent=apparent)
    if claim is None:
        return JudgedClaim(None, f"no instance of {names[0]} has both sides on the rank that decides")
    measured = replace(claim, measured=gain.speedup, measured_in=names[1]) if gain and gain.speedup else claim
    if measured.impossible:
        return JudgedClaim(claim)
    if unseen:
        why = "not all ranks were captured, so waiting for peers can't be told from overlap. Capture all ranks"
        return JudgedClaim(claim, f"{unseen}: {why}; --accept-apparent takes the apparent figures")
    if gain is None or gain.speedup is None:
        return JudgedClaim(claim, "no instance has both sides on the same rank in both runs")
    claim = measured
    fewest = min(gain.instances, gain.baseline_instances)
    if claim.shown and fewest < LEAST_STEPS:
        is_few = "instance is" if fewest == 1 else "instances are"
        return JudgedClaim(claim, f"{fewest} {is_few} too few to tell it from chance; it takes {LEAST_STEPS}")
    return JudgedClaim(claim)


def judge_step(claimed: float | str, step: StepsAgainst, measured_in: str) -> JudgedClaim:
    """Hold a stated speedup of the step against the one that was measured."""
    stated = read_speedup(claimed)
    if step.word == INCONCLUSIVE:
        return JudgedClaim(None, step.reason)
    measured = step.speedup, measured_in, stated.half_digit, stated.text
    claim = Claim(stated.value, None, None, None, None, True, *measured, about=OF_STEP)
    if claim.shown and step.word == TOO_FEW_STEPS:
        few = count_of(step.steps, "common step")
        return JudgedClaim(claim, f"{few} can't tell it from noise; it takes {LEAST_STEPS}")
    if claim.shown and step.word == SAME and stated.value > 1:
        return JudgedClaim(claim, "the difference lies within noise")
    return JudgedClaim(claim)
