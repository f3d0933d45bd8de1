"""Launches on host lines of a profile of XLA, called like what they launch: linked by their numbers."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from analyzers.info import info
from analyzers.load import load
from analyzers.readers.xla import profile
from analyzers.trace.tables import Trace

DATA = Path(__file__).parents[3] / "data"
PUBLIC = DATA / "public" / "tf-xplane-host-launches" / "host.xplane.pb"
MADE = DATA / "jax"
UNNAMED = "unnamed-lines"
Rows = dict[int, tuple[str, int, int]]  # by number: name, start and end in ps


def space_of(path: Path) -> Any:
    space = profile.space_class()()  # the messages alone: what is in them is gone through here
    space.ParseFromString(path.read_bytes())
    return space


def numbers(space: Any) -> tuple[Rows, Rows]:
    """Events that have a correlation id, on host lines and on streams of GPUs."""
    host: Rows = {}
    gpu: Rows = {}
    for plane in space.planes:
        texts = {key: one.name for key, one in plane.stat_metadata.items()}
        for line in plane.lines:
            rows = gpu if line.name.startswith("Stream") else host if plane.name.startswith("/host") else {}
            for event in line.events:
                said = {texts[one.metadata_id]: one for one in event.stats}
                if "correlation_id" in said:
                    one = said["correlation_id"]
                    start = line.timestamp_ns * 1000 + event.offset_ps
                    name = plane.event_metadata[event.metadata_id].name
                    number = int(getattr(one, one.WhichOneof("choice")))
                    rows[number] = (name, start, start + event.duration_ps)
    return host, gpu


def linked(trace: Trace) -> dict[int, str]:
    """By number of each op that has its launch, the launch's name."""
    launch = trace.ops.launch
    assert (trace.api.correlation[launch[launch >= 0]] == trace.ops.correlation[launch >= 0]).all()
    calls = trace.api.to_frame()["name"].astype(str).to_numpy()
    ops = trace.ops.correlation
    return {int(ops[row]): str(calls[launch[row]]) for row in np.flatnonzero(launch >= 0)}


def test_launches_with_kernel_details_are_linked_by_their_numbers() -> None:
    host, gpu = numbers(space_of(PUBLIC))
    trace = load([PUBLIC])
    assert len(trace.api) == len(host) == 40
    assert len(trace.ops) == len(gpu) == 40
    assert linked(trace) == {number: host[number][0] for number in gpu}
    assert not {UNNAMED, "missing-launch"} & {one.code for one in trace.warnings}
    assert not any("launched" in text and "GPU ops" in text for text in info(trace).cannot)
    assert next(one.launches for one in info(trace).ranges if one.name == "train_step") == 40


def json_with(folder: Path, change: Callable[[dict[str, Any], dict[int, dict[str, Any]]], None]) -> Path:
    """The made JSON; `change` is given each call of the host and the ops of all numbers."""
    with gzip.open(MADE / "gpu4.trace.json.gz", "rt", encoding="utf-8") as file:
        whole = json.load(file)
    events = [one for one in whole["traceEvents"] if one.get("ph") == "X"]
    planes = {one["pid"]: one["args"]["name"] for one in whole["traceEvents"] if one.get("name") == "process_name"}
    of = [(one, one.get("args", {}).get("correlation_id")) for one in events]
    ops = {int(number): one for one, number in of if number and planes[one["pid"]].startswith("/device:GPU")}
    for one, number in of:
        if number and planes[one["pid"]].startswith("/host:"):
            change(one, ops)
    path = folder / "rank0.trace.json.gz"
    with gzip.open(path, "wt", encoding="utf-8") as file:
        json.dump(whole, file)
    return path


def copied(call: dict[str, Any], ops: dict[int, dict[str, Any]]) -> None:
    """As XLA writes launches of copies: with the copy's name and its details."""
    op = ops.get(int(call["args"]["correlation_id"]))
    if op and (details := op["args"].get("memcpy_details")):
        call["name"] = op["name"]
        call["args"]["memcpy_details"] = details


def test_copies_on_host_lines_are_launches_in_json(tmp_path: Path) -> None:
    before, after = load([MADE / "gpu4.trace.json.gz"]), load([json_with(tmp_path, copied)])
    copies = int((before.ops.to_frame()["kind"] == "memcpy").sum())
    names = list(linked(after).values())
    assert len(linked(after)) == len(linked(before)) == len(before.ops)
    assert sum(name.startswith("Memcpy") for name in names) == copies > 0
    assert UNNAMED not in {one.code for one in after.warnings}


def test_ops_on_lines_that_are_not_named_stay_left_out(tmp_path: Path) -> None:
    """Without the names of processes nothing is known to be a thread of the host."""
    with gzip.open(MADE / "gpu4.trace.json.gz", "rt", encoding="utf-8") as file:
        whole = json.load(file)
    planes = {one["pid"]: one["args"]["name"] for one in whole["traceEvents"] if one.get("name") == "process_name"}
    last = next(pid for pid, name in planes.items() if name == "/device:GPU:3")
    left = [one for one in whole["traceEvents"] if not (one.get("name") == "process_name" and one["pid"] == last)]
    path = tmp_path / "rank0.trace.json.gz"
    with gzip.open(path, "wt", encoding="utf-8") as file:
        json.dump({**whole, "traceEvents": left}, file)
    told = [one for one in left if one.get("pid") == last and one.get("ph") == "X"]
    details = [one for one in told if any("_details" in name for name in one.get("args", {}))]
    said = next(one.message for one in load([path]).warnings if one.code == UNNAMED)
    assert said.startswith(f"{len(details)} events")


def test_events_on_derived_lines_are_counted() -> None:
    space = space_of(MADE / "gpu4.xplane.pb")
    derived: dict[str, int] = {}
    for plane in space.planes:
        for line in plane.lines if plane.name.startswith("/device:GPU") else ():
            if not line.name.startswith("Stream") and line.name != "XLA Modules" and len(line.events):
                kind = f"events on lines '{line.name}'"
                derived[kind] = derived.get(kind, 0) + len(line.events)
    assert info(load([MADE / "gpu4.xplane.pb"])).unused == derived


def test_launches_without_numbers_are_counted(tmp_path: Path) -> None:
    def without(call: dict[str, Any], ops: dict[int, dict[str, Any]]) -> None:
        copied(call, ops)
        if "memcpy_details" in call["args"]:
            del call["args"]["correlation_id"]

    trace, plain = load([json_with(tmp_path, without)]), load([MADE / "gpu4.trace.json.gz"])
    copies = int((plain.ops.to_frame()["kind"] == "memcpy").sum())
    assert info(trace).unused["launches on host lines without a correlation id"] == copies
    assert len(linked(trace)) == len(plain.ops) - copies
