"""What a capture doesn't say is null in JSON, never -1, which a sum would take for a number."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.commands import in_process
from tests.fuzz.contract import numbers

DATA = Path(__file__).parents[1] / "data"
CAPTURES = ("nsys/peer_copies.1process.sqlite", "nsys/rowpar_s4.4gpu.sqlite", "torch/delta_sync.rank0.json.gz")


@pytest.mark.parametrize("capture", CAPTURES)
@pytest.mark.parametrize("command", ["check-overlap", "collectives", "syncs", "streams", "info"])
def test_no_number_stands_for_what_is_not_known(command: str, capture: str) -> None:
    answer = in_process([command, str(DATA / capture), "--format", "json"]).answer
    assert answer is not None
    assert {path for path, value in numbers(answer) if value == -1} == set()


def test_copies_without_barriers_wait_for_nobody_knows_how_long() -> None:
    answer = in_process(["collectives", str(DATA / CAPTURES[0]), "--format", "json"]).answer
    assert answer is not None
    parts = answer["copies_by_rank"]
    assert [(one["rank"], one["device"], one["bytes"]) for one in parts] == [(0, 0, 12 << 20), (0, 1, 12 << 20)]
    assert [(one["barrier_ns"], one["barrier_wait_ns"]) for one in parts] == [(None, None)] * 2


def test_copies_of_two_devices_of_a_rank_are_told_apart() -> None:
    text = in_process(["collectives", str(DATA / CAPTURES[0])]).out
    assert "0 device 0" in text
    assert "0 device 1" in text
