"""What allocators ask of events is no wait, and nobody is told of torch who does not use it."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.load import load
from analyzers.syncs.calls import SPIN_QUERIES
from analyzers.syncs.order_report import order_report
from analyzers.syncs.points import host_syncs
from tests.support.builder import Builder, Rank, one_rank
from tests.support.command_lines import invoked

PUBLIC = Path(__file__).parents[2] / "data" / "public"


def queries(rank: Rank, at: int, count: int = 2 * SPIN_QUERIES) -> None:
    for turn in range(count):
        rank.call("cudaEventQuery", at + 10 * turn, at + 10 * turn + 5)


@pytest.mark.parametrize("operator", ["aten::pin_memory", "aten::_pin_memory", "aten::empty"])
@pytest.mark.parametrize("kind", ["op", "nvtx"])
def test_queries_of_torchs_allocators_are_no_wait_while_the_gpu_works(operator: str, kind: str) -> None:
    run, rank = one_rank()
    rank.kernel("work", 7, 10, 5000, launch=(0, 5))
    rank.range(operator, 90, 900, kind=kind)
    queries(rank, 100)
    assert len(host_syncs(run.trace())) == 0


def test_queries_with_nothing_to_wait_for_are_no_wait() -> None:
    """Twenty blocks of pinned memory that were freed while the GPU still worked: one query each, and it is idle now."""
    run, rank = one_rank()
    rank.kernel("work", 7, 10, 50, launch=(0, 5))
    queries(rank, 100)
    assert len(host_syncs(run.trace())) == 0


def test_queries_before_and_behind_the_allocators_do_not_join_over_it() -> None:
    run, rank = one_rank()
    rank.kernel("work", 7, 10, 5000, launch=(0, 5))
    rank.range("aten::pin_memory", 150, 250, kind="op")
    queries(rank, 100, SPIN_QUERIES // 2)  # to 145
    queries(rank, 160, 5)
    queries(rank, 300, SPIN_QUERIES // 2)
    assert len(host_syncs(run.trace())) == 0


def copies_back(rank: Rank, name: str) -> None:
    rank.kernel(name, 7, 10, 170, launch=(0, 5))
    rank.copy("DtoH", 7, 180, 190, launch=(105, 200), call="cudaMemcpy", bytes=4, target_memory="pageable")


def test_a_program_without_torch_is_not_told_of_torch() -> None:
    path = PUBLIC / "origin-of-syncs-cpp" / "report.sqlite.gz"
    patterns = {one.pattern for one in host_syncs(load([path]))}
    assert patterns == {"a copy to the host that blocks: a DtoH copy of 4 B and cudaMemcpy"}
    for command in (
        ["syncs", "--verbose"],
        ["check-overlap", "-a", "memcpy:DtoH", "-b", "compute"],
        ["syncs", "--brief"],
    ):
        said = invoked(command[0], str(path), *command[1:]).output
        assert ".item()" not in said and ".cpu()" not in said and ".to()" not in said


@pytest.mark.parametrize(
    ("kernel", "idiom"),
    [
        ("void at::native::vectorized_elementwise_kernel<4>(int)", True),
        ("void at_cuda_detail::cub::DeviceReduceKernel()", False),
        ("c10d::checkForNan<float>", True),
        ("cupy_multiply__float64", False),
        ("divergence(int, double*)", False),
    ],
)
def test_torchs_words_need_torchs_names(kernel: str, idiom: bool) -> None:
    run, rank = one_rank()
    copies_back(rank, kernel)
    (point,) = host_syncs(run.trace())
    assert point.pattern.startswith(".item() or nonzero()") is idiom
    assert order_report(run.trace()).syncs.hidden.all()


def test_torch_in_one_process_says_nothing_of_another() -> None:
    run = Builder()
    for number, kernel in enumerate(["void at::native::copy_kernel()", "force_kernel(float*)"]):
        copies_back(run.rank(number), kernel)
    patterns = {one.rank: one.pattern.partition(":")[0] for one in host_syncs(run.trace())}
    assert patterns == {0: ".item() or nonzero()", 1: "a copy to the host that blocks"}
