"""How the step time of a run stands against a baseline's, in one word and one sentence: the same in every answer."""

from __future__ import annotations

from analyzers.arrays.resampling import LEAST_STEPS
from analyzers.common.records import Record
from analyzers.common.wording import count_of, duration, from_to, part_of, percent, span

FASTER, SLOWER, CHANGED, SAME = "FASTER", "SLOWER", "CHANGED", "SAME"
TOO_FEW_STEPS, INCONCLUSIVE = "TOO FEW STEPS", "INCONCLUSIVE"
MOOD_OF_STEP = {FASTER: "good", SLOWER: "bad", SAME: "good"}  # of the others: "middle"


class StepsAgainst(Record, frozen=True):
    """Step time against a baseline's, ns; medians over the steps that both runs have, on the slowest rank of each.

    word : FASTER or SLOWER (beyond noise, and by more than captures of one program differ by), CHANGED (beyond noise,
        and by less), SAME (within noise), TOO FEW STEPS, INCONCLUSIVE (`reason` says why; then times may be 0).
    low_ns, high_ns : the 95 % interval of after − before. steps, ranks : how many both have.
    disjoint : whether every step of one run is below every step of the other.
    could_ns : what perfect overlap of the pair would have saved of the baseline's median step, None where unknown.
    different_profilers : how the two were captured, "" where in the same way.
    is_required : whether FASTER is asked for (`--require-faster`).
    """

    word: str
    before_ns: int = 0
    after_ns: int = 0
    low_ns: int = 0
    high_ns: int = 0
    steps: int = 0
    ranks: int = 0
    disjoint: bool = False
    could_ns: int | None = None
    reason: str = ""
    different_profilers: str = ""
    is_required: bool = False

    @property
    def gained_ns(self) -> int:
        """Step time gained, before − after; negative where the step got longer."""
        return self.before_ns - self.after_ns

    @property
    def ratio(self) -> float | None:
        """(After − before) / before; None where nothing was measured."""
        return -self.gained_ns / self.before_ns if self.before_ns else None

    @property
    def speedup(self) -> float | None:
        """Before / after; None where nothing was measured."""
        return self.before_ns / self.after_ns if self.before_ns and self.after_ns else None

    @property
    def mood(self) -> str:
        """What the word means to whoever hoped for less."""
        return MOOD_OF_STEP.get(self.word, "middle")

    @property
    def is_slower(self) -> bool:
        """Whether no headline above may be green."""
        return self.word == SLOWER

    @property
    def exit_code(self) -> int:
        """0 FASTER, or nothing was required; 1 not faster; 3 no way to tell."""
        if not self.is_required or self.word == FASTER:
            return 0
        return 1 if self.word in (SLOWER, SAME, CHANGED) else 3

    @property
    def moved(self) -> str:
        """From what to what, as "step time 11.9 → 13.4 ms (+12.6 %)"; "" where nothing was measured."""
        if not self.before_ns:
            return ""
        return f"step time {from_to(self.before_ns, self.after_ns)} ({percent(self.ratio, signed=True)})"

    @property
    def sure(self) -> str:
        """How sure the word is."""
        within = f"95 % interval {span(self.low_ns, self.high_ns)}"
        if self.word == TOO_FEW_STEPS:
            return "too few steps to tell it from noise"
        if self.low_ns == self.high_ns == 0:
            return "the same in every step"
        if self.word == SAME:
            return f"within noise ({within})"
        if self.disjoint and self.steps < LEAST_STEPS:
            return f"every step {'shorter' if self.gained_ns > 0 else 'longer'} than any before"
        return within

    @property
    def sentence(self) -> str:
        """What a first line says of the step: "SLOWER than the baseline: step time 11.9 → 13.4 ms (+12.6 %)."."""
        if self.word == INCONCLUSIVE:
            return f"Step time against the baseline: INCONCLUSIVE, {self.reason}."
        against = {FASTER: "FASTER than the baseline", SLOWER: "SLOWER than the baseline"}
        said = against.get(self.word, f"{self.word} against the baseline")
        few = f", over {count_of(self.steps, 'common step')}"
        more = f", {self.sure}" if self.word == SAME else few if self.word == TOO_FEW_STEPS else ""
        return f"{said}: {self.moved}{more}."

    @property
    def gained(self) -> str:
        """Step time gained of what the pair's perfect overlap could have; "" where either isn't known or is nothing."""
        if not self.could_ns or not self.before_ns or self.word in (TOO_FEW_STEPS, INCONCLUSIVE):
            return ""
        if self.word == SAME or self.gained_ns <= 0:
            return f"nothing gained of the {duration(self.could_ns)} a step that perfect overlap could save"
        if self.gained_ns > self.could_ns:
            most = f"perfect overlap could save {duration(self.could_ns)} of it at most"
            return f"gained {duration(self.gained_ns)} a step; {most}, so that other time was saved"
        part = part_of(self.gained_ns, self.could_ns, "of the")
        return f"gained {part} a step that perfect overlap could save ({percent(self.gained_ns / self.could_ns)})"
