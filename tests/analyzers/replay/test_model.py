"""Whether units of two programs are the same."""

from __future__ import annotations

import numpy as np
from msgspec.structs import asdict, replace

from analyzers.replay.model import Lists
from analyzers.replay.tasks import tasks
from tests.analyzers.replay.programs import blocked


def test_any_number_of_a_unit_that_differs_counts() -> None:
    found = tasks(blocked())
    assert found.same_units(tasks(blocked()))
    for name, value in asdict(found.units).items():
        if name == "waits":
            continue
        other = value.copy()
        other.flat[0] = not other.flat[0]
        assert not found.same_units(replace(found, units=replace(found.units, **{name: other}))), name
    for owner, item in ((0, 1), (1, 0)):
        waits = Lists.of(np.array([owner]), np.array([item]), 2)
        one, other = (replace(found, units=replace(found.units, waits=each)) for each in (found.units.waits, waits))
        assert not one.same_units(other)
