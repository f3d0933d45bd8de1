from __future__ import annotations

import pytest

from analyzers.trace.kernels import function, is_communication, is_compute, operations
from tests.analyzers.trace.test_communication import NAMES, NO_PART
from tests.support.builder import Builder, one_rank


def test_kernels_that_move_data_between_gpus_are_communication_and_all_others_compute() -> None:
    run, rank = one_rank()
    for name in [*(name for name, *_ in NAMES), *NO_PART]:
        rank.kernel(name, 7, 0, 1)
    trace = run.trace()
    expected = [True] * len(NAMES) + [False] * len(NO_PART)
    assert is_communication(trace).tolist() == expected
    assert (~is_compute(trace)).tolist() == expected
    assert operations(trace) == [operation for *_, operation in NAMES] + [""] * len(NO_PART)


def test_copies_and_memsets_are_neither_but_for_copies_between_peers() -> None:
    run, rank = one_rank()
    for direction in ("HtoD", "DtoH", "DtoD", "PtoP"):
        rank.copy(direction, 7, 0, 1)
    rank.op("nccl memset", 7, 0, 1, kind="memset")
    rank.op("nccl graph", 7, 0, 1, kind="graph")
    trace = run.trace()
    assert is_communication(trace).tolist() == [False, False, False, True, False, False]
    assert not is_compute(trace).any()


def test_what_the_call_says_comes_before_the_kernels_name_in_its_process_only() -> None:
    run = Builder()
    for number in (0, 1):
        rank = run.rank(number)
        rank.kernel("ncclDevKernel_SendRecv", 7, 0, 1, correlation=5)
        rank.kernel("gemm", 7, 0, 1, correlation=6)
        rank.kernel("ncclDevKernel_SendRecv", 7, 0, 1)  # nobody knows its call
    run.add("comms", process=1, correlation=5, operation="all_to_allv")
    run.add("comms", process=1, correlation=5, operation="all_to_allv")
    run.add("comms", process=1, correlation=6, operation="all_reduce")
    run.add("comms", process=1, correlation=-1, operation="broadcast")
    assert operations(run.trace()) == ["send_recv", "", "send_recv", "all_to_all", "", "send_recv"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("", ""),
        ("void f(int)", "f"),
        ("a::b<c::d>::e(int)", "a::b"),
        ("Memcpy DtoH (Device -> Pinned)", "Memcpy DtoH"),
        ("void (anonymous namespace)::f<int>(x)", "f"),
        ("triton_red_fused_0", "triton_red_fused_0"),
    ],
)
def test_the_function_of_a_demangled_name(name: str, expected: str) -> None:
    assert function(name) == expected
