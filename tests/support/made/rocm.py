"""torch.profiler on AMD GPUs, as Kineto writes it by roctracer or rocprofiler-sdk."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.support.made.kineto import HOST, THREAD, Capture

MI300X = {
    "name": "AMD Instinct MI300X",
    "totalGlobalMem": 206141652992,
    "computeMajor": 9,
    "computeMinor": 4,
    "maxThreadsPerBlock": 1024,
    "maxThreadsPerMultiprocessor": 2048,
    "regsPerBlock": 65536,
    "warpSize": 64,
    "sharedMemPerBlock": 65536,
    "numSms": 304,
    "maxSharedMemoryPerMultiProcessor": 65536,
}
GEMM = "Cijk_Ailk_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT256x256x64_MI16x16x1_SN"
RCCL = "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)"
ELEMENTWISE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >"
)
COPY, FILL = "__amd_rocclr_copyBufferAligned", "__amd_rocclr_fillBufferAligned"
MAIN, SIDE = 0, 3
AGENT = 2  # of rank 0: the driver counts two CPUs first


def capture(rank: int = 0, seed: int = 0, *, world_size: int = 2, steps: int = 3, sdk: bool = False) -> str:
    """A trace; `sdk` of rocprofiler-sdk, which states grids of launches on kernels, else of roctracer."""
    one = Capture(rank, world_size, Random(1000 * seed + rank))
    for step in range(steps):
        began = one.host_ns
        for _ in range(Random(f"{seed} {step}").randrange(2, 5)):
            _layer(one, sdk)
        _copies(one, sdk)
        _synchronize(one)
        one.add("user_annotation", f"ProfilerStep#{step}", HOST, THREAD, began, one.host_ns)
    tracer = {"rocprofiler-sdk_version": "1.0"} if sdk else {"roctracer_version": "4.1"}
    properties = [{"id": number, **MI300X} for number in range(8)]
    return one.text(deviceProperties=properties, hip_driver_version=60342134, hip_runtime_version=60342134, **tracer)


def _layer(one: Capture, sdk: bool) -> None:
    began = one.host_ns
    blocks, items = one.random.randrange(1, 700), one.random.choice([64, 256, 1024])
    _kernel(one, "hipLaunchKernel", ELEMENTWISE, MAIN, [blocks, 1, 1], [items, 1, 1], sdk)
    wide = one.random.randrange(1, 700)
    _kernel(one, "hipExtModuleLaunchKernel", GEMM, MAIN, [wide * 256, 1, 1], [256, 1, 1], sdk, 300_000)
    one.add("user_annotation", "layer", HOST, THREAD, began, one.host_ns)
    one.call("cuda_runtime", "hipStreamWaitEvent", cid=115)
    began = one.host_ns
    told = {"Collective name": "allreduce", "In msg nelems": 1 << 20, "Out msg nelems": 1 << 20, "Group size": 2}
    told |= {"dtype": "BFloat16", "Process Group Name": "0", "Process Group Description": "default_pg"}
    told |= {"Process Group Ranks": "[0, 1]"}
    _kernel(one, "hipExtLaunchKernel", RCCL, SIDE, [28, 1, 1], [256, 1, 1], sdk, 400_000, **told)
    one.add("cpu_op", "record_param_comms", HOST, THREAD, began, one.host_ns, **told)


def _kernel(
    one: Capture,
    call: str,
    name: str,
    stream: int,
    grid: list[int],
    block: list[int],
    sdk: bool,
    longest: int = 60_000,
    **told: Any,
) -> None:
    size = {"grid": grid, "block": block}
    on_call = {"kernel": name, "cid": 211, **size, "shared memory": 0}
    launched = one.call("cuda_runtime", call, **on_call)
    _op(one, "kernel", name, stream, launched, longest, kind="Dispatch Kernel", **(size if sdk else {}), **told)


def _op(one: Capture, category: str, name: str, stream: int, launched: int, longest: int, **args: Any) -> None:
    start, end = one.span(stream, launched, longest)
    device = AGENT + one.rank
    where = {"device": device, "stream": stream, "correlation": one.correlation}
    one.add(category, name, device, stream, start, end, **{"External id": one.correlation}, **where, **args)


def _copies(one: Capture, sdk: bool) -> None:
    size = one.random.randrange(1, 1 << 24)
    pointers = {"src": "0x7f2a40000000", "dst": "0x7f2b80000000"}

    def asked(kind: int) -> dict[str, str]:
        return {"cid": "82", **pointers, "bytes": str(size), "kind": str(kind)}

    launched = one.call("cuda_runtime", "hipMemcpyAsync", **asked(1))
    _op(one, "gpu_memcpy", "CopyHostToDevice", MAIN, launched, 90_000, kind="CopyHostToDevice")
    launched = one.call("cuda_runtime", "hipMemcpyAsync", **asked(3))
    _op(one, "kernel", COPY, MAIN, launched, 40_000, kind="Dispatch Kernel")
    launched = one.call("cuda_runtime", "hipMemcpyPeerAsync", **asked(4))
    _op(one, "gpu_memcpy", "CopyDeviceToDevice", SIDE, launched, 70_000, kind="CopyDeviceToDevice")
    launched = one.call("cuda_runtime", "hipMemcpyAsync", **asked(4))
    _op(one, "kernel", COPY, SIDE, launched, 30_000, kind="Dispatch Kernel")
    launched = one.call("cuda_runtime", "hipMemsetAsync", cid=98, ptr=pointers["dst"], size=str(size))
    _op(one, "kernel" if sdk else "gpu_memset", FILL if sdk else "FillBuffer", MAIN, launched, 9_000, kind="FillBuffer")


def _synchronize(one: Capture) -> None:
    began = one.call("cuda_runtime", "hipStreamSynchronize", cid=109)
    one.host_ns = max(one.host_ns, one.free_ns[MAIN] + 2_000)
    one.events[-1]["dur"] = (one.host_ns - began) / 1000
