"""Which cases of a test run by default: what repeats over captures, seeds or layouts is for the nightly run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest
from hypothesis import settings

T = TypeVar("T")


def mostly_nightly(cases: Iterable[T], quick: Callable[[T], bool]) -> list[Any]:
    """Parameters of a test, in their order: those that are `quick` run by default, too, and all others nightly.

    A tuple is one value for each of several names.
    """
    return [case if quick(case) else _nightly(*case) if isinstance(case, tuple) else _nightly(case) for case in cases]


def few_by_default(few: int, every: int) -> list[Any]:
    """How many seeds a test is run with: few by default, which show a fault at once, and every one nightly."""
    return mostly_nightly((few, every), lambda seeds: seeds == few)


def _nightly(*values: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.nightly)


def times(factor: float) -> settings:
    """So many times as many as the profile in use says, for what only few of the examples reach."""
    return settings(max_examples=round(factor * settings.default.max_examples))
