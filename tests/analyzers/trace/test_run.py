"""A loaded trace looked at process by process gives the answers, to the byte, that it gives as a whole."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analyzers.common.errors import TracevizError
from analyzers.load import load
from analyzers.scale import answers
from analyzers.syncs.order_report import OrderReport, order_of
from analyzers.trace import run as runs_of
from analyzers.trace.narrow import Narrowing
from analyzers.trace.run import Run
from analyzers.trace.schemas import TABLES
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from tests.support.builder import Builder
from tests.support.nightly import mostly_nightly
from traceviz.output import contract

DATA = Path(__file__).parents[2] / "data"
LAUNCHED = ["process", "thread", "start_ns", "end_ns", "correlation"]


def runs() -> dict[str, list[Path]]:
    """All captures with several processes, and torch's ranks that belong together."""
    ranks = defaultdict(list)
    for path in sorted(DATA.rglob("*.rank*.json.gz")):
        ranks[f"{path.parent.name}/{path.name.split('.rank')[0]}"].append(path)
    reports = {path.name: [path] for path in sorted(DATA.rglob("*.sqlite*"))}
    return reports | {name: paths for name, paths in ranks.items() if 1 < len(paths) < 9}


NARROWER = ("a rank", "half", "a step", "no rank")
# Of each kind one by default: among them, all that a run is narrowed to.
SOME = {
    "dpmp_overlap.4gpu.sqlite": ("half",),
    "dpmp_hidden_sync.2gpu.nsys2023.sqlite": ("all", "a step", "no rank"),
    "graph_overlap.4gpu.sqlite": ("a rank",),
    "torch/ddp": ("all",),
}


def pairs(trace: Trace) -> list[tuple[str, str]]:
    ranges = trace.ranges.take(trace.ranges.kind.is_one_of(["nvtx", "annotation"])).to_frame()
    named = [f"nvtx:{name}" for name in ranges["name"].astype(str).value_counts().index]
    found = [("comm", "compute"), ("memcpy", "compute")]
    return [*found, (named[0], named[1])] if len(named) > 1 else found


def said(run: Trace | Run, pair: tuple[str, str], narrowing: Narrowing) -> str:
    try:
        return json.dumps(contract.overlap(check_overlap(run, *pair, narrowing=narrowing)))
    except TracevizError as error:
        return str(error)


def order(run: Run, narrowing: Narrowing, *, missing_only: bool) -> OrderReport | str:
    try:
        return order_of(run, narrowing, missing_only=missing_only)
    except TracevizError as error:
        return str(error)


def narrowings(trace: Trace) -> dict[str, Narrowing]:
    begin, end = int(trace.ops.start_ns.min()), int(trace.ops.end_ns.max())
    return {
        "all": Narrowing(),
        "a rank": Narrowing(ranks=(trace.rank_ids[-1],)),
        "half": Narrowing(window=(begin, (begin + end) // 2)),
        "a step": Narrowing(steps=(1, 2)),
        "no rank": Narrowing(ranks=(99,)),
    }


@pytest.mark.parametrize(
    ("name", "of"),
    mostly_nightly(
        [*SOME.items(), *((name, ("all", *NARROWER)) for name in runs())], lambda case: case in SOME.items()
    ),
)
def test_answers_are_those_of_the_whole(name: str, of: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    trace = load(runs()[name])
    parts = [narrowings(trace)[one] for one in of]
    asked = [(pair, part) for pair in pairs(trace) for part in parts]
    with monkeypatch.context() as together:
        together.setattr(Run, "by_rank", lambda run: run)
        whole = [said(trace, *question) for question in asked]
        orders = [order(Run.of(trace), part, missing_only=only) for part in parts for only in (True, False)]
    run = Run.of(trace)
    assert len(run.by_rank().handles) == len(set(trace.ops.rank.tolist()))
    assert [said(run, *question) for question in asked] == whole
    for found, expected in zip(
        [order(run, part, missing_only=only) for part in parts for only in (True, False)], orders, strict=True
    ):
        if isinstance(found, str) or isinstance(expected, str):
            assert found == expected
            continue
        assert json.dumps(contract.syncs(found)) == json.dumps(contract.syncs(expected))
        for table in ("syncs", "copies", "crossings", "plan"):  # with the rows that they name
            pd.testing.assert_frame_equal(getattr(found, table).to_frame(), getattr(expected, table).to_frame())


def test_a_part_holds_the_rows_of_its_process_and_its_launches() -> None:
    trace = load([DATA / "nsys" / "dpmp_overlap.4gpu.sqlite"])
    run = Run.of(trace).by_rank()
    found = run.map(lambda part: part)
    assert list(found) == [0, 1, 2, 3]
    ops, api = trace.ops.to_frame(), trace.api.to_frame()
    for number, part in found.items():
        for name in TABLES:
            frame = getattr(trace, name).to_frame()
            expected = frame[frame["process"] == number].drop(columns="launch", errors="ignore").reset_index(drop=True)
            held = getattr(part, name).to_frame().drop(columns="launch", errors="ignore")
            pd.testing.assert_frame_equal(held, expected)
        rows, calls = np.flatnonzero(ops["process"] == number), np.flatnonzero(api["process"] == number)
        handle = run.handles[number]
        assert handle.rows("ops", np.append(-1, np.arange(len(part.ops)))).tolist() == [-1, *rows]
        assert handle.rows("api", np.arange(len(part.api))).tolist() == calls.tolist()
        launched = part.ops.launch >= 0
        here = part.api.to_frame(LAUNCHED).iloc[part.ops.launch[launched]].to_numpy().tolist()
        assert here == api[LAUNCHED].iloc[ops["launch"].iloc[rows[launched]]].to_numpy().tolist()
    firsts = [tuple(handle.first) for handle in run.handles]
    assert firsts[0] == (0, 0, 0)
    assert firsts[3] == (0, *(sum(len(getattr(found[part], name)) for part in range(3)) for name in ("ops", "api")))


def test_a_rank_whose_rows_stand_together_has_no_second_copy() -> None:
    trace = load(sorted((DATA / "torch").glob("dpmp_overlap.rank?.json.gz")))
    parts = Run.of(trace).by_rank().map(lambda part: part)
    assert len(parts) == len(trace.processes) > 1
    for part in parts.values():
        assert len(part.ops) and len(part.api)
        for own, whole in ((part.ops, trace.ops), (part.api, trace.api)):
            assert np.shares_memory(own.start_ns, whole.start_ns)
            assert np.shares_memory(own.name.codes, whole.name.codes)


def test_what_no_part_has_is_said_of_the_whole_run(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Builder()
    for number, start in ((0, 1_000), (1, 5_000)):
        run.rank(number).kernel("gemm", stream=7, start=start, end=start + 500, launch=(start - 5, start - 1))
    trace, outside = run.trace(), Narrowing(window=(50_000, 60_000))
    said = []
    for asked in (Run.of(trace), Run.of(trace).by_rank()):
        with pytest.raises(TracevizError) as error:
            asked.map(repr, outside)
        said.append(str(error.value))
    assert [len(one.handles) for one in (Run.of(trace), Run.of(trace).by_rank())] == [1, 2]
    assert said[0] == said[1]
    assert "from 1 µs to 5.5 µs" in said[0].replace("1.00", "1").replace("5.50", "5.5")


def test_a_run_by_rank_keeps_what_concerns_all_of_it() -> None:
    trace = load([DATA / "nsys" / "dpmp_overlap.4gpu.sqlite"])
    run = Run.of(trace).by_rank()
    assert (run.size, run.trace.rank_ids, run.trace.clocks) == (len(trace.ops), trace.rank_ids, trace.clocks)
    expected, found = answers.collectives(Run.of(trace)), answers.collectives(run)
    assert contract.collectives(found) == contract.collectives(expected)
    narrow = Narrowing(ranks=(1,))
    parts = list(run.parts(narrow))
    assert [len(part.ops) > 0 for part in parts] == [False, True, False, False]
    assert len(parts[1].ops) == len(narrow.of(trace).ops)


def test_small_ranks_are_a_part_together(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Builder()
    for number, count in enumerate((3, 1, 9, 2, 2)):
        rank = run.rank(number)
        for start in range(0, 100 * count, 100):
            rank.kernel("gemm", stream=7, start=start, end=start + 50)
    trace = run.trace()
    for least, expected in ((0, [(0,), (1,), (2,), (3,), (4,)]), (4, [(0, 1), (2,), (3, 4)]), (99, [(0, 1, 2, 3, 4)])):
        monkeypatch.setattr(runs_of, "LEAST_OPS", least)
        assert [handle.ranks for handle in Run.of(trace).by_rank().handles] == expected
