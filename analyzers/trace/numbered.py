"""Numbered names: `## forward 3 ##` is number 3 of the family `## forward # ##`.

A number is a whole run of digits, at most 18, so that it fits 64 bits. Names are of one family where they differ in
numbers alone; a number that is the same in all of them is part of its name: `conv2d 0` and `conv2d 1` are `conv2d #`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from analyzers.common.records import Record

NUMBER = r"(?<![0-9])[0-9]{1,18}(?![0-9])"
_NUMBER = re.compile(NUMBER)


class Family(Record, frozen=True):
    """Names that differ only in numbers.

    name : with `#` for every number that differs; as a selector it picks them all.
    members : at least two names. first, last : the least and greatest number; None where more than one differs.
    """

    name: str
    members: tuple[str, ...]
    first: int | None
    last: int | None


def between_numbers(name: str) -> tuple[str, ...]:
    """What the names of a family have in common: what stands before, between and behind a name's numbers.

    >>> between_numbers("step 12 of 20")
    ('step ', ' of ', '')
    """
    return tuple(_NUMBER.split(name))


def family(name: str) -> str:
    """A name with `#` for each number: that of all names that differ in these alone.

    >>> family("## forward 12 ##"), family("lookup")
    ('## forward # ##', 'lookup')
    """
    return "#".join(between_numbers(name))


def families(names: Iterable[str]) -> dict[tuple[str, ...], Family]:
    """The families among some names, by what their names have in common.

    >>> [(one.name, one.first, one.last) for one in families(["step 9", "step 10", "load", "stage 1"]).values()]
    [('step #', 9, 10)]
    """
    alike: dict[tuple[str, ...], list[str]] = {}
    for name in dict.fromkeys(names):
        alike.setdefault(between_numbers(name), []).append(name)
    found = {}
    for common, members in alike.items():
        places = list(zip(*map(_NUMBER.findall, members), strict=True))
        differing = [place for place in places if len(set(place)) > 1]
        numbers = ["#" if place in differing else place[0] for place in places]
        name = "".join(text + number for text, number in zip(common, [*numbers, ""], strict=True))
        values = [int(text) for text in differing[0]] if len(differing) == 1 else []
        if len(members) > 1:
            found[common] = Family(name, tuple(members), min(values, default=None), max(values, default=None))
    return found


# Names of host calls, as people and changes write them.

CALL_PREFIX = "call:"  # before a host call's name, which is no selector: those pick ops
_VERSION = re.compile(r"_v\d+$")  # of CUDA's, which nsys writes behind a call's name


def plain_call(name: str) -> str:
    """A host call's name as people write it.

    >>> plain_call("cudaHostAlloc_v3020")
    'cudaHostAlloc'
    """
    return _VERSION.sub("", name)
