"""`traceviz compare` as it is run: exit codes, formats, hostile names."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

import traceviz as tv
from tests.support.kineto_files import KinetoFile, pair_of_ranges
from tests.traceviz.conftest import Run
from traceviz.commands.compare import labels_of

TORCH = Path(__file__).parents[1] / "data" / "torch"
SIDES = ("-a", "nvtx:A", "-b", "nvtx:B")


@pytest.fixture
def run(run: Run) -> Run:
    return partial(run, "compare")


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """A and B of 100 ns, one after the other and then half together."""
    return (
        pair_of_ranges("A", "B", overlap=0).write(tmp_path / "serial.json"),
        pair_of_ranges("A", "B", overlap=50).write(tmp_path / "beside.json"),
    )


@pytest.mark.parametrize(
    ("claim", "code", "word"),
    [("14.7x", 1, "IMPOSSIBLE CLAIM"), ("1.4x", 1, "CLAIM NOT SHOWN"), ("1.3x", 3, "CLAIM UNSURE"), ("", 3, "TOO FEW")],
)
def test_a_claim_that_can_not_be_ends_with_1(
    run: Run, pair: tuple[Path, Path], claim: str, code: int, word: str
) -> None:
    """200 / 150 ns were gained, of at most 200 / 100."""
    ended, out, err = run(*pair, *SIDES, *(("--claimed", claim) if claim else ()))
    assert (ended, err, word in out) == (code, "", True)


def test_what_cant_be_is_refused_where_the_rest_cant_be_told(run: Run) -> None:
    """Of one rank of two, what overlaps is apparent; two tasks never gain 14.7x, whatever they waited for."""
    words = (TORCH / "dpmp_serial.rank0.json.gz", TORCH / "dpmp_overlap.rank0.json.gz")
    words = (*words, "-a", "nvtx:DP Embedding", "-b", "nvtx:MP Embedding")
    assert run(*words, "--claimed", "14.7x").code == 1
    asked = run(*words, "--claimed", "1.01x")
    assert (asked.code, "--accept-apparent compares the apparent figures" in " ".join(asked.out.split())) == (3, True)
    accepted = run(*words, "--claimed", "1.01x", "--accept-apparent")
    assert accepted.code == 3, "five steps are too few"
    assert "INCONCLUSIVE" not in accepted.out
    assert "% apparent" in accepted.out
    assert json.loads(run(*words, "--format", "json").out)["runs"][1]["apparent"] is True


def test_gain_and_bound_stand_in_the_contract(run: Run, pair: tuple[Path, Path]) -> None:
    answer = json.loads(run(*pair, *SIDES, "--format", "json")[1])
    assert (answer["schema"], answer["steps"], answer["ranks"]) == ("traceviz.compare/3", [], [0])
    first, second = answer["runs"]
    assert (first["label"], first["verdict"], first["gain"], first["changes"]) == ("serial", None, None, {})
    assert (second["label"], second["verdict"]) == ("beside", "too-few-steps")
    assert second["figures"]["overlap_ns"]["median_ns"] == 50
    gain = second["gain"]
    assert (gain["effective_gain"], gain["speedup"], gain["speedup_bound"]) == (0.5, 200 / 150, 2.0)
    assert second["changes"]["step_ns"]["delta_ns"] == -50


@pytest.mark.parametrize("kind", ["text", "json", "md"])
def test_every_format_shows_several_runs_and_no_hostile_name(run: Run, tmp_path: Path, kind: str) -> None:
    evil = "\x1b]0;owned\x07|<script>x</script>\n[b]@me"
    paths = []
    for k in range(3):
        file = pair_of_ranges(evil, "B", overlap=20 * k)
        file.kernel(evil, 7, 2000, 2100 + k, launch=300)
        paths.append(file.write(tmp_path / f"t{k}.json"))
    labels = [word for name in ("one", "two", evil) for word in ("--label", name)]
    code, out, err = run(*paths, *labels, "--format", kind)
    assert (code, err, "\x1b" in out, "one" in out, "two" in out) == (3, "", False, True, True), "one step"
    if kind == "md":
        assert "<script>" not in out
        assert "\n|---" in out
    if kind == "json":
        assert len(json.loads(out)["runs"]) == 3


def test_what_syncs_cost_is_not_recorded_in_a_pasted_table(run: Run) -> None:
    pasted = TORCH.parent / "nsys-stats" / "config1_one_report_8gpu.txt"
    code, out, err = run(pasted, pasted)
    assert (code, err) == (0, "")
    (line,) = [line for line in out.splitlines() if line.startswith("sync cost")]
    assert line.split("  ")[0] == "sync cost (GPU idle)"
    assert line.count("not recorded") == 2


def test_nothing_in_common_ends_with_3_and_the_reason(run: Run, tmp_path: Path) -> None:
    paths = [pair_of_ranges("A", "B", overlap=0, rank=k).write(tmp_path / f"rank{k}.json") for k in (0, 1)]
    code, out, err = run(*paths)
    assert (code, err) == (3, "")
    assert out.startswith("INCONCLUSIVE  no rank is in every run")


@pytest.mark.parametrize(
    "words",
    [(), ("--claimed", "fast"), ("--claimed", "0x"), ("--label", "one"), ("-a", "nonsense"), ("--steps", "3:1")],
)
def test_what_can_not_be_used_is_one_line_and_ends_with_2(
    run: Run, pair: tuple[Path, Path], words: tuple[str, ...]
) -> None:
    code, out, err = run(*(pair if words else pair[:1]), *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("traceviz: ")


def test_runs_of_two_ranks_by_quoted_globs(run: Run) -> None:
    globs = [TORCH / f"{name}.rank*.json.gz" for name in ("dpmp_serial", "dpmp_overlap")]
    code, out, _ = run(*globs, "-a", "nvtx:DP Embedding", "-b", "nvtx:MP Embedding", "--claimed", "14.7x")
    assert code == 1
    # Of all three steps, for two are too few: on rank 1, which decides in dpmp_overlap, DP takes 328.161, 327.999 and
    # 328.928 µs; MP 501.792, 503.259 and 529.568 - 92.672 + 72.767 at least, what its all-to-all takes on rank 0.
    assert "two tasks of 328 µs and 503 µs" in out
    assert "14.7x measures something else." in " ".join(out.split())
    assert "is left out of medians" not in out
    assert "dpmp_overlap against dpmp_serial" in out


@pytest.mark.parametrize(
    ("paths", "labels"),
    [
        (["runs/before/*", "runs/after/*"], ["before", "after"]),
        (["before/run/x.rank*", "after/run/x.rank*"], ["before/run/x", "after/run/x"]),
        (["a/x.json", "a/x.sqlite"], ["x.json", "x.sqlite"]),
        (["d/rank0.json", "d/rank1.json"], ["rank0.json", "rank1.json"]),
        (["a/x.json", "a/x.json"], ["x", "x (2)"]),
        (["m.sync.rank*.json.gz", "m.default.rank*.json.gz"], ["m.sync", "m.default"]),
        (["*", "*"], ["*", "* (2)"]),
    ],
)
def test_labels_are_what_tells_paths_apart(paths: list[str], labels: list[str]) -> None:
    assert labels_of([Path(path) for path in paths]) == labels


def test_the_same_from_python(tmp_path: Path) -> None:
    file = KinetoFile()
    file.range("A", 0, 50)
    file.kernel("k", 7, 100, 200, launch=10)
    trace = tv.load(file.write(tmp_path / "t.json"))
    result = tv.compare(trace, trace, labels=("before", "after"))
    assert result.runs[1].verdict == "same"
    assert tv.compare(trace, trace).to_frame().index.tolist() == ["run 1", "run 2"]
