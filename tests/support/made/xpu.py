"""torch.profiler on Intel GPUs, as Kineto's plugin for them writes it."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.support.made.kineto import HOST, THREAD, Capture

GEMM = "gemm_kernel"
ADD = "typeinfo name for at::native::xpu::VectorizedElementwiseKernel<4, at::native::xpu::AddFunctor<float> >"
REDUCE = "oneccl_allreduce_large_bf16"
QUEUES = {1: "0x55d1c0a4e2f0", 2: "0x55d1c0b11c70"}  # number, and the address of the SYCL queue
MAX_1550 = {"id": 0, "name": "Intel(R) Data Center GPU Max 1550", "totalGlobalMem": 68719476736}


def capture(rank: int = 0, seed: int = 0, *, steps: int = 3) -> str:
    """A trace of one rank on one tile."""
    one = Capture(rank, 2, Random(f"xpu {seed} {rank}"))
    for step in range(steps):
        began = one.host_ns
        for _ in range(Random(f"{seed} {step}").randrange(2, 5)):
            layer = one.host_ns
            _op(one, "kernel", ADD, 1, 60_000)
            _op(one, "kernel", GEMM, 1, 300_000)
            one.add("user_annotation", "layer", HOST, THREAD, layer, one.host_ns)
            called = one.host_ns
            _op(one, "kernel", REDUCE, 2, 300_000)
            one.add("collective_comm", "xccl::allreduce", HOST, THREAD, called, one.host_ns)
        for name in ("Memcpy M2D (System -> Device)", "Memcpy D2H (Device -> Host)", "Memcpy D2D (Device -> Device)"):
            _op(one, "gpu_memcpy", name, 1, 90_000, bytes=one.random.randrange(1, 1 << 20))
        _op(one, "gpu_memset", "Memset (Device)", 1, 9_000, bytes=4096)
        waited = one.call("xpu_driver", "zeEventHostSynchronize")
        one.host_ns = max(one.host_ns, one.free_ns[1] + 2_000)
        one.events[-1]["dur"] = (one.host_ns - waited) / 1000
        said = {"correlation": one.correlation, "Type": "HOST_EVENT", "sycl queue": QUEUES[1]}
        one.add("xpu_sync", "Sync", 0, 1, waited, one.host_ns, **said)
        one.add("xpu_sync", "Sync", 0, 2, waited, waited + 100, correlation=0, Type="GPU_BARRIER_EXECUTION")
        one.add("user_annotation", f"ProfilerStep#{step}", HOST, THREAD, began, one.host_ns)
    return one.text(deviceProperties=[MAX_1550])


def _op(one: Capture, category: str, name: str, queue: int, longest: int, **args: Any) -> None:
    launched = one.call("xpu_runtime", "urEnqueueKernelLaunch" if category == "kernel" else "urEnqueueUSMMemcpy")
    submitted = launched + one.random.randrange(100, 900)
    one.add("xpu_driver", "zeCommandListAppendLaunchKernel", HOST, THREAD, launched + 50, launched + 700)
    one.events[-1]["args"]["correlation"] = one.correlation
    start, end = one.span(queue, launched, longest)
    told = {"sycl queue": QUEUES[queue], "l0 queue": "0x7f0001", "appended": one.base_ns + submitted - 40}
    told |= {"submitted": one.base_ns + submitted, "correlation": one.correlation}
    one.add(category, name, 0, queue, start, end, **told, **args)
