"""The contracts in docs/contracts on captures of the workloads: good variants hold, bad ones break for their reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from analyzers.contracts.checks import check_contract
from analyzers.contracts.rules import read_contract
from analyzers.load import load
from tests.support.captures import A_WORKLOAD_OF_EACH, WORKLOADS
from tests.support.nightly import mostly_nightly

ROOT = Path(__file__).parents[3]
CAPTURES = ROOT / "tests" / "data" / "workloads"
PAIRS = ROOT / "tests" / "data" / "pairs"
# What each bad variant breaks: the rule, and words of its reason.
BAD = {
    "dpmp.serial": {"DP's lookups may run beside MP's all-to-all": "waits for ncclDevKernel_SendRecv"},
    "dpmp.hidden-sync": {
        "DP's lookups may run beside MP's all-to-all": "only after the host has waited for ncclDevKernel_SendRecv",
        "nothing blocks the host in MP's forward": "cudaStreamSynchronize",
    },
    "dpmp.race": {"DP's lookups wait for their inputs": "waits for 'nvtx:inputs'"},
    "pipelines.serial": {"the next batch's lookups may run beside the optimizer": "on one stream"},
    "a2a.sync": {
        "the compute that needs no result may run beside the all-to-all": "only after the host has waited for ncclDev",
        "only the check's event is waited for on the host": "cudaStreamSynchronize",
    },
    "a2a.garbage": {"the flag is there before the host reads it": "nobody waits for Memcpy DtoH"},
    "delta.sync": {
        "the copy to the host may run beside the training": "is queued behind Memcpy DtoH (stream 7) on one stream",
        "tracking does not block the host": "cudaMemcpyAsync",
    },
    "rowpar.s1": {"a chunk's all-reduce may run beside another chunk's product": "every pair of ops is ordered"},
}
# Programs before and after one fix (tests/data/pairs): what the fix makes true of the order.
FIXED = {
    "buckets": {"may_run_beside": ["nvtx:reduce", "nvtx:backward"], "pairs": "some", "within": "step"},
    "opt_lookup": {"may_run_beside": ["nvtx:lookup", "nvtx:optimizer"]},
    "dpmp_move": {"may_run_beside": ["nvtx:DP tower", "nvtx:MP embedding"], "pairs": "some"},
    "dpmp_item": {"no_host_sync_in": "MP embedding"},
    "delta_sync": {"no_host_sync_in": "stream out"},
    "towers": {"may_run_beside": ["nvtx:tower A", "nvtx:tower B"]},
    "rowpar_split": {"may_run_beside": ["comm", "compute"], "pairs": "some"},
    "moe_split": {"may_run_beside": ["comm", "compute"], "pairs": "some"},
}
QUICK = ("buckets", "dpmp_move")
NAMES = ("dpmp", "pipelines", "a2a", "delta", "rowpar")
RUNS = [name for name in WORKLOADS if name.split(".")[0] in NAMES]


@pytest.mark.parametrize("run", mostly_nightly(RUNS, A_WORKLOAD_OF_EACH.__contains__))
def test_good_variants_hold_and_bad_ones_break_for_their_reason(run: str) -> None:
    name, variant, *_ = run.split(".")
    result = check_contract(load([CAPTURES / run]), read_contract(ROOT / "docs" / "contracts" / f"{name}.toml"))
    broken = {one.name: one.sentence for one in result.rules if one.outcome != "held"}
    expected = BAD.get(f"{name}.{variant}", {})
    assert broken.keys() == expected.keys()
    assert all(words in broken[rule] for rule, words in expected.items())
    assert all(one.outcome == "broken" for one in result.rules if one.name in broken)


@pytest.mark.parametrize("run", [run for run in RUNS if run.endswith("2gpu.torch")])
def test_without_synchronization_records_an_answer_may_be_open_but_never_flips(run: str) -> None:
    """As torch.profiler captures by default: which stream waits is not recorded."""
    rules = read_contract(ROOT / "docs" / "contracts" / f"{run.split('.')[0]}.toml")
    trace = load([CAPTURES / run])
    full = check_contract(trace, rules)
    less = check_contract(replace(trace, syncs=trace.syncs.take(slice(0, 0))), rules)
    for before, after in zip(full.rules, less.rules, strict=True):
        assert after.outcome in (before.outcome, "inconclusive"), before.name
    if run == "dpmp.overlapped.2gpu.torch":
        beside = less.rules[0]
        assert beside.outcome == "inconclusive"
        assert "enable_cuda_sync_events" in beside.remedy


@pytest.mark.parametrize(
    "pair", [pytest.param(one, marks=[] if one in QUICK else pytest.mark.nightly) for one in FIXED]
)
def test_a_fix_turns_broken_into_held_under_either_profiler(pair: str) -> None:
    rules = read_contract({"fixed": FIXED[pair]})
    for when, outcome in (("before", "broken"), ("after", "held")):
        of_ranks = sorted(str(path) for path in PAIRS.glob(f"{pair}_{when}.rank*.json.gz"))
        for files in (of_ranks, [str(path) for path in PAIRS.glob(f"{pair}_{when}.sqlite.gz")]):
            if files:
                assert check_contract(load(files), rules).outcome == outcome, files[0]
