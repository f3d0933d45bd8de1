"""Settings of a run that order its work more strictly than its streams do, by name and value.

Captures keep them in `Capture.metadata`, as readers find them: nsys in the environment that it records, torch.profiler
in metadata that `traceviz collect` adds, others in the manifest beside them. What a setting did to an op is told by
times alone (`analyzers.causes`); that it is on record is a caveat.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from analyzers.common.wording import ranks_in_words
from analyzers.trace.tables import Trace

SERIALIZING_SETTING = "serializing-setting"
METADATA = "traceviz_settings"  # the key under which `traceviz collect torch` adds them to a trace
SCHEDULER = "--xla_gpu_enable_latency_hiding_scheduler"
ONE_QUEUE = ("CUDA_DEVICE_MAX_CONNECTIONS", "GPU_MAX_HW_QUEUES")  # 1: all streams of a process share a hardware queue
# Each launch returns only once its kernel is done.
BLOCKING_LAUNCHES = ("CUDA_LAUNCH_BLOCKING", "HIP_LAUNCH_BLOCKING", "AMD_SERIALIZE_KERNEL")


class Setting(msgspec.Struct, frozen=True):
    """A variable or flag; `values` are those that order work, by a pattern; `means` is what they do."""

    name: str
    values: str
    means: str


_ON = r"(?i)(?!0+$|false$|off$|no$)\S+"
_OFF = r"(?i)0+|false|off|no"
_ONE_QUEUE = "all streams share one hardware queue, in which work starts in the order of its submission"
_BLOCKS = "each launch returns only once its kernel is done, so one thread's kernels never overlap"
_NO_SCHEDULER = "XLA starts no collective ahead of what needs it"
SETTINGS = (
    Setting("CUDA_DEVICE_MAX_CONNECTIONS", "1", _ONE_QUEUE),
    Setting("CUDA_LAUNCH_BLOCKING", _ON, _BLOCKS),
    Setting("GPU_MAX_HW_QUEUES", "1", _ONE_QUEUE),
    Setting("HIP_LAUNCH_BLOCKING", _ON, _BLOCKS),
    Setting("AMD_SERIALIZE_KERNEL", _ON, _BLOCKS),
    Setting("AMD_SERIALIZE_COPY", _ON, "each copy is waited for"),
    Setting("TORCH_NCCL_BLOCKING_WAIT", _ON, "waiting for a collective blocks the host until it is done"),
    Setting("NCCL_BLOCKING_WAIT", _ON, "waiting for a collective blocks the host until it is done"),
    Setting("NCCL_LAUNCH_ORDER_IMPLICIT", _ON, "NCCL orders its kernels of all communicators by their launches"),
    Setting("UR_L0_SERIALIZE", _ON, "calls of the driver wait for one another or for the device"),
    Setting("UR_L0_USE_IMMEDIATE_COMMANDLISTS", _OFF, "commands are batched before they are submitted"),
    Setting("SYCL_PI_LEVEL_ZERO_USE_IMMEDIATE_COMMANDLISTS", _OFF, "commands are batched before they are submitted"),
    Setting(SCHEDULER, _OFF, _NO_SCHEDULER),
)
_NAMES = frozenset(one.name for one in SETTINGS)


def kept(environment: Mapping[str, str]) -> dict[str, str]:
    """What of an environment, or of metadata, is such a setting, whatever its value; of XLA_FLAGS the flag.

    >>> kept({"CUDA_LAUNCH_BLOCKING": "0", "HOME": "/", "XLA_FLAGS": f"--xla_dump_to=/x {SCHEDULER}=false"})
    {'CUDA_LAUNCH_BLOCKING': '0', '--xla_gpu_enable_latency_hiding_scheduler': 'false'}
    """
    found = {name: str(value) for name, value in environment.items() if name in _NAMES}
    flags = re.findall(rf"{SCHEDULER}=(\w+)", str(environment.get("XLA_FLAGS", "")))
    return {**found, SCHEDULER: flags[-1]} if flags else found  # of a flag that is given again, XLA takes the last


def serializing(metadata: Mapping[str, str]) -> list[Setting]:
    """The settings of a capture whose values order its work.

    >>> [one.name for one in serializing({"CUDA_LAUNCH_BLOCKING": "1", "CUDA_DEVICE_MAX_CONNECTIONS": "8"})]
    ['CUDA_LAUNCH_BLOCKING']
    """
    return [one for one in SETTINGS if one.name in metadata and re.fullmatch(one.values, metadata[one.name].strip())]


def setting_of(trace: Trace, process: int, names: tuple[str, ...]) -> str:
    """The first of some settings that orders a process's work, as "NAME=value"; "" where none is on record."""
    metadata = trace.captures[trace.processes[process].capture].metadata
    found = [one.name for one in serializing(metadata) if one.name in names]
    return f"{found[0]}={metadata[found[0]]}" if found else ""


def about_settings(trace: Trace) -> Trace:
    """Add a caveat for each setting that is on record, with its ranks; whether it held anything, times tell."""
    ranks: dict[tuple[str, str], list[int]] = {}
    means = {}
    for process in trace.processes:
        metadata = trace.captures[process.capture].metadata
        for one in serializing(metadata):
            ranks.setdefault((one.name, metadata[one.name]), []).append(process.rank)
            means[one.name] = one.means
    for (name, value), on in ranks.items():
        known = sorted({rank for rank in on if rank >= 0})
        where = f" on {ranks_in_words(known)}" if known else ""
        text = f"{name}={value} is on record{where}: {means[name]}. What that held up, causes say where times show it."
        trace = trace.warn(SERIALIZING_SETTING, text)
    return trace
