"""Samples weighed by what ran: A alone, B alone, both, neither, or a collective that only waited.

A state is a set of instants on one rank's device. *Both* is where A and B run, waits left out; *a* where A runs and no
op of B is resident, not even one that waits; *b* the other way round; *waiting* where an op of a side is resident that
only waits and not both run; *neither* the rest, from the first op of the device to the end of its last. A sample counts
for each state with the nanoseconds that it shares with it. A sample of 50 µs of which both run for 40 and A alone for
10: its value weighs 40 in *both* and 10 in *a*.

States that are shorter than a sample have no sample to themselves. Their means are then told apart by least squares: a
sample's value is the mean of its states' means, by their shares of it. Two samples of 50 µs read 60 and 40, of which
both run for 40 and 20 µs, A alone for the rest: both reads 60 + (60 − 40) / (0.8 − 0.4) × 0.2 = 70, A alone 20.

Values are whole numbers, so that a state's are kept as a histogram: the weight of each value. Ranks add up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.intervals import Union, clip, coverage, either, intersect, measure, subtract, union
from analyzers.arrays.types import Floats, Ints, Mask
from analyzers.common.records import Addable, Record
from analyzers.counters.vocabulary import COUNTERS
from analyzers.trace.columns import ints
from analyzers.trace.op_rows import of_nics
from analyzers.trace.schemas import Counters
from analyzers.trace.tables import Trace

SIDE_STATES = ("a", "b", "both", "waiting", "neither")
P90 = 0.9
FEWEST_SHARES = 10.0  # sum of the squares of a state's shares: as much as ten samples of its own
WORST_CONDITION = 1e4  # states that always come in the same shares can't be told apart
WORKING = 10  # % of SMs active from which on a GPU that should be idle is not
MAX_UNRECORDED_SHARE = 0.01  # of a device's span


class SideState(Record, frozen=True):
    """Samples of one state.

    time_ns : how long it held. sampled_ns : how much of that samples of the GPU cover; of network cards, where it has
    none. whole_ns : how much of that lies in samples which it fills: the others' values are partly another state's.
    weights : counter -> ns for each value, from 0.
    """

    time_ns: int
    sampled_ns: int
    whole_ns: int
    weights: Mapping[str, Floats]

    def __add__(self, other: SideState) -> SideState:
        names = [name for name in Counters.schema if name in self.weights or name in other.weights]
        return SideState(
            self.time_ns + other.time_ns,
            self.sampled_ns + other.sampled_ns,
            self.whole_ns + other.whole_ns,
            {name: _added([one.weights[name] for one in (self, other) if name in one.weights]) for name in names},
        )

    def mean(self, counter: str) -> float | None:
        """The mean over time; None where the counter was not sampled in this state."""
        weights = self.weights.get(counter)
        return None if weights is None else float(weights @ np.arange(weights.size) / weights.sum())

    def p90(self, counter: str) -> int | None:
        """The least value that is not exceeded for 90 % of the time."""
        weights = self.weights.get(counter)
        return None if weights is None else int(np.searchsorted(np.cumsum(weights), P90 * weights.sum()))


class Mixture(Addable, frozen=True):
    """What least squares need of one counter's samples.

    shares : sums of products of the states' shares of a sample, 5 × 5. products : of shares and values, 5.
    squares, count : of the values.
    """

    shares: Floats
    products: Floats
    squares: float
    count: int

    def mean(self, state: str) -> tuple[float, float] | None:
        """A state's mean and its standard error; None where it is too rarely in samples to tell."""
        present = np.flatnonzero(np.diag(self.shares) >= FEWEST_SHARES)
        at = SIDE_STATES.index(state)
        if at not in present or self.count <= present.size:
            return None
        shares = self.shares[np.ix_(present, present)]
        if np.linalg.cond(shares) > WORST_CONDITION:
            return None
        inverse = np.linalg.inv(shares)
        means = inverse @ self.products[present]
        rest = max(self.squares - float(means @ self.products[present]), 0.0)
        where = int(np.searchsorted(present, at))
        error = math.sqrt(rest / (self.count - present.size) * inverse[where, where])
        return max(float(means[where]), 0.0), error


class DeviceStates(Record, frozen=True):
    """All states of one rank's device.

    period_ns : the time from a sample to the next, mostly.
    mixtures : by counter, to tell states apart that are shorter than a sample.
    unrecorded_ns : time of samples without any op that show SMs at work all the same.
    """

    rank: int
    device: int
    period_ns: int
    samples: int
    states: Mapping[str, SideState]
    mixtures: Mapping[str, Mixture]
    unrecorded_ns: int = 0

    @property
    def lacks_ops(self) -> bool:
        """Whether ops that ran are not in the capture, or samples are of other times than its ops."""
        return self.unrecorded_ns > MAX_UNRECORDED_SHARE * sum(state.time_ns for state in self.states.values())


def device_states(trace: Trace, a: Mask, b: Mask) -> tuple[DeviceStates, ...]:
    """Weigh the samples of every device that has some and ran an op.

    Parameters
    ----------
    a, b : ops of each side.
    """
    if not len(trace.counters):
        return ()
    samples = rows_by_key(trace.counters.process, trace.counters.device)
    found = [
        _weighed(trace, samples[key], rows, (a, b))
        for key, rows in rows_by_key(trace.ops.process, trace.ops.device).items()
        if key in samples
    ]
    return tuple(sorted(found, key=lambda one: (one.rank, one.device)))


def _states(trace: Trace, rows: Ints, a: Mask, b: Mask) -> dict[str, Union]:
    start, end, wait = trace.ops.start_ns[rows], trace.ops.end_ns[rows], trace.ops.wait_ns[rows]
    resident = [union(start[side[rows]], end[side[rows]]) for side in (a, b)]
    running = [union((start + wait)[side[rows]], end[side[rows]]) for side in (a, b)]
    both = intersect(*running)
    alone = [subtract(running[side], resident[1 - side]) for side in (0, 1)]
    held = either(*resident)
    whole = Union(np.array([start.min()]), np.array([end.max()]))
    waiting = subtract(subtract(subtract(held, both), alone[0]), alone[1])
    return dict(zip(SIDE_STATES, (alone[0], alone[1], both, waiting, subtract(whole, held)), strict=True))


def _weighed(trace: Trace, rows: Ints, ops: Ints, sides: tuple[Mask, Mask]) -> DeviceStates:
    start, end = trace.counters.start_ns[rows], trace.counters.end_ns[rows]
    values = {name: ints(trace.counters, name)[rows] for name in COUNTERS}
    length = end - start
    counted = ~of_nics(trace.counters)[rows]
    counted |= ~counted.any()
    found, shares = {}, np.zeros((len(SIDE_STATES), rows.size))
    for at, (name, state) in enumerate(_states(trace, ops, *sides).items()):
        weight = coverage(start, end, state)
        shares[at] = weight / np.maximum(length, 1)
        weights = {}
        for counter, value in values.items():
            known = (value >= 0) & (weight > 0)
            if known.any():
                weights[counter] = np.bincount(value[known], weights=weight[known]).astype(np.float64)
        whole_ns = int(weight[counted & (weight == length)].sum())
        found[name] = SideState(measure(state), int(weight[counted].sum()), whole_ns, weights)
    rank, device, process = (int(column[ops[0]]) for column in (trace.ops.rank, trace.ops.device, trace.ops.process))
    whole = (trace.whole or trace).ops  # ops outside the part that is looked at run there, too
    of_device = (whole.process == process) & (whole.device == device)
    any_op = union(whole.start_ns[of_device], whole.end_ns[of_device])
    inside = (start >= trace.ops.start_ns[ops].min()) & (end <= trace.ops.end_ns[ops].max())
    unrecorded = inside & (values["sm_active"] >= WORKING) & (coverage(start, end, any_op) == 0)
    mixtures = {}
    for name, value in values.items():
        if (known := inside & (value >= 0)).any():
            of, read = shares[:, known], value[known].astype(np.float64)
            mixtures[name] = Mixture(of @ of.T, of @ read, float(read @ read), read.size)
    period_ns, unrecorded_ns = int(np.median(length[counted])), int(length[unrecorded].sum())
    return DeviceStates(rank, device, period_ns, int(counted.sum()), found, mixtures, unrecorded_ns)


def pooled(devices: Sequence[DeviceStates]) -> Mapping[str, SideState]:
    """States of all devices together."""
    nothing = SideState(0, 0, 0, {})
    return {name: sum((one.states[name] for one in devices), nothing) for name in SIDE_STATES}


def mixed(devices: Sequence[DeviceStates]) -> Mapping[str, Mixture]:
    """Mixtures of all devices together."""
    size = len(SIDE_STATES)
    nothing = Mixture(np.zeros((size, size)), np.zeros(size), 0.0, 0)
    return {name: sum((one.mixtures.get(name, nothing) for one in devices), nothing) for name in COUNTERS}


def mean_within(trace: Trace, process: int, device: int, low: int, high: int) -> dict[str, float]:
    """Means of a device's counters over [low, high), by how much of it each sample covers, of those sampled."""
    rows = np.flatnonzero((trace.counters.process == process) & (trace.counters.device == device))
    start, end = trace.counters.start_ns[rows], trace.counters.end_ns[rows]
    near = np.flatnonzero((end > low) & (start < high))
    inside = clip(Union(start[near], end[near]), low, high)
    weight = inside.ends - inside.starts
    found = {}
    for counter in COUNTERS:
        value = ints(trace.counters, counter)[rows[near]]
        known = value >= 0
        if known.any():
            found[counter] = float(value[known] @ weight[known] / weight[known].sum())
    return found


def _added(histograms: Sequence[Floats]) -> Floats:
    summed = np.zeros(max(one.size for one in histograms))
    for one in histograms:
        summed[: one.size] += one
    return summed
