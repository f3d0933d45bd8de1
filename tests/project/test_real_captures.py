"""Real captures of two and four H200: every figure equals one counted from the file by `tests.support.raw_captures`."""

from __future__ import annotations

import itertools
from functools import cache
from pathlib import Path

import pytest

from analyzers.common.errors import TracevizError
from analyzers.load import load
from analyzers.select.language import Atom
from analyzers.trace.narrow import EVERYTHING
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from tests.support import raw_captures
from tests.support.raw_captures import Ambiguous, Device, Figures, Raw

pytestmark = pytest.mark.nightly

TORCH, NSYS = (Path(__file__).parents[1] / "data" / kind for kind in ("torch", "nsys"))
SCENARIOS = sorted(path.name.split(".")[0] for path in TORCH.glob("*.rank1.json.gz"))
ONE_REPORT = sorted(NSYS.glob("*gpu*.sqlite")) + sorted(NSYS.glob("peer*.sqlite"))
PER_RANK = sorted(NSYS.glob("rowpar_s1.rank?.nsys2025.sqlite"))


def torch_files(scenario: str) -> list[Path]:
    return sorted(TORCH.glob(f"{scenario}.rank?.json.gz"))


@cache
def loaded(paths: tuple[Path, ...]) -> Trace:
    return load(paths)


def selector(word: str) -> str:
    return word if word in ("comm", "compute") else str(Atom("nvtx", word))


def answered(trace: Trace, a: str, b: str) -> dict[Device, Figures]:
    pid = {process.rank: process.pid for process in trace.processes}
    result = check_overlap(trace, selector(a), selector(b), narrowing=EVERYTHING)  # warm-up and all
    return {(pid[rank.rank], rank.device): (rank.a.busy_ns, rank.b.busy_ns, rank.overlap_ns) for rank in result.ranks}


def agrees(trace: Trace, raw: Raw) -> None:
    """Communication against computation, and every two ranges, are as counted."""
    words = [*raw.names, "comm", "compute"]
    picked = {word: raw_captures.picked(raw, word) for word in words}
    for a, b in itertools.combinations(words, 2):
        try:
            expected = raw_captures.figures(raw, picked[a], picked[b])
        except Ambiguous:
            with pytest.raises(TracevizError, match=r"pick the same|share"):
                answered(trace, a, b)
        else:
            assert answered(trace, a, b) == expected, (a, b)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_pair_of_a_torch_trace_is_as_counted(scenario: str) -> None:
    files = torch_files(scenario)
    assert len(files) == (4 if scenario == "item_before" else 2)
    agrees(loaded(tuple(files)), raw_captures.read_kineto(files))


@pytest.mark.parametrize("path", ONE_REPORT, ids=lambda path: path.name)
def test_every_pair_of_an_nsys_report_is_as_counted(path: Path) -> None:
    agrees(loaded((path,)), raw_captures.read_nsys([path]))


def test_every_pair_of_a_report_a_rank_is_as_counted() -> None:
    assert len(PER_RANK) == 4
    agrees(loaded(tuple(PER_RANK)), raw_captures.read_nsys(PER_RANK))
