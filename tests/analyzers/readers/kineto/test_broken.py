"""Bad input: one clear error each, never half a trace."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analyzers.common.errors import TracevizError
from analyzers.load import load
from analyzers.readers.kineto.kineto_trace import read

REAL = Path(__file__).parents[3] / "data" / "torch" / "full_gpu.rank0.json.gz"
PACKED = REAL.read_bytes()
EVENT = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1.5, "dur": 2.0, "args": {"correlation": 1}}


def refused(path: Path, content: bytes | str) -> str:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(TracevizError) as refusal:
        read(path)
    assert refusal.value.path == str(path)
    assert refusal.value.exit_code == 2
    assert "\n" not in str(refusal.value)
    assert [each.name for each in path.parent.iterdir()] == [path.name], "something was left behind"
    return refusal.value.message


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.json"


@pytest.mark.parametrize(
    ("says", "contents"),
    [
        ("is empty.", ["", " \n\t", "\ufeff", gzip.compress(b"", mtime=0)]),
        ("is not JSON.", ["hello", "<html>", b"\x00\x01\x02", "SQLite format 3\x00", "3"]),
        ("is JSON, but not a trace", ['{"nodes": [], "schema": "1.0"}', "{}", '{"traceEvents": 3}', "[1, 2]", "[]"]),
        ("is JSON, but not a trace", ['{"a": {"traceEvents": []}}']),
        ("is truncated", [PACKED[:-missing] for missing in (1, 8, 500, 5000)]),
        ("is empty (the gzip data ends before its first byte)", [PACKED[:kept] for kept in (3, 12)]),
        ("", [PACKED[:3000] + bytes(20) + PACKED[3020:]]),
    ],
)
def test_what_is_no_whole_trace_is_called_by_its_name(path: Path, says: str, contents: list[bytes | str]) -> None:
    for content in contents:
        assert refused(path, content).startswith(says)


@pytest.mark.parametrize("share", [0.02, 0.3, 0.5, 0.9, 0.999])
def test_truncated_json_says_how_much_was_readable(path: Path, share: float) -> None:
    text = gzip.decompress(REAL.read_bytes())
    kept = text[: int(len(text) * share)]
    _, _, events = kept.partition(b'"traceEvents": [')
    readable = events.count(b"\n  },") + events.count(b"\n  }\n")
    message = refused(path, kept)
    assert message.startswith(f"is truncated: {readable:,} events before that are readable")


@pytest.mark.parametrize("end", ["", "]", "]}", "}"])
def test_every_prefix_of_a_trace_is_refused(path: Path, end: str) -> None:
    """But where the list of events is closed: commas behind, a broken section or no brace at the end cost no event."""
    text = json.dumps({"schemaVersion": 1, "traceEvents": [EVENT, EVENT], "traceName": "x"})
    list_end, event = text.index("]") + 1, re.escape(json.dumps(EVENT))
    closed = re.compile(
        rf'{{"schemaVersion": 1, "traceEvents": \[{event}(, {event})?(, ?)?\](, ?)?("traceName": "x")?}}?'
    )
    for length in range(1, len(text)):
        prefix = text[:length]
        whole = closed.fullmatch(prefix + end)
        broken_section = re.match(r', "\w*":', prefix[list_end:]) and end.endswith("}")
        if prefix + end == text or is_json(prefix + end):
            continue
        if whole or broken_section:
            path.write_text(prefix + end)
            assert len(read(path).ops) == (1 if whole and not whole[1] else 2)
        else:
            refused(path, prefix + end)


@pytest.mark.parametrize("behind", ["", ",", ',\n"traceName": "x"'])
def test_a_missing_last_brace_costs_no_event_and_is_said(path: Path, behind: str) -> None:
    path.write_text('{"traceEvents": ' + json.dumps([EVENT, EVENT]) + behind)
    trace = read(path)
    assert len(trace.ops) == 2
    assert [(one.code, one.message[:25]) for one in trace.warnings] == [
        ("unreadable-section", "The file's end is missing")
    ]


# As torch.profiler ends a file.
LAST = {"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": 9}


@pytest.mark.parametrize("begin", ["[", '{"traceEvents": ['])
@pytest.mark.parametrize("behind", ["", ",", ",\n"])
def test_a_list_without_its_bracket_is_whole_if_the_profilers_last_event_is_there(
    path: Path, begin: str, behind: str
) -> None:
    """Without that event, more of them may have followed."""
    path.write_text(begin + json.dumps(EVENT) + ", " + json.dumps(LAST) + behind)
    trace = read(path)
    assert len(trace.ops) == 1
    assert [one.message[:25] for one in trace.warnings] == ["The file's end is missing"]
    assert refused(path, begin + json.dumps(EVENT) + ", " + json.dumps(EVENT) + behind).startswith("is truncated")
    assert refused(path, begin + json.dumps(EVENT) + ", " + json.dumps(LAST)[:-1]).startswith("is truncated")


@pytest.mark.parametrize("front", ["\n[rank1]: warming up\n", "I1127 {0} start\r\n", 'loading "x"\n\n  '])
@pytest.mark.parametrize("write", [lambda events: {"schemaVersion": 1, "traceEvents": events}, lambda events: events])
@pytest.mark.parametrize("indent", [None, 2])
def test_a_log_in_front_of_the_json_is_passed_over_and_said(
    path: Path, front: str, write: Callable[[Any], Any], indent: int | None
) -> None:
    path.write_text(front + json.dumps(write([EVENT, EVENT]), indent=indent))
    trace = read(path)
    assert len(trace.ops) == 2
    (warning,) = trace.warnings
    assert (warning.code, front.split()[0] in warning.message) == ("unreadable-section", True)


def test_a_trailing_comma_anywhere_costs_nothing(path: Path) -> None:
    """In the header, in an event's args, and behind the events; a comma within a name stays."""
    odd = {**EVENT, "name": "f<a,]>(b,})", "args": {"correlation": 1, "more": [1]}}
    text = json.dumps(
        {"distributedInfo": {"rank": 3, "ranks": [0, 3]}, "traceEvents": [EVENT, odd, EVENT], "x": {"a": 1}}
    )
    for bracket in ("3]", "1]", "1}", "}]"):
        text = text.replace(bracket, f"{bracket[0]},{bracket[1]}")
    path.write_text(text[:-1] + ",}")
    trace = read(path)
    assert trace.ops.name.tolist() == ["k", "f<a,]>(b,})", "k"]
    assert trace.processes[0].claims == {"distributed": 3}
    assert not trace.warnings


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("time", ["NaN", "-Infinity", "null", '"soon"', "{}"])
@pytest.mark.parametrize("key", ["ts", "dur"])
def test_an_event_with_a_time_that_is_no_number_is_left_out_and_leaves_the_verdict_open(
    path: Path, key: str, time: str
) -> None:
    """Two kernels can be read, one can't: the figures are of two, and a process says what is missing."""
    events = [EVENT, {**EVENT, key: "here"}, {**EVENT, "ts": 40}]
    path.write_text(json.dumps({"traceEvents": events}).replace('"here"', time))
    trace = read(path)
    assert trace.ops.start_ns.tolist() == [0, 1000 * (40 - EVENT["ts"])]
    assert [warning.code for warning in trace.warnings] == ["unreadable-events", "unread-work"]
    assert "1 of 3 events" in trace.warnings[0].message
    assert "1 of 'kernel' without a readable time" in trace.processes[0].unread


def test_a_kernel_without_a_start_is_left_out_and_said(path: Path) -> None:
    without = {key: value for key, value in EVENT.items() if key != "ts"}
    path.write_text(json.dumps([EVENT, without, EVENT]))
    trace = read(path)
    assert len(trace.ops) == 2
    assert "1 of 'kernel' without a readable time" in trace.processes[0].unread


@pytest.mark.parametrize(("category", "ranges"), [("cpu_op", True), ("python_function", False)])
def test_a_range_without_a_time_matters_to_those_alone_who_pick_by_ranges(
    path: Path, category: str, ranges: bool
) -> None:
    path.write_text(json.dumps([EVENT, {**EVENT, "cat": category, "ts": None}]))
    (process,) = read(path).processes
    assert not process.unread
    assert process.unread_ranges == ("1 operators or annotations, by which a side is picked" if ranges else "")


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "inf", "-nan"])
def test_nan_in_a_field_nothing_reads_is_harmless(path: Path, value: str) -> None:
    name = f"NaN, inf: {value}"
    event = {**EVENT, "name": name, "args": {"memory bandwidth (GB/s)": "here", "correlation": 1}}
    path.write_text(json.dumps({"traceEvents": [event, EVENT], "load": "here"}).replace('"here"', value))
    trace = read(path)
    assert trace.ops.name.tolist() == [name, "k"]
    assert trace.ops.correlation.tolist() == [1, 1]


@pytest.mark.parametrize(
    "broken",
    [
        '{"traceEvents": [%s %s]}',
        '{"traceEvents": [%s,, %s]}',
        '{"traceEvents": [%s, %s}}',
        '{"traceEvents": [%s, %s]]}',
        '{"traceEvents": [%s, %s], "a" 1}',
        "[%s, %s] 3",
    ],
)
def test_malformed(path: Path, broken: str) -> None:
    event = json.dumps(EVENT)
    message = refused(path, broken % (event, event))
    assert message.startswith(("is not valid JSON", "is truncated"))


def test_an_event_with_an_odd_name_is_left_out_and_reported(path: Path) -> None:
    path.write_text(json.dumps([EVENT, {**EVENT, "name": {"a": 1}}, EVENT]))
    trace = read(path)
    assert len(trace.ops) == 2
    assert [warning.code for warning in trace.warnings] == ["unreadable-events", "unread-work"]
    path.write_text(json.dumps([EVENT, {**EVENT, "cat": "cpu_op", "name": {"a": 1}}, EVENT]))
    assert [warning.code for warning in read(path).warnings] == ["unreadable-events"]


def test_events_stay_that_last_less_than_a_day_and_start_within_one_of_the_middle(path: Path) -> None:
    """The profiler's own spans are not asked for the middle, and left out without a word."""
    hour, ns = 3600 * 10**6, 0.001
    day = 24 * hour
    good = [(at * hour, 2) for at in (3, -4, 1, 0, -2, 4, -1, 2, -3)]
    good += [(-hour, 0), (-hour, day - ns), (day - ns, 2), (ns - day, 2)]
    bad = [(hour, day), (hour, -ns), (day, 3), (-day, 3)]
    kernels = [{**EVENT, "ts": 10 * day + start, "dur": duration} for start, duration in (*good, *bad)]
    spans = [{**EVENT, "cat": "Trace"} for _ in range(2 * len(kernels))]
    call = {**EVENT, "cat": "cuda_runtime", "ts": 10 * day - hour, "dur": -ns}
    path.write_text(json.dumps({"traceEvents": [*kernels, *spans, call]}))
    trace = read(path)
    durations = (trace.ops.end_ns - trace.ops.start_ns).tolist()
    assert durations == [round(1000 * duration) for _, duration in good]
    assert [warning.code for warning in trace.warnings] == ["absurd-times", "unread-work"]
    assert trace.warnings[0].message.startswith(f"{len(bad) + 1} ")
    assert f"{len(bad)} of GPU work with times that can't be" in trace.processes[0].unread


def test_no_gpu_work_is_a_trace_without_ops(path: Path) -> None:
    path.write_text(json.dumps({"traceEvents": [{**EVENT, "cat": "cpu_op"}]}))
    trace = read(path)
    assert (len(trace.ops), len(trace.ranges)) == (0, 1)
    path.write_text('{"traceEvents": []}')
    assert len(read(path).ops) == 0


@pytest.mark.parametrize(("name", "why"), [("trace.json", "No such file"), ("", "Is a directory")])
def test_what_cant_be_opened(tmp_path: Path, name: str, why: str) -> None:
    with pytest.raises(TracevizError, match=f"can't be read: {why}"):
        read(tmp_path / name)


def test_ops_before_their_launch_and_without_one_are_reported(path: Path) -> None:
    call = {**EVENT, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9, "ts": 5}
    path.write_text(json.dumps({"traceEvents": [EVENT, {**EVENT, "args": {"correlation": 2}}, call]}))
    trace = read(path)
    assert trace.ops.launch.tolist() == [0, -1]
    assert [warning.code for warning in trace.warnings] == ["op-before-launch"]
    assert {"missing-launch", "op-before-launch"} <= {warning.code for warning in load([path]).warnings}
    path.write_text(json.dumps({"traceEvents": [{**EVENT, "ts": call["ts"]}, call]}))
    assert not read(path).warnings, "an op may start as its call does"


@pytest.mark.parametrize("part", ["args", "header"])
def test_nesting_without_end_is_refused(path: Path, part: str) -> None:
    deep = "[" * 200_000 + "]" * 200_000
    event = json.dumps(EVENT)
    odd = event[:-1] + f', "args": {{"x": {deep}}}}}' if part == "args" else event
    header = f', "more": {deep}' if part == "header" else ""
    assert refused(path, f'{{"traceEvents": [{event}, {odd}]{header}}}').startswith("nests brackets too deeply")


@pytest.mark.parametrize("part", ["name", "key", "args", "header", "suffix"])
@pytest.mark.parametrize("odd", [b"\xc5", b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\x80"])
def test_bytes_that_are_no_utf_8_are_replaced_or_refused(path: Path, part: str, odd: bytes) -> None:
    text = json.dumps({"head": "header", "traceEvents": [EVENT, {**EVENT, "name": "name", "key": 1}], "end": "suffix"})
    args = text.replace('"correlation"', '"args": "args", "correlation"')
    path.write_bytes(args.encode().replace(b'"' + part.encode() + b'"', b'"' + odd + b'"'))
    try:
        trace = read(path)
    except TracevizError as error:
        assert "UTF-8" in str(error) or "JSON" in str(error) or "truncated" in str(error)
        assert "\n" not in str(error)
    else:
        assert len(trace.ops) >= 1


def test_a_byte_of_a_name_that_is_no_utf_8_is_marked(path: Path) -> None:
    path.write_bytes(json.dumps([{**EVENT, "name": "HERE"}, EVENT]).encode().replace(b"HERE", b"a\xc5b"))
    assert read(path).ops.name.tolist() == ["a\ufffdb", "k"]
