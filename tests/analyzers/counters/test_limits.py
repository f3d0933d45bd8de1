"""What the sides contend for: a made capture with known counters for every rule, and one step beyond each bound."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from analyzers.common.errors import TracevizError
from analyzers.counters.by_state import CountersResult, counters
from analyzers.load import load
from tests.support.builder import Builder
from tests.support.counters import CONTEND as DATA

FREE = {
    "sm_active": 30,
    "sm_issue": 5,
    "tensor_active": 20,
    "dram_read": 10,
    "dram_write": 5,
    "nvlink_in": 0,
    "nvlink_out": 0,
    "pcie_in": 1,
    "pcie_out": 1,
    "gpc_clock": 1980,
}
MMA, SPIN = {"sm_active": 96, "tensor_active": 93}, {"sm_active": 18, "tensor_active": 0}
STATES = (("a", 0), ("b", 1000), ("both", 2000))


def made(
    a: Mapping[str, int] | None,
    b: Mapping[str, int] | None,
    both: Mapping[str, int],
    *,
    period: int = 20,
    idle: int = 0,
) -> CountersResult:
    """A alone, B alone, both, idle: 1,000 ns each with 50 samples; None where a side never ran alone."""
    run = Builder()
    rank = run.rank(0)
    if a is not None:
        rank.kernel("side_a", 1, 0, 1000)
    if b is not None:
        rank.kernel("side_b", 2, 1000, 2000)
    rank.kernel("side_a", 1, 2000, 3000)
    rank.kernel("side_b", 2, 2000, 3000)
    rank.kernel("last", 3, 4000, 4001)
    for known, start in ((a, 0), (b, 1000), (both, 2000), ({"sm_active": idle, "tensor_active": 0}, 3000)):
        for at in range(start, start + 1000, period):
            if known is not None:
                run.add("counters", process=0, device=0, start_ns=at, end_ns=at + period, **{**FREE, **known})
    return counters(run.trace(), "kernel:side_a", "kernel:side_b")


def named(result: CountersResult) -> list[str]:
    return [one.contention for one in result.contended.likely]


@pytest.mark.parametrize(
    ("a", "b", "both", "expected"),
    [
        ({}, {}, {}, []),
        (MMA, SPIN, {"sm_active": 94, "tensor_active": 72}, ["sms"]),
        (MMA, SPIN, {"sm_active": 94, "tensor_active": 84}, []),  # 84 > 0.9 × 93
        (MMA, SPIN, {"sm_active": 84, "tensor_active": 72}, []),  # SMs are free
        (MMA, {"sm_active": 8, "tensor_active": 0}, {"sm_active": 94, "tensor_active": 72}, []),  # both fit
        # neither uses tensor pipes: told by issue
        (
            {"sm_active": 99, "sm_issue": 60, "tensor_active": 0},
            {"sm_active": 50, "sm_issue": 10, "tensor_active": 0},
            {"sm_active": 99, "sm_issue": 40, "tensor_active": 0},
            ["sms"],
        ),
        ({"dram_read": 40}, {"dram_read": 40}, {"dram_read": 45, "dram_write": 40}, ["dram"]),
        ({"dram_read": 40}, {"dram_read": 40}, {"dram_read": 45, "dram_write": 29}, []),
        ({"dram_read": 60}, {"dram_read": 2, "dram_write": 3}, {"dram_read": 80}, []),  # B hardly uses it
        ({"nvlink_in": 70}, {"nvlink_out": 50}, {"nvlink_in": 62, "nvlink_out": 61}, ["nvlink"]),
        ({"nvlink_in": 70}, {}, {"nvlink_in": 66}, []),
        ({"nvlink_in": 40}, {"nvlink_in": 30}, {"nvlink_in": 59}, []),
        ({"pcie_in": 80}, {"pcie_in": 60}, {"pcie_in": 82}, ["pcie"]),
        ({"pcie_in": 80}, {}, {"pcie_in": 82}, []),
        ({}, {}, {"gpc_clock": 1590}, ["power"]),
        ({"gpc_clock": 1500}, {"gpc_clock": 1500}, {"gpc_clock": 1500}, ["power"]),  # 1980 while idle
        ({}, {}, {"gpc_clock": 1900}, []),
        (
            {**MMA, "gpc_clock": 1560},
            SPIN,
            {"sm_active": 94, "tensor_active": 72, "dram_read": 60, "dram_write": 30, "gpc_clock": 1590},
            ["sms", "dram", "power"],
        ),
    ],
)
def test_every_rule(a: dict[str, int], b: dict[str, int], both: dict[str, int], expected: list[str]) -> None:
    result = made(a, b, both)
    assert named(result) == expected
    assert result.sentence.startswith("Likely contention: ")
    assert ("none to be seen" in result.sentence) == (not expected)


def test_numbers_and_sides_are_said() -> None:
    result = made(MMA, SPIN, {"sm_active": 94, "tensor_active": 72, "gpc_clock": 1590})
    sms, power = result.contended.likely
    assert (sms.taken_by, sms.beside, sms.alone) == ("b", 72, 93)
    assert "SMs taken by side_b: tensor pipes active 72 % of the time, 93 % in side_a alone (P90)" in sms.text
    assert (power.beside, power.alone) == (1590, 1980)
    assert "GPC clock 1.59 GHz while both run, 1.98 GHz at best" in power.text


def test_a_side_that_never_ran_alone_is_known_by_the_other() -> None:
    beside = {"sm_active": 94, "tensor_active": 72, "dram_read": 80, "nvlink_in": 67}
    assert named(made(MMA, None, beside)) == ["sms", "dram"]  # A's DRAM use is known; its NVLink use is none
    assert named(made(None, None, beside)) == ["dram", "nvlink"]


def test_too_few_samples_say_nothing() -> None:
    result = made(MMA, SPIN, {"sm_active": 94, "tensor_active": 72}, period=200)
    assert not result.contended.likely
    assert "can't tell apart" in result.sentence
    assert "higher rate" in result.sentence


def test_sides_that_never_met() -> None:
    run = Builder()
    rank = run.rank(0)
    rank.kernel("side_a", 1, 0, 100)
    rank.kernel("side_b", 2, 100, 200)
    run.add("counters", process=0, device=0, start_ns=0, end_ns=100, **FREE)
    assert "never ran at once" in counters(run.trace(), "kernel:side_a", "kernel:side_b").sentence


def test_a_gpu_at_work_where_the_capture_has_no_op_is_left_out_and_said() -> None:
    result = made(MMA, SPIN, {"sm_active": 94, "tensor_active": 72}, idle=90)
    assert "unrecorded-work" in {one.code for one in result.warnings}
    assert not result.contended.likely
    assert "not known" in result.sentence
    assert result.ranks[0].unrecorded_ns == 1000


def test_without_counters_the_way_to_get_them_is_said() -> None:
    run = Builder()
    run.rank(0).kernel("one", 1, 0, 10)
    with pytest.raises(TracevizError, match="no GPU counters") as error:
        counters(run.trace())
    assert "--gpu-metrics" in str(error.value.hint)


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        ("sms", ["sms", "power"]),
        ("dram", ["dram"]),
        ("nvlink", ["nvlink"]),
        ("pcie", ["pcie"]),
        ("power", ["power"]),
        ("none", []),
    ],
)
def test_programs_whose_contention_is_known_on_real_gpus(workload: str, expected: list[str]) -> None:
    result = counters(load([DATA / f"{workload}.sqlite.gz"]), "nvtx:A", "nvtx:B")
    assert not result.contended.unknown
    assert named(result) == expected
