"""Instances of a pair, measured: one occurrence of A and B each. A program may have ten thousands of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import overload

import msgspec
import numpy as np

from analyzers.arrays.types import Ints
from analyzers.common.records import Record


class Instance(Record, frozen=True):
    """One paired occurrence of A and B; times in ns."""

    label: str
    start_ns: int
    end_ns: int
    a_busy_ns: int
    b_busy_ns: int
    real_overlap_ns: int
    index: int  # in the Pairing of the part of the run that was looked at: each part counts its own from 0

    @property
    def achievable_ns(self) -> int:
        """The most that could overlap: the shorter side, ns."""
        return min(self.a_busy_ns, self.b_busy_ns)

    @property
    def missed_ns(self) -> int:
        """Achievable overlap that did not happen, ns."""
        return self.achievable_ns - self.real_overlap_ns


def _none() -> Ints:
    return np.empty(0, np.int64)


class Instances(Record, frozen=True, eq=False):
    """Instances as columns, by index: a sequence of `Instance`, each of which is made when it is asked for."""

    label: tuple[str, ...] = ()
    start_ns: Ints = msgspec.field(default_factory=_none)
    end_ns: Ints = msgspec.field(default_factory=_none)
    a_busy_ns: Ints = msgspec.field(default_factory=_none)
    b_busy_ns: Ints = msgspec.field(default_factory=_none)
    real_overlap_ns: Ints = msgspec.field(default_factory=_none)
    index: Ints = msgspec.field(default_factory=_none)

    @property
    def achievable_ns(self) -> Ints:
        """The most that could overlap in each, ns."""
        return np.minimum(self.a_busy_ns, self.b_busy_ns)

    @property
    def missed_ns(self) -> Ints:
        """Achievable overlap that did not happen in each, ns."""
        return self.achievable_ns - self.real_overlap_ns

    def __len__(self) -> int:
        return len(self.label)

    def __iter__(self) -> Iterator[Instance]:
        return map(Instance, self.label, *(column.tolist() for column in self._numbers()))

    @overload
    def __getitem__(self, at: int) -> Instance: ...

    @overload
    def __getitem__(self, at: slice) -> Instances: ...

    def __getitem__(self, at: int | slice) -> Instance | Instances:
        if isinstance(at, slice):
            return Instances(self.label[at], *(column[at] for column in self._numbers()))
        return Instance(self.label[at], *(int(column[at]) for column in self._numbers()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Instances) and [*self] == [*other]

    def __hash__(self) -> int:
        return hash(self.label)

    def __repr__(self) -> str:
        return f"<{len(self)} instances>"

    def _numbers(self) -> tuple[Ints, ...]:
        return self.start_ns, self.end_ns, self.a_busy_ns, self.b_busy_ns, self.real_overlap_ns, self.index
