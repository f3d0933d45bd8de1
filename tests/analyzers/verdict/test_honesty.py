"""What a capture can't answer is said, once, in every answer that rests on it: captures in which it is so."""

from __future__ import annotations

import html
import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.command_lines import invoked
from tests.support.kineto_files import KinetoFile, pair_of_ranges
from tests.support.nightly import mostly_nightly
from tests.support.nsys_exports import edited
from traceviz.output import printed

NSYS = Path(__file__).parents[2] / "data" / "nsys"
SCRIPT = re.compile(r"<(script|style)\b.*?</\1>", re.DOTALL)
NEW_LINE = re.compile(r"</?(p|li|h\d|tr|td|th|section|title)\b[^>]*>")


@pytest.fixture(autouse=True)
def _unbroken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prose of any length stands in one line."""
    monkeypatch.setattr(printed, "PROSE", 1_000)


@dataclass(frozen=True)
class Case:
    """A capture, and what must be said of it: in `info`, and in answers about a pair (`code` is its warning's)."""

    files: Callable[[Path], list[Path]]
    in_info: str
    of_pair: str
    code: str = ""
    sides: tuple[str, str] = ("comm", "compute")


def export(name: str, *edits: str) -> Callable[[Path], list[Path]]:
    return lambda folder: [edited(NSYS / name, folder / name, *edits)]


def ranks_without_a_common_collective(folder: Path) -> list[Path]:
    made = []
    for rank, kernel in enumerate(("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "ncclDevKernel_AllGather_RING_LL")):
        file = KinetoFile(rank)
        for step in range(3):
            start = 10_000 * step
            file.range(f"ProfilerStep#{step}", start, start + 5_000)
            file.kernel(kernel, 9, start + 1000, start + 1100, launch=start + 10)
            file.kernel("gemm", 7, start + 1000, start + 1100, launch=start + 110)
        made.append(file.write(folder / f"rank{rank}.json"))
    return made


def one_occurrence_of_each(folder: Path) -> list[Path]:
    return [pair_of_ranges("A", "B", overlap=70).write(folder / "one.json")]


HALF_OF_IT = (
    "DELETE FROM PROFILER_OVERHEAD",
    "INSERT INTO PROFILER_OVERHEAD SELECT (min(start) + max(end)) / 2, max(end) + 1000000000, 0, 0, 0 "
    "FROM CUPTI_ACTIVITY_KIND_KERNEL",
)
LOSSES = "INSERT INTO DIAGNOSTIC_EVENT SELECT 0, 1, 1, {}, '{}', globalPid FROM CUPTI_ACTIVITY_KIND_KERNEL LIMIT 1"
CASES = {
    "graphs as one row": Case(
        export("graph_overlap.4gpu.sqlite"),
        r"what ran inside 12 CUDA graph launches: each is one row",
        r"12 CUDA graph launches are one row each",
    ),
    "dropped events": Case(
        export("rowpar_s1.rank0.nsys2025.sqlite", LOSSES.format(1, "Number of CUPTI events dropped: 37. So it is.")),
        *[r"nsys says of process \d+: Number of CUPTI events dropped: 37\."] * 2,
        code="dropped-events",
    ),
    "diagnostic warnings": Case(
        export("rowpar_s1.rank0.nsys2025.sqlite", LOSSES.format(2, "Not all of it was collected.")),
        *[r"nsys warns of process \d+: .*Not all of it was collected"] * 2,
        code="nsys-warns",
    ),
    "profiler overhead": Case(
        export("rowpar_s1.rank0.nsys2025.sqlite", *HALF_OF_IT),
        *[r"profiler's own work took \S+ ms of \S+ ms \(50 %\)"] * 2,
        code="profiler-overhead",
    ),
    "unaligned clocks": Case(
        ranks_without_a_common_collective,
        *[r"No collective was matched over ranks: clocks rest on session start times, and their error is unknown"] * 2,
        code="clocks-not-aligned",
    ),
    "few instances": Case(
        one_occurrence_of_each,
        r"steps: no range is named like one",
        r"The verdict rests on 1 instance a rank: too few for a median, it may be chance",
        code="few-instances",
        sides=("nvtx:A", "nvtx:B"),
    ),
}


def run(*words: str) -> str:
    done = invoked(*words, env={"COLUMNS": "1000"})
    assert done.exit_code in (0, 1, 3), done.output
    return done.stdout


def lines_of_page(path: Path) -> list[str]:
    """What a reader sees of a page, a line for each paragraph, item and cell."""
    text = NEW_LINE.sub("\n", SCRIPT.sub("", path.read_text()))
    return [html.unescape(re.sub(r"<[^>]*>", "", line)).strip() for line in text.splitlines()]


def assert_printed_once(lines: list[str], text: str) -> None:
    """It stands there, and no sentence that says it stands there twice."""
    plain = [re.sub(r"\\(.)", r"\1", line).strip(" •-") for line in lines]
    found = [line for line in plain if re.search(text, line)]
    assert found, "\n".join(lines)
    assert set(Counter(found).values()) == {1}


@pytest.mark.parametrize("name", CASES)
def test_what_a_capture_cannot_answer_is_said_in_every_answer(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    files = [str(path) for path in case.files(tmp_path)]
    asked = [*files, "-a", case.sides[0], "-b", case.sides[1]]

    assert_printed_once(run("info", *files).splitlines(), case.in_info)
    about = json.loads(run("info", *files, "--format", "json"))
    assert_printed_once([*about["cannot"], *(one["message"] for one in about["warnings"])], case.in_info)

    assert_printed_once(run("check-overlap", *asked).splitlines(), case.of_pair)
    assert_printed_once(run("check-overlap", *asked, "--format", "md").splitlines(), case.of_pair)
    answer = json.loads(run("check-overlap", *asked, "--format", "json"))
    warned = {one["code"]: one["message"] for one in answer["warnings"]}
    assert_printed_once([warned[case.code] if case.code else answer["reason"]], case.of_pair)


@pytest.mark.parametrize("name", mostly_nightly(CASES, lambda name: name in ("graphs as one row", "few instances")))
def test_what_a_capture_cannot_answer_is_said_on_every_page(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kaleido", None)
    case = CASES[name]
    asked = [*map(str, case.files(tmp_path)), "-a", case.sides[0], "-b", case.sides[1]]
    run("report", *asked, "-o", str(tmp_path / "report"))
    run("timeline", *asked, "-o", str(tmp_path / "timeline.html"))
    assert_printed_once((tmp_path / "report" / "summary.md").read_text().splitlines(), case.of_pair)
    for page in (tmp_path / "report" / "report.html", tmp_path / "timeline.html"):
        shown = [line for line in lines_of_page(page) if line]
        assert_printed_once(shown[1:], case.of_pair)  # without the title, which repeats the headline
        items = re.findall(r"<li>(.*?)</li>", SCRIPT.sub("", page.read_text()), re.DOTALL)
        assert len(items) == len(set(items)), "an item of a list stands twice"


@pytest.mark.parametrize("command", ["collectives", "streams", "syncs", "compare"])
def test_one_row_graphs_are_said_wherever_ops_are_counted(command: str) -> None:
    file = str(NSYS / "graph_overlap.4gpu.sqlite")
    answer = json.loads(run(command, *[file] * (2 if command == "compare" else 1), "--format", "json"))
    messages = [one["message"] for one in answer["warnings"] if one["code"] == "graph-as-one-row"]
    assert messages
    assert all("12 CUDA graph launches" in message for message in messages)
