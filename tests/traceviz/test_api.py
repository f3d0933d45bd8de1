"""What people in notebooks rely on: frames with units, chaining, tables that show whatever a trace's names are."""

from __future__ import annotations

import gzip
import html.parser
import importlib
import inspect
import pkgutil
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import traceviz as tv
from tests.support.builder import Builder
from tests.support.command_lines import without_replay
from traceviz.history.database import save
from traceviz.output import contract
from traceviz.trace import Trace

DATA = Path(__file__).parents[1] / "data"
PAIR = ("nvtx:DP Embedding", "nvtx:MP Embedding")


@pytest.fixture(scope="module")
def trace() -> Trace:
    return tv.load(DATA / "torch" / "dpmp_overlap.rank*.json.gz")


@pytest.fixture(scope="module")
def results(trace: Trace) -> dict[str, Any]:
    return {
        "check_overlap": tv.check_overlap(trace, *PAIR),
        "collectives": tv.collectives(trace),
        "sync_points": tv.sync_points(trace),
        "streams": tv.streams(trace),
        "info": tv.info(trace),
        "compare": tv.compare(trace, trace.only(steps=(0, 99)), labels=("before", "after")),
    }


NAMES = ("check_overlap", "collectives", "sync_points", "streams", "info", "compare")
BY_NAME = pytest.mark.parametrize("name", NAMES)


class Balanced(html.parser.HTMLParser):
    """Every tag that opens closes; keeps what a reader sees."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.seen = ""
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.seen += data


@BY_NAME
def test_results_are_dataclasses_with_a_frame_a_table_and_a_short_repr(name: str, results: dict[str, Any]) -> None:
    result = results[name]
    assert is_dataclass(result)
    assert isinstance(result.to_frame(), pd.DataFrame)
    assert len(repr(result)) < 300
    assert "\n" not in repr(result)
    tags = "div p span table thead tbody tr th td br"
    assert Balanced(result._repr_html_()).tags <= set(tags.split())


@pytest.fixture
def frames(results: dict[str, Any]) -> dict[str, pd.DataFrame]:
    overlap, order, compared = results["check_overlap"], results["sync_points"], results["compare"]
    return {
        **{name: one.to_frame() for name, one in results.items()},
        "instances": overlap.instances(),
        "causes": overlap.causes(),
        "summary": results["collectives"].summary.to_frame(),
        "clocks": results["collectives"].clocks.to_frame(),
        "copies": order.copies.to_frame(),
        "crossings": order.crossings.to_frame(),
        "plan": order.plan.to_frame(),
        "pairs": results["streams"].pairs(),
        "ranges": results["info"].ranges_frame(),
        "changes": compared.changes_frame(),
        "regions": compared.regions_frame(),
    }


def test_columns_that_hold_times_say_so(frames: dict[str, pd.DataFrame]) -> None:
    """A number of a million and more in a capture of a few ms can only be ns (or bytes, ids and sizes)."""
    others = ("_ns", "bytes", "correlation", "grid", "thread", "ns", "drift")
    for name, frame in frames.items():
        for column in frame:
            if pd.api.types.is_numeric_dtype(frame[column]) and not str(column).endswith(others):
                assert frame[column].abs().max() < 1_000_000 or frame[column].isna().all(), (name, column)


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("check_overlap", ["rank", "device"]),
        ("causes", ["rank", "device"]),
        ("collectives", ["collective", "rank"]),
        ("clocks", ["rank", "device"]),
        ("streams", ["rank", "device", "stream"]),
        ("info", ["rank"]),
        ("ranges", ["name"]),
        ("compare", ["label"]),
        ("changes", ["label", "rank", "device", "figure"]),
        ("regions", ["label", "name", "rank", "device"]),
    ],
)
def test_frames_are_indexed_by_what_a_row_is(name: str, index: list[str], frames: dict[str, pd.DataFrame]) -> None:
    frame = frames[name]
    assert list(frame.index.names) == index
    assert name == "causes" or frame.index.is_unique


def test_narrowing_chains_and_each_part_is_a_trace(trace: Trace) -> None:
    part = trace.only(steps=_first_two(trace), ranks=1)
    assert isinstance(part, Trace)
    assert part.rank_ids == [1]
    both = set(part.ops["start_ns"]) & set(trace.ops["start_ns"])
    assert len(both) == len(part.ops) > 0
    swapped = trace.only(ranks=1, steps=_first_two(trace))
    assert swapped.ops.equals(part.ops)
    low, high = int(part.ops["start_ns"].min()), int(part.ops["end_ns"].max())
    assert part.only(window_ns=(low, high)).ops.equals(part.ops)


def _first_two(trace: Trace) -> tuple[int, int]:
    first = tv.info(trace).steps.first or 0
    return first, first + 2


def test_ops_come_with_the_range_that_launched_them() -> None:
    run = Builder()
    rank = run.rank(0)
    rank.range("chunk 0", 0, 10)
    rank.range("chunk 1", 20, 30)
    rank.range("step: a,b", 0, 50)
    for start, launch in ((100, 5), (200, 25), (300, 40)):
        rank.kernel("gemm", stream=7, start=start, end=start + 50, launch=(launch, launch + 1))
    trace = tv.Trace(run.trace())
    found = trace.in_ranges("chunk *")
    assert found[["range", "occurrence", "start_ns"]].to_numpy().tolist() == [["chunk 0", 0, 100], ["chunk 1", 1, 200]]
    assert len(trace.in_ranges("step: a,b")) == 3
    assert trace.in_ranges("nothing").empty
    assert trace.select("nvtx:chunk 1").index.tolist() == [1]
    with pytest.raises(tv.TracevizError):
        trace.in_ranges("nvtx:a,nvtx:b")


def test_a_trace_shows_as_what_is_in_it(trace: Trace) -> None:
    assert "2 rank(s)" in Balanced(trace._repr_html_()).seen


def hostile() -> Trace:
    run = Builder()
    rank = run.rank(0)
    for name in ("<script>alert(1)</script>", 'a"b&c\u202e'):
        with_name = rank.range(name, 0, 100)
        assert with_name >= 0
    rank.kernel("<img src=x onerror=alert(1)>", stream=7, start=20, end=60, launch=(10, 12))
    rank.kernel("sgemm", stream=8, start=30, end=90, launch=(13, 15))
    rank.synchronize("stream", 20, 95, stream=7)
    return run.trace()


def test_names_of_a_trace_are_never_markup() -> None:
    trace = hostile()
    shown = [
        tv.check_overlap(trace, "kernel:img", "kernel:sgemm")._repr_html_(),
        tv.check_overlap(trace, 'nvtx:a"b*', "kernel:sgemm+stream:9")._repr_html_(),
        tv.sync_points(trace)._repr_html_(),
        tv.info(trace)._repr_html_(),
        tv.streams(trace)._repr_html_(),
    ]
    for one in shown:
        assert not Balanced(one).tags & {"script", "img"}
        assert "\u202e" not in one


@pytest.mark.parametrize("name", [name for name in tv.__all__ if name[0].islower()])
def test_public_functions_say_what_they_take_give_and_refuse(name: str) -> None:
    function = getattr(tv, name)
    text = inspect.getdoc(function) or ""
    takes = [key for key in inspect.signature(function).parameters if key not in ("trace", "args", "kwargs")]
    assert "Returns" in text
    assert "Parameters" in text or not takes


def test_trend_gives_what_the_history_command_prints(trace: Trace, tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    for commit in ("1", "2"):
        save(path, tv.check_overlap(trace, *PAIR), trace.data, commit=commit)
    (found,) = tv.trend(path, a=PAIR[0])
    assert [run.commit_id for run in found.runs] == ["1", "2"]
    assert tv.trend(path, a="comm") == []


def test_functions_stay_functions_when_modules_are_imported() -> None:
    """Importing a module puts it into its package: one of a function's name would stand in the function's place."""
    for module in pkgutil.iter_modules(tv.__path__):
        if not module.name.startswith("__"):
            importlib.import_module(f"traceviz.{module.name}")
    assert [name for name in tv.__all__ if name != "__version__" and not callable(getattr(tv, name))] == []


ONE = str(DATA / "torch" / "dpmp_overlap.rank0.json.gz")
TWO = [ONE, DATA / "torch" / "dpmp_overlap.rank1.json.gz"]
BY_QUESTION = pytest.mark.parametrize("name", ["check_overlap", "collectives", "sync_points", "streams", "info"])


def as_json(name: str, result: Any) -> dict[str, Any]:
    writers = {"check_overlap": contract.overlap, "sync_points": contract.syncs}
    found: dict[str, Any] = writers.get(name, getattr(contract, name, None))(result)
    return found


@BY_QUESTION
def test_whatever_names_a_run_gets_the_same_answer(name: str, trace: Trace) -> None:
    """A glob, a list, a list looked at rank by rank (but for what is replayed), and a trace that was loaded."""
    ask = getattr(tv, name)
    glob = str(DATA / "torch" / "dpmp_overlap.rank*.json.gz")
    answers = [as_json(name, ask(run)) for run in (trace, glob, TWO)]
    assert answers[1:] == answers[:1] * 2
    one_by_one = as_json(name, ask(TWO, memory="4GB", workers=1))
    assert without_replay(one_by_one) == without_replay(answers[0])


def test_several_paths_are_one_run_however_they_are_given(trace: Trace) -> None:
    for given in ((TWO,), TWO, (TWO[:1], TWO[1])):
        assert tv.load(*given).ops.equals(trace.ops)


def test_what_needs_the_whole_run_takes_paths_as_well(trace: Trace, tmp_path: Path) -> None:
    assert len(tv.timeline(TWO, *PAIR).data) == len(tv.timeline(trace, *PAIR).data)
    assert tv.compare(ONE, TWO, labels=("one", "two")).ranks == (0,)
    with pytest.raises(tv.TracevizError, match="all ranks in memory"):
        tv.what_if(TWO, memory="4GB")
    tv.report(TWO, tmp_path / "out", memory="4GB")  # goes rank by rank
    assert (tmp_path / "out" / "report.html").is_file()


@pytest.mark.parametrize("wrong", [None, 7, b"x.json", {"x.json"}, [7], ["x.json", None]])
@BY_QUESTION
def test_what_names_no_run_is_an_error_that_says_what_does(name: str, wrong: object) -> None:
    with pytest.raises(tv.TracevizError, match="Give a text or a Path"):
        getattr(tv, name)(wrong)


def test_wrong_values_are_errors_that_say_what_was_expected(trace: Trace) -> None:
    for wrong, message in (
        (lambda: tv.check_overlap(trace, a=7), "selector"),
        (lambda: tv.check_overlap(trace, min_overlap="60%"), "0.6"),
        (lambda: tv.check_overlap(ONE, nsyss="x"), "nsys, align"),
        (lambda: tv.check_overlap(ONE, memory="much"), "8GB"),
        (lambda: tv.check_overlap(trace, memory="8GB"), "was read before"),
        (lambda: trace.only(ranks="0"), "ranks=0 or"),
        (lambda: trace.only(steps=(1, 2, 3)), "steps=3 or"),
        (lambda: trace.only(window_ns=5), "window_ns="),
    ):
        with pytest.raises(tv.TracevizError, match=message):
            wrong()


def test_results_are_of_classes_that_are_public(trace: Trace, results: dict[str, Any]) -> None:
    for result in (trace, trace.only(ranks=0), *results.values()):
        assert type(result) is getattr(tv, type(result).__name__)


def test_a_gzipped_export_is_the_export(tmp_path: Path) -> None:
    export = DATA / "nsys" / "dpmp_overlap.2gpu.sqlite"
    packed = tmp_path / "run.sqlite.gz"
    packed.write_bytes(gzip.compress(export.read_bytes()))
    found, plain = tv.load(tmp_path), tv.load(export)
    assert found.ops.equals(plain.ops)
    assert [capture.path for capture in found.captures] == [str(packed)]
    packed.write_bytes(packed.read_bytes()[:-1000])
    with pytest.raises(tv.TracevizError, match="ends too early") as error:
        tv.info(packed)
    assert error.value.path == str(packed)
