"""Settings of a run, wherever a capture or its manifest holds them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from analyzers.load import load
from analyzers.trace.settings import METADATA, SCHEDULER, SERIALIZING_SETTING, SETTINGS, kept, serializing
from collectors import manifest as manifests

TORCH = Path(__file__).parents[2] / "data" / "settings" / "blocking.json.gz"


def test_what_is_read_is_what_collectors_record() -> None:
    names = {one.name for one in SETTINGS if one.name != SCHEDULER}
    assert names == set(manifests.SETTINGS) - {"XLA_FLAGS"}


@pytest.mark.parametrize(
    ("name", "value", "orders"),
    [
        ("CUDA_DEVICE_MAX_CONNECTIONS", "1", True),
        ("CUDA_DEVICE_MAX_CONNECTIONS", "10", False),
        ("CUDA_LAUNCH_BLOCKING", "0", False),
        ("CUDA_LAUNCH_BLOCKING", "1", True),
        ("AMD_SERIALIZE_KERNEL", "3", True),
        ("GPU_MAX_HW_QUEUES", "4", False),
        ("UR_L0_USE_IMMEDIATE_COMMANDLISTS", "0", True),
        ("UR_L0_USE_IMMEDIATE_COMMANDLISTS", "1", False),
        ("TORCH_NCCL_BLOCKING_WAIT", "false", False),
    ],
)
def test_a_setting_counts_with_the_values_that_order_work(name: str, value: str, orders: bool) -> None:
    assert [one.name for one in serializing(kept({name: value}))] == ([name] if orders else [])


def test_of_xla_s_flags_switches_alone_are_recorded() -> None:
    flags = f"--xla_dump_to=/home/me/secret {SCHEDULER}=false --xla_gpu_autotune_level=0"
    recorded = manifests.safe_environment({"XLA_FLAGS": flags})
    assert recorded == {"XLA_FLAGS": f"{SCHEDULER}=false --xla_gpu_autotune_level=0"}
    assert kept(recorded) == {SCHEDULER: "false"}
    assert kept({"XLA_FLAGS": f"{SCHEDULER}=false {SCHEDULER}=true"}) == {SCHEDULER: "true"}


def test_a_trace_says_what_the_collector_added(tmp_path: Path) -> None:
    document = json.loads(gzip.decompress(TORCH.read_bytes()))
    document[METADATA] = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    (tmp_path / "rank0.json").write_text(json.dumps(document))
    trace = load([tmp_path / "rank0.json"])
    (caveat,) = [one.message for one in trace.warnings if one.code == SERIALIZING_SETTING]
    assert kept(trace.captures[0].metadata) == document[METADATA]
    assert caveat.startswith(
        "CUDA_DEVICE_MAX_CONNECTIONS=1 is on record on rank 0: all streams share one hardware queue"
    )
