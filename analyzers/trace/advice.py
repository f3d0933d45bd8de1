"""What to advise where a capture lacks something: another vendor's profiler may have no setting for it."""

from __future__ import annotations

from analyzers.trace.tables import Trace

_NSYS = "nsys records it (nsys profile -t cuda,nvtx)"
_SYNC_EVENTS = "torch.profiler records it with experimental_config=_ExperimentalConfig(enable_cuda_sync_events=True)"


def records_waits(trace: Trace) -> bool:
    """Whether a setting of the profiler has it recorded which stream waits for what."""
    return trace.runtime == "CUDA" and all(one.waits_logged for one in trace.captures)


def recording_waits(trace: Trace) -> str:
    """How to have it recorded which stream waits for what."""
    if records_waits(trace):
        return _SYNC_EVENTS
    return _NSYS if trace.runtime == "CUDA" else f"no profiler records that of {trace.runtime}"
