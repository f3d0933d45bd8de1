"""What users say is communication: by option, in Python, in a project's settings."""

from __future__ import annotations

from pathlib import Path

import pytest

import traceviz as tv
from analyzers.clocks.align import align
from analyzers.common.errors import TracevizError
from analyzers.select.select import declare
from analyzers.trace.communication import Declared
from analyzers.trace.kernels import is_bookkeeping, is_communication, is_compute
from analyzers.verdict.check import check_overlap
from tests.support.builder import Builder, one_rank
from traceviz.options.config import communication, project_communication

TRACE = "tests/data/torch/dpmp_overlap.rank*.json.gz"


def _trace():  # type: ignore[no-untyped-def]
    run, rank = one_rank()
    rank.kernel("gemm", 7, 0, 10)
    rank.kernel("my_a2a", 20, 0, 10)
    rank.kernel("my_pack", 20, 10, 20)
    rank.kernel("deep_ep::layout::get_dispatch_layout", 20, 20, 30)
    rank.copy("DtoD", 20, 30, 40)
    return run.trace()


def test_declared_ops_are_communication_by_the_first_rule_that_picks_them_and_no_longer_compute() -> None:
    rules = (Declared("kernel:my_a2a", "--comm"), Declared("stream:20", "comm in traceviz.toml"))
    trace = declare(_trace(), rules)
    assert is_communication(trace).tolist() == [False, True, True, True, True]
    assert is_compute(trace).tolist() == [True, False, False, False, False]
    assert not is_bookkeeping(trace).any(), "what a user says comes before what a name says"
    second = "stream:20 (comm in traceviz.toml)"
    assert trace.ops.declared.tolist() == ["", "kernel:my_a2a (--comm)", second, second, second]


def test_the_nearest_settings_upward_are_used_and_named(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[tool.traceviz]\ncomm = ["kernel:x", "stream:20"]\n')
    (tmp_path / "a" / "pyproject.toml").write_text("[tool.other]\n")
    found = project_communication(inner)
    at = f"comm in {tmp_path / 'pyproject.toml'}"
    assert found == (Declared("kernel:x", at), Declared("stream:20", at))
    (tmp_path / "a" / "traceviz.toml").write_text('comm = "kernel:y"\n')
    assert project_communication(inner) == (Declared("kernel:y", f"comm in {tmp_path / 'a' / 'traceviz.toml'}"),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("comm = 3", "no list of selectors"),
        ("com = []", "no setting 'com'"),
        ('comm = ["kernl:x"]', "not one of"),
        ("comm = [", "can't be read"),
    ],
)
def test_settings_that_cannot_be_read_are_one_error_with_the_file(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "traceviz.toml").write_text(text)
    with pytest.raises(TracevizError, match=said) as error:
        project_communication(tmp_path)
    assert str(tmp_path / "traceviz.toml") in str(error.value.path)


def test_a_broken_pyproject_is_left_to_its_own_tools(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.traceviz\n")
    assert project_communication(tmp_path) == ()


def test_what_is_given_stands_before_what_the_project_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "traceviz.toml").write_text('comm = ["kernel:y"]\n')
    monkeypatch.chdir(tmp_path)
    assert [one.selector for one in communication("kernel:x", "--comm")] == ["kernel:x", "kernel:y"]


def test_python_takes_it_with_and_without_a_cache_and_rank_by_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACEVIZ_CACHE", str(tmp_path))
    plain, more = tv.load(TRACE).data, tv.load(TRACE, comm="stream:25").data
    before, after = is_communication(plain), is_communication(more)
    on_stream = (plain.ops.to_frame()["stream"] == 25).to_numpy()
    assert (after == (before | on_stream)).all()
    assert (after & ~before).any()
    assert (is_communication(tv.load(TRACE).data) == before).all(), "the cache keeps no trace of it"
    whole = tv.check_overlap(TRACE, comm=["stream:25"]).to_frame()
    parts = tv.check_overlap(TRACE, comm=["stream:25"], memory="4GB").to_frame()
    columns = ["a_busy_ns", "b_busy_ns", "overlap_ns", "a_ops", "b_ops"]
    assert whole[columns].equals(parts[columns])
    assert whole["a_ops"].tolist() == [int((after & (plain.ops.to_frame()["rank"] == rank)).sum()) for rank in (0, 1)]


@pytest.mark.parametrize(("name", "matched"), [("my_exchange", False), ("my_all_reduce", True)])
def test_waits_are_claimed_of_no_kernel_whose_operation_nothing_tells(name: str, matched: bool) -> None:
    """Rank 1 comes 50 of 100 ns late. What only has its place in the order in common may be any kernel."""
    builder = Builder()
    for k in (0, 1):
        rank = builder.rank(k)
        for at in range(0, 3000, 1000):
            rank.kernel(name, 20, at + 50 * k, at + 100)
            rank.kernel("gemm", 7, at, at + 100)
    trace = align(declare(builder.trace(), [Declared(f"kernel:{name}", "--comm")])).trace
    result = check_overlap(trace, "comm", "compute")
    assert [rank.is_apparent for rank in result.ranks] == [not matched] * 2
    assert [rank.a.wait_ns for rank in result.ranks] == [3 * 50 * matched, 0]
    assert matched or result.passed is None, "all of it may be waiting"
