"""The verdict on a pair, and the figures behind it, of which its first lines are made."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from pathlib import PurePath

import msgspec
from msgspec.structs import astuple

from analyzers.causes.own_work import OwnWork
from analyzers.common.errors import TraceWarning
from analyzers.common.frames import DataFrame, framed
from analyzers.common.records import Record
from analyzers.common.wording import part_of, percent
from analyzers.contention.cost import Contention, SideCost, in_words
from analyzers.counters.limits import Contended
from analyzers.overlap.job import Job, LastArrival
from analyzers.overlap.measure import RankOverlap
from analyzers.overlap.peers import DeviceTime
from analyzers.select.language import names_of
from analyzers.syncs.of_steps import StepSync
from analyzers.trace.alignment import Clocks
from analyzers.trace.counted import Counted
from analyzers.trace.devices import DeviceKey, DeviceLabels
from analyzers.trace.step_table import StepsUsed
from analyzers.verdict.against import StepsAgainst
from analyzers.verdict.bound import Bound
from analyzers.verdict.claim import Claim, claim_code
from analyzers.verdict.findings import Finding, findings
from analyzers.verdict.fix import Fix
from analyzers.verdict.gain import Gain, Stake
from analyzers.verdict.part import PairingDecision
from analyzers.verdict.profiler import ProfilerWeight

MOOD_OF_VERDICT = {"overlapped": "good", "partial": "middle", "serialized": "bad", "inconclusive": "middle"}
EXIT_CODES = {True: 0, False: 1, None: 3}


class OverlapFigures(Record, frozen=True):
    """What `check_overlap` found.

    `passed` is None when the verdict is inconclusive, and `reason` then says why. The worst rank's ratio, `job`, is
    held against `bar`; where that lies between `job.ratio_low` and `job.ratio_high`, the verdict is inconclusive, too.
    `last_arrival` is None unless a side is communication that is nearly all matched over ranks. `ranks_given` counts
    the ranks that were given (or asked for, where that is fewer: `ranks_asked`), `ranks_known` those the job is known
    to have had, None where nothing says. `contention` says what overlap cost, per rank and device where sides met.
    `fix` is the change that is predicted to shorten a step most, None where none gains enough and may be made.
    `contended` says what the sides likely contend for, None where no GPU counters were captured.
    `stake` is what is at stake on the rank that decides, `waited_for` how long its collectives waited for each (rank,
    device), ns. `times` is where each device's time goes. `worth_unknown` says why nothing
    is predicted, "" where something is, or nobody asked (`analyzers.replay.worth`). `communication` is what counts as
    communication and by which rule, and what is on neither side.
    `claim` holds a stated speedup against the baseline; `claim_reason` says why it can't be told, "" where it can, or
    none was stated. `against` is how step time stands against the baseline's, None without one. `agreed` is how all
    parts of the run shared out ops, paired instances and moved B. `steps` are the run's, and which of them the figures
    are of; None where nobody looked for steps. `host_syncs` are those within them that cost a share of a step that
    matters, `own_work` what a rank's host does and the others' don't, each the costliest first; empty where causes were
    not asked for. `bound` is where the time of the median step goes, and what perfect overlap could save of it,
    `profiler` how much longer steps take as captured: None where nothing tells, or causes were not asked for.
    `was_replayed` : whether fixes were looked for. `cause_fix` is the change that takes the first cause out, whatever
    it gains and whether it may be made; None where none is known.
    """

    verdict: str
    passed: bool | None
    a: str
    b: str
    bar: float
    ranks: tuple[RankOverlap, ...]
    job: Job
    clocks: Clocks | None
    paired_by: str
    reason: str
    warnings: tuple[TraceWarning, ...]
    gain: Gain | None = None
    last_arrival: LastArrival | None = None
    contention: tuple[Contention, ...] = ()
    contended: Contended | None = None
    ranks_given: int = 0
    ranks_known: int | None = None
    ranks_asked: bool = False
    fix: Fix | None = None
    worth_unknown: str = ""
    communication: tuple[Counted, ...] = ()
    stake: Stake | None = None
    waited_for: Mapping[DeviceKey, int] = msgspec.field(default_factory=dict)
    times: tuple[DeviceTime, ...] = ()
    runtime: str = "CUDA"
    claim: Claim | None = None
    claim_reason: str = ""
    agreed: PairingDecision = msgspec.field(default_factory=PairingDecision)
    steps: StepsUsed | None = None
    host_syncs: tuple[StepSync, ...] = ()
    own_work: tuple[OwnWork, ...] = ()
    bound: Bound | None = None
    profiler: ProfilerWeight | None = None
    against: StepsAgainst | None = None
    was_replayed: bool = False
    cause_fix: Fix | None = None

    @property
    def exit_code(self) -> int:
        """What a command ends with: 0 bar met, 1 not met, 3 inconclusive; so do a claim, and a step to be faster."""
        codes = {EXIT_CODES[self.passed], self.claim_code, self.against.exit_code if self.against else 0}
        return 1 if 1 in codes else max(codes)

    @property
    def claim_code(self) -> int:
        """0 a claim that is shown, or none; 1 one that can't be or was not reached; 3 no way to tell."""
        return claim_code(self.claim, self.claim_reason)

    def to_frame(self) -> DataFrame:
        """One row per (rank, device): busy and overlap of both sides in ns, and the ratios."""
        figures = (
            *("rank", "device", "a.busy_ns", "a.wait_ns", "a.ops", "b.busy_ns", "b.wait_ns", "b.ops"),
            *("overlap_ns", "overlap_ratio", "real_overlap_ns", "real_overlap_ratio", "achievable_ns", "missed_ns"),
        )
        rows = map(attrgetter(*figures), self.ranks)
        columns = [name.replace(".", "_") for name in figures]
        return framed(rows, columns, ["rank", "device"]) if self.ranks else framed([])

    def instances(self) -> DataFrame:
        """One row per paired instance: rank, device, label, its span, busy of both sides, overlap and missed, ns."""
        columns = (
            *("label", "start_ns", "end_ns", "a_busy_ns", "b_busy_ns"),
            *("real_overlap_ns", "achievable_ns", "missed_ns"),
        )
        figures = attrgetter(*columns)
        rows = [(one.rank, one.device, *figures(instance)) for one in self.ranks for instance in one.instances]
        return framed(rows, ["rank", "device", *columns])

    def causes(self) -> DataFrame:
        """One row per (rank, device) and cause of missed overlap, worst first: ns, evidence, and the longest gap.

        Columns: cause, missed_ns, then after_sync_ns, evidence, next_behind, sooner_ns, next_cause, recoverable_ns,
        recoverable_low_ns, recoverable_high_ns, instance, start_ns, end_ns, as in `Missed`.
        """
        columns = (
            *("after_sync_ns", "evidence", "next_behind", "sooner_ns", "next_cause", "recoverable_ns"),
            *("recoverable_low_ns", "recoverable_high_ns", "instance", "start_ns", "end_ns"),
        )
        told = attrgetter("cause", "ns", *columns)
        rows = [(rank.rank, rank.device, *told(one)) for rank in self.ranks for one in rank.missed]
        return framed(rows, ["rank", "device", "cause", "missed_ns", *columns], ["rank", "device"])

    @property
    def deciding_rank(self) -> RankOverlap | None:
        """The rank whose figures decide; None where none does."""
        return next((one for one in self.ranks if (one.rank, one.device) == self.job.deciding), None)

    @property
    def deciding_window(self) -> RankOverlap | None:
        """The window of that rank which decides, where it has several; else the rank."""
        rank = self.deciding_rank
        return None if rank is None else next((one for one in rank.windows if one.window == self.job.window), rank)

    @property
    def findings(self) -> list[Finding]:
        """What stopped overlap on the rank that decides, worst first."""
        return findings(self.deciding_rank) if self.deciding_rank else []

    @property
    def names(self) -> tuple[str, str]:
        """What people call A and B."""
        return names_of(self.a, self.b)

    @property
    def cost(self) -> Contention | None:
        """What overlap cost on the rank that decides; on the first where none does."""
        deciding = [one for one in self.contention if (one.rank, one.device) == self.job.deciding]
        return next(iter([*deciding, *self.contention]), None)

    def costs(self) -> DataFrame:
        """What overlap cost, one row per (rank, device) and side that met the other, as in `SideCost`, ns and ratios.

        Columns: side, slowdown_beside, low, high, like_kernels, paid_ns, paid_low_ns, paid_high_ns, beside_ns; missing
        where no like op ran alone.
        """
        rows = [
            (one.rank, one.device, side, *astuple(cost))
            for one in self.contention
            for side, cost in ((self.a, one.a), (self.b, one.b))
        ]
        return framed(rows, ["rank", "device", "side", *SideCost.__struct_fields__], ["rank", "device"])

    @property
    def cost_sentence(self) -> str:
        """What overlap cost on the rank that decides, in a sentence; empty where the sides never met."""
        if self.cost is None or not self.cost.real_overlap_ns:
            return ""
        named = self.device_labels.name(self.cost.rank, self.cost.device)
        return f"{in_words(self.cost, *self.names, has_baseline=self.gain is not None)} ({named})."

    @property
    def mood(self) -> str:
        """The verdict's mood; never good where the step got slower."""
        mood = MOOD_OF_VERDICT[self.verdict]
        return "middle" if mood == "good" and self.against is not None and self.against.is_slower else mood

    @property
    def device_labels(self) -> DeviceLabels:
        """What the devices of the ranks are called."""
        return DeviceLabels.of((rank.rank, rank.device) for rank in self.ranks)

    @property
    def sentence(self) -> str:
        """The verdict in one sentence, with the ratio's numerator and denominator."""
        if self.passed is None:
            pair = f"{self.names[0]} and {self.names[1]}: " if self.job.deciding else ""
            return f"{pair}{self.reason}{'' if self.reason.endswith('?') else '.'}"
        return self._against_the_threshold(self.whose)

    def _against_the_threshold(self, whose: str) -> str:
        return f"{self.figure}, threshold {percent(self.bar)} ({whose})."

    @property
    def first_sentence(self) -> str:
        """The verdict, and how the step stands against the baseline's where there is one."""
        if self.against is None:
            return self.sentence
        decides = self.job.deciding
        brief = self.passed is not None and decides is not None
        verdict = self._against_the_threshold(self.device_labels.name(*decides)) if brief and decides else self.sentence
        return f"{verdict.replace(' achievable a step:', ':', 1)} {self.against.sentence}"

    @property
    def figure(self) -> str:
        """What overlapped what for how long on the rank that decides, of what could have."""
        job = self.job
        achieved = part_of(job.real_overlap_ns, job.achievable_ns)
        ratio = percent(job.real_overlap_ratio, apparent=job.apparent)
        if self.passed is False and ratio == percent(self.bar):
            ratio = f"just under {ratio}"
        more = ""
        if self.verdict == "partial" and job.unaccounted_ns:
            more = f", at most {percent(job.ratio_high)} with work whose launch was not captured"
        each = " a step" if job.steps > 1 else ""
        return f"{self.names[0]} overlapped {self.names[1]} for {achieved} achievable{each}: {ratio}{more}"

    @property
    def whose(self) -> str:
        """The rank that decides, of how many, and how many of them meet the bar."""
        job = self.job
        if job.deciding is None:
            return "no rank"
        name = self.device_labels.name(*job.deciding)
        if self.deciding_window is not None and self.deciding_window.capture:
            name = f"{name} in {PurePath(self.deciding_window.capture).name}"
        count, known = job.ranks_deciding, self.ranks_known
        short = known is not None and known > self.ranks_given
        which = f"{'asked for' if self.ranks_asked else 'given'}, of {known}" if short else ""
        met = f"; {_share(job.ranks_met, count)}" if count > 1 else ""
        if self.ranks_given < 2:
            only = f", the only one {which}" if short else ""
            return f"worst of {count} GPUs: {name}{met}{only}" if count > 1 else f"{name}{only}"
        return f"worst of {'the ' if short else ''}{self.ranks_given} ranks{f' {which}' if short else ''}: {name}{met}"


def _share(met: int, count: int) -> str:
    """How many ranks' devices meet the bar."""
    return "all below" if not met else "all meet it" if met == count else f"{met} of {count} meet it"
