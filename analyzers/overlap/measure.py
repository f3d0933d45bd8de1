"""How much of A and B ran at the same time, per rank and device and per instance.

busy(X) is the length of the union of X's intervals on one rank's device; overlap(A, B) the length of what lies in both
unions. Intervals are half-open: where one ends as another starts, nothing overlaps. Streams play no part: two ops of
one stream that truly ran together count. *Real* figures leave out the head of each collective that only waited for
its last rank (`ops.wait_ns`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import msgspec
import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import distinct, rows_by_key
from analyzers.arrays.intervals import Union, intersect, measure, overlap_by_group, union
from analyzers.arrays.intervals import either as either_of
from analyzers.arrays.types import Floats, Ints, Mask
from analyzers.common.records import Record
from analyzers.overlap.certainty import RealRange, real_range, waiting_share
from analyzers.overlap.pairing import Instances, Pairing, in_both
from analyzers.overlap.per_step import PerStep, lower_median, per_step
from analyzers.trace.columns import as_int64, ints_at
from analyzers.trace.devices import DeviceKey
from analyzers.trace.op_rows import those, wanted_by_start
from analyzers.trace.tables import Trace
from analyzers.trace.unlaunched import launched_before

MAX_NS, MIN_NS = np.iinfo(np.int64).max, np.iinfo(np.int64).min
SPOILS = 0.01  # of a side's busy time, by which cut durations may make it shorter, and no more
ONLY = 4  # a cause that brings back less than one in so many of what it held was not alone in holding it
APPARENT_FROM = 0.1  # of a side's busy time, from which on unseen waits make its figure an apparent one


class Side(Record, frozen=True):
    """One side of a pair on one rank's device; `wait_ns` is what of `busy_ns` only waited for a late rank."""

    busy_ns: int
    real_busy_ns: int
    ops: int
    streams: tuple[int, ...]

    @property
    def wait_ns(self) -> int:
        """Busy time that was nothing but waiting, ns."""
        return self.busy_ns - self.real_busy_ns


class LeftOutOps(Record, frozen=True):
    """Work on neither side: how many ops, and how long they run."""

    ops: int = 0
    busy_ns: int = 0


class LostWork(Record, frozen=True):
    """What launches without an op leave open on one rank's device, as `analyzers.overlap.lost` bounds it.

    ops : how many may be of a side. most_ns : how long they may run in all; by_step : the same of each of
        `PerStep.numbers`, and without : how many steps more have such launches, and nothing else of a side.
    blind : whether a side that they may be of has no other work.
    """

    ops: int = 0
    most_ns: int = 0
    by_step: tuple[int, ...] = ()
    without: int = 0
    blind: bool = False

    def around(self, low: float, high: float, could_ns: int) -> tuple[float, float]:
        """A range of the ratio of what could overlap, with what is lost."""
        if not self.ops:
            return low, high
        if self.blind:
            return 0.0, 1.0
        return low * could_ns / max(could_ns + self.most_ns, 1), min(1.0, high + self.most_ns / max(could_ns, 1))

    def of_median(self, low: Floats, high: Floats, could_ns: Ints) -> tuple[float, float]:
        """The range of the median of some steps' ratios, with what is lost in each of them."""
        if not self.ops:
            return lower_median(low), lower_median(high)
        if self.blind:
            return 0.0, 1.0
        lost = np.array(self.by_step, np.float64)
        lows = np.append(low * could_ns / (could_ns + lost), np.zeros(self.without))
        highs = np.append(np.minimum(high + lost / could_ns, 1.0), np.ones(self.without))
        return lower_median(lows), lower_median(highs)


class Unseen(Record, frozen=True):
    """What waits for ranks that were not captured leave open on one rank's device, ns.

    a_ns, b_ns : how long communication with absent peers runs, of each side's real busy time.
    real_range : of the real figures, from where all of it was waiting to where none was.
    waiting : about which part of it was waiting, as `analyzers.overlap.certainty` estimates; None where it can't.
    """

    a_ns: int
    b_ns: int
    real_range: RealRange
    waiting: float | None = None


class Inferred(Record, frozen=True):
    """How surely an op waited for what a capture does not say that it waited for.

    starts : how often the same wait, for work of the same stream, was what held the op behind it, if it is for that.
    followed : in how many of them the op started at once after the end of that work; within_ns : the longest of these
        times, None where there is none.
    """

    followed: int
    starts: int
    within_ns: int | None


class Missed(Record, frozen=True):
    """Missed overlap that one cause accounts for.

    ns : its share; the shares of a rank sum exactly to `missed_ns`.
    after_sync_ns : how much of it follows a host sync after which the host never regained its lead (late launches).
    finding : the cause in one sentence, with how much of its longest gaps is like that (`share`); evidence : the
        longest of those, in words; next_behind : what would have bound there without it.
    sooner_ns, next_cause : the same as a number and a cause's name: how much sooner that gap's op would have started,
        None where that can't be told; what would have held it then, None where nothing in the capture would.
    inferred : where the evidence rests on a link that the capture does not state.
    recoverable_ns, recoverable_low_ns, recoverable_high_ns : more real overlap on this device if the cause were gone
        everywhere, on all ranks, and its range (`analyzers.replay.worth`); None where that is not worked out.
    start_ns, end_ns : that gap; instance : whose it is; op : the op that was late, a row in `Trace.ops` (of the
        whole trace, where only a part of it was looked at).
    """

    cause: str
    ns: int
    after_sync_ns: int
    evidence: str
    next_behind: str
    sooner_ns: int | None
    next_cause: str | None
    instance: str
    start_ns: int
    end_ns: int
    op: int
    inferred: Inferred | None = None
    recoverable_ns: int | None = None
    recoverable_low_ns: int | None = None
    recoverable_high_ns: int | None = None
    finding: str = ""
    share: float = 1.0

    @property
    def weight_ns(self) -> int:
        """By what causes are listed: what this one is worth, or its share where that is not known.

        What can be named is named first, unless what can't be holds twice as much.
        """
        share = self.ns // 2 if self.cause == "unknown" else self.ns
        return share if self.recoverable_ns is None else max(self.recoverable_ns, 0)

    @property
    def is_not_alone(self) -> bool:
        """Whether without it something else would hold most of what it held: less than a quarter would be gained."""
        return self.recoverable_ns is not None and self.recoverable_ns < self.ns // ONLY


class Typical(Record, frozen=True):
    """What speaks for a device: real overlap of what could overlap, ns, and their ratio.

    overlap_ns : waits included. step : the median one of `steps`, whose figures these are; None where they are of all
        that was looked at.
    """

    overlap_ns: int
    real_overlap_ns: int
    could_overlap_ns: int
    ratio: float | None
    step: int | None = None
    steps: int = 0


class RankOverlap(Record, frozen=True, dict=True):
    """One rank's device; ratios are None where a side is empty."""

    rank: int
    device: int
    a: Side
    b: Side
    overlap_ns: int
    real_overlap_ns: int
    instances: Instances = msgspec.field(default_factory=Instances)
    missed: tuple[Missed, ...] = ()  # filled by `analyzers.causes.missed`, worst first (`Missed.weight_ns`)
    real_range: RealRange | None = None  # what clocks leave open of the real figures; None where nothing
    unseen: Unseen | None = None  # where peers that it may have waited for were not captured
    unaccounted_ns: int = 0  # of either side beside work without a launch in the capture, which may be the other's
    launched_before: LeftOutOps = msgspec.field(default_factory=LeftOutOps)  # on neither side
    steps: PerStep | None = None  # where the job's figures are those of the median step
    lost: LostWork = msgspec.field(default_factory=LostWork)  # launches without an op
    spoiled: int = 0  # ops whose durations were cut, where that makes a side shorter by over `SPOILS`
    window: int = 0  # of the run's, where it is one of a rank's several, and
    capture: str = ""  # the file that it is
    windows: tuple[RankOverlap, ...] = ()  # of a rank with several, each by itself

    @property
    def by_window(self) -> tuple[RankOverlap, ...]:
        """Each window by itself; itself where it has no several."""
        return self.windows or (self,)

    @property
    def overlap_ratio(self) -> float | None:
        """Overlap / min(busy A, busy B)."""
        return _ratio(self.overlap_ns, min(self.a.busy_ns, self.b.busy_ns))

    @property
    def real_overlap_ratio(self) -> float | None:
        """Real overlap / min(real busy A, real busy B)."""
        return _ratio(self.real_overlap_ns, self.could_overlap_ns)

    @property
    def could_overlap_ns(self) -> int:
        """The real ratio's denominator: the shorter side's busy time without waits, ns."""
        return min(self.a.real_busy_ns, self.b.real_busy_ns)

    @property
    def is_apparent(self) -> bool:
        """Whether so much of a side may have waited for ranks that were not captured that real overlap is not seen."""
        if self.unseen is None:
            return False
        both = (self.unseen.a_ns, self.a.real_busy_ns), (self.unseen.b_ns, self.b.real_busy_ns)
        return any(part > APPARENT_FROM * whole for part, whole in both)

    @property
    def apparent_ns(self) -> int | None:
        """The most that really overlapped, where waits are not all seen: those count as running; else None."""
        return None if self.unseen is None else self.real_overlap_ns

    @property
    def ratio_range(self) -> tuple[float, float]:
        """Between what the real ratio lies, as surely as clocks are known and waits are seen."""
        return self._reaching(self.real_range if self.unseen is None else self.unseen.real_range)

    @property
    def typical(self) -> Typical:
        """Real overlap in the median step, where steps were measured; else all of it."""
        if self.steps is None:
            return Typical(self.overlap_ns, self.real_overlap_ns, self.could_overlap_ns, self.real_overlap_ratio)
        one = self.steps
        columns = one.overlap_ns, one.real_ns, one.could_ns, one.numbers
        plain, real, could, number = (int(column[one.median]) for column in columns)
        return Typical(plain, real, could, real / could, number, one.numbers.size)

    def typically_within(self, *, apparent: bool) -> tuple[float, float]:
        """Between what its ratio lies, as surely as clocks are known and waits are seen.

        Parameters
        ----------
        apparent : as surely as clocks are known, if what is not seen of waits was none.
        """
        if self.steps is None:
            return self._reaching(self.real_range) if apparent else self.ratio_range
        low, high = self.steps.low, self.steps.high
        if apparent:
            low, high = self.steps.apparent_low, self.steps.apparent_high
        return self._more(*self.lost.of_median(low, high, self.steps.could_ns))

    def _reaching(self, known: RealRange | None) -> tuple[float, float]:
        """A range of the real ratio, up to where work without a launch is the other side's."""
        ratio = self.real_overlap_ratio or 0.0
        low, high = (ratio, ratio) if known is None else (known.ratio_low, known.ratio_high)
        return self._more(*self.lost.around(low, high, self.could_overlap_ns))

    def _more(self, low: float, high: float) -> tuple[float, float]:
        could = self.could_overlap_ns
        return low, min(1.0, high + self.unaccounted_ns / could) if could else high

    @property
    def ratio_low(self) -> float:
        """The least that the real ratio can be."""
        return self.ratio_range[0]

    @property
    def ratio_high(self) -> float:
        """The most that the real ratio can be."""
        return self.ratio_range[1]

    @property
    def real_overlap_bounds_ns(self) -> tuple[int, int]:
        """Within what the real overlap lies, as surely as clocks are known and waits are seen, ns."""
        known = self.real_range if self.unseen is None else self.unseen.real_range
        return (self.real_overlap_ns, self.real_overlap_ns) if known is None else (known.least_ns, known.most_ns)

    @property
    def real_overlap_error_ns(self) -> int:
        """How far off the real overlap may be, ns: to the farther of its bounds."""
        low, high = self.real_overlap_bounds_ns
        return max(self.real_overlap_ns - low, high - self.real_overlap_ns)

    @cached_property
    def achievable_ns(self) -> int:
        """Achievable overlap of all instances, ns."""
        return int(self.instances.achievable_ns.sum())

    @property
    def missed_ns(self) -> int:
        """Achievable less real overlap, ns; 0 where more overlapped between instances than was missed within them."""
        return max(self.achievable_ns - self.real_overlap_ns, 0)


def measure_ranks(
    trace: Trace,
    a: Mask,
    b: Mask,
    pairing: Pairing,
    unaccounted: tuple[Mask, Mask] | None = None,
    *,
    by_step: bool = False,
) -> list[RankOverlap]:
    """Measure a pair on every (rank, device) that has ops of either side, in that order.

    Where captures of a rank are several windows, its figures are sums over these, and each is measured by itself, too:
    one may hide nothing while another hides all.

    Parameters
    ----------
    unaccounted : ops on neither side that may be A's, and that may be B's, for all the capture says.
    by_step : whether to measure each step, too.
    """
    either = wanted_by_start(trace, a | b)
    by_window = rows_by_key(*(ints_at(trace.ops, column, either) for column in ("rank", "device", "process")))
    windows: dict[DeviceKey, list[int]] = {}
    for rank, device, process in by_window:
        windows.setdefault((rank, device), []).append(process)

    def measured(rank: int, device: int, processes: Sequence[int]) -> RankOverlap:
        ops = either[np.concatenate([by_window[rank, device, process] for process in processes])]
        sides = those(ops, a), those(ops, b)
        steps = per_step(trace, *sides, as_int64(trace.ops.wait_seen) == 0) if by_step else None
        found = replace(_measure_rank(trace, rank, device, *sides, pairing), steps=steps)
        if unaccounted is None or not (unaccounted[0].any() or unaccounted[1].any()):
            return found
        here = (trace.ops.rank == rank) & (trace.ops.device == device) & np.isin(trace.ops.process, processes)
        others = [_runs(trace, np.flatnonzero(mask & here)) for mask in unaccounted]
        return replace(found, unaccounted_ns=_beside([_runs(trace, rows) for rows in sides], others))

    ranks = []
    for (rank, device), processes in windows.items():
        found = measured(rank, device, processes)
        if len(processes) > 1:
            each = []
            for number in processes:
                its = trace.processes[number]
                path = trace.captures[its.capture].path
                each.append(replace(measured(rank, device, [number]), window=its.window, capture=path))
            found = replace(found, windows=tuple(sorted(each, key=lambda one: one.window)))
        ranks.append(found)
    return ranks


def _runs(trace: Trace, ops: Ints) -> Union:
    return union(trace.ops.start_ns[ops], trace.ops.end_ns[ops])


def _beside(sides: Sequence[Union], unaccounted: Sequence[Union]) -> int:
    """How long sides run beside work that may be the other's, for all the capture says, ns."""
    (a, b), (maybe_a, maybe_b) = sides, unaccounted
    return measure(either_of(intersect(a, maybe_b), intersect(b, maybe_a)))


def with_unaccounted(
    part: Trace, ranks: Sequence[RankOverlap], sides: tuple[Mask, Mask], unaccounted: tuple[Mask, Mask]
) -> list[RankOverlap]:
    """Count how long a part's sides run beside ops of the whole trace that may be A's, and that may be B's."""
    whole = part.whole or part
    if not (unaccounted[0].any() or unaccounted[1].any()):
        return list(ranks)

    found = []
    for rank in ranks:
        of_part, of_whole = (
            [
                _runs(trace, np.flatnonzero(mask & (trace.ops.rank == rank.rank) & (trace.ops.device == rank.device)))
                for mask in masks
            ]
            for trace, masks in ((part, sides), (whole, unaccounted))
        )
        found.append(replace(rank, unaccounted_ns=max(rank.unaccounted_ns, _beside(of_part, of_whole))))
    return found


def with_left_out(part: Trace, ranks: Sequence[RankOverlap]) -> list[RankOverlap]:
    """Count on each rank's device what was launched before the capture began, whichever part of it is looked at."""
    trace = part.whole or part
    early = np.flatnonzero(launched_before(trace))
    by_device = rows_by_key(*(ints_at(trace.ops, column, early) for column in ("rank", "device")))
    left_out = {key: LeftOutOps(rows.size, measure(_runs(trace, early[rows]))) for key, rows in by_device.items()}
    return [replace(rank, launched_before=left_out.get((rank.rank, rank.device), LeftOutOps())) for rank in ranks]


def _measure_rank(trace: Trace, rank: int, device: int, a: Ints, b: Ints, pairing: Pairing) -> RankOverlap:
    starts, ends, waits = trace.ops.start_ns, trace.ops.end_ns, as_int64(trace.ops.wait_ns)
    busy = real = _runs(trace, a), _runs(trace, b)
    if waits[a].any() or waits[b].any():
        real = union(starts[a] + waits[a], ends[a]), union(starts[b] + waits[b], ends[b])
    sides, spoiled = [], 0
    for rows, own, own_real in zip((a, b), busy, real, strict=True):
        streams = tuple(n for n in distinct(as_int64(trace.ops.stream)[rows]).tolist() if n != -1)
        sides.append(Side(measure(own), measure(own_real), rows.size, streams))
        cut = ints_at(trace.ops, "cut_ns", rows)
        if cut.any() and measure(union(starts[rows], ends[rows] + cut)) - measure(own) > SPOILS * measure(own):
            spoiled += int(np.count_nonzero(cut))
    return RankOverlap(
        rank,
        device,
        sides[0],
        sides[1],
        overlap_ns=measure(intersect(*busy)),
        real_overlap_ns=measure(intersect(*real)),
        instances=_instances(trace, a, b, pairing),
        real_range=real_range(trace, a, b, busy=busy),
        unseen=_unseen(trace, a, b, busy),
        spoiled=spoiled,
    )


def _unseen(trace: Trace, a: Ints, b: Ints, busy: tuple[Union, Union]) -> Unseen | None:
    """What absent peers leave open; None where all were captured.

    A matmul runs from 0 to 60 beside an all-reduce from 20 to 120 whose peers are absent. If the all-reduce waited to
    its end, nothing overlapped and nothing could; if it never waited, 40 of 60 did: so 40 ns are apparent.
    """
    absent = as_int64(trace.ops.wait_seen) == 0
    without_peers = [rows[absent[rows]] for rows in (a, b)]
    if not any(rows.size for rows in without_peers):
        return None
    a_ns, b_ns = (
        measure(union(trace.ops.start_ns[rows] + as_int64(trace.ops.wait_ns)[rows], trace.ops.end_ns[rows]))
        for rows in without_peers
    )
    return Unseen(
        a_ns, b_ns, real_range(trace, a, b, absent, busy), waiting_share(trace, np.concatenate(without_peers))
    )


def _instances(trace: Trace, a: Ints, b: Ints, pairing: Pairing) -> Instances:
    """Instances on one rank's device for which both sides have work; their times are those of the real intervals."""
    starts, ends, waits = trace.ops.start_ns, trace.ops.end_ns, as_int64(trace.ops.wait_ns)
    found = in_both(pairing, a, b)
    number = np.full(pairing.process.size + 1, -1, np.int64)  # the last is for work in no instance
    number[found] = np.arange(found.size)
    first, last = np.full(found.size, MAX_NS), np.full(found.size, MIN_NS)
    sides = []
    for rows, instance_of in ((a, pairing.a), (b, pairing.b)):
        group = number[instance_of[rows]]
        rows, group = rows[group >= 0], group[group >= 0]
        arrived, ended = starts[rows] + waits[rows], ends[rows]
        np.minimum.at(first, group, arrived)
        np.maximum.at(last, group, ended)
        sides.append((arrived, ended, group))
    lengths = overlap_by_group(sides[0], sides[1], found.size)
    label = tuple(map(pairing.label.__getitem__, found.tolist()))
    return Instances(label, first, last, lengths.a, lengths.b, lengths.both, found)


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
