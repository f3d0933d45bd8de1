"""`traceviz.testing` on recorded captures; the plugin around it in tests/traceviz_pytest."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import pytest

import traceviz as tv
from collectors import steps
from traceviz import testing

ROOT = Path(__file__).parents[2]
WORKLOADS = ROOT / "tests" / "data" / "workloads"
DPMP = ROOT / "docs" / "contracts" / "dpmp.toml"
OPEN = {"none": {"own_stream": "nvtx:none"}}


def test_a_contract_that_holds_gives_its_result() -> None:
    assert testing.check(WORKLOADS / "dpmp.overlapped.2gpu.torch", DPMP).outcome == "held"


def test_a_broken_one_fails_with_path_remedy_and_report(tmp_path: Path) -> None:
    with pytest.raises(testing.ContractError) as raised:
        testing.check(WORKLOADS / "dpmp.serial.2gpu.torch", DPMP, report=tmp_path / "report")
    head, path, remedy, report = str(raised.value).splitlines()
    assert head.startswith("contract BROKEN: \"DP's lookups may run beside MP's all-to-all\": EmbeddingBag_")
    assert path.startswith("Path: ncclDevKernel_SendRecv (stream 17) → ")
    assert remedy.startswith("Remedy: Issue this wait before the work that it need not wait for")
    assert report.startswith(f"Report in {tmp_path / 'report'}: contract.md, contract.json, summary.md, report.html")
    assert raised.value.folder == tmp_path / "report"
    assert (tmp_path / "report" / "report.html").exists()


def test_what_cant_be_told_fails_too() -> None:
    with pytest.raises(AssertionError, match="contract INCONCLUSIVE: 'none': 'nvtx:none'"):
        testing.check(WORKLOADS / "dpmp.overlapped.2gpu.torch", OPEN)


def test_an_error_goes_from_rank_to_rank() -> None:
    with pytest.raises(testing.ContractError) as raised:
        testing.check(WORKLOADS / "dpmp.overlapped.2gpu.torch", OPEN)
    error = pickle.loads(pickle.dumps(raised.value))
    assert (str(error), error.result.outcome) == (str(raised.value), "inconclusive")


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    def profile(step: object, folder: Path, **_: int) -> steps.Ranks:
        for path in Path(step()).iterdir():  # type: ignore[operator]
            shutil.copy(path, folder)
        return steps.Ranks()

    monkeypatch.setattr(steps, "unavailable", lambda: "")
    monkeypatch.setattr(steps, "profile_steps", profile)


@pytest.mark.nightly
@pytest.mark.usefixtures("recorded")
def test_a_step_leaves_nothing_where_it_holds_and_its_captures_where_not(tmp_path: Path) -> None:
    report = tmp_path / "report"
    assert testing.check_step(lambda: WORKLOADS / "a2a.event.2gpu.torch", OWN, report=report).outcome == "held"
    assert not report.exists()
    for run in ("a2a.sync", "a2a.garbage"):  # the second in place of the first
        contract = ROOT / "docs" / "contracts" / "a2a.toml"
        with pytest.raises(testing.ContractError) as raised:
            testing.check_step(lambda run=run: WORKLOADS / f"{run}.2gpu.torch", contract, report=report)  # type: ignore[misc]
        assert str(raised.value).splitlines()[-1] == f"Again: traceviz contract {report} {contract}"
    assert tv.check_contract(report, contract).decisive.name == "the flag is there before the host reads it"


@pytest.mark.usefixtures("recorded")
def test_a_report_that_cant_be_written_hides_no_reason(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(testing.ContractError, match="contract BROKEN"):
        testing.check_step(lambda: WORKLOADS / "dpmp.serial.2gpu.torch", DPMP, report=tmp_path / "taken")


OWN = {"own": {"own_stream": "collective:all_to_all"}}


def test_without_a_gpu_a_step_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "unavailable", lambda: "no GPU is here")
    with pytest.raises(RuntimeError, match="a step can't be profiled: no GPU is here"):
        testing.check_step(lambda: None, OWN)
