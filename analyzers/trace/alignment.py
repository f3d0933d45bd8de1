"""How a trace's clocks were aligned, and the collectives that they were aligned by: data that a trace carries."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import ordered
from analyzers.arrays.names import Names
from analyzers.arrays.types import Floats, Ids, Ints, Mask
from analyzers.common.records import Record, values
from analyzers.trace.table import Table, flag, id_, number, text

if TYPE_CHECKING:
    import pandas as pd


class Members(Table):
    """A row a clock, that is a device of a process, by rank."""

    process: Ints = number("int64", 0)
    device: Ints = number("int64", -1)
    rank: Ints = number("int64", -1)
    capture: Ints = number("int64", 0)


class MatchedCalls(Table):
    """A row a kernel, sorted by (collective, rank)."""

    collective: Ids = id_(0)  # row in `MatchedCollectives`
    confidence: Floats = number("float64", 1)  # 0 to 1
    op: Ids = id_(-1)  # row in `Trace.ops`
    member: Ids = id_(-1)  # row in `Members`
    rank: Ids = id_(-1)
    start_ns: Ints = number("int64", 0)  # as captured
    end_ns: Ints = number("int64", 0)


class MatchedCollectives(Table):
    """A row a collective; -1, or no text, where the trace does not say."""

    operation: Names = text()
    bytes: Ints = number("int64", -1)
    dtype: Names = text()
    group: Names = text()
    group_description: Names = text()
    group_ranks: Names = text()  # as printed, "[0, 1]"
    group_size: Ints = number("int64", -1)
    matched_by: Names = text()  # a key of MATCHED_BY
    confidence: Floats = number("float64", 1)  # the least of its calls
    peers: Ints = number("int64", -1)  # between how many ranks a point-to-point call is
    given: Ints = number("int64", 0)  # how many of the ranks that were given make it, as far as is known
    sure: Mask = flag(default=True)  # matched over all of these beyond doubt


class Matches(Record, frozen=True):
    """Communication calls matched into collectives.

    refuted : calls that stay unmatched as hosts rule out the only clocks on which their order would match another's.
    """

    members: Members
    calls: MatchedCalls
    collectives: MatchedCollectives
    refuted: int = 0

    @property
    def unsure(self) -> tuple[int, int]:
        """How many collectives of several ranks are not surely matched, and how many there are."""
        several = self.calls_of_each > 1
        unsure = several & ~self.collectives.sure
        return int(np.count_nonzero(unsure)), int(np.count_nonzero(several))

    @property
    def calls_of_each(self) -> Ints:
        """How many calls each collective has."""
        return np.bincount(self.calls.collective, minlength=len(self.collectives))

    def doubt(self, collectives: Ints) -> Matches:
        """Mark collectives as unsure."""
        sure = self.collectives.sure.copy()
        sure[collectives] = False
        return replace(self, collectives=self.collectives.having(sure=sure))

    def renumber(self, order: Ints) -> Matches:
        """Give the collectives in `order` the numbers 0, 1, …"""
        if (order == np.arange(order.size)).all():  # mostly: on one clock they end in the order they did before
            return self
        number = np.empty(order.size, np.int32)
        number[order] = np.arange(order.size)
        moved = self.calls.having(collective=number[self.calls.collective])
        rows = ordered(moved.collective, moved.rank)
        return replace(self, calls=moved.take(rows), collectives=self.collectives.take(order))


METHODS = {
    "collectives": "ends of matched collectives",
    "collectives+host": "ends of matched collectives, launches and synchronizations",
    "host": "launches and synchronizations on one host",
    "session": "session start times",
    "off": "not aligned, as asked",
    "one": "one clock only",
}


class Clock(Record, frozen=True):
    """One device's clock.

    offset_ns : how far it runs ahead of the reference's clock, at `Clocks.at_ns`; aligned = captured − offset.
    drift : by how much it runs faster than the reference's, a ratio; 0 where the capture is too short to show any.
    residual_ns : how far off the offset may be; None where nothing tells: no collectives, or only unsure ones.
    lower_ns, upper_ns : what collectives and hosts allow the offset to be; None where unbounded.
    collectives : how many it rests on.
    """

    process: int
    device: int
    rank: int
    offset_ns: int = 0
    drift: float = 0.0
    residual_ns: int | None = None
    lower_ns: int | None = None
    upper_ns: int | None = None
    collectives: int = 0


class Clocks(Record, frozen=True):
    """All clocks of a trace.

    method : a key of METHODS.
    clocks : by rank; one reference is 0 ahead of itself.
    at_ns : the instant the offsets hold at.
    doubtful : collectives (numbers of `Matches.collectives`) that contradict the others: they cannot be as recorded and
        matched.
    hosts_agree_ns : within what host clocks of captures of one host are taken to agree, 0 where nothing rests on that.
    hosts_contradict : whether launches or synchronizations were left out: they contradict each other or collectives.
    """

    method: str
    clocks: tuple[Clock, ...]
    at_ns: int = 0
    doubtful: tuple[int, ...] = ()
    hosts_agree_ns: int = 0
    hosts_contradict: bool = False

    @property
    def aligned(self) -> bool:
        """Whether times were moved by any evidence."""
        return "collectives" in self.method or "host" in self.method

    def to_frame(self) -> pd.DataFrame:
        """One row per clock, indexed by (rank, device): the fields of `Clock`; offsets and errors in ns."""
        import pandas as pd

        frame = pd.DataFrame([values(one) for one in self.clocks], columns=[one.name for one in fields(Clock)])
        return frame.set_index(["rank", "device"])

    @property
    def residual_ns(self) -> int | None:
        """Error bar of a figure that compares any two ranks; None where it is unknown."""
        known = [clock.residual_ns for clock in self.clocks]
        if not known or any(one is None for one in known):
            return None
        return max(one for one in known if one is not None)
