"""The verdict and the order of work, asked of each part together, are what each is by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.common.errors import TracevizError
from analyzers.load import load
from analyzers.readers.reading import Reading
from analyzers.scale.parts import open_run
from analyzers.syncs.order_report import order_of
from analyzers.trace.narrow import Narrowing
from analyzers.trace.run import ALL, Run
from analyzers.verdict.check import check_overlap
from analyzers.verdict.with_order import check_with_order
from analyzers.workers.local import LocalWorkers
from traceviz.output import contract

DATA = Path(__file__).parents[2] / "data"
PATHS = [str(path) for path in sorted((DATA / "torch").glob("dpmp_overlap.rank?.json.gz"))]
PAIR = ("nvtx:DP Embedding", "nvtx:MP Embedding")


@pytest.fixture(params=["one trace", "captures"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    if request.param == "captures":
        return open_run(PATHS, Reading(cache=False, workers=1), LocalWorkers(1, tmp_path))
    return Run.of(load(PATHS, reading=Reading(cache=False)))


@pytest.mark.parametrize("narrowing", [ALL, Narrowing(ranks=(0,))], ids=["all", "rank 0"])
@pytest.mark.parametrize("missing_only", [False, True])
def test_both_are_what_each_is_by_itself(run: Run, narrowing: Narrowing, missing_only: bool) -> None:
    result, order = check_with_order(run, *PAIR, narrowing=narrowing, missing_only=missing_only)
    alone = check_overlap(run, *PAIR, narrowing=narrowing), order_of(run, narrowing, missing_only=missing_only)
    assert contract.overlap(result) == contract.overlap(alone[0])
    assert len(order.syncs)
    for name in ("syncs", "copies", "crossings", "plan"):
        assert [*getattr(order, name)] == [*getattr(alone[1], name)]
    assert (order.warnings, order.calls_recorded, order.runtime, order.only_launches) == (
        alone[1].warnings,
        alone[1].calls_recorded,
        alone[1].runtime,
        alone[1].only_launches,
    )


def test_a_part_is_looked_at_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ranks, each asked once where it is a part."""
    asked = []
    mapped = Run.map
    monkeypatch.setattr(Run, "map", lambda *given, **more: asked.append(given) or mapped(*given, **more))
    check_with_order(run, *PAIR)
    assert len(asked) == 1


def test_what_a_check_refuses_is_refused(run: Run) -> None:
    with pytest.raises(TracevizError, match=r"The threshold 7\.0 is no ratio"):
        check_with_order(run, *PAIR, min_overlap=7.0)
