"""How many examples a property is tried with, where that is another number than the profile's."""

from __future__ import annotations

from hypothesis import settings


def times(factor: float) -> settings:
    """So many times as many as the profile in use says, for what only few of the examples reach."""
    return settings(max_examples=round(factor * settings.default.max_examples))
