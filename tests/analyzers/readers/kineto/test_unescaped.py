"""Files that are no valid JSON, as the profiler did not escape a text: what is whole is read, and the rest is said."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import traceviz as tv
from analyzers.common.errors import TracevizError
from analyzers.load import load
from analyzers.readers.kineto.kineto_trace import read
from tests.support.exports import alike
from tests.support.kineto_files import KinetoFile, reduces_beside_matmuls

DATA = Path(__file__).parents[3] / "data"
PUBLIC = DATA / "public"
REAL = DATA / "torch" / "full_gpu.rank0.json.gz"
DAMAGE = {
    "quotes": '{"device": "cpu"}(12): run',
    "backslash": r"C:\Users\x\model.py(3): forward",
    "backslash at its end": "C:\\dir\\",
    "newline": "two\nlines",
    "control": "a\x01b",
    "braces": '{"a": [1, {"b": 2}, {"c": 3}]}',
}
Event = dict[str, Any]


def codes(trace: tv.Trace) -> set[str]:
    return {one.code for one in trace.warnings}


def without(events: list[Event], at: int) -> list[Event]:
    return [one for number, one in enumerate(events) if number != at]


def indented(content: Any) -> str:
    return json.dumps(content, indent=1)


def real() -> Any:
    return json.loads(gzip.decompress(REAL.read_bytes()))


def broken(content: Any, at: int, name: str, write: Callable[[Any], str]) -> str:
    """A trace's text, with the name of one event unescaped."""
    events = content["traceEvents"]
    marked = list(events)
    marked[at] = {**events[at], "name": "HERE"}
    return write({**content, "traceEvents": marked}).replace("HERE", name)


# What is public.


@pytest.mark.parametrize(
    ("name", "code", "text"),
    [
        ("json-quotes", "unreadable-events", "1 of 41 events are no valid JSON (1 of 'python_function')"),
        ("json-backslash", "unreadable-events", "1 of 41 events are no valid JSON (1 of 'python_function')"),
        ("json-log-section", "unreadable-section", "all 40 events are read"),
    ],
)
def test_public_files_are_read_but_for_what_is_not_escaped(name: str, code: str, text: str) -> None:
    """Ten times a matmul of 600 µs, an all-reduce of 300 µs beside it: all of that overlaps."""
    path = PUBLIC / name / "trace.json"
    result = tv.check_overlap(path, accept_apparent=True)
    (rank,) = result.ranks
    assert (rank.a.busy_ns, rank.b.busy_ns, rank.overlap_ns) == (3_000_000, 6_000_000, 3_000_000)
    assert result.verdict == "overlapped"
    (warning,) = [one for one in result.warnings if one.code == code]
    assert text in warning.message


# Any event's name, in any layout, unescaped in any way.


@pytest.mark.parametrize("name", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.parametrize("write", [json.dumps, indented])
@pytest.mark.parametrize("place", ["first", "amid", "last"])
def test_an_unescaped_name_on_the_host_costs_that_event_alone(
    tmp_path: Path, name: str, write: Callable[[Any], str], place: str
) -> None:
    content = real()
    events = content["traceEvents"]
    host = [number for number, one in enumerate(events) if one.get("cat") == "cpu_op"]
    at = {"first": host[0], "amid": host[len(host) // 2], "last": host[-1]}[place]
    if place != "amid":
        events.insert(0 if place == "first" else len(events), events.pop(at))
        at = 0 if place == "first" else len(events) - 1
    path, whole = tmp_path / "x.json", tmp_path / "y.json"
    path.write_text(broken(content, at, name, write))
    whole.write_text(write({**content, "traceEvents": without(events, at)}))
    found = read(path)
    alike(found, read(whole))
    assert "unreadable-events" in codes(found)
    assert not any(one.unread for one in found.processes)
    assert found.captures[0].metadata == read(whole).captures[0].metadata


@pytest.mark.parametrize("name", DAMAGE.values(), ids=DAMAGE)
def test_an_unescaped_name_of_a_kernel_leaves_the_verdict_open(tmp_path: Path, name: str) -> None:
    content = json.loads(reduces_beside_matmuls().write(tmp_path / "whole.json").read_text())
    (tmp_path / "x.json").write_text(broken(content, 5, name, json.dumps))
    whole = tv.check_overlap(tmp_path / "whole.json", accept_apparent=True)
    assert whole.passed
    result = tv.check_overlap(tmp_path / "x.json", accept_apparent=True)
    assert (result.verdict, result.passed, result.exit_code) == ("inconclusive", None, 3)
    assert "1 events that are no valid JSON, and may be work of a GPU" in result.reason
    assert {"unreadable-events", "unread-work"} <= {one.code for one in result.warnings}


def test_an_unescaped_range_matters_to_those_alone_who_pick_by_ranges(tmp_path: Path) -> None:
    file = reduces_beside_matmuls()
    for start in range(0, 5_000, 1_000):
        file.range("exchange", start, start + 50)
    content = json.loads(file.write(tmp_path / "whole.json").read_text())
    (tmp_path / "x.json").write_text(broken(content, -1, 'say "exchange"', json.dumps))
    assert tv.check_overlap(tmp_path / "x.json", accept_apparent=True).passed
    by_ranges = tv.check_overlap(tmp_path / "x.json", "nvtx:exchange+comm", "compute", accept_apparent=True)
    assert by_ranges.passed is None
    assert "1 operators or annotations" in by_ranges.reason


def test_many_unescaped_names_amid_lists_of_objects(tmp_path: Path) -> None:
    """Borders of events stand in args, too; names break often, so that few events are read at once."""
    file = KinetoFile()
    for start in range(0, 300_000, 1_000):
        file.kernel("gemm", 7, start, start + 600, launch=start)
    events = file.events
    for one in events:
        one["args"]["more"] = [{"a": 1}, {"b": [{"c": 2}, {"d": 3}]}]
    frames = [{"ph": "X", "cat": "python_function", "name": "HERE", "pid": 1, "tid": 1, "ts": 5, "dur": 1, "args": {}}]
    mixed = [one for number, event in enumerate(events) for one in ([event, *frames] if number % 7 == 0 else [event])]
    content = {"schemaVersion": 1, "traceEvents": mixed, "distributedInfo": {"rank": 3}}
    (tmp_path / "x.json").write_text(json.dumps(content).replace("HERE", 'a"b'))
    (tmp_path / "y.json").write_text(json.dumps({**content, "traceEvents": events}))
    found = read(tmp_path / "x.json")
    alike(found, read(tmp_path / "y.json"))
    number = -(-len(events) // 7)
    assert f"{number:,} of {len(events) + number:,} events" in found.warnings[0].message
    assert found.processes[0].claims == {"distributed": 3}


def test_what_stands_behind_a_broken_section_is_read(tmp_path: Path) -> None:
    """Torch writes its base time and name last; what is whole of the log counts, the rest is said."""
    content = real()
    base = content.pop("baseTimeNanoseconds")
    log = ', "WARNING": ["unknown "thing" of {"a": 1}, {"b": 2}"], "INFO": ["ok"], "baseTimeNanoseconds": BASE}'
    (tmp_path / "x.json").write_text(json.dumps(content)[:-1] + log.replace("BASE", str(base)))
    (tmp_path / "y.json").write_text(json.dumps({**content, "baseTimeNanoseconds": base}))
    found, expected = read(tmp_path / "x.json"), read(tmp_path / "y.json")
    alike(found, expected)
    assert found.origin_utc_ns == expected.origin_utc_ns is not None
    assert codes(found) - codes(expected) == {"unreadable-section"}


# What is really cut.


def test_a_cut_file_is_told_from_one_that_is_not_escaped(tmp_path: Path) -> None:
    text = broken(real(), 20, 'a"b', indented)
    path = tmp_path / "x.json"
    path.write_text(text[: len(text) // 2])
    with pytest.raises(TracevizError) as cut:
        read(path)
    assert "Record the trace again" in str(cut.value)
    path.write_text('{"traceEvents": [{"ph": "X", "name": "a"b", "ts": 1}]}')
    with pytest.raises(TracevizError) as nothing_whole:
        read(path)
    assert "Record the trace again" not in str(nothing_whole.value)
    assert "did not escape" in str(nothing_whole.value)


# Events in phases that are not read.


def phased(folder: Path, phases: str, every: int = 1, *, rank: int = 0, more: int = 0) -> Path:
    """Kernels of which each `every`-th is written in these phases."""
    file = reduces_beside_matmuls(20, rank)
    kernels = [one for one in file.events if one["cat"] == "kernel"]
    for one in kernels[::every]:
        one["ph"] = phases[0]
        duration = one.pop("dur")
        file.events.append({**one, "ph": phases[1], "ts": one["ts"] + duration})
    file.events += [{"ph": "i", "name": "mark", "ts": 1, "pid": 1, "tid": 1, "s": "t"}] * more
    return file.write(folder / f"{phases}.rank{rank}.json")


@pytest.mark.parametrize("phases", ["BE", "be"])
@pytest.mark.parametrize("every", [1, 2, 20])
def test_work_in_phases_that_are_not_read_leaves_the_verdict_open(tmp_path: Path, phases: str, every: int) -> None:
    """40 kernels; a pair is two events."""
    path, count = phased(tmp_path, phases, every), 2 * (40 // every)
    if every == 1:
        with pytest.raises(TracevizError, match=f"{count} events that no reader here can use") as none:
            tv.check_overlap(path)
        assert none.value.exit_code == 3
        return
    result = tv.check_overlap(path, accept_apparent=True)
    assert (result.verdict, result.exit_code) == ("inconclusive", 3)
    assert f"{count} events that no reader here can use" in result.reason
    assert f"{count // 2} in phase '{phases[0]}' of 'kernel'" in result.reason


def test_a_rank_all_of_whose_work_is_in_other_phases_is_not_forgotten(tmp_path: Path) -> None:
    paths = [phased(tmp_path, "BE", 1000, rank=0), phased(tmp_path, "be", 1, rank=1)]
    good = json.loads(paths[0].read_text())
    good["traceEvents"] = [{**one, "ph": "X", "dur": 1} for one in good["traceEvents"] if one["ph"] == "B"] + [
        one for one in good["traceEvents"] if one["ph"] == "X"
    ]
    paths[0].write_text(json.dumps(good))
    result = tv.check_overlap(paths, accept_apparent=True)
    assert result.exit_code == 3
    assert "80 events that no reader here can use" in result.reason


@pytest.mark.parametrize("more", [3, 3000])
def test_info_says_what_is_not_used(tmp_path: Path, more: int) -> None:
    """In the quick way, and where so much is odd that each event is decoded by itself."""
    path = phased(tmp_path, "be", 20, more=more)
    (capture,) = tv.info(load([path])).captures
    assert capture.unused == {"events in phase 'i'": more, "events in phase 'b'": 2, "events in phase 'e'": 2}


def test_phases_of_the_host_are_no_loss(tmp_path: Path) -> None:
    file = reduces_beside_matmuls(20)
    file.events += [
        {"ph": phase, "cat": "async", "name": "io", "id": 1, "pid": 1, "tid": 1, "ts": 3} for phase in "bbbe"
    ]
    result = tv.check_overlap(file.write(tmp_path / "x.json"), accept_apparent=True)
    assert result.passed
    (capture,) = tv.info(load([tmp_path / "x.json"])).captures
    assert capture.unused == {"events in phase 'b'": 3, "events in phase 'e'": 1}
