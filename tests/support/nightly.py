"""Which cases of a test run by default: what repeats over captures, seeds or layouts is for the nightly run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


def mostly_nightly(cases: Iterable[T], quick: Callable[[T], bool]) -> list[Any]:
    """Parameters of a test, in their order: those that are `quick` run by default, too, and all others nightly."""
    return [case if quick(case) else pytest.param(case, marks=pytest.mark.nightly) for case in cases]
