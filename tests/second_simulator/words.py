"""What profilers call things, the same in both formats."""

from __future__ import annotations

from tests.second_simulator.program import Call, Op

ORIGIN = 5_000_000_000  # when the run begins, on all clocks
NCCL_KERNEL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
RUNTIME = {
    "record": "cudaEventRecord",
    "wait": "cudaStreamWaitEvent",
    "sync-event": "cudaEventSynchronize",
    "sync-stream": "cudaStreamSynchronize",
    "sync-device": "cudaDeviceSynchronize",
}
DEVICE = {"sms": 132, "threads": 2048, "registers": 65536, "shared": 233472}


def runtime_name(call: Call) -> str:
    """The CUDA call's name; "" for what is none."""
    if call.op:
        return "cudaMemcpyAsync" if call.op.kind == "copy" else "cudaLaunchKernel"
    return RUNTIME.get(call.does, "")


def grid_and_block(op: Op) -> tuple[int, int]:
    """Blocks and threads a block that take as much room as the machine says."""
    return (op.grid // 2, 512) if op.kind == "collective" else (op.grid, 256)
