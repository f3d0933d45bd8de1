"""What a comparison of runs says: every run's figures, and how they changed against the first run's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from analyzers.common.errors import TraceWarning
from analyzers.common.frames import DataFrame, framed
from analyzers.common.notebook import card
from analyzers.common.records import Record
from analyzers.common.wording import duration, percent
from analyzers.compare.noise import DIFFERS, FigureChange, Spread, change
from analyzers.contention.growth import Growth
from analyzers.counters.limits import Contended
from analyzers.counters.states import DeviceStates
from analyzers.overlap.measure import RankOverlap
from analyzers.trace.memory import MemoryPeak
from analyzers.trace.step_table import LateStart, StepsUsed
from analyzers.verdict.against import StepsAgainst
from analyzers.verdict.claim import Claim, claim_code
from analyzers.verdict.gain import GainOfPair, instances_of
from analyzers.verdict.result import OverlapResult


class PairGain(GainOfPair, frozen=True):
    """What a pair of tasks gained over the first run: medians per instance on one rank, waits for late ranks left out.

    The first run's A and B stand for A and B alone, as `check-overlap --baseline` takes them. All in ns.

    a, b : A's and B's own busy time; what they grow by is contention.
    together : time during which A or B runs. overlap_ns, first_overlap_ns : real overlap of this run and of the first.
    """

    rank: int
    a: FigureChange
    b: FigureChange
    together: FigureChange
    overlap_ns: int
    first_overlap_ns: int
    instances: int
    first_instances: int

    @property
    def times(self) -> tuple[int, int, int, int, int]:
        """A alone, B alone, both and their overlap in the first run, both now."""
        before = self.together.before_ns, self.first_overlap_ns
        return self.a.before_ns, self.b.before_ns, *before, self.together.after_ns

    @property
    def lost_ns(self) -> int:
        """How much longer A and B take than in the first run, added up, ns."""
        return self.a.delta_ns + self.b.delta_ns


def pair_gain(first: Sequence[RankOverlap], ranks: Sequence[RankOverlap], rank: int | None) -> PairGain | None:
    """Compare a rank's instances with the first run's; None where either has none with both sides."""
    if rank is None:
        return None
    before, after = instances_of(first, rank), instances_of(ranks, rank)
    if not before or not after:
        return None
    (a, b, overlap), (new_a, new_b, new_overlap) = (
        np.array([(one.a_busy_ns, one.b_busy_ns, one.real_overlap_ns) for one in each], np.int64).T
        for each in (before, after)
    )
    return PairGain(
        rank,
        change(a, new_a, tests=2),
        change(b, new_b, tests=2),
        change(a + b - overlap, new_a + new_b - new_overlap),
        round(float(np.median(new_overlap))),
        round(float(np.median(overlap))),
        len(after),
        len(before),
    )


class LaneFigures(Record, frozen=True):
    """One rank's device: its figures, and their changes against the first run (none in the first run)."""

    rank: int
    device: int
    figures: Mapping[str, Spread]
    changes: Mapping[str, FigureChange] = msgspec.field(default_factory=dict)


class Region(Record, frozen=True):
    """One region's own real busy time on one device; None where the first run or this one has no such region."""

    name: str
    rank: int
    device: int
    before: Spread | None
    after: Spread | None
    change: FigureChange | None

    @property
    def delta_ns(self) -> int:
        """After − before, of medians; a region that is missing took no time."""
        return (self.after.median_ns if self.after else 0) - (self.before.median_ns if self.before else 0)


class ComparedRun(Record, frozen=True):
    """One run of a comparison.

    `figures` (`analyzers.compare.steps.FIGURES`) are per step: step time on its slowest device, others a mean over the
    devices; `changes` hold them against the first run. `overlap` is what `check_overlap` says of the compared part,
    `against` how its step stands against the first run's, `gain` what the pair gained over the first run, `growth` why
    A's and B's ops take longer or less than there; `memory_peaks` are those of the compared steps, none where the
    profiler did not record memory. Without `calls_recorded` nothing tells what blocked the host, and the sync cost of 0
    means nothing. `late_start` is the first step where a late profiler made it long: it is in no figure, unless there
    is no other step; `steps` says which others are in none. `counters` are what the hardware did in the compared steps,
    where they were captured, and `contended` what A and B likely contend for, each alone known from both runs; None in
    the first run, and where one of them has no counters. `untrusted` is
    why no figure of this run, or of the first, can be trusted, "" where they can: then it has no gain and no growth.
    """

    label: str
    captures: tuple[str, ...]
    figures: Mapping[str, Spread] = msgspec.field(default_factory=dict)
    changes: Mapping[str, FigureChange] = msgspec.field(default_factory=dict)
    lanes: tuple[LaneFigures, ...] = ()
    regions: tuple[Region, ...] = ()
    overlap: OverlapResult | None = None
    against: StepsAgainst | None = None
    gain: PairGain | None = None
    growth: tuple[Growth, Growth] | None = None
    memory_peaks: tuple[MemoryPeak, ...] = ()
    calls_recorded: bool = True
    late_start: LateStart | None = None
    steps: StepsUsed | None = None
    counters: tuple[DeviceStates, ...] = ()
    contended: Contended | None = None
    untrusted: str = ""

    @property
    def overlap_ratio_text(self) -> str:
        """Real overlap / min(A, B) as a percentage, called apparent where waiting unseen may be part of it."""
        job = self.overlap.job if self.overlap else None
        return "–" if job is None else percent(job.real_overlap_ratio, apparent=job.apparent)

    @property
    def highest_memory(self) -> MemoryPeak | None:
        """The highest of its devices' peaks; None where none was recorded."""
        return max(self.memory_peaks, key=lambda one: one.peak_bytes, default=None)

    @property
    def speedup(self) -> float | None:
        """Step time of the first run / this one's, of medians; None in the first run."""
        step = self.changes.get("step_ns")
        return step.before_ns / step.after_ns if step and step.after_ns else None

    @property
    def regions_that_differ(self) -> list[Region]:
        """Regions whose time changed beyond noise, or that only one of the two runs has; largest change first."""
        found = [one for one in self.regions if one.change is None or one.change.call in DIFFERS]
        return sorted(found, key=lambda one: abs(one.delta_ns), reverse=True)

    @property
    def verdict(self) -> str:
        """faster, slower, changed, same, too-few-steps or inconclusive: how its step stands against the first run's.

        "changed" where step time differs by no more than that of captures of the same program; other figures than
        step time decide nothing.
        """
        return self.against.word.lower().replace(" ", "-") if self.against else ""


_CHANGE = ("before_ns", "after_ns", "delta_ns", "low_ns", "high_ns", "call")


def _change_values(change: FigureChange) -> tuple[object, ...]:
    return tuple(getattr(change, column) for column in _CHANGE)


class Comparison(Record, frozen=True):
    """Runs side by side; the first is what the others are held against.

    `steps` are the steps that all have (empty: the captures have no marks, each is one step), `ranks` the ranks.
    `reason` says why nothing could be compared, "" where something was; `claim_reason` why a claim can't be told.
    """

    runs: tuple[ComparedRun, ...]
    a: str
    b: str
    steps: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    claim: Claim | None = None
    claim_reason: str = ""
    reason: str = ""
    warnings: tuple[TraceWarning, ...] = ()

    @property
    def exit_code(self) -> int:
        """What a command ends with: 0 fine, 1 a claim that can't be or was not reached, 3 no way to tell.

        Too few steps are no way to tell, but a claim that was not reached was not reached, and one that can't be can't.
        """
        if self.claim is not None and self.claim.impossible:
            return 1
        unsure = any(run.verdict == "too-few-steps" for run in self.runs[1:])
        return 3 if self.reason else claim_code(self.claim, self.claim_reason) or (3 if unsure else 0)

    def to_frame(self) -> DataFrame:
        """One row per run: medians of the figures in ns, the step time's P90 and interval, ratio, memory, gain."""
        rows = []
        for run in self.runs:
            step = run.figures.get("step_ns")
            row = {"label": run.label, **{name: one.median_ns for name, one in run.figures.items()}}
            if step is not None:
                row |= {"step_p90_ns": step.p90_ns, "step_low_ns": step.low_ns, "step_high_ns": step.high_ns}
            row["real_overlap_ratio"] = run.overlap.job.real_overlap_ratio if run.overlap else None
            row["memory_peak_bytes"] = run.highest_memory.peak_bytes if run.highest_memory else None
            row["effective_gain"] = run.gain.effective_gain if run.gain else None
            rows.append(row)
        return framed(rows, index=["label"])

    def changes_frame(self) -> DataFrame:
        """How each run's figures changed against the first's, indexed by (label, rank, device, figure); ns.

        Rank and device are −1 for all devices together. Columns as in `FigureChange`, with `delta_ns`.
        """
        rows = []
        for run in self.runs[1:]:
            devices = [(-1, -1, run.changes), *((one.rank, one.device, one.changes) for one in run.lanes)]
            for rank, device, changes in devices:
                rows += [(run.label, rank, device, name, *_change_values(one)) for name, one in changes.items()]
        names = ["label", "rank", "device", "figure"]
        return framed(rows, [*names, *_CHANGE], names)

    def regions_frame(self) -> DataFrame:
        """Regions that changed beyond noise, by (label, name, rank, device); ns, columns as in `FigureChange`."""
        rows = []
        for run in self.runs[1:]:
            for one in run.regions_that_differ:
                medians = [None if spread is None else spread.median_ns for spread in (one.before, one.after)]
                values = _change_values(one.change) if one.change else (*medians, one.delta_ns, None, None, "missing")
                rows.append((run.label, one.name, one.rank, one.device, *values))
        names = ["label", "name", "rank", "device"]
        return framed(rows, [*names, *_CHANGE], names)

    def _repr_html_(self) -> str:
        headers = ("run", "verdict", "step, median", "P90", "speedup", "real overlap")
        rows = []
        for number, run in enumerate(self.runs):
            step, verdict = run.figures.get("step_ns"), run.verdict if number and not self.reason else "–"
            median, p90 = ("–", "–") if step is None else (duration(step.median_ns), duration(step.p90_ns))
            speedup = "–" if not number or run.speedup is None else f"{run.speedup:.3f}x"
            rows.append((run.label, verdict, median, p90, speedup, run.overlap_ratio_text))
        sentence = self.reason or (self.claim.words if self.claim else f"A = {self.a}, B = {self.b}.")
        mood = "middle" if self.reason else "bad" if self.exit_code else ""
        return card("comparison", sentence, headers, rows, mood=mood, texts=headers[:2], warnings=self.warnings)

    def __repr__(self) -> str:
        if self.reason:
            return f"<comparison of {len(self.runs)} runs: {self.reason}>"
        verdicts = ", ".join(f"{run.label} {run.verdict}" for run in self.runs[1:])
        return f"<comparison against {self.runs[0].label}: {verdicts}>"
