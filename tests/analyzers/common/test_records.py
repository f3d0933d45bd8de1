"""Records beside dataclasses of the same fields: whatever `dataclasses` does with one, it does with the other."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec
import pytest

from analyzers.common.records import Record, values


class Inner(Record, frozen=True):
    name: str
    ns: int = 0


class Outer(Inner, frozen=True):
    kind: ClassVar[str] = "outer"
    parts: tuple[Inner, ...] = ()
    about: dict[str, Any] = msgspec.field(default_factory=dict)


@dataclass(frozen=True)
class PlainInner:
    name: str
    ns: int = 0


@dataclass(frozen=True)
class PlainOuter(PlainInner):
    kind: ClassVar[str] = "outer"
    parts: tuple[PlainInner, ...] = ()
    about: dict[str, Any] = field(default_factory=dict)


RECORD = Outer("a", 3, (Inner("b"), Inner("c", 5)), {"of": Inner("d")})
PLAIN = PlainOuter("a", 3, (PlainInner("b"), PlainInner("c", 5)), {"of": PlainInner("d")})


def test_fields_are_those_of_the_dataclass() -> None:
    for record, plain in ((Outer, PlainOuter), (RECORD, PLAIN)):
        assert dataclasses.is_dataclass(record)
        assert [(one.name, one.type) for one in dataclasses.fields(record)] == [
            (one.name, str(one.type).replace("Plain", "")) for one in dataclasses.fields(plain)
        ]


def test_asdict_and_astuple_take_apart_what_a_record_holds() -> None:
    assert dataclasses.asdict(RECORD) == dataclasses.asdict(PLAIN)
    assert dataclasses.astuple(RECORD) == dataclasses.astuple(PLAIN)
    assert values(RECORD) == {"name": "a", "ns": 3, "parts": RECORD.parts, "about": RECORD.about}


def test_replace_leaves_the_rest() -> None:
    assert dataclasses.replace(RECORD, ns=9) == Outer("a", 9, RECORD.parts, RECORD.about)
    assert RECORD.ns == 3
    with pytest.raises(TypeError):
        dataclasses.replace(RECORD, absent=1)


def test_records_are_frozen_equal_by_value_and_read_like_dataclasses() -> None:
    with pytest.raises(AttributeError):
        RECORD.ns = 4  # type: ignore[misc]
    assert Inner("b") == Inner("b", 0) != Inner("b", 1)
    assert len({Inner("b"), Inner("b"), Inner("c")}) == 2
    assert repr(RECORD) == repr(PLAIN).replace("Plain", "")
    assert pickle.loads(pickle.dumps(RECORD)) == RECORD == copy.deepcopy(RECORD)


def test_each_has_its_own_default() -> None:
    assert Outer("a").about is not Outer("b").about
    assert Outer.kind == RECORD.kind == "outer"
