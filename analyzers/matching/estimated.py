"""What sure matches say of clocks, for calls that are matched after them."""

from __future__ import annotations

import msgspec
import numpy as np

from analyzers.arrays.types import Floats, Ids, Ints
from analyzers.matching.fit import bases, estimate
from analyzers.matching.pairs import DRIFT, JITTER_NS


class EstimatedClocks(msgspec.Struct, frozen=True):
    """How far clocks are ahead of each other by the ends of matched calls.

    Each of these of each clock. island : the first clock that matches link it to, directly or over others. base_ns :
    what its times count from here. offset_ns : how far it is ahead of its island's, both counted from there. drift,
    error_ns : as `analyzers.matching.fit.estimate` has them. first_ns, last_ns : ends of its first and last call.
    """

    island: Ints
    base_ns: Ints
    offset_ns: Floats
    drift: Floats
    error_ns: Floats
    first_ns: Ints
    last_ns: Ints

    @classmethod
    def of(cls, collective: Ids, member: Ints, end: Ints, members: int) -> EstimatedClocks:
        """By calls in the order they end; each collective has several, of as many members."""
        first, last = np.full(members, np.iinfo(np.int64).max), np.full(members, np.iinfo(np.int64).min)
        np.minimum.at(first, member, end)
        np.maximum.at(last, member, end)
        base = bases(end, member, members, int(np.median(end)))
        near, number = (end - base[member]).astype(np.float64), np.unique(collective, return_inverse=True)[1]
        island = np.full(members, -1)
        offset, drift, error = np.zeros(members), np.zeros(members), np.full(members, np.inf)
        while (left := island[member] < 0).any():
            reference = int(np.bincount(member[left]).argmax())
            fit = estimate(number[left], member[left], near[left], members, reference)
            reached = np.isfinite(fit.offset_ns)
            island[reached] = reference
            offset[reached], drift[reached], error[reached] = (
                values[reached] for values in (fit.offset_ns, fit.drift, fit.error_ns)
            )
        return cls(island, base, offset, drift, error, first, last)

    def ahead(self, member: Ints, at: Ints) -> Floats:
        """How far members' clocks are ahead of one of them at instants of their own; nan if matches don't link all."""
        island = self.island[member[:1]]
        if (island < 0).any() or (self.island[member] != island).any():
            return np.full(member.size, np.nan)
        own = self.offset_ns[member]
        since = (at - self.base_ns[member]).astype(np.float64) - own
        return own + self.drift[member] * since + self.base_ns[member] - self.base_ns[island]

    def between(self, one: int, other: int, at: Ints) -> tuple[Floats, Floats]:
        """How far another's clock is ahead of one's at least, and at most, at instants of the other's."""
        if self.island[one] != self.island[other] or self.island[one] < 0:
            return np.full(at.size, -np.inf), np.full(at.size, np.inf)
        ahead = self.ahead(np.full(at.size, other), at)
        ahead -= self.ahead(np.full(at.size, one), at - ahead.astype(np.int64))
        beyond = np.maximum(np.maximum(self.first_ns[other] - at, at - self.last_ns[other]), 0)
        error = self.error_ns[one] + self.error_ns[other] + 2 * JITTER_NS + DRIFT * beyond
        return ahead - error, ahead + error
