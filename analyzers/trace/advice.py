"""What to advise where a capture lacks something: another vendor's profiler may have no setting for it."""

from __future__ import annotations

from analyzers.trace.tables import WSL, Trace

NO_ROWS = "no-gpu-rows"  # a run of calls alone
_NSYS = "nsys records it (nsys profile -t cuda,nvtx)"
_CALLS = {"CUDA": "nsys profile -t cuda,nvtx, or ", "HIP": "rocprofv3 --hip-trace, or "}
_TRACERS = {"CUDA": "nsys -t cuda,nvtx; ", "HIP": "rocprofv3 --kernel-trace; "}
_SYNC_EVENTS = "torch.profiler records it with experimental_config=_ExperimentalConfig(enable_cuda_sync_events=True)"


def records_waits(trace: Trace) -> bool:
    """Whether a setting of the profiler has it recorded which stream waits for what."""
    return trace.runtime == "CUDA" and all(one.waits_logged for one in trace.captures)


def recording_waits(trace: Trace) -> str:
    """How to have it recorded which stream waits for what."""
    if records_waits(trace):
        return _SYNC_EVENTS
    return _NSYS if trace.runtime == "CUDA" else f"no profiler records that of {trace.runtime}"


def without_calls(trace: Trace) -> str:
    """What can't be told where host calls are missing, and how to have them recorded."""
    text = f"the capture holds no {trace.runtime} calls, so nothing tells what each op waited for"
    if trace.runtime == "CANN":  # torch_npu's say by arrows alone what launched a task, and these are not read
        return text
    return f"{text}; capture them as well: {_CALLS.get(trace.runtime, '')}torch.profiler with CPU activities"


def about_launches_alone(trace: Trace) -> str:
    """What a capture holds where calls launched work and nothing of that work is there; "" where none did."""
    launches = sum(one.launches for one in trace.processes)
    if not launches or len(trace.ops):
        return ""
    wsl = next((one.metadata[WSL] for one in trace.captures if WSL in one.metadata), "")
    why = f" On WSL2 ({wsl}) this nsys and this driver record none." if wsl else ""
    holds = f"{launches:,} launch{'es' * (launches != 1)} of kernels and copies, and no row of what they launched"
    return f"There is no GPU work in this capture: it holds {holds}.{why}"


def recording_work(trace: Trace) -> str:
    """What to look into where a capture holds no work of a GPU."""
    tracers = _TRACERS.get(trace.runtime, "")
    if about_launches_alone(trace):
        return f"Was the GPU traced ({tracers}torch.profiler with its activity)? traceviz syncs answers from the calls."
    return f"Was the GPU traced ({tracers}torch.profiler with its activity), and did it work meanwhile?"
