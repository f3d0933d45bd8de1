"""Process groups: among which ranks each op communicates, as far as the capture says."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from analyzers.arrays.groups import first_of_each, first_row_of, label, rows_by_key
from analyzers.arrays.types import Ints
from analyzers.common.records import Record
from analyzers.trace.columns import as_int64
from analyzers.trace.communication import operation_of
from analyzers.trace.schemas import CommunicationCalls
from analyzers.trace.tables import Trace

# A short word also picks groups whose description begins with the long one: TENSOR_MODEL_PARALLEL_GROUP is a tp.
DIMENSIONS = {"tp": "tensor", "dp": "data", "pp": "pipeline", "ep": "expert", "cp": "context", "sp": "sequence"}
_NUMBERS = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")


class Group(Record, frozen=True):
    """A process group, or an NCCL communicator, as the capture states it.

    ranks : as printed, "[0, 1]"; "" where it does not say. size : None where it does not say. communicator : NCCL's id
    as hexadecimal text, "" where it does not say.
    """

    name: str = ""
    description: str = ""
    ranks: str = ""
    size: int | None = None
    communicator: str = ""

    def fits(self, text: str, matcher: Callable[[str], bool]) -> bool:
        """Whether a selector's text picks it: by `ranks=0-3`, by `size=4`, or by what it is called.

        >>> tensor = Group("3", "mesh_tp", "[0, 1]", 2)
        >>> [tensor.fits(text, text.__eq__) for text in ("3", "mesh_tp", "tp", "ranks=0-1", "size=2", "dp", "size=4")]
        [True, True, True, True, True, False, False]
        """
        word, given, value = text.partition("=")
        if given and word == "size":
            return str(self.size) == value
        if given and word == "ranks":
            return listed(self.ranks) == numbers(value) != []
        first = re.split(r"[^a-z]+", self.plain.lower(), maxsplit=1)[0]
        if text in DIMENSIONS and first in (text, DIMENSIONS[text]):
            return True
        called = (self.name, self.description, self.plain, self.ranks, self.communicator, self.communicator[2:])
        return any(one and matcher(one) for one in called)

    @property
    def plain(self) -> str:
        """The description without what torch's device mesh puts before the dimension's name."""
        return self.description.removeprefix("mesh_")

    def __str__(self) -> str:
        named = self.plain or (f"group {self.name}" if self.name else "")
        named = named or (f"communicator {self.communicator}" if self.communicator else "not known")
        among = self.ranks or (f"{self.size} ranks" if self.size else "")
        return f"{named} {among}".rstrip()


def groups_of(trace: Trace, ops: Ints | None = None) -> tuple[list[Group], Ints]:
    """The groups that a trace names, and for each op the number of its own; -1 where the capture says none.

    Parameters
    ----------
    ops : rows of the ops that are asked for, all where not given: to look up few takes a fraction.
    """
    comms, rows = trace.comms, np.arange(len(trace.ops)) if ops is None else ops
    texts = (comms.group, comms.group_description, comms.group_ranks)
    is_stated = (comms.group_size > 0) | (comms.communicator != -1)
    for names in texts:
        is_stated |= names.matching(bool)
    is_stated &= comms.correlation >= 0
    if not is_stated.any():
        return [], np.full(rows.size, -1, np.int64)
    stating = slice(None) if is_stated.all() else np.flatnonzero(is_stated)
    own = comms.take(stating)
    number = label(*(names.codes[stating] for names in texts), own.group_size, own.communicator)
    groups = [_group(trace, own, row) for row in first_of_each(number).tolist()]
    row = first_row_of(own.process, as_int64(own.correlation), trace.ops.process[rows], trace.ops.correlation[rows])
    return groups, np.where(row >= 0, number[row], -1)


def _group(trace: Trace, comms: CommunicationCalls, row: int) -> Group:
    """The group that a row of some calls names."""
    ranks, size, communicator = comms.group_ranks[row], int(comms.group_size[row]), int(comms.communicator[row])
    seen = trace.once(communicators_of).get(communicator, []) if not ranks and size <= 0 else []
    if seen:
        ranks, size = str(seen), len(seen)
    identity = "" if communicator == -1 else f"{communicator & (2**64 - 1):#x}"
    return Group(comms.group[row], comms.group_description[row], ranks, size if size > 0 else None, identity)


def communicators_of(trace: Trace) -> Mapping[int, list[int]]:
    """The ranks that made collective calls in each of NCCL's communicators, whose size nsys does not record.

    Where ranks of the job are missing, or where there is one alone, nothing tells who the others are; sends need not
    come from all.
    """
    if trace.communicators is not None:
        return trace.communicators
    ranks = np.array([one.rank for one in trace.processes] or [-1])
    world = max((one.world_size or 0 for one in trace.captures), default=0)
    working = len(trace.rank_ids)
    if working < max(world, 2):
        return {}
    communicator = trace.comms.communicator
    by_all = trace.comms.operation.matching(lambda name: operation_of(name) not in ("", "send", "recv", "send_recv"))
    calls = np.flatnonzero((communicator != -1) & by_all)
    rank_of = ranks[as_int64(trace.comms.process)[calls]]
    return {key: np.unique(rank_of[at]).tolist() for (key,), at in rows_by_key(communicator[calls]).items()}


def listed(text: str) -> list[int]:
    """Ranks of a group as printed; none where the text is cut short.

    >>> listed("[0, 2]"), listed("[0, 1, ...]")
    ([0, 2], [])
    """
    return [int(one) for one in re.findall(r"\d+", text)] if re.fullmatch(r"[\[({]?[\d,\s]*[\])}]?", text) else []


def numbers(text: str) -> list[int]:
    """Ranks as users write them, ascending; none where the text is no list of them.

    >>> numbers("0,2-4"), numbers("x")
    ([0, 2, 3, 4], [])
    """
    if not _NUMBERS.fullmatch(text.replace(" ", "")):
        return []
    found: list[int] = []
    for part in text.replace(" ", "").split(","):
        low, _, high = part.partition("-")
        found += range(int(low), int(high or low) + 1) if int(high or low) - int(low) < 10**6 else []
    return sorted(set(found))


def named(groups: Sequence[Group]) -> list[str]:
    """What groups can be picked by, shortest words first: for a message that names them."""
    return sorted(
        {one.plain or one.name or one.communicator for one in groups} - {""}, key=lambda text: (len(text), text)
    )
