from __future__ import annotations

import pytest

from analyzers.trace.kernels import function, is_communication, is_compute, operations
from tests.support.builder import Builder, one_rank

COMMUNICATION = [
    ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_reduce"),
    ("ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclWorkElem)", "all_gather"),
    ("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(x)", "reduce_scatter"),
    ("ncclSymkDevKernel_AllReduce_RSxLD_AGxST_sum_bf16(x)", "all_reduce"),
    ("ncclDevKernel_Broadcast_RING_LL(x)", "broadcast"),
    ("ncclDevKernel_SendRecv(x)", "send_recv"),
    ("ncclDevKernel_Generic_1(x)", ""),
    ("rcclGenericKernel<1, false>(x)", ""),
    ("mscclKernel_Sum_half_Simple(x)", ""),
    ("void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>(vllm::RankData*)", "all_reduce"),
    ("void deep_ep::internode::dispatch<true, 3>(int4*)", "dispatch"),
    ("void deep_ep::intranode::combine<__nv_bfloat16>(x)", "combine"),
    ("void c10d::symmetric_memory::multimem_all_reduce_kernel<c10::BFloat16, 16>(x)", "all_reduce"),
    ("void (anonymous namespace)::one_shot_all_reduce_kernel<float, 4>(x)", "all_reduce"),
    ("void two_shot_all_reduce_kernel_inplace<c10::BFloat16>(x)", "all_reduce"),
    ("void tensorrt_llm::kernels::oneShotAllReduceKernel<half>(x)", "all_reduce"),
]
COMPUTE = [
    "triton_poi_fused_addmatmul_dma_0",
    "fusedmatmul_kernel",
    "void at::native::reduce_kernel<512, 1>(at::native::ReduceOp<float>)",
    "void gemm<ncclFloat>(ncclWork*)",
    "void at::native::vectorized_gather_kernel<16, long>(char*)",
    "void cub::DeviceScanByKeyKernel<nvshmem_tag>(x)",
    "void Sync_free_softmax(float*)",
]


def test_kernels_that_move_data_between_gpus_are_communication_and_all_others_compute() -> None:
    run, rank = one_rank()
    for name in [*(name for name, _ in COMMUNICATION), *COMPUTE]:
        rank.kernel(name, 7, 0, 1)
    trace = run.trace()
    expected = [True] * len(COMMUNICATION) + [False] * len(COMPUTE)
    assert is_communication(trace).tolist() == expected
    assert (~is_compute(trace)).tolist() == expected
    assert operations(trace) == [operation for _, operation in COMMUNICATION] + [""] * len(COMPUTE)


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
