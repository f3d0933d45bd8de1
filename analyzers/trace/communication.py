"""What counts as communication: one table of kernel names, and the rules by which a name is read.

A name is read once, not once a row: mangled names are taken apart (`_ZN7deep_ep9intranode8dispatchE…`), return type,
template arguments, parameters and unnamed namespaces are left out, and case does not count. A pattern may begin at any
namespace, so that vendored copies (`primus_turbo::deep_ep::…`, `dpsk::ep::…`) are found by the line of the original.

The first line that fits decides. An all-reduce with an epilogue (a norm, a quantization) is communication: what it
computes rides on data that has to be moved. A matmul that sends or receives tiles is *fused*: on neither side, since
its overlap can't be measured. *Bookkeeping* (barriers, signals, layouts) moves no data of the program's, and is on
neither side, too.
"""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

COMMUNICATION, FUSED, BOOKKEEPING, COMPUTE = "communication", "fused", "bookkeeping", "compute"


class KnownKernel(msgspec.Struct, frozen=True):
    """What a kernel's name says: the library it is of, the collective operation where it can be told, and its kind."""

    library: str = ""
    operation: str = ""
    kind: str = COMPUTE


class Rule(msgspec.Struct, frozen=True):
    """A line of the table.

    pattern : searched in the qualified function, without case; `^` is the begin of the name or of any namespace in it.
    operation : None where the name itself tells, by `operation_of`.
    source : where the name was read.
    """

    pattern: str
    library: str
    kind: str
    source: str
    operation: str | None = None


class Declared(msgspec.Struct, frozen=True):
    """What a user adds to the table: ops that are communication, and where that was said ("--comm", "comm in …")."""

    selector: str
    source: str

    def __str__(self) -> str:
        return f"{self.selector} ({self.source})"


_GEMM = r"(gemm|matmul|(^|_)mm(_|$)|group_?gemm)"
_MOVES = r"(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|a2a)"
_SHORT = r"(^|_)(ag|rs|ar)(_|$)"

KERNEL_NAMES = (
    # What only sounds like it: Inductor names a kernel after all operators whose work is in it, collectives too.
    Rule(r"^triton_(poi|red|per|tem|unk|for|spl|mm|bmm|flex)\w*", "Inductor", COMPUTE, "torch/_inductor/codegen"),
    Rule(r"^(at::native|cub|thrust|hipcub|rocprim)::", "torch", COMPUTE, "aten/src/ATen/native", ""),
    # NCCL and what is made of it
    Rule(r"^rccl", "RCCL", COMMUNICATION, "rccl src/device"),
    Rule(r"^nccl", "NCCL", COMMUNICATION, "nccl src/device (ncclDevKernel_*, ncclKernel_*, ncclSymk*)"),
    Rule(r"^mscclpp|^(\w+::)*mscclpp::|^all_?reduce(\d+|packet|allpairs|nvls|rsag)\w*$", "MSCCL++", COMMUNICATION,
         "mscclpp apps/nccl/src/allreduce.hpp"),
    Rule(r"^msccl", "MSCCL", COMMUNICATION, "rccl src/device/msccl_kernel_impl.h"),
    # Expert parallelism
    Rule(r"^nixl_ep::(\w+::)*(get_dispatch_layout|cached_notify\w*|cache_p2p_ptr\w*|\w*mask_buffer|clean_\w*)$",
         "NIXL EP", BOOKKEEPING, "nixl examples/device/ep/csrc/kernels/{layout,nixl_ep_ht,nixl_ep_ll}.cu", ""),
    Rule(r"^nixl_ep::(\w+::)*barrier\w*$", "NIXL EP", BOOKKEEPING, "nixl examples/device/ep/csrc/kernels/nixl_ep_ll.cu",
         "barrier"),
    Rule(r"^nixl_ep::", "NIXL EP", COMMUNICATION, "nixl examples/device/ep/csrc/kernels/{nixl_ep_ht,nixl_ep_ll}.cu"),
    Rule(r"^(get_dispatch_layout|cached_notify\w*|clean_low_latency_buffer\w*|(mask|query|clean)_\w*mask_buffer)$",
         "DeepEP", BOOKKEEPING, "DeepEP csrc/kernels/{layout,intranode,internode,internode_ll}.cu", ""),
    Rule(r"^(deep_ep|deepep|dpsk::ep)::(\w+::)*barrier\w*$", "DeepEP", BOOKKEEPING, "DeepEP csrc/kernels/runtime.cu",
         "barrier"),
    Rule(r"^hybrid_ep::(\w+::)*(scan|device_sync|update_\w*|\w*permute\w*|\w*preprocess\w*)(_kernel)?$",
         "DeepEP hybrid", BOOKKEEPING, "DeepEP hybrid-ep csrc/hybrid_ep/backend", ""),
    Rule(r"^hybrid_ep::", "DeepEP hybrid", COMMUNICATION, "DeepEP hybrid-ep csrc/hybrid_ep/backend"),
    Rule(r"^(deep_ep|deepep|dpsk::ep)::|^(intranode|internode|internode_ll)::(\w*dispatch|\w*combine)\w*$", "DeepEP",
         COMMUNICATION, "DeepEP csrc/kernels/{intranode,internode,internode_ll}.cu"),
    Rule(r"^mori::(\w+::)*\w*(barrier|sync)\w*$|^Ep(Combine|Dispatch)(Sync|Barrier)\w*$|^ConvertDispatchOutput\w*$",
         "MoRI", BOOKKEEPING, "mori src/ops/dispatch_combine", ""),
    Rule(r"^Ep(Dispatch|Combine)\w*$", "MoRI", COMMUNICATION, "mori src/ops/dispatch_combine"),
    Rule(r"^a2a_(dispatch|combine)_(send|recv)\w*$|^pplx::(\w+::)*\w*(dispatch|combine)", "pplx", COMMUNICATION,
         "pplx-garden a2a-kernels, pplx-kernels"),
    Rule(r"^moeA2A(Prepare|Sanitize)\w*$", "TensorRT-LLM", BOOKKEEPING,
         "TensorRT-LLM kernels/communicationKernels/moeAlltoAllKernels.cu", ""),
    Rule(r"^moeA2A(Dispatch|Combine)\w*$|moe_?all_?to_?all", "TensorRT-LLM", COMMUNICATION,
         "TensorRT-LLM kernels/communicationKernels/moeAlltoAllKernels.cu"),
    Rule(r"^MoeDistribute(Dispatch|Combine)\w*$", "HCCL", COMMUNICATION, "Ascend CANN MC2 operators"),
    # Fused: a matmul that sends or receives
    Rule(rf"{_GEMM}\w*{_MOVES}|{_MOVES}\w*{_GEMM}", "fused", FUSED,
         "Triton-distributed kernels/nvidia, vLLM, TileLink, CANN MC2 (MatmulAllReduce, AllGatherMatmul)"),
    Rule(rf"^(kernel_)?\w*gemm\w*{_SHORT}|^(kernel_)?(ag|rs|ar)_\w*gemm|^kernel_consumer_\w*gemm|^kernel_gemm_(rs|ar)_",
         "Triton-distributed", FUSED, "Triton-distributed kernels/nvidia/{allgather_gemm,gemm_reduce_scatter}.py", ""),
    Rule(r"mega_?moe|flash_?moe|fused_?moe_?(comm|a2a|ep)(_|$)", "fused", FUSED, "DeepGEMM mega_moe, FlashMoE", ""),
    # Symmetric memory
    Rule(r"^(nvshmem\w*barrier\w*|nvshmem\w*sync\w*|(barrier|sync)(_all)?_on_stream_kernel\w*|nvshmemi_init\w*"
         r"|signal_wait_until_on_stream\w*|quiet_on_stream\w*)$", "NVSHMEM", BOOKKEEPING,
         "nvshmem src/device/launch, src/host/coll", "barrier"),
    Rule(r"nvshmem|^\w+_on_stream_kernel(_threadgroup|_warp|_block)?$", "NVSHMEM", COMMUNICATION,
         "nvshmem src/host/{coll,comm}"),
    Rule(r"^roc_?shmem\w*(::\w+)*(barrier|sync)\w*", "rocSHMEM", BOOKKEEPING, "rocSHMEM src", "barrier"),
    Rule(r"^roc_?shmem", "rocSHMEM", COMMUNICATION, "rocSHMEM src"),
    Rule(r"^barrier_kernel$|^(put|wait|get)_signal_kernel$|^exchangeSplitAndOffset\w*$", "torch symmetric memory",
         BOOKKEEPING, "torch/csrc/distributed/c10d/symm_mem/CUDASymmetricMemory.cu"),
    Rule(r"^c10d::(\w+::)*checkForNaN", "torch", BOOKKEEPING, "torch/csrc/distributed/c10d/NanCheck.cu", ""),
    Rule(r"multimem_(all|one_shot|reduce|broadcast|red|st)|hybridCubeMesh|^c10d::|^(all_?to_?all_?v\w*)$",
         "torch symmetric memory", COMMUNICATION, "torch/csrc/distributed/c10d/symm_mem/CUDASymmetricMemoryOps.cu"),
    Rule(r"^(barrier_all\w*|kernel_barrier\w*|(set|wait)_signal\w*|wait_eq\w*)$", "Triton-distributed", BOOKKEEPING,
         "Triton-distributed kernels/nvidia/common_ops.py"),
    Rule(r"^kernel_(dispatch_token|combine_token|ring_reduce|inter_node_p2p)\w*$", "Triton-distributed", COMMUNICATION,
         "Triton-distributed kernels/nvidia/{ep_a2a,reduce_scatter}.py"),
    # Custom all-reduces
    Rule(r"^k?userbuffers_(inc|dummy|set)\w*$", "TransformerEngine userbuffers", BOOKKEEPING,
         "TransformerEngine common/comm_gemm_overlap/userbuffers.cu", ""),
    Rule(r"^k?userbuffers_\w*(_rs|_rs_\w*)$|^k?userbuffers_\w*reduce_?scatter\w*", "TransformerEngine userbuffers",
         COMMUNICATION, "TransformerEngine common/comm_gemm_overlap/userbuffers.cu", "reduce_scatter"),
    Rule(r"^k?userbuffers_\w*(_ag|_ag_\w*)$|^k?userbuffers_\w*all_?gather\w*", "TransformerEngine userbuffers",
         COMMUNICATION, "TransformerEngine common/comm_gemm_overlap/userbuffers.cu", "all_gather"),
    Rule(r"^k?userbuffers_fp(16|8)_sum\w*", "TransformerEngine userbuffers", COMMUNICATION,
         "TransformerEngine common/comm_gemm_overlap/userbuffers.cu", "all_reduce"),
    Rule(r"^k?userbuffers_", "TransformerEngine userbuffers", COMMUNICATION,
         "TransformerEngine common/comm_gemm_overlap/userbuffers.cu"),
    Rule(r"^quick_?reduce::|^allreduce_prototype\w*$", "quick-reduce", COMMUNICATION,
         "vLLM csrc/quickreduce, SGLang, aiter"),
    Rule(r"cross_device_(reduce|store|load)", "custom all-reduce", COMMUNICATION,
         "vLLM csrc/custom_all_reduce.cuh, SGLang, aiter, FlashInfer"),
    Rule(r"^flashinfer::(\w+::)*\w*(all_?reduce|all_?to_?all|all_?gather|reduce_?scatter|lamport)", "FlashInfer",
         COMMUNICATION, "flashinfer include/flashinfer/comm"),
    Rule(r"^tensorrt_llm::(\w+::)*\w*(all_?reduce|all_?gather|reduce_?scatter|lamport)|allreduce_fusion|lamport",
         "TensorRT-LLM", COMMUNICATION, "TensorRT-LLM kernels/communicationKernels"),
    # Other vendors, XLA
    Rule(r"^(one_?ccl|xccl|ccl)(_|::)\w*barrier", "oneCCL", BOOKKEEPING, "oneCCL src/coll/algorithms"),
    Rule(r"^(one_?ccl|xccl|ccl)(_|::)", "oneCCL", COMMUNICATION, "oneCCL src/coll/algorithms, torch-xpu-ops xccl"),
    Rule(r"^(hcom_|hccl)\w*barrier", "HCCL", BOOKKEEPING, "Ascend HCCL"),
    Rule(r"^(hcom_|hccl)", "HCCL", COMMUNICATION, "Ascend HCCL"),
    Rule(r"^(AllReduce|RaggedAllToAll|CollectiveMemset|MultimemAllReduce)\w*Kernel\w*$", "XLA", COMMUNICATION,
         "xla stream_executor/{cuda,gpu} all_reduce_kernel, ragged_all_to_all_kernel"),
    # Named after a collective, by anybody
    Rule(r"^(\w+_)?(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all)_?(\w*)$|^(one|two)_?shot_?all_?reduce",
         "named after a collective", COMMUNICATION, "kernels that are called all_reduce, all_gather, …"),
)  # fmt: skip

_OPERATIONS = (  # the first that is found, in names with case and underscores taken out
    ("reduce_scatter", ("reducescatter",)),
    ("all_reduce", ("allreduce", "crossdevicereduce")),
    ("all_gather", ("allgather",)),
    ("all_to_all", ("alltoall",)),
    ("send_recv", ("sendrecv",)),
    ("broadcast", ("broadcast",)),
    ("gather", ("gather",)),
    ("scatter", ("scatter",)),
    ("reduce", ("reduce",)),
    ("dispatch", ("dispatch",)),
    ("combine", ("combine",)),
    ("barrier", ("barrier",)),
    ("send", ("send",)),
    ("recv", ("recv",)),
)
_LINES = tuple((one.pattern.replace("^", r"(?:^|(?<=::))"), one) for one in KERNEL_NAMES)  # most are never looked for
# A name that holds none of these fits no line: most kernels are told by this one search.
_MAY_BE = re.compile(
    r"ccl|hcom|shmem|_ep::|deepep|ep::|inode|ernode|dispatch|combine|a2a|reduce|gather|all_?to|on_stream|barrier|signal"
    r"|multimem|hybridcube|c10d::|userbuffers|cross_device|lamport|_(ag|rs|ar)(_|$)|(^|:)(ag|rs|ar)_|consumer|mega_?moe"
    r"|flash_?moe|moe_?(comm|ep|all)|layout|notify|mori|pplx|exchangesplit|low_latency|mask_buffer|inter_node|wait_eq"
    r"|collectivememset",
    re.IGNORECASE,
)
_UNNAMED = re.compile(r"\(anonymous namespace\)::|\{anonymous\}::|_GLOBAL__N_\w*::|<unnamed>::")


def function(name: str) -> str:
    """The qualified function in a demangled kernel name.

    >>> function("void at::native::(anonymous namespace)::copy<float, 4>(float*, int)")
    'at::native::copy'
    >>> function("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)")
    'ncclDevKernel_AllReduce_Sum_bf16_RING_LL'
    """
    plain = name.replace("(anonymous namespace)::", "").removeprefix("void ").lstrip()
    return plain[: min(plain.find(mark) if mark in plain else len(plain) for mark in "<(")].rstrip()


def demangled(name: str) -> str:
    """Namespaces and function of a mangled C++ name; other names as they are.

    >>> demangled("_ZN7deep_ep9intranode8dispatchILi8EEEvPi"), demangled("_Z21kuserbuffers_pushrecviiPi")
    ('deep_ep::intranode::dispatch', 'kuserbuffers_pushrecv')
    """
    if not name.startswith("_Z"):
        return name
    at, nested = (3, True) if name.startswith("_ZN") else (2, False)
    parts: list[str] = []
    while (length := re.compile(r"[KL]?(\d+)").match(name, at)) and (nested or not parts):
        at = length.end() + int(length[1])
        parts.append(name[length.end() : at])
    return "::".join(part for part in parts if not part.startswith("_GLOBAL__N")) or name


def qualified(name: str) -> str:
    """A kernel's namespaces and function, however its name was written.

    >>> qualified("void (anonymous namespace)::one_shot_all_reduce_kernel<float, 4>(float*)")
    'one_shot_all_reduce_kernel'
    >>> qualified("_ZN4dpsk2ep9internode7combineILb0EEEvP4int4")
    'dpsk::ep::internode::combine'
    """
    return function(_UNNAMED.sub("", demangled(name.strip()))).rpartition(" ")[2]


@lru_cache(maxsize=1 << 16)
def operation_of(name: str) -> str:
    """The collective operation a kernel's or call's name stands for, as torch spells it; "" if it stands for none.

    >>> operation_of("ncclDevKernel_AllReduce_Sum_f32_RING_LL"), operation_of("ncclReduceScatter")
    ('all_reduce', 'reduce_scatter')
    >>> operation_of("all_to_allv"), operation_of("_allgather_base")
    ('all_to_all', 'all_gather')
    """
    plain = qualified(name).replace("_", "").lower()
    return next((operation for operation, signs in _OPERATIONS if any(sign in plain for sign in signs)), "")


@lru_cache(maxsize=1 << 16)
def known(name: str) -> KnownKernel:
    """What the table says of a kernel's name; `Known()`, which is compute, of one that it does not know.

    >>> known("void dpsk::ep::internode::combine<false, 8>(int4*)")
    KnownKernel(library='DeepEP', operation='combine', kind='communication')
    >>> known("void deep_ep::layout::get_dispatch_layout<256>(long const*)").kind, known("void gemm<ncclFloat>(").kind
    ('bookkeeping', 'compute')
    """
    plain = qualified(name)
    if _MAY_BE.search(plain) is None:
        return KnownKernel()
    for pattern, line in _LINES:
        if re.search(pattern, plain, re.IGNORECASE) is not None:
            if line.kind == COMPUTE:
                return KnownKernel()
            operation = line.operation
            if operation is None:
                operation = operation_of(plain.rpartition("::")[2]) or operation_of(plain)
            return KnownKernel(line.library, operation, line.kind)
    return KnownKernel()
