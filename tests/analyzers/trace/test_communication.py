"""Names of communication kernels as their libraries spell them, and what each is: read in the libraries' sources."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import traceviz as tv
from analyzers.trace.communication import (
    _MAY_BE,
    BOOKKEEPING,
    COMMUNICATION,
    COMPUTE,
    FUSED,
    KERNEL_NAMES,
    KnownKernel,
    demangled,
    known,
    qualified,
)
from analyzers.trace.kernels import is_bookkeeping, is_communication, is_compute, is_fused, operations
from tests.support.builder import Builder, one_rank

NAMES = [
    # NCCL, RCCL, MSCCL, MSCCL++
    ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "NCCL", "all_reduce"),
    ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "NCCL", "all_gather"),
    ("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "NCCL", "reduce_scatter"),
    ("ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "NCCL", "broadcast"),
    ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "NCCL", "send_recv"),
    ("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", "NCCL", ""),
    ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "NCCL", "all_reduce"),
    ("ncclSymkDevKernel_AllGather_STMC(ncclSymkDevWorkArgs4K)", "NCCL", "all_gather"),
    ("void rcclGenericKernel<1, false>(ncclDevKernelArgsStorage<4096ul>)", "RCCL", ""),
    ("mscclKernel_Sum_half_Simple_false(ncclDevComm*)", "MSCCL", ""),
    ("void mscclpp::allgather::kernel<true>(void*)", "MSCCL++", "all_gather"),
    ("void allreduce7<__half>(__half*, __half*, __half*)", "MSCCL++", "all_reduce"),
    ("void allreduceAllPairs<(Op)0, float>(float*)", "MSCCL++", "all_reduce"),
    # DeepEP, its forks and copies, mangled ones too
    ("void deep_ep::internode::dispatch<true, 3>(int4*)", "DeepEP", "dispatch"),
    ("void deep_ep::intranode::combine<__nv_bfloat16, 8, 768>(__nv_bfloat16*)", "DeepEP", "combine"),
    ("void deep_ep::internode_ll::dispatch<true, false, 7168>(void*)", "DeepEP", "dispatch"),
    ("void deep_ep::internode_ll::combine<false, 7168, 9, 9>(void*)", "DeepEP", "combine"),
    ("void deep_ep::intranode::notify_dispatch<8>(int const*)", "DeepEP", "dispatch"),
    ("void dpsk::ep::internode::dispatch<false, 8, true, 8>(int4*, float*)", "DeepEP", "dispatch"),
    ("void dpsk::ep::internode::combine<false, 8, __nv_bfloat16, 8, 2, 16, 24>(int4*)", "DeepEP", "combine"),
    ("_ZN7deep_ep9intranode8dispatchILi8ELi768ELi8192EEEvP4int4Pf", "DeepEP", "dispatch"),
    ("_ZN12primus_turbo7deep_ep9internode7combineILb0EEEvP4int4", "DeepEP", "combine"),
    ("void primus_turbo::deep_ep::intranode::dispatch<8, 768>(int4*)", "DeepEP", "dispatch"),
    ("void uccl::internode::dispatch<true>(int4*)", "DeepEP", "dispatch"),
    # NIXL EP
    ("void nixl_ep::ep_kernels::dispatch<true, false, 7168>(void*, void*)", "NIXL EP", "dispatch"),
    ("void nixl_ep::ep_kernels::combine<false, 7168, 8>(void*, void*)", "NIXL EP", "combine"),
    ("void nixl_ep::ht::dispatch<true, 3, false, 12, 8>(int4*)", "NIXL EP", "dispatch"),
    ("_ZN7nixl_ep2ht7combineILb0EEEvP4int4", "NIXL EP", "combine"),
    ("void nixl_ep::ht::notify_dispatch<true, 3>(int const*)", "NIXL EP", "dispatch"),
    ("void hybrid_ep::dispatch_kernel<hybrid_ep::Config>(x)", "DeepEP hybrid", "dispatch"),
    ("void hybrid_ep::combine_kernel<hybrid_ep::Config>(x)", "DeepEP hybrid", "combine"),
    # NVSHMEM, rocSHMEM
    ("void nvshmemi_reduce_on_stream_kernel<float, (rdxn_ops)4>(int)", "NVSHMEM", "reduce"),
    ("alltoall_on_stream_kernel_threadgroup(int, void*)", "NVSHMEM", "all_to_all"),
    ("rocshmem_alltoallmem_kernel(void*)", "rocSHMEM", "all_to_all"),
    ("rocshmem::rocshmem_broadcastmem_kernel(void*)", "rocSHMEM", "broadcast"),
    # TransformerEngine
    ("kuserbuffers_pushsend(int*, int*, int4*, int4*, int)", "TransformerEngine userbuffers", "send"),
    ("kuserbuffers_pushrecv(int, int, int*, int*, int, unsigned long, unsigned long, int)",
     "TransformerEngine userbuffers", "recv"),
    ("kuserbuffers_pushsendrecv(int*, int*)", "TransformerEngine userbuffers", "send_recv"),
    ("_Z21kuserbuffers_pushrecviiPiS_im", "TransformerEngine userbuffers", "recv"),
    ("void transformer_engine::userbuffers_fp16_sum_inplace_gpu_rr_rs<8>(int)", "TransformerEngine userbuffers",
     "reduce_scatter"),
    ("void userbuffers_fp16_sum_inplace_gpu_rr_ag<4>(int, int)", "TransformerEngine userbuffers", "all_gather"),
    ("void userbuffers_fp16_sum_inplace_gpu_rw<8>(int, int)", "TransformerEngine userbuffers", "all_reduce"),
    # custom all-reduces of inference engines
    ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)", "custom all-reduce", "all_reduce"),
    ("void sglang::cross_device_reduce_2stage<half, 8>(sglang::RankData*)", "custom all-reduce", "all_reduce"),
    ("void aiter::cross_device_reduce_2stage<half, 8>(aiter::RankData*)", "custom all-reduce", "all_reduce"),
    ("void aiter::reduce_scatter_cross_device_store<half, 8>(aiter::RankData*)", "custom all-reduce",
     "reduce_scatter"),
    ("void quickreduce::allreduce_prototype_twoshot<quickreduce::AllReduceTwoshot>(x)", "quick-reduce", "all_reduce"),
    ("void all_reduce_one_shot_push_kernel<bf16_t, 8>(x)", "named after a collective", "all_reduce"),
    ("void all_reduce_two_shot_kernel<bf16_t, 8>(x)", "named after a collective", "all_reduce"),
    ("void tensorrt_llm::kernels::oneShotAllReduceKernel<half>(x)", "TensorRT-LLM", "all_reduce"),
    ("void tensorrt_llm::kernels::ar_fusion::allreduce_fusion_kernel_oneshot_lamport<half>(x)", "TensorRT-LLM",
     "all_reduce"),
    ("void tensorrt_llm::kernels::moe_comm::moeA2ADispatchKernel<Policy, 8>(x)", "TensorRT-LLM", "dispatch"),
    ("void tensorrt_llm::kernels::moe_comm::moeA2ACombineKernel<half, 8>(x)", "TensorRT-LLM", "combine"),
    ("void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<x>(y)", "FlashInfer",
     "all_reduce"),
    ("void flashinfer::trtllm_alltoall::moeAllToAllKernel(x)", "TensorRT-LLM", "all_to_all"),
    # other expert-parallel libraries
    ("void a2a_dispatch_send_kernel<4, 7168>(x)", "pplx", "dispatch"),
    ("void a2a_combine_recv_kernel<4, 7168>(x)", "pplx", "combine"),
    ("void mori::moe::EpDispatchIntraNodeKernel<__hip_bfloat16>(x)", "MoRI", "dispatch"),
    ("void mori::moe::EpCombineInterNodeKernel<__hip_bfloat16>(x)", "MoRI", "combine"),
    ("EpDispatchInterNodeV1Kernel", "MoRI", "dispatch"),
    # torch symmetric memory
    ("void c10d::symmetric_memory::multimem_all_reduce_kernel<c10::BFloat16, 16>(x)", "torch symmetric memory",
     "all_reduce"),
    ("void c10d::symmetric_memory::one_shot_all_reduce_kernel<float, 4, 8>(x)", "torch symmetric memory", "all_reduce"),
    ("void two_shot_all_reduce_kernel_inplace<c10::BFloat16>(x)", "named after a collective", "all_reduce"),
    ("void (anonymous namespace)::hybridCubeMeshAllReduceKernel<8>(x)", "torch symmetric memory", "all_reduce"),
    ("allToAllV(void*, void*, long*)", "torch symmetric memory", "all_to_all"),
    # Triton-distributed, XLA
    ("kernel_dispatch_token", "Triton-distributed", "dispatch"),
    ("kernel_ring_reduce_tma", "Triton-distributed", "reduce"),
    ("void stream_executor::gpu::AllReduceKernelImpl<float, 8>(x)", "XLA", "all_reduce"),
    ("void stream_executor::gpu::RaggedAllToAllKernelImpl<8>(x)", "XLA", "all_to_all"),
    # other vendors
    ("oneccl_allreduce_small<sycl::half>", "oneCCL", "all_reduce"),
    ("xccl::reduce_scatter", "oneCCL", "reduce_scatter"),
    ("hcom_allReduce__074_0_1", "HCCL", "all_reduce"),
    ("MoeDistributeDispatchV2", "HCCL", "dispatch"),
]  # fmt: skip
NEITHER = [
    ("void nixl_ep::layout::get_dispatch_layout<256, 32, 8>(long const*)", BOOKKEEPING, "NIXL EP"),
    ("void nixl_ep::ht::cached_notify<false, 32>(int)", BOOKKEEPING, "NIXL EP"),
    ("void nixl_ep::ep_kernels::query_mask_buffer<1024>(int const*, int, int*)", BOOKKEEPING, "NIXL EP"),
    ("nixl_ep::ep_kernels::update_mask_buffer(int*, int, bool)", BOOKKEEPING, "NIXL EP"),
    ("nixl_ep::ep_kernels::cache_p2p_ptr_kernel(nixl_ep::gpu_nixl_ctx*, int)", BOOKKEEPING, "NIXL EP"),
    ("void nixl_ep::ep_kernels::barrier_kernel<32>(nixl_ep::gpu_nixl_ctx*, int*)", BOOKKEEPING, "NIXL EP"),
    ("void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*)", BOOKKEEPING, "DeepEP"),
    ("void dpsk::ep::cuda::get_dispatch_layout<256, 32, 8>(long const*)", BOOKKEEPING, "DeepEP"),
    ("void dpsk::ep::internode::cached_notify<false>(int)", BOOKKEEPING, "DeepEP"),
    ("void deep_ep::intranode::barrier<8>(int**, int)", BOOKKEEPING, "DeepEP"),
    ("barrier_on_stream_kernel_threadgroup(int)", BOOKKEEPING, "NVSHMEM"),
    ("nvshmemi_barrier_all_kernel()", BOOKKEEPING, "NVSHMEM"),
    ("rocshmem_barrier_all_kernel()", BOOKKEEPING, "rocSHMEM"),
    ("c10d::symmetric_memory::barrier_kernel(unsigned int**, int, int, int, unsigned long)", BOOKKEEPING,
     "torch symmetric memory"),
    ("c10d::symmetric_memory::put_signal_kernel(unsigned int**, int)", BOOKKEEPING, "torch symmetric memory"),
    ("void tensorrt_llm::kernels::moe_comm::moeA2APrepareDispatchKernel(x)", BOOKKEEPING, "TensorRT-LLM"),
    ("void hybrid_ep::scan<4>(x)", BOOKKEEPING, "DeepEP hybrid"),
    ("kuserbuffers_inc(int*)", BOOKKEEPING, "TransformerEngine userbuffers"),
    ("gemm_bf16_all_reduce_kernel", FUSED, "fused"),
    ("all_gather_matmul_kernel", FUSED, "fused"),
    ("MatmulAllReduce", FUSED, "fused"),
    ("kernel_gemm_rs_producer_persistent", FUSED, "Triton-distributed"),
    ("kernel_consumer_gemm_persistent", FUSED, "Triton-distributed"),
    ("void deep_gemm::sm100_fp8_mega_moe_impl<8>(x)", FUSED, "fused"),
]  # fmt: skip
NO_PART = [
    "",
    "triton_poi_fused_add_all_gather_into_tensor_wait_tensor_0",
    "triton_red_fused__to_copy_all_reduce_native_layer_norm_3",
    "triton_poi_fused_addmatmul_dma_0",
    "fusedmatmul_kernel",
    "void gemm<ncclFloat>(ncclWork*)",
    "void at::native::reduce_kernel<512, 1>(at::native::ReduceOp<float>)",
    "void at::native::vectorized_gather_kernel<16, long>(char*)",
    "void at::native::_scatter_gather_elementwise_kernel<128, 4>(x)",
    "void cub::DeviceScanByKeyKernel<nvshmem_tag>(x)",
    "void cub::DeviceReduceKernel<x>(y)",
    "void Sync_free_softmax(float*)",
    "void flash::flash_fwd_splitkv_combine_kernel<x>(y)",
    "void vllm::moe::moe_align_block_size_kernel<int>(x)",
    "void aiter::local_device_load_rmsnorm<half>(x)",
    "void cutlass::device_kernel<dpsk::grouped_gemm::cuda::fp8_dptp128c_acc::GemmKernel>(x)",
    "void dpsk::grouped_gemm::cuda::utils::transpose<512, 128, 4, 4>(x)",
    "sm90_xmma_gemm_bf16f32_bf16f32_f32_nt_n_tilesize128x128x64_cublas",
    "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT",
    "Cijk_Ailk_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT256x224x64",
    "_ZN2at6native54_GLOBAL__N__d8ceb000_21_DistributionNormal_cu_17e44f7d43distribution_kernelIfLi4EEvv",
    "_copy_tensor_kernel",
    "_Z",
    "_ZN99999short",
    "moe_dispatch_tokens_permute",
    "Memcpy DtoD (Device -> Device)",
]


@pytest.mark.parametrize(("name", "library", "operation"), NAMES)
def test_public_names_of_communication_kernels_are_known(name: str, library: str, operation: str) -> None:
    assert known(name) == KnownKernel(library, operation, COMMUNICATION)


@pytest.mark.parametrize(("name", "kind", "library"), NEITHER)
def test_fused_kernels_and_bookkeeping_are_told_apart(name: str, kind: str, library: str) -> None:
    assert (known(name).kind, known(name).library) == (kind, library)


@pytest.mark.parametrize("name", NO_PART)
def test_names_that_only_sound_like_communication_are_compute(name: str) -> None:
    assert known(name) == KnownKernel()


@pytest.mark.parametrize("name", [*(name for name, *_ in NAMES), *(name for name, *_ in NEITHER)])
def test_prefix_case_and_outer_namespaces_do_not_count(name: str) -> None:
    plain = qualified(name)
    first = known(name)
    assert known(f"void {plain}<int>(int*)") == first
    assert known(plain.upper()).kind == first.kind
    assert known(f"void somebody::v2::{plain}<int>(x)").kind == first.kind
    mangled = "".join(f"{len(part)}{part}" for part in ["somebody", *plain.split("::")])
    assert known(f"_ZN{mangled}ILi8EEEvPi") == known(f"somebody::{plain}")


def test_the_quick_search_leaves_out_no_name_that_a_line_fits() -> None:
    for name, *_ in [*NAMES, *NEITHER]:
        assert _MAY_BE.search(qualified(name)), name


def test_each_line_of_the_table_says_where_its_names_were_read_and_compiles() -> None:
    for line in KERNEL_NAMES:
        assert line.source and line.library and re.compile(line.pattern)
        assert line.kind in (COMMUNICATION, FUSED, BOOKKEEPING, COMPUTE)


def test_a_name_that_is_cut_short_or_no_name_is_left_as_it_is() -> None:
    for name in ("_Z", "_ZN", "_ZN3ab", "_Z9x", "__Zed", "gemm"):
        assert demangled(name) in (name, "ab", "x")


def test_fused_and_bookkeeping_kernels_are_on_neither_side() -> None:
    run, rank = one_rank()
    names = ["gemm", "ncclDevKernel_SendRecv", "gemm_all_reduce_kernel", "deep_ep::layout::get_dispatch_layout"]
    for at, name in enumerate(names):
        rank.kernel(name, 7, 10 * at, 10 * at + 5)
    trace = run.trace()
    assert is_compute(trace).tolist() == [True, False, False, False]
    assert is_communication(trace).tolist() == [False, True, False, False]
    assert is_fused(trace).tolist() == [False, False, True, False]
    assert is_bookkeeping(trace).tolist() == [False, False, False, True]
    assert operations(trace) == ["", "send_recv", "", ""]


def test_nixl_ep_in_a_capture() -> None:
    """Four combines and four dispatches of 200 µs, each beside a matmul of 300 µs that began 40 µs before."""
    path = Path(__file__).parents[2] / "data" / "public" / "nixl-ep-names" / "trace.json"
    result = tv.check_overlap(path, everything=True)
    (rank,) = result.ranks
    assert (rank.a.busy_ns, rank.b.busy_ns, rank.overlap_ns) == (8 * 200_000, 8 * 300_000, 8 * 200_000)
    assert {(one.library, one.operation) for one in result.communication} == {
        ("NIXL EP", "dispatch"),
        ("NIXL EP", "combine"),
    }


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
