"""The verdict: did A and B really overlap, and is it enough?"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from analyzers.causes import Explainer
from analyzers.certainty import with_bounds
from analyzers.check_warnings import all_warnings, missing_waits
from analyzers.clocks import Clocks
from analyzers.errors import TracevizError, TraceWarning
from analyzers.gain import Gain, gain_over
from analyzers.graphs import about_graphs, hidden_work
from analyzers.job import Job, job_of, last_ranks, real_overlap_error
from analyzers.missed import explain_missed
from analyzers.narrow import in_whole, whole_with_cuts
from analyzers.overlap import RankOverlap, measure_ranks
from analyzers.pairing import RULES, Pairing, pair
from analyzers.selection import Selection, select
from analyzers.sides import without_shared
from analyzers.trace import Trace, ints

DEFAULT_BAR = 0.6
FEW_INSTANCES = 3  # below that a median is not one
SERIALIZED_BELOW = 0.1  # less than this is the tails meeting, not an overlap
EXIT_CODES = {True: 0, False: 1, None: 3}


@dataclass(frozen=True)
class OverlapResult:
    """What `check_overlap` found.

    `passed` is None when the verdict is inconclusive, and `reason` then says why. `job.real_overlap_ratio` is held
    against `bar`; where that lies between `job.ratio_low` and `job.ratio_high`, the verdict is inconclusive, too.
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

    @property
    def exit_code(self) -> int:
        """What a command ends with: 0 bar met, 1 not met, 3 inconclusive."""
        return EXIT_CODES[self.passed]

    def to_frame(self) -> pd.DataFrame:
        """One row per (rank, device): busy and overlap of both sides in ns, and the ratios."""
        rows = [
            {
                "rank": rank.rank,
                "device": rank.device,
                "a_busy_ns": rank.a.busy_ns,
                "a_wait_ns": rank.a.wait_ns,
                "a_ops": rank.a.ops,
                "b_busy_ns": rank.b.busy_ns,
                "b_wait_ns": rank.b.wait_ns,
                "b_ops": rank.b.ops,
                "overlap_ns": rank.overlap_ns,
                "overlap_ratio": rank.overlap_ratio,
                "real_overlap_ns": rank.real_overlap_ns,
                "real_overlap_ratio": rank.real_overlap_ratio,
                "achievable_ns": rank.achievable_ns,
                "missed_ns": rank.missed_ns,
            }
            for rank in self.ranks
        ]
        return pd.DataFrame(rows).set_index(["rank", "device"]) if rows else pd.DataFrame(rows)

    def instances(self) -> pd.DataFrame:
        """One row per paired instance: rank, device, label, its span, busy of both sides, overlap and missed, ns."""
        columns = [
            "label",
            "start_ns",
            "end_ns",
            "a_busy_ns",
            "b_busy_ns",
            "real_overlap_ns",
            "achievable_ns",
            "missed_ns",
        ]
        return pd.DataFrame(
            [
                {
                    "rank": rank.rank,
                    "device": rank.device,
                    **{column: getattr(instance, column) for column in columns},
                }
                for rank in self.ranks
                for instance in rank.instances
            ],
            columns=["rank", "device", *columns],
        )

    def __repr__(self) -> str:
        ratio = self.job.real_overlap_ratio
        figure = f"{ratio:.1%} of what could overlap did" if ratio is not None else self.reason
        return (
            f"<{self.verdict}: '{self.a}' against '{self.b}', {figure}; bar {self.bar:.0%}; {len(self.ranks)} rank(s)>"
        )


def check_overlap(
    trace: Trace,
    a: str = "comm",
    b: str = "compute",
    *,
    min_overlap: float = DEFAULT_BAR,
    baseline: Trace | None = None,
    explain: bool = True,
) -> OverlapResult:
    """Answer whether A and B overlapped.

    Parameters
    ----------
    a, b : selectors, see `analyzers.selectors`.
    min_overlap : the bar, as a ratio in [0, 1], that the job's real overlap has to reach.
    baseline : a run of the same work without overlap, to say what the overlap gained.
    explain : False leaves out the causes of what was missed.

    Raises
    ------
    TracevizError : a selector can't be read, the sides share ops that belong to neither alone, or the bar is no ratio.
    """
    if not 0 <= min_overlap <= 1:
        raise TracevizError(f"The bar {min_overlap!r} is no ratio in [0, 1].", hint="Write 60 % as 0.6.")
    side_a, side_b = select(trace, a), select(trace, b)
    side_a, side_b, notes = without_shared(trace, side_a, side_b)
    pairing = pair(trace, side_a, side_b)
    ranks = measure_ranks(trace, side_a.picked, side_b.picked, pairing)
    if explain:
        names = str(side_a.selector), str(side_b.selector)
        explainer = _explainer(trace, side_a, side_b, pairing)
        ranks = explain_missed(explainer, ranks, names)
        notes += missing_waits(explainer)
    ranks = [replace(rank, real_overlap_error_ns=_error(trace, side_a, side_b, rank)) for rank in ranks]
    unseen = hidden_work(trace, side_a, side_b)
    job = Job() if unseen else job_of(trace, side_a.picked, side_b.picked, ranks)
    job = with_bounds(trace, side_a.picked, side_b.picked, job)
    passed = job.meets(min_overlap)
    reason = unseen or _reason(job, ranks, (a, side_a.reason), (b, side_b.reason)) or _unsure(job, passed, min_overlap)
    notes += [TraceWarning("graph-as-one-row", text) for text in about_graphs(trace, side_a, side_b)]
    gain = None
    if baseline is not None:
        alone = check_overlap(baseline, a, b, min_overlap=min_overlap, explain=False)
        gain = gain_over(alone.ranks, ranks, job.critical_rank)
        if gain is None:
            why = alone.reason or "no instance has both sides on the same rank in both runs"
            notes.append(TraceWarning("no-gain", f"The baseline can't be compared: {why}."))
        elif min(gain.instances, gain.baseline_instances) < FEW_INSTANCES:
            notes.append(TraceWarning("few-instances", _few(gain)))
    return OverlapResult(
        verdict=verdict(None if passed is None else job.real_overlap_ratio, min_overlap),
        passed=passed,
        a=str(side_a.selector),
        b=str(side_b.selector),
        bar=min_overlap,
        ranks=tuple(ranks),
        job=job,
        clocks=trace.clocks,
        paired_by=RULES[pairing.rule] + _moved(pairing),
        reason=reason,
        gain=gain,
        warnings=tuple(all_warnings(trace, (side_a, side_b), ranks, job, notes)),
    )


def _few(gain: Gain) -> str:
    return (
        f"The gain rests on {gain.instances} instance(s), and {gain.baseline_instances} of the baseline: too few for a "
        "median, so it may be chance."
    )


def _explainer(trace: Trace, a: Selection, b: Selection, pairing: Pairing) -> Explainer:
    """Explain within the whole trace: what an op of a part waited for may lie outside the part."""
    whole = whole_with_cuts(trace)
    picked = [in_whole(trace, side.picked.astype(np.int64), 0) > 0 for side in (a, b)]
    if trace.whole is not None:  # outside the part, too, work is of the side that would pick it
        outside = in_whole(trace, np.ones(len(trace.ops), np.int64), 0) == 0
        every = [select(whole, str(side.selector)).picked & outside for side in (a, b)]
        picked = [mine | (every[side] & ~every[1 - side]) for side, mine in enumerate(picked)]
    spread = replace(pairing, a=in_whole(trace, pairing.a), b=in_whole(trace, pairing.b))
    return Explainer(whole, picked[0], picked[1], spread, in_whole(trace, last_ranks(trace)))


def _error(trace: Trace, a: Selection, b: Selection, rank: RankOverlap) -> int | None:
    here = (ints(trace.ops, "rank") == rank.rank) & (ints(trace.ops, "device") == rank.device)
    return real_overlap_error(trace, np.flatnonzero(here & (a.picked | b.picked)))


def verdict(ratio: float | None, bar: float) -> str:
    """Name an overlap ratio: overlapped at the bar or above; serialized where only tails meet; else partial."""
    if ratio is None:
        return "inconclusive"
    if ratio >= bar:
        return "overlapped"
    return "serialized" if ratio < SERIALIZED_BELOW else "partial"


def _reason(job: Job, ranks: list[RankOverlap], *sides: tuple[str, str]) -> str:
    if job.real_overlap_ratio is not None:
        return ""
    empty = [f"'{text}': {why}" for text, why in sides if why]
    if empty:
        return "; ".join(empty)
    if not ranks:
        return "there is no GPU work in what was selected"
    both = [rank for rank in ranks if rank.a.ops and rank.b.ops]
    if not both:
        return "no rank ran both sides on one device"
    side, text = ("a", sides[0][0]) if not any(rank.a.real_busy_ns for rank in both) else ("b", sides[1][0])
    waited = any(getattr(rank, side).wait_ns for rank in both)
    return f"'{text}': " + ("all it did was wait for a late rank" if waited else "its ops took no time at all")


def _unsure(job: Job, passed: bool | None, bar: float) -> str:
    if passed is not None or job.ratio_low is None or job.ratio_high is None:
        return ""
    return (
        f"the bar of {bar:.1%} lies within the error bar: {job.ratio_low:.1%} to {job.ratio_high:.1%} of what could "
        "overlap did, as surely as the ranks' clocks, and so the waits in collectives, are known"
    )


def _moved(pairing: Pairing) -> str:
    if not pairing.shift:
        return ""
    return f", B moved by {pairing.shift:+d}: more of it overlaps that way, as in a pipeline"
