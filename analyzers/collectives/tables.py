"""The collectives of a trace as tables: a row each, and a row for each rank's part of them."""

from __future__ import annotations

from analyzers.arrays.names import Names
from analyzers.arrays.types import Floats, Ids, Ints, Mask
from analyzers.trace.table import Table, flag, id_, number, text


class CollectiveTable(Table):
    """A row a collective, columns as the fields of `Collective` without `ranks`; unknown is -1, nan or ""."""

    index: Ints = number("int64", 0)
    operation: Names = text()
    bytes: Ints = number("int64", -1)
    dtype: Names = text()
    group: Names = text()
    group_description: Names = text()
    group_ranks: Names = text()
    group_size: Ints = number("int64", -1)
    communicator: Names = text()
    fastest_ns: Ints = number("int64", 0)
    fastest_rank: Ints = number("int64", -1)
    fastest_device: Ints = number("int64", -1)
    last_arrival_rank: Ints = number("int64", -1)
    last_arrival_device: Ints = number("int64", -1)
    last_arrival_lead_ns: Ints = number("int64", 0)
    end_skew_ns: Ints = number("int64", 0)
    algorithm_gb_s: Floats = number("float64", float("nan"))
    bus_gb_s: Floats = number("float64", float("nan"))
    matched_by: Names = text()
    confidence: Floats = number("float64", 1)
    sure: Mask = flag(default=True)


class RankCalls(Table):
    """A row a rank's call, sorted by (collective, rank), columns as the fields of `RankCall`.

    In 32 bits where they fit: of many ranks that is a third of the memory.
    """

    collective: Ids = id_(0)  # `CollectiveTable.index`
    rank: Ids = id_(-1)
    device: Ids = id_(-1)
    start_ns: Ints = number("int64", 0)
    duration_ns: Ids = id_(0)
    wait_ns: Ids = id_(0)

    @property
    def transfer_ns(self) -> Ids:
        """What of each call is no waiting."""
        return self.duration_ns - self.wait_ns
