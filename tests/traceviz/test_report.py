from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

import traceviz as tv
from analyzers.common.errors import TracevizError, TraceWarning
from analyzers.counters.limits import Contended
from analyzers.load import load
from analyzers.replay.result import Prediction, WhatIf
from analyzers.trace.tables import Trace
from analyzers.verdict.profiler import ProfilerWeight
from tests.support.builder import Builder
from tests.support.command_lines import invoked
from tests.support.nightly import mostly_nightly
from tests.support.timeline_traces import HOSTILE_PAIR, US, hostile, loaded, two_instances
from traceviz.output.document import markdown, quoted
from traceviz.reports import files as reports
from traceviz.reports import report as reporting
from traceviz.reports.gantt import gantt
from traceviz.reports.page import html, step_times
from traceviz.reports.report import Report, make
from traceviz.reports.summary import best_fixes_in_short, summary

FILES = ["tests/data/torch/dpmp_overlap.rank0.json.gz", "tests/data/torch/dpmp_overlap.rank1.json.gz"]
DP_MP = ("nvtx:DP Embedding", "nvtx:MP Embedding")
GITHUBS_LIMIT = 65_536
# Tags of a summary's own, in whatever renders it.
OWN_TAGS = {
    "h2", "h3", "details", "summary", "p", "pre", "code", "table", "thead", "tbody", "tr", "th", "td", "strong", "em",
    "ul", "li",
}  # fmt: skip
TASK = re.compile(r"  [A-Za-z.][A-Za-z0-9µ _.+*/()=-]* :((active|done|crit|crit, done), )?\d+, \d+")


@pytest.fixture(autouse=True)
def without_kaleido(monkeypatch: pytest.MonkeyPatch) -> None:
    """No picture is drawn here; tests/browser does that."""
    monkeypatch.setitem(sys.modules, "kaleido", None)


@pytest.fixture(scope="module")
def report() -> Report:
    return make(load(FILES), *DP_MP)


def rendered(text: str) -> str:
    """As GitHub would render it: with tables and links of bare addresses."""
    return str(MarkdownIt("gfm-like", {"linkify": False, "html": True}).enable("table").render(text))


def by_github(text: str) -> str:
    """As GitHub's own program renders it; raw HTML would pass, so that a test can see it."""
    program = shutil.which("cmark-gfm")
    if program is None:
        pytest.skip("no cmark-gfm: install Debian's package of that name")
    extensions = [word for name in ("table", "autolink", "strikethrough", "tasklist") for word in ("-e", name)]
    run = subprocess.run([program, "--unsafe", *extensions], input=text.encode(), capture_output=True, check=True)
    return run.stdout.decode()


def test_githubs_renderer_makes_tables_lists_and_charts_of_the_summary(report: Report) -> None:
    text = summary(report, with_image=True)
    page = by_github(text)
    tables = len(re.findall(r"^\|[-:|]+\|$", text, re.MULTILINE))
    assert tables >= 5
    assert page.count("<table>") == tables
    assert page.count("<tr>") == sum(line.startswith("| ") for line in text.splitlines())
    assert page.count("<details>") == page.count("</details>") == 1
    assert page.count("<li>") == sum(line.startswith("- ") for line in text.splitlines())
    assert '<pre><code class="language-mermaid">' in page or 'lang="mermaid"' in page
    assert "<a " not in page


def test_the_summary_holds_what_a_reviewer_needs(report: Report) -> None:
    page = rendered(summary(report, with_image=True))
    assert re.search(r"<h3>❌ PARTIAL: .* for 75 of 342 µs achievable a step: 21\.9 %, .*: rank 1; ", page)
    for words in ("Per rank", "Missed overlap by cause", "Why, on rank 1", "Captured", "Clocks", "NVIDIA H200"):
        assert words in page
    assert '<code class="language-mermaid">' in page
    assert "traceviz report 'tests/data/torch/dpmp_overlap.rank*.json.gz' -a 'nvtx:DP Embedding'" in unescape(page)
    assert "timeline.png" in page
    assert "timeline.png" not in summary(report, with_image=False)


def test_counters_take_no_table_out_of_the_summary(report: Report) -> None:
    counted = replace(report, overlap=replace(report.overlap, contended=Contended(unknown="too few samples")))
    plain, more = (reports.summary(one, with_image=False) for one in (report, counted))
    assert "| side | selector |" in plain
    assert "not known, too few samples" in more
    assert set(plain.splitlines()) <= set(more.splitlines())


def test_the_same_figures_stand_in_every_file(report: Report, tmp_path: Path) -> None:
    reports.write(report, tmp_path / "out")
    data = json.loads((tmp_path / "out" / "results.json").read_text())
    assert data["schema"] == "traceviz.report/1"
    schemas = {
        one["schema"].removeprefix("traceviz.") for one in data.values() if isinstance(one, dict) and "schema" in one
    }
    assert schemas == {"overlap/3", "collectives/1", "syncs/2", "streams/1", "info/2", "what-if/1"}
    assert [one["overlap_ns"] for one in data["overlap"]["ranks"]] == [one.overlap_ns for one in report.overlap.ranks]
    page = (tmp_path / "out" / "report.html").read_text()
    sections = ["Verdict", "Timeline", "What fixes are worth", "Collectives", "Sync points and ordering", "Streams"]
    assert [one for one in re.findall("<h2>(.*)</h2>", page) if one in sections] == sections
    assert "163 µs" in page
    assert "| 0.163\u00a0ms |" in (tmp_path / "out" / "summary.md").read_text(), "no line breaks before a unit"


def test_nothing_is_written_where_the_folder_cannot_be_made(report: Report, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TracevizError, match="No folder can be made"):
        reports.write(report, tmp_path / "file" / "out")


def test_no_half_file_takes_a_final_name(report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    reports.write(report, out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}

    def full(self: Path, content: bytes) -> int:
        with self.open("wb") as file:
            file.write(content[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(TracevizError, match="No space left on device"):
        reports.write(report, out)
    monkeypatch.undo()
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_the_gantt_shows_the_instance_as_it_was() -> None:
    """Instance 0 of `two_instances`: the median of two is the lower."""
    made = make(loaded(two_instances()), "nvtx:A", "nvtx:B")
    low = made.picture.low_ns
    chart = gantt(made.picture)
    tasks = tasks_of(chart)
    unit = 1 if made.picture.high_ns - low < 200 * US else US

    def at(us: int) -> int:
        return (us * US - low) // unit

    assert ("B stream 7 main", "B 2 ops from lookup", "done", at(10), at(50)) in tasks
    assert ("A stream 9", "A dense", "active", at(45), at(65)) in tasks
    assert ("host 1", "blocked cudaStreamSynchronize", "crit", at(12), at(40)) in tasks
    # The pair's own row: B alone from 10 to 45, both until 50, A alone until 65.
    assert [task for task in tasks if task[0] == "A and B"] == [
        ("A and B", "B alone 35000 ns", "done", at(10), at(45)),
        ("A and B", ".", "", at(45), at(50)),
        ("A and B", "A alone 15000 ns", "active", at(50), at(65)),
    ]
    # Blocked by the host: busy until 12, blocked until 40, late until A starts at 45.
    assert unit == 1
    assert [(text, *edges) for row, text, _, *edges in tasks if row == "A blocked by"] == [
        (".", at(10), at(12)),
        ("blocked by host sync 28000 ns", at(12), at(40)),
        ("late launch", at(40), at(45)),  # beside its bar, which has no room
    ]


def tasks_of(chart: str) -> list[tuple[str, str, str, int, int]]:
    """(section, text, look, from, to)."""
    return [
        (row, text, look.removesuffix(", "), int(start), int(end))
        for row, section in re.findall(r"section (.*)\n((?:  (?!section).*\n?)*)", chart)
        for text, look, start, end in re.findall(r"^  (.*?) :((?:\w+, )*)(\d+), (\d+)$", section, re.MULTILINE)
    ]


def test_many_ops_are_never_one_solid_bar_and_their_bars_are_as_long_as_they_ran() -> None:
    """308 ops of 1 µs each begin every 2 µs: half of the time nothing runs."""
    run = Builder()
    rank = run.rank(0)
    for k in range(308):
        rank.kernel("gemm", 7, 2 * k * US, (2 * k + 1) * US, launch=(2 * k * US - 200, 2 * k * US - 100))
    rank.kernel("ncclDevKernel_AllReduce", 9, 0, 616 * US, launch=(0, 1))
    made = make(loaded(run.trace()), "comm", "compute")
    tasks = tasks_of(gantt(made.picture))
    bars = [end - start for row, _, _, start, end in tasks if row == "B stream 7 main"]
    (whole,) = [end - start for row, _, _, start, end in tasks if row == "A stream 9 NCCL"]
    assert len(bars) > 2
    assert sum(bars) / whole == pytest.approx(0.5, abs=0.15), "of the part that is shown, half"
    assert sum(text.startswith("overlap") for row, text, *_ in tasks if row == "A and B") == len(bars)


def test_ops_of_several_streams_are_one_row_a_side_on_which_none_counts_twice() -> None:
    """B runs on two streams, 0 to 40 and 20 to 60, and A from 50 to 70."""
    run = Builder()
    rank = run.rank(0)
    for stream, name, start, end in ((7, "x", 0, 40), (8, "y", 20, 60), (9, "ncclDevKernel_AllReduce", 50, 70)):
        rank.kernel(name, stream, start * US, end * US, launch=(0, 1))
    tasks = tasks_of(gantt(make(loaded(run.trace()), "comm", "compute").picture))
    (first,) = [start for row, text, _, start, _ in tasks if row == "B streams 7 8"]
    assert [(row, end - first) for row, _, _, _, end in tasks if row[0] in "AB" and row != "A and B"][:2] == [
        ("A stream 9 NCCL", 70_000),
        ("B streams 7 8", 60_000),
    ]


@pytest.mark.parametrize("name", ["rowpar_s4", "opt_overlap", "a2a_sync"])
def test_a_reviewer_reads_less_than_40_lines_unfolded(name: str) -> None:
    made = make(load([f"tests/data/torch/{name}.rank*.json.gz"]))
    for passed, icon in ((True, "✅"), (False, "❌"), (None, "⚠️")):
        judged = replace(made, overlap=replace(made.overlap, passed=passed))
        seen = summary(judged, with_image=True).partition("<details>")[0]
        assert len(seen.splitlines()) < 40
        assert seen.startswith(f"### {icon} ")
        assert all(quoted(line.text) in seen for line in judged.overlap.lines)
        rows = {row[0] for row, *_ in tasks_of(seen) if row.startswith(("A stream", "B "))}
        is_both = "around the longest overlap" in seen
        assert rows == {"A", "B"} if is_both else rows, "the longest gap may have one side alone about it"


def test_so_does_one_of_an_answer_with_all_its_first_lines_and_a_claim() -> None:
    """Each further line takes one of the chart's, down to what it can't do without."""
    made = make(load(["tests/data/torch/rowpar_s4.rank*.json.gz"]))
    warnings = tuple(TraceWarning(code, "Something is so.") for code in ("missing-wait", "lost-work"))
    heavy = ProfilerWeight(1.41, "manifest", 14_100_000, 10_000_000)
    told = replace(made.overlap, warnings=warnings, profiler=heavy, claim_reason="nothing to hold it against")
    seen = summary(replace(made, overlap=told), with_image=True).partition("<details>")[0]
    assert len(told.lines) == len(made.overlap.lines) + 3
    assert len(seen.splitlines()) < 40
    assert all(quoted(line.text) in seen for line in told.lines)
    assert "```mermaid" in seen


@pytest.mark.nightly
def test_nothing_of_a_report_names_where_its_captures_lie_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [tmp_path / "secret place" / name for name in ("serial", "beside")]
    for folder, program in zip(folders, ("dpmp_serial", "dpmp_overlap"), strict=True):
        folder.mkdir(parents=True)
        for rank in (0, 1):
            shutil.copy(f"tests/data/torch/{program}.rank{rank}.json.gz", folder / f"rank{rank}.json.gz")
    alone, beside = ([str(path) for path in sorted(folder.iterdir())] for folder in folders)
    words = ["report", *beside, "-a", DP_MP[0], "-b", DP_MP[1], "-o", str(tmp_path / "out"), "--claimed", "1.2x"]
    run = invoked(*words, *(word for path in alone for word in ("--baseline", path)))
    assert run.exit_code == 1, run.output
    command = json.loads((tmp_path / "out" / "results.json").read_text())["command"]
    assert shlex.split(command)[2] == "beside/rank*.json.gz"
    assert "--baseline serial/rank*.json.gz --claimed 1.2x" in command.replace("'", "")
    made = tv.report(beside, tmp_path / "api", *DP_MP, baseline=alone, claimed="1.2x")
    assert [one.path for one in made.info.captures] == ["beside/rank0.json.gz", "beside/rank1.json.gz"]
    for path in [*(tmp_path / "out").iterdir(), *made.files]:
        assert b"secret" not in path.read_bytes(), path
    # From the folder they lie in, the command makes the same report.
    monkeypatch.chdir(tmp_path / "secret place")
    again = invoked(*shlex.split(command)[1:-1], str(tmp_path / "again"))
    assert again.exit_code == 1, again.output
    first, second = (json.loads((tmp_path / one / "results.json").read_text()) for one in ("out", "again"))
    assert first == second


def test_a_claim_stands_below_the_first_lines(tmp_path: Path) -> None:
    alone = load(["tests/data/torch/dpmp_serial.rank*.json.gz"])
    for claim, words in (("14.7x", "**❌ Impossible claim:** two tasks of"), ("1.05x", "can gain at most|measured")):
        seen = summary(make(load(FILES), *DP_MP, baseline=alone, claimed=claim), with_image=False)
        assert re.search(words.replace("*", r"\*"), seen.partition("```mermaid")[0])


def test_the_charts_title_fits_into_it_and_its_looks_are_told_below(report: Report) -> None:
    (title,) = [line for line in gantt(report.picture).splitlines() if line.startswith("  title ")]
    assert title == "  title occurrence 2 on rank 1, around the longest gap, µs"
    named = replace(report.picture, shown=replace(report.picture.shown, label="x" * 500))
    (title,) = [line for line in gantt(named).splitlines() if line.startswith("  title ")]
    assert len(title) < 90
    page = rendered(summary(report, with_image=True))
    assert "A (nvtx:DP Embedding) is light, B (nvtx:MP Embedding) grey, both at once dark; red" in page


@pytest.mark.parametrize("trace", [two_instances(), hostile()], ids=["plain", "hostile"])
def test_the_gantt_holds_nothing_but_its_own_grammar(trace: Trace) -> None:
    pair = HOSTILE_PAIR if len(trace.ops) > 8 else ("nvtx:A", "nvtx:B")
    lines = gantt(make(loaded(trace), *pair).picture).splitlines()
    assert lines[0] == '%%{init: {"gantt": {"displayMode": "compact", "leftPadding": 120}}}%%'
    assert lines[1] == "gantt"
    for line in lines[6:]:
        assert TASK.fullmatch(line) or re.fullmatch(r"  section [A-Za-z0-9 ]+", line), line
    assert not re.search(r"[<>;#%\"`&]", "\n".join(lines[1:]).replace("axisFormat %Q", ""))


@pytest.fixture(scope="module")
def of_hostile() -> Report:
    return make(loaded(hostile()), *HOSTILE_PAIR)


@pytest.mark.parametrize("render", [rendered, by_github])
def test_hostile_names_stay_text_in_markdown(render: Callable[[str], str], of_hostile: Report) -> None:
    text = summary(of_hostile, with_image=False)
    page = render(text)
    assert set(re.findall(r"<([a-zA-Z0-9]+)", page)) <= OWN_TAGS
    assert "&lt;script&gt;window.hacked=1&lt;/script&gt;" in page
    assert "\x1b" not in text


def test_hostile_names_stay_text_in_html(of_hostile: Report) -> None:
    whole = html(of_hostile)
    body = whole[whole.index("<body>") :]
    assert set(re.findall(r"<([a-zA-Z0-9]+)", body.partition("<script>")[0])) <= OWN_TAGS | {
        "body", "section", "h3", "div", "nav", "a", "b", "kbd", "button", "input", "span", "canvas", "script"
    }  # fmt: skip
    assert body.count("<script") == 2  # the timeline's data and its program
    assert "\x1b" not in body


@pytest.mark.parametrize("ranks", mostly_nightly((8, 64), lambda ranks: ranks == 8))
def test_the_summary_fits_into_a_comment_whatever_the_names_and_numbers(ranks: int) -> None:
    run = Builder()
    for number in range(ranks):
        rank = run.rank(number)
        for k in range(6):
            begin = k * 100 * US
            rank.range("A" + "x" * 20_000, begin, begin + 5 * US)
            rank.kernel("k" * 5000 + str(k), 7, begin + 10 * US, begin + 20 * US, launch=(begin, begin + US))
            rank.range("B" + "y" * 20_000, begin + 5 * US, begin + 9 * US)
            rank.kernel(
                "l" * 5000 + str(k), 9, begin + 25 * US, begin + 40 * US, launch=(begin + 6 * US, begin + 7 * US)
            )
    made = make(loaded(run.trace()), "nvtx:~^A", "nvtx:~^B", command="traceviz report " + "long/path " * 9000)
    assert len(summary(made, with_image=True)) < GITHUBS_LIMIT


def test_the_command_ends_as_the_verdict_does_once_all_is_written(tmp_path: Path) -> None:
    run = invoked("report", *FILES, "-a", DP_MP[0], "-b", DP_MP[1], "-o", str(tmp_path / "out"))
    assert run.exit_code == 1
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"summary.md", "report.html", "results.json"}
    met = ["report", *FILES, "-a", DP_MP[0], "-b", DP_MP[1], "--min-overlap", "10%", "-o", str(tmp_path / "out")]
    assert invoked(*met).exit_code == 0


@pytest.mark.nightly
def test_an_apparent_figure_decides_where_it_is_accepted_and_the_command_says_so(tmp_path: Path) -> None:
    words = ["report", FILES[0], "-a", DP_MP[0], "-b", DP_MP[1], "--min-overlap", "10%", "-o", str(tmp_path / "r")]
    refused = invoked(*words)
    accepted = invoked(*words, "--accept-apparent")
    assert (refused.exit_code, accepted.exit_code) == (3, 0)
    assert "23.5 % apparent, threshold 10 % (rank 0, the only one given, of 2)" in accepted.stdout
    assert "--accept-apparent" in json.loads((tmp_path / "r" / "results.json").read_text())["command"]
    page = tmp_path / "t.html"
    assert invoked("timeline", *words[1:-1], str(page), "--accept-apparent").exit_code == 0
    assert "OVERLAPPED" in page.read_text(encoding="utf-8")
    pair = ("nvtx:DP Embedding", "nvtx:MP Embedding")
    made = tv.report(FILES[0], tmp_path / "api", *pair, min_overlap=0.1, accept_apparent=True)
    assert (made.overlap.passed, "--accept-apparent" in made.command) == (True, True)


@pytest.mark.nightly
def test_python_writes_the_same_report_as_the_command(tmp_path: Path) -> None:
    invoked("report", *FILES, "-a", DP_MP[0], "-b", DP_MP[1], "-o", str(tmp_path / "one"))
    made = tv.report(tv.load(*FILES), tmp_path / "two", *DP_MP)
    assert {path.name for path in made.files} == {"summary.md", "report.html", "results.json"}
    for path in made.files:
        assert path.read_bytes() == (tmp_path / "one" / path.name).read_bytes()
    assert made.overlap.verdict == "partial"


def test_a_part_taken_in_python_names_no_command_that_would_show_something_else(tmp_path: Path) -> None:
    tv.report(tv.load(*FILES).only(ranks=0), tmp_path, *DP_MP)
    assert json.loads((tmp_path / "results.json").read_text())["command"] == ""
    assert "traceviz report" not in (tmp_path / "summary.md").read_text()
    assert "<h2>Command</h2>" not in (tmp_path / "report.html").read_text()


@pytest.mark.nightly
def test_the_page_draws_what_overlap_cost() -> None:
    """Of 75 ms some 17 were lost to contention by the compute side; what the other lost is not known."""
    report = make(load(["tests/data/contention/reduce_after.rank*.json.gz"]), "comm", "compute")
    page = html(report)
    free = html(make(load(["tests/data/contention/gather_copy.rank*.json.gz"]), "comm", "compute"))
    assert not re.search(r'class="cost (net|paid-[ab])"', free), "where nothing was paid there is no such panel"
    assert page.count('class="cost-row"') == 2
    assert "what A lost is not known" in page
    widths = [float(each) for each in re.findall(r'class="cost (?:net|paid-[ab])" style="width:([0-9.]+)%"', page)]
    one = report.overlap.contention[1]
    assert widths[-2:] == pytest.approx(
        [
            100 * (one.real_overlap_ns - (one.b.paid_ns or 0)) / one.real_overlap_ns,
            100 * (one.b.paid_ns or 0) / one.real_overlap_ns,
        ],
        abs=0.01,
    )


def test_the_best_fixes_stand_on_one_axis_with_the_captured_step() -> None:
    """Bars as wide as step times: 1,000 µs now; 800 predicted; none for what is slower or says nothing."""

    def made(change: str, step: int, low: int, high: int) -> Prediction:
        return Prediction((change,), 1000, step, low, high, (), ("it is so",), "host work", 0.5)

    slower, unsure = made("on-time all", 1200, 1150, 1250), made("scale comm 2", 900, 100, 2000)
    result = WhatIf("comm", "compute", None, (made("drop-sync <x>", 800, 750, 850), unsure, slower))
    html = step_times(result)
    assert re.findall(r"width:([\d.]+)%", html) == ["100.00", "80.00", "10.00"]
    assert "left:75.00%" in html
    assert "drop-sync &lt;x&gt;" in html
    assert step_times(WhatIf("comm", "compute", None, (slower,))) == ""
    words = markdown(best_fixes_in_short(result))
    assert "predicted by replay, not measured" in words
    assert "Assumed: it is so." in words
    assert "on-time all" not in words


def test_the_first_fix_of_the_summary_is_the_one_named_with_the_verdict() -> None:
    """Two changes, of which the safe one is to be tried first though the question gains more."""

    def made(*changes: str, step: int, suggested: int | None, safety: str = "safe") -> Prediction:
        one = Prediction(changes, 1000, step, step - 10, step + 10, (), (), "host work", 0.5)
        return replace(one, suggested=suggested, safety=safety, likely=1.0 if safety == "safe" else 0.5)

    safe = made("pin x", step=700, suggested=1)
    asked = made("drop-sync x", step=600, suggested=2, safety="conditional")
    both = made("pin x", "drop-sync x", step=500, suggested=None, safety="conditional")
    result = WhatIf("comm", "compute", None, (both, asked, safe))
    assert result.fix is not None
    assert result.fix.change == "pin x"
    words = markdown(best_fixes_in_short(result))
    assert "not measured. pin x: step 1.00 → 0.70 µs" in words
    assert words.index("| pin x |") < words.index("| drop-sync x |") < words.index("| pin x + drop-sync x |")


def test_a_large_run_is_left_to_the_command(monkeypatch: pytest.MonkeyPatch, report: Report) -> None:
    assert report.what_if.changes
    monkeypatch.setattr(reporting, "MOST_OPS", 1)
    made = make(load(FILES[:1]), *DP_MP)
    assert (made.what_if.changes, "traceviz what-if" in made.what_if.reason) == ((), True)
