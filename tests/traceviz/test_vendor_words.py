"""No answer on another vendor's capture speaks of CUDA or NVIDIA's tools, and queues are called so where they are.

The names of causes and selectors are the contract's, and those of kernels the capture's own.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from analyzers.common.errors import TracevizError
from tests.support.command_lines import invoked
from tests.support.nightly import mostly_nightly

DATA = Path(__file__).parents[1] / "data"
NVIDIAS = r"(?i)\bcuda|nvidia|nsys|nsight|(?<![a-z])nccl(?!Dev)"
OWN = r"stream-busy|same-stream"
CAPTURES = {
    "rocm/sdk.rank0.json.gz": NVIDIAS,
    "rocm/roctracer.rank0.json.gz": NVIDIAS,
    "rocm/rocprofv3_results.json.gz": NVIDIAS,
    "xpu/rank0.json.gz": rf"{NVIDIAS}|\bstreams?\b",
}
COMMANDS = (
    ("info",),
    ("check-overlap", "--verbose"),
    ("syncs", "--verbose"),
    ("streams",),
    ("collectives",),
    ("counters",),
    ("check-overlap", "-a", "queue:99"),
)


@pytest.mark.parametrize(
    "name",
    mostly_nightly(CAPTURES, lambda name: "sdk" in name),
)
def test_every_command_speaks_the_capture_s_language(name: str) -> None:
    said = []
    for command, *options in COMMANDS:
        try:
            said += invoked(command, str(DATA / name), *options).output.splitlines()
        except TracevizError as refusal:
            assert command == "counters", refusal
            said += [refusal.message, *(refusal.hint or "").splitlines()]
    of_capture = re.compile(f"{OWN}|ncclDevKernel\\w*")
    wrong = [line for line in said if re.search(CAPTURES[name], of_capture.sub("", line))]
    assert not wrong
