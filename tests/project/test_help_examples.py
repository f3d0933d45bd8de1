"""Every example in every `--help` runs as it is printed, on captures of the names that it gives.

A name stands for a real capture (`CAPTURES`); where an example asks about other ranges than that has, for another
(`INSTEAD`). Whatever would need a GPU, a launcher or a program of the user's is only parsed (`NOT_HERE`).
"""

from __future__ import annotations

import gzip
import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.browser import chromium
from tests.support.command_lines import commands, invoked

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
EXAMPLES = [
    example
    for command in commands().values()
    for example in re.findall(
        r"^  ((?:mpirun -n 4 )?traceviz .*)$", command.epilog.partition("Examples:")[2], re.MULTILINE
    )
]
NOT_HERE = ("traceviz collect ", "mpirun ", "traceviz workload ", "traceviz mcp ")
HERE = [example for example in EXAMPLES if not example.startswith(NOT_HERE)]

# What an example names -> files of it: {name there: file of tests/data}.
STEPS = {f"rank{rank}.json.gz": f"pairs/dpmp_item_after.rank{rank}.json.gz" for rank in (0, 1)}  # 20 steps
LOOKUP = {f"rank{rank}.json.gz": f"torch/item_before.rank{rank}.json.gz" for rank in range(4)}
OVERLAP = {f"rank{rank}.json.gz": f"torch/dpmp_overlap.rank{rank}.json.gz" for rank in (0, 1)}
SERIAL = {f"rank{rank}.json.gz": f"torch/dpmp_serial.rank{rank}.json.gz" for rank in (0, 1)}
CAPTURES = {
    "report.nsys-rep": "nsys/dpmp_hidden_sync.2gpu.nsys2023.nsys-rep",
    "report.sqlite": "nsys/ddp_log.2gpu.sqlite",
    "serial.sqlite": "pairs/opt_lookup_before.sqlite.gz",
    "overlapped.sqlite": "pairs/opt_lookup_after.sqlite.gz",
    "pasted-cuda_gpu_trace.txt": "nsys-stats/config1_one_report_8gpu.txt",
    "contract.toml": "../../docs/contracts/dpmp.toml",
    **OVERLAP,
    **{f"captures/{name}": file for name, file in STEPS.items()},
    **{f"overlapped/{name}": file for name, file in OVERLAP.items()},
    **{f"serial/{name}": file for name, file in SERIAL.items()},
    **{f"serial.{name}": file for name, file in SERIAL.items()},
    **{f"overlap.{name}": file for name, file in OVERLAP.items()},
    **{f"before/{name}": f"torch/opt_serial.{name}" for name in OVERLAP},
    **{f"after/{name}": f"torch/opt_overlap.{name}" for name in OVERLAP},
    **{f"base/{name}": f"torch/rowpar_s1.{name}" for name in OVERLAP},
    **{f"prefetch/{name}": f"torch/rowpar_s4.{name}" for name in OVERLAP},
    **{f"staged/{name}": f"torch/rowpar_s4.{name}" for name in OVERLAP},
}

# Words of an example -> what it needs instead.
INSTEAD = {
    "contract report.nsys-rep": {"contract.toml": "../fuzz/contract.toml"},
    "traceviz counters": {"report.sqlite": "counters/contend_after.sqlite.gz"},
    "--steps 10": STEPS,
    "collective:all_reduce": {
        f"captures/rank{rank}.json.gz": f"pairs/buckets_after.rank{rank}.json.gz" for rank in (0, 1)
    },
    "captures/rank*": {f"captures/{name}": f"workloads/dpmp.overlapped.2gpu.torch/{name}" for name in OVERLAP},
    "nvtx:MP lookup": {**LOOKUP, **{f"captures/{name}": file for name, file in LOOKUP.items()}},
}
SLOW = ("timeline", "report", "what-if", "compare")
# By default one of each command runs; that all parse is held by test_layout.
FIRST = {example.split()[1]: example for example in reversed(HERE)}
QUICK = {example for command, example in FIRST.items() if command not in SLOW}


def marks(example: str) -> list[pytest.MarkDecorator]:
    nsys = [pytest.mark.nsys] if ".nsys-rep" in example else []
    drawn = re.search(r"\.(png|svg)\b", example) is not None
    browser = [pytest.mark.skipif(chromium.find() is None, reason="no Chrome or Chromium")] if drawn else []
    return [*nsys, *browser, *([] if example in QUICK else [pytest.mark.nightly])]


def place(files: dict[str, str], folder: Path) -> None:
    """Files of tests/data under other names; an export as `.sqlite.gz` is unpacked where the name wants that."""
    for name, file in files.items():
        there = folder / name
        there.parent.mkdir(exist_ok=True)
        there.unlink(missing_ok=True)
        if file.endswith(".gz") and not name.endswith(".gz"):
            with gzip.open(DATA / file) as packed, there.open("wb") as unpacked:
                shutil.copyfileobj(packed, unpacked)
        else:
            there.symlink_to((DATA / file).resolve())


@pytest.mark.parametrize("example", [pytest.param(one, marks=marks(one), id=one) for one in HERE])
def test_it_runs(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To an answer: exit code 0, 1 or 3, and what `-o` names is written."""
    words = shlex.split(example)[1:]
    place({name: file for name, file in CAPTURES.items() if named(name, words)}, tmp_path)
    for part, files in INSTEAD.items():
        if part in example:
            place({name: file for name, file in files.items() if named(name, words)}, tmp_path)
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRACEVIZ_CACHE", str(tmp_path / "cache"))
    if "results.db" in example and "--save" not in words:
        save = ["check-overlap", "rank0.json.gz", "-a", "nvtx:DP Embedding", "-b", "nvtx:MP Embedding", "--save"]
        place(OVERLAP, tmp_path)
        invoked(*save, "results.db")
    ran = invoked(*(word for given in words for word in expanded(given)))
    assert ran.exit_code in (0, 1, 3), ran.output
    assert ran.output
    assert not re.search(r": no (range|collective|kernel|operator) '", ran.output), "it asks for what is not there"
    for option in ("-o", "--timeline", "--save"):
        if option in words:
            assert (tmp_path / words[words.index(option) + 1]).exists()


def named(name: str, words: list[str]) -> bool:
    """Whether an example names a file, by itself, by its folder or by a glob."""
    return any(name.startswith(word.split("*")[0]) for word in words)


def expanded(word: str) -> list[str]:
    """As a shell does it, but for quoted globs, which the commands open themselves."""
    return sorted(str(path) for path in Path().glob(word)) if word.startswith("rank*") else [word]


def test_what_is_not_run_needs_a_gpu_or_a_program() -> None:
    assert len(EXAMPLES) > 50
    assert {example.split()[1] for example in EXAMPLES if example not in HERE} <= {"collect", "workload", "mcp", "-n"}
    assert "traceviz workload" in HERE
