"""Contracts as people write them: what is read, and what an error says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analyzers.common.errors import TracevizError
from analyzers.contracts.rules import (
    HOST_WAITS,
    MAY_RUN_BESIDE,
    NO_HOST_SYNC,
    NO_RACE,
    OWN_STREAM,
    REAL_OVERLAP,
    WAIT_EARLY,
    Rule,
    read_contract,
)

ALL_KINDS = """
["lookup beside all-to-all"]
may_run_beside = ["nvtx:lookup", "collective:all_to_all"]

["some of it"]
may_run_beside = ["comm", "compute"]
pairs = "some"
within = "step"

["no sync"]
no_host_sync_in = "forward"
except = ["aten::item", "api:cudaEventSynchronize"]

["wait early"]
wait_on = "nvtx:inputs"
before_last_of = "nvtx:MP"
by = "nvtx:DP"

["wait at all"]
wait_on = "nvtx:inputs"
before_first_of = "nvtx:DP"

["own stream"]
own_stream = "comm"

["copies"]
host_waits_for = "memcpy:DtoH"

["no race"]
no_race_between = ["nvtx:a", "nvtx:b"]

["hides enough"]
real_overlap = ["comm", "compute"]
at_least = "62.5%"
"""


def test_each_kind_of_rule_is_read(tmp_path: Path) -> None:
    path = tmp_path / "contract.toml"
    path.write_text(ALL_KINDS)
    contract = read_contract(path)
    assert contract.path == str(path)
    assert contract.rules == (
        Rule("lookup beside all-to-all", MAY_RUN_BESIDE, "nvtx:lookup", "collective:all_to_all"),
        Rule("some of it", MAY_RUN_BESIDE, "comm", "compute", pairs="some", within="step"),
        Rule("no sync", NO_HOST_SYNC, "nvtx:forward", excepted=("aten::item", "api:cudaEventSynchronize")),
        Rule("wait early", WAIT_EARLY, "nvtx:inputs", "nvtx:MP", last=True, by="nvtx:DP"),
        Rule("wait at all", WAIT_EARLY, "nvtx:inputs", "nvtx:DP"),
        Rule("own stream", OWN_STREAM, "comm"),
        Rule("copies", HOST_WAITS, "memcpy:DtoH"),
        Rule("no race", NO_RACE, "nvtx:a", "nvtx:b"),
        Rule("hides enough", REAL_OVERLAP, "comm", "compute", bar=0.625),
    )


@pytest.mark.parametrize("bar", ["60%", "60 %", "0.6", 0.6])
def test_a_bar_is_read_as_people_write_it(bar: Any) -> None:
    [rule] = read_contract({"x": {"real_overlap": ["comm", "compute"], "at_least": bar}}).rules
    assert rule == Rule("x", REAL_OVERLAP, "comm", "compute", bar=0.6)


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({}, "rule 'x': it says nothing. A rule has one of: may_run_beside, no_host_sync_in"),
        ({"may_run_besides": ["comm", "compute"]}, "there is no 'may_run_besides'. Did you mean may_run_beside?"),
        ({"colour": "red"}, "there is no 'colour'. A rule has one of:"),
        ({"may_run_beside": ["comm", "compute"], "own_stream": "comm"}, "may_run_beside and own_stream are two rules."),
        (
            {"may_run_beside": ["comm", "compute"], "pair": "some"},
            "no 'pair'. Beside may_run_beside there may be pairs, within.",
        ),
        ({"own_stream": "comm", "except": ["x"]}, "there is no 'except'. There is only own_stream."),
        ({"may_run_beside": "comm"}, "may_run_beside is 'comm'. Give two selectors: may_run_beside = [\"nvtx:lookup\""),
        ({"may_run_beside": ["comm", "nvtx"]}, "rule 'x': may_run_beside: "),
        ({"may_run_beside": ["comm", "compute"], "pairs": "few"}, 'Write pairs = "all" (the default) or "some".'),
        (
            {"no_race_between": ["comm", "compute"], "within": "epoch"},
            'Write within = "range" (the default) or "step".',
        ),
        ({"no_host_sync_in": 3}, 'Name a range: no_host_sync_in = "forward".'),
        ({"no_host_sync_in": "nvtx:a+comm"}, "'nvtx:a+comm' names no range."),
        ({"no_host_sync_in": "a", "except": 3}, "Give names: except ="),
        ({"wait_on": "comm"}, "wait_on needs one op that it is to come before. Say which: before_first_of ="),
        ({"wait_on": "comm", "before_first_of": "compute", "before_last_of": "compute"}, "wait_on needs only one op"),
        ({"own_stream": ["comm"]}, 'Write it as own_stream = "nvtx:forward".'),
        ({"real_overlap": ["comm", "compute"]}, 'needs a bar between 0 and 100 %. Write it as at_least = "60%".'),
        ({"real_overlap": ["comm", "compute"], "at_least": 60}, "needs a bar between 0 and 100 %."),
        ({"real_overlap": ["comm", "compute"], "at_least": True}, "needs a bar between 0 and 100 %."),
    ],
)
def test_an_error_names_the_rule_and_says_what_is_allowed(rule: dict[str, Any], said: str) -> None:
    with pytest.raises(TracevizError) as error:
        read_contract({"x": rule})
    assert "rule 'x'" in str(error.value)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the contract has no rules. A rule has one of:"),
        (b"own_stream = 'comm'", "'own_stream' stands outside a rule. Put it below a name of your choice"),
        (b"[x", "this is no TOML:"),
        (b"\xff\xfe", "this is no text. Give the contract.toml last."),
    ],
)
def test_a_file_that_is_no_contract_says_what_one_is(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "contract.toml"
    path.write_bytes(content)
    with pytest.raises(TracevizError) as error:
        read_contract(path)
    assert str(error.value).startswith(f"{path}: ")
    assert said in str(error.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TracevizError, match="No such file"):
        read_contract(tmp_path / "none.toml")
