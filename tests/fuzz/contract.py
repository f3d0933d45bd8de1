"""Whether an answer's JSON keeps the contract: its keys and types, and what must hold between its figures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

KEYS = {
    "traceviz.overlap/3": "verdict passed reason pair bar ranks ranks_given ranks_known ranks_met job last_arrival "
    "gain clocks warnings",
    "traceviz.collectives/1": "collectives summary clocks warnings",
    "traceviz.syncs/2": "syncs unwaited_copies missing_waits stream_plan warnings",
    "traceviz.streams/1": "ranks warnings",
    "traceviz.info/2": "captures ranks ranges more_ranges steps cannot warnings",
    "traceviz.compare/3": "runs warnings",
    "traceviz.contract/1": "outcome sentence contract ranks rules warnings",
    "traceviz.what-if/1": "reason pair replay changes critical_path communication warnings",
}
PASSED = {0: True, 1: False, 3: None}
LARGEST = 2**63 - 1
LENGTHS = ("busy_ns", "wait_ns", "overlap_ns", "duration_ns", "achievable_ns", "missed_ns", "transfer_ns", "alone_ns")


def broken(text: str, code: int) -> str:
    """What is wrong with an answer; "" where nothing is."""
    return next(_wrong(json.loads(text, parse_constant=_refuse), code), "")


def _refuse(name: str) -> None:
    raise ValueError(f"{name} in JSON")


def _wrong(answer: dict[str, Any], code: int) -> Iterator[str]:
    schema = answer.get("schema", "")
    if schema not in KEYS:
        yield f"unknown schema {schema!r}"
    missing = [key for key in KEYS.get(schema, "").split() if key not in answer]
    if missing:
        yield f"{schema} lacks {missing}"
    yield from (f"{path} = {value} is no int64" for path, value in numbers(answer) if not -LARGEST <= value <= LARGEST)
    yield from (f"{path} = {value} < 0" for path, value in numbers(answer) if path.endswith(LENGTHS) and value < 0)
    for warning in answer.get("warnings", []):
        if not (warning.get("code") and warning.get("message")):
            yield f"an empty warning {warning}"
    if schema == "traceviz.overlap/3":
        yield from _overlap(answer, code)
    if schema == "traceviz.collectives/1":
        for one in answer["collectives"]:
            for call in one["ranks"]:
                if call["wait_ns"] + call["transfer_ns"] != call["duration_ns"]:
                    yield f"wait and transfer are not the duration: {call}"
    if schema == "traceviz.streams/1":
        for rank in answer["ranks"]:
            if sum(rank["busy_streams_ns"]) != rank["span_ns"] or sum(rank["busy_streams_ns"][1:]) != rank["busy_ns"]:
                yield f"times by number of busy streams do not sum up on rank {rank['rank']}"


def _overlap(answer: dict[str, Any], code: int) -> Iterator[str]:
    job = answer["job"]
    if PASSED.get(code, "?") is not answer["passed"]:
        yield f"exit code {code}, passed {answer['passed']}"
    if (answer["verdict"] == "inconclusive") != (answer["passed"] is None):
        yield f"verdict {answer['verdict']}, passed {answer['passed']}"
    if answer["verdict"] == "inconclusive" and not answer["reason"]:
        yield "inconclusive without a reason"
    if answer["passed"] is not None and answer["passed"] != (job["real_overlap_ratio"] >= answer["bar"]):
        yield "passed is not what ratio and bar say"
    for rank in answer["ranks"]:
        shorter = min(rank["a"]["busy_ns"], rank["b"]["busy_ns"])
        if rank["overlap_ns"] > shorter or rank["real_overlap_ns"] > rank["overlap_ns"]:
            yield f"more overlap than there is: {rank['overlap_ns']}, {rank['real_overlap_ns']} of {shorter}"
        ratios = [rank[key] for key in ("overlap_ratio", "real_overlap_ratio") if rank[key] is not None]
        if not all(0 <= ratio <= 1 for ratio in ratios):
            yield f"a ratio beyond 1 on rank {rank['rank']}"
        if sum(one["ns"] for one in rank["missed"]) != rank["missed_ns"]:
            yield f"causes do not sum up to what was missed on rank {rank['rank']}"


def numbers(value: Any, path: str = "") -> Iterator[tuple[str, int]]:
    """Every whole number of an answer by its path."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from numbers(one, f"{path}.{key}")
    elif isinstance(value, list):
        for one in value:
            yield from numbers(one, path)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield path, value
