"""`--format json --brief`: what it holds, how long it may be, and that what it says to run next runs."""

from __future__ import annotations

import glob
import itertools
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.answers import group_argument, groups, pair_of
from tests.support.command_lines import invoked
from tests.support.nightly import mostly_nightly
from tests.traceviz.conftest import Run
from traceviz.options.again import CAPTURES_PLACEHOLDER, CommandLine, as_words
from traceviz.output.brief import MOST_TOKENS, as_line, fitted, tokens

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
ITEM = str(DATA / "torch" / "item_before.rank*.json.gz")
COMMANDS = ("check-overlap", "syncs", "collectives", "info", "what-if")
QUICK = ("torch.item_before", "nsys.dpmp_hidden_sync.2gpu", "stats.config1_one_report_8gpu")


def all_captures() -> dict[str, list[str]]:
    found = groups()
    for folder in ("contention", "pairs"):
        files = sorted((DATA / folder).glob("*.json.gz"))
        for name, ranks in itertools.groupby(files, lambda path: path.name.split(".rank")[0]):
            found[f"{folder}.{name}"] = [str(path) for path in ranks]
        for path in sorted((DATA / folder).glob("*.sqlite.gz")):
            found[f"{folder}.{path.name}"] = [str(path)]
    return found


def counted(text: str) -> int:
    """Tokens at most, counted without the package: a run of letters in fours, of digits in threes, each other sign."""
    found = re.findall(r"[^\W\d_]+|\d+|\S", text)
    return sum(-(-len(one) // 4) if one[0].isalpha() else -(-len(one) // 3) for one in found)


def brief(*words: str) -> Any:
    ran = invoked(*words, "--format", "json", "--brief")
    assert ran.exit_code in (0, 1, 3), (words, ran.output)
    assert ran.stdout.count("\n") == 1
    assert counted(ran.stdout) <= 2_000, (words, counted(ran.stdout))
    assert len(ran.stdout.encode()) / 3 <= 2_000, words
    return json.loads(ran.stdout)


def asked_of(name: str, files: list[str]) -> list[list[str]]:
    pair = pair_of(name) if name.split(".")[0] not in ("contention", "pairs") else None
    lines = [[command, *files] for command in COMMANDS]
    return lines + ([["check-overlap", *files, "-a", pair[0], "-b", pair[1]]] if pair else [])


@pytest.mark.parametrize("name", mostly_nightly(all_captures(), QUICK.__contains__))
def test_a_brief_answer_has_at_most_2000_tokens(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    files = all_captures()[name]
    for words in asked_of(name, files):
        answer = brief(*words)
        assert answer["schema"] == f"traceviz.{words[0].removeprefix('check-')}-brief/1"
        assert answer["lines"]
        assert answer["next"] or name not in QUICK
    if name not in QUICK and (len(files) == 1 or ".rank0." in files[0]):
        run = group_argument(files)
        brief("compare", *run, *run)


def many_ranks(folder: Path, count: int) -> list[str]:
    """A job of many ranks, of which each took a millionth longer than the one before; each file says which it is."""
    import gzip

    content = json.loads(gzip.decompress((DATA / "torch" / "dpmp_overlap.rank0.json.gz").read_bytes()))
    paths = []
    for rank in range(count):
        content["distributedInfo"] |= {"rank": rank, "world_size": count}
        for event in content["traceEvents"]:
            event |= {name: event[name] * (1 + 1e-6) for name in ("ts", "dur") if name in event}
        paths.append(folder / f"a rank{rank}.json")
        paths[-1].write_text(json.dumps(content))
    return [str(path) for path in paths]


@pytest.mark.nightly
def test_a_job_of_64_ranks_fits_and_its_next_command_names_all_of_them(tmp_path: Path) -> None:
    paths = many_ranks(tmp_path, 64)
    answer = brief("check-overlap", *paths)
    assert [shlex.split(line)[2] for line in answer["next"]] == [str(tmp_path / "a rank*.json")] * len(answer["next"])
    assert answer["job"]["ranks_given"] == 64
    assert answer["left_out"]["worst_ranks"] >= 61


def test_the_brief_answer_says_what_the_full_one_says() -> None:
    short = brief("check-overlap", ITEM)
    full = json.loads(invoked("check-overlap", ITEM, "--format", "json").stdout)
    for key in ("verdict", "passed", "reason", "pair", "bar"):
        assert short[key] == full[key]
    job = {key: short["job"][key] for key in ("rank", "device", "real_overlap_ns", "achievable_ns", "apparent")}
    assert job.items() <= full["job"].items()
    ranks = {(one["rank"], one["device"]): one for one in full["ranks"]}
    worst = [(one["rank"], one["device"]) for one in short["worst_ranks"]]
    by_ratio = sorted(ranks, key=lambda key: ranks[key]["real_overlap_ratio"])
    assert worst == by_ratio[: len(worst)]
    deciding = ranks[full["job"]["rank"], full["job"]["device"]]
    told = [(one["id"], one["ns"]) for one in short["causes"]]
    assert told
    assert told == [(one["id"], one["ns"]) for one in deciding["missed"]][: len(told)]
    assert len(told) + short.get("left_out", {}).get("causes", 0) == len(deciding["missed"])
    every = {one["cause"] for rank in full["ranks"] for one in rank["missed"]}
    assert short["causes_of_all_ranks_ns"] == {
        cause: sum(one["ns"] for rank in full["ranks"] for one in rank["missed"] if one["cause"] == cause)
        for cause in every
    }
    assert {one["code"] for one in short["caveats"]} <= {one["code"] for one in full["warnings"]}


def test_what_could_change_the_verdict_comes_first_among_caveats() -> None:
    """One rank of two, given alone: that the other is missing decides, and stands in front of all else."""
    answer = brief("check-overlap", str(DATA / "torch" / "dpmp_overlap.rank0.json.gz"))
    assert answer["verdict"] == "inconclusive"
    assert answer["caveats"][0]["code"] in ("profiler-distorts", "ranks-missing")


@pytest.mark.nightly
@pytest.mark.parametrize("command", ["check-overlap", "collectives"])
def test_what_it_says_to_run_next_runs(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = ["--steps", "1:4"]
    for line in brief(command, ITEM, *options)["next"]:
        words = shlex.split(line)
        assert words[0] == "traceviz"
        ran = invoked(*words[1:])
        assert ran.exit_code in (0, 1, 3), (line, ran.output)
        if words[1] == "show":
            shown = json.loads(invoked(*words[1:], "--format", "json").stdout)
            assert shown["id"] == words[3]
            assert shown["schema"] == "traceviz.show/1"


@pytest.mark.nightly
def test_ids_of_the_full_answers_open(run: Run) -> None:
    full = json.loads(run("check-overlap", ITEM, "--format", "json").out)
    ids = [one["id"] for rank in full["ranks"][:1] for one in (*rank["missed"], *rank["instances"][:1])]
    ids += [json.loads(run("syncs", ITEM, "--format", "json").out)["syncs"][0]["id"]]
    ids += [json.loads(run("collectives", ITEM, "--format", "json").out)["collectives"][2]["id"]]
    assert ids[-1] == "coll:3", "step 0, of which figures are not, has the first"
    for one in ids:
        code, out, err = run("show", ITEM, one, "--format", "json")
        assert (code, err) == (0, "")
        assert json.loads(out)["id"] == one
        assert counted(out) <= 2_000


def test_show_says_what_when_and_why(run: Run) -> None:
    code, out, err = run("show", ITEM, "gap:r0.d0:8211267")
    assert (code, err) == (0, "")
    text = " ".join(out.split())
    assert text.startswith("GAP communication had nothing running for 2.08")
    assert "from the capture's start (8211267 to 10293048 ns), step 1." in text
    assert "host-sync" in text
    assert "sync:r0:8105202" in text


@pytest.mark.parametrize(
    ("finding", "told"), [("gap:r0.d0:5", "These captures have no gap gap:r0.d0:5"), ("gap", "'gap' is no id.")]
)
def test_an_unknown_id_is_one_line_that_says_how_to_list_them(run: Run, finding: str, told: str) -> None:
    code, out, err = run("show", ITEM, finding)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert told in err
    assert "--format json --brief" in err


@pytest.mark.nightly
def test_brief_text_is_the_first_lines_alone(run: Run) -> None:
    for command in ("check-overlap", "syncs", "collectives", "info"):
        brief_out, full_out = run(command, ITEM, "--brief").out, run(command, ITEM).out
        most = 20 if command == "check-overlap" else 9  # of nine first lines each takes two rows at most
        assert 0 < len(brief_out.splitlines()) <= most < len(full_out.splitlines())


def test_a_long_answer_is_cut_and_says_what_is_missing() -> None:
    """A kernel's name of 5,000 letters, and 500 findings: the worst stay."""
    answer = {
        "schema": "x",
        "found": [{"id": f"gap:r0.d0:{i}", "evidence": "x" * 5_000} for i in range(500)],
        "next": ["traceviz info x"] * 9,
    }
    short = fitted(answer, {"found": 500})
    assert tokens(as_line(short)) <= MOST_TOKENS
    assert short["found"][0]["id"] == "gap:r0.d0:0"
    assert len(short["found"]) + short["left_out"]["found"] == 500
    assert short["next"] == ["traceviz info x"] * 3


def test_a_command_keeps_the_options_that_say_what_is_looked_at() -> None:
    given = {"traces": ["a.json"], "a": "nvtx:x y", "b": "compute", "steps": "1:4", "no_align": True, "ranks": None}
    assert (
        CommandLine(given).again("check-overlap")
        == "traceviz check-overlap a.json -a 'nvtx:x y' --steps 1:4 --no-align"
    )
    assert CommandLine(given).again("info") == "traceviz info a.json"


def test_many_paths_become_the_glob_that_gives_them_or_a_word(tmp_path: Path) -> None:
    paths = [str(tmp_path / f"{'x' * 60}[0] rank{rank}.json") for rank in range(40)]
    for path in paths:
        Path(path).write_text("{}")
    (pattern,) = shlex.split(as_words(paths))
    assert sorted(glob.glob(pattern)) == sorted(paths)  # noqa: PTH207 (as a command reads it)
    assert as_words(paths[:20]) == CAPTURES_PLACEHOLDER  # the glob would give more than these
