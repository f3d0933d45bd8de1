"""What to advise where a capture lacks something: another vendor's profiler may have no setting for it."""

from __future__ import annotations

from analyzers.trace.tables import Trace

_SYNC_EVENTS = "torch.profiler records it with experimental_config=_ExperimentalConfig(enable_cuda_sync_events=True)"


def recording_waits(trace: Trace) -> str:
    """How to have it recorded which stream waits for what."""
    return _SYNC_EVENTS if trace.runtime == "CUDA" else f"no profiler records that of {trace.runtime}"
