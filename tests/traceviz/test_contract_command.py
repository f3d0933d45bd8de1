"""`traceviz contract` as it is run: exit codes, formats, the first lines."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

import traceviz as tv
from tests.traceviz.conftest import Run

ROOT = Path(__file__).parents[2]
WORKLOADS = ROOT / "tests" / "data" / "workloads"
GOOD, BAD = WORKLOADS / "dpmp.overlapped.2gpu.torch", WORKLOADS / "dpmp.hidden-sync.2gpu.torch"
DPMP = ROOT / "docs" / "contracts" / "dpmp.toml"
NO_CALLS = ROOT / "tests" / "data" / "nsys-stats" / "small.txt"


@pytest.fixture
def run(run: Run) -> Run:
    return partial(run, "contract")


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    return tmp_path / "contract.toml"


def in_a_line(text: str) -> str:
    return " ".join(text.split())


def test_a_contract_that_holds_says_so_in_a_line_and_rule_by_rule(run: Run) -> None:
    code, out, err = run(GOOD, DPMP)
    assert (code, err) == (0, "")
    assert out.startswith("HELD  all 4 rules on ranks 0–1.\n")
    assert in_a_line(out).count(" held ") == 4


def test_a_broken_one_says_which_rule_by_which_path_and_what_to_do(run: Run) -> None:
    code, out, err = run(BAD, DPMP)
    assert (code, err) == (1, "")
    text = in_a_line(out)
    assert text.startswith("BROKEN \"DP's lookups may run beside MP's all-to-all\": EmbeddingBag_")
    head = text.partition("Rules")[0]
    assert "(ranks 0–1; 6 of 6 instances). 1 more of 4 rules is broken." in head
    assert "Path: ncclDevKernel_SendRecv (stream 17) → event recorded on stream 17" in head
    assert "→ the host waits, cudaStreamSynchronize from aten::item in 'MP Embedding' → launched after that →" in head
    assert "Remedy: Take this host sync out, or launch what may run beside it first: cudaStreamSynchronize" in head


def test_what_a_capture_lacks_is_inconclusive_and_named(run: Run, rules: Path) -> None:
    rules.write_text('["beside"]\nmay_run_beside = ["comm", "compute"]\n')
    code, out, _ = run(NO_CALLS, rules)
    assert code == 3
    assert out.startswith("INCONCLUSIVE  ")
    assert "This rule needs: CUDA calls, which op each one launched" in in_a_line(out)


def test_markdown_and_json_say_the_same(run: Run) -> None:
    code, out, _ = run(BAD, DPMP, "--format", "md")
    assert (code, out[:10]) == (1, "## BROKEN:")
    code, out, _ = run(BAD, DPMP, "--format", "json")
    answer = json.loads(out)
    assert (code, answer["schema"], answer["outcome"]) == (1, "traceviz.contract/1", "broken")
    assert [one["outcome"] for one in answer["rules"]] == ["broken", "broken", "held", "held"]
    [first, second] = answer["rules"][0]["findings"]
    assert [first["rank"], second["rank"], first["where"]] == [0, 1, "occurrence 0"]
    assert first["path"][-2:] == ["launched after that", "EmbeddingBag_updateOutputKernel_sum_mean (stream 21)"]
    assert answer["rules"][0]["needs"].startswith("CUDA calls")


def test_a_part_of_a_run_can_be_asked_about(run: Run) -> None:
    code, out, _ = run(BAD, DPMP, "--ranks", "1", "--steps", "12", "--format", "json")
    rules = json.loads(out)["rules"]
    assert (code, [one["checked"] for one in rules]) == (1, [1, 1, 1, 1])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the contract has no rules"),
        ('["x"]\nmay_run_besides = ["comm", "compute"]\n', "rule 'x': there is no 'may_run_besides'. Did you mean"),
        ('["x"]\nmay_run_beside = ["comm", "comm"]\n', "rule 'x': 'comm' and 'comm' pick the same"),
    ],
)
def test_a_wrong_contract_is_an_error_in_one_line(run: Run, rules: Path, text: str, said: str) -> None:
    rules.write_text(text)
    code, out, err = run(GOOD, rules)
    assert (code, out) == (2, "")
    assert said in in_a_line(err)


def test_captures_and_contract_in_the_wrong_order_are_told(run: Run) -> None:
    code, _, err = run(DPMP, GOOD)
    assert code == 2
    assert "contract" in err


def test_python_answers_alike() -> None:
    result = tv.check_contract(GOOD, {"own": {"own_stream": "collective:all_to_all"}})
    assert isinstance(result, tv.ContractResult)
    assert (result.outcome, result.to_frame().loc["own", "checked"]) == ("held", 2)
