"""NCCL's calls: what their payload says, and which kernel is whose."""

from __future__ import annotations

import json
import sqlite3
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analyzers.readers.nsys.events import ExportedRanges
from analyzers.readers.nsys.nccl import Payload, read_comms
from analyzers.readers.nsys.read import read_sqlite
from analyzers.trace.tables import Trace
from tests.support.builder import Builder, Rank
from tests.support.nsys_exports import edited

CAPTURE = Path(__file__).parents[3] / "data" / "nsys" / "collectives.2gpu.pinned.sqlite"
# b has 2^21 floats: all_reduce(b); all_reduce of 4096; all_to_all halves; send and receive b; gather into, scatter from
# and broadcast b; two steps, and a barrier after them
STEP = [
    ("ncclAllReduce", 1 << 23), ("ncclAllReduce", 4096 * 4), ("ncclAlltoAll", 1 << 22), ("ncclSend", 1 << 23),
    ("ncclRecv", 1 << 23), ("ncclAllGather", 1 << 22), ("ncclReduceScatter", 1 << 22), ("ncclBroadcast", 1 << 23),
]  # fmt: skip
KERNELS = {
    "ncclAllReduce": "ncclDevKernel_AllReduce", "ncclAlltoAll": "ncclDevKernel_SendRecv",
    "ncclSend": "ncclDevKernel_SendRecv", "ncclRecv": "ncclDevKernel_SendRecv",
    "ncclAllGather": "ncclDevKernel_AllGather", "ncclReduceScatter": "ncclDevKernel_ReduceScatter",
    "ncclBroadcast": "ncclDevKernel_Broadcast",
}  # fmt: skip


def read_edited(tmp_path: Path, statement: str) -> Trace:
    return read_sqlite(edited(CAPTURE, tmp_path / "edited.sqlite", statement))


def test_every_call_of_the_program_is_there_with_its_size_and_kernel() -> None:
    trace = read_sqlite(CAPTURE)
    for process in (0, 1):
        comms = trace.comms.to_frame()[trace.comms.to_frame()["process"] == process]
        stated = list(zip(comms["operation"], comms["bytes"], strict=True))
        assert stated == [*STEP, *STEP, ("ncclAllReduce", 4)]
        for operation, correlation in zip(comms.operation, comms.correlation, strict=True):
            ops = trace.ops.to_frame()[
                (trace.ops.to_frame()["process"] == process) & (trace.ops.to_frame()["correlation"] == correlation)
            ]
            assert [name.startswith(KERNELS[operation]) for name in ops["name"]] == [True]
        sends = comms[comms["operation"].isin(["ncclSend", "ncclRecv"])]
        assert set(sends["peer"]) == {1 - process}
        assert sends["correlation"].nunique() == 2  # a send and its receive share a kernel


def test_payloads_agree_with_the_json_nsys_made_of_them() -> None:
    connection = sqlite3.connect(f"file:{CAPTURE}?immutable=1", uri=True)
    expected: dict[tuple[int, int], tuple[int, int, int]] = {}
    for tid, start, text, data in connection.execute(
        "SELECT globalTid, start, jsonText, binaryData FROM NVTX_EVENTS WHERE jsonText IS NOT NULL"
    ):
        stated = json.loads(text)
        communicator, size = struct.unpack_from("<qq", data, 32)
        assert (communicator % 2**64, size) == (stated["NCCL communicator ID"], stated["Message size [bytes]"])
        expected[tid % 2**24, start] = (communicator, size, stated.get("Peer rank", -1))
    connection.close()
    comms = read_sqlite(CAPTURE).comms.to_frame()
    columns = ["communicator", "bytes", "peer"]
    found = dict(
        zip(
            comms[["thread", "start_ns"]].itertuples(index=False, name=None),
            comms[columns].itertuples(index=False, name=None),
            strict=True,
        )
    )
    assert found == expected


def test_payloads_read_the_same_from_blobs_text_or_json(tmp_path: Path) -> None:
    expected = read_sqlite(CAPTURE).comms.to_frame()
    for statement in (
        "UPDATE NVTX_EVENTS SET jsonText = NULL",
        "UPDATE NVTX_EVENTS SET binaryData = hex(binaryData), jsonText = NULL WHERE binaryData IS NOT NULL",
        "UPDATE NVTX_EVENTS SET binaryData = NULL",
    ):
        pd.testing.assert_frame_equal(read_edited(tmp_path, statement).comms.to_frame(), expected)


def test_without_payloads_calls_are_still_joined_to_their_kernels(tmp_path: Path) -> None:
    expected = read_sqlite(CAPTURE).comms.to_frame()
    found = read_edited(tmp_path, "UPDATE NVTX_EVENTS SET jsonText = NULL, binaryData = NULL").comms.to_frame()
    assert set(found["bytes"]) == set(found["communicator"]) == {-1}
    unsaid = ["bytes", "communicator", "peer"]
    pd.testing.assert_frame_equal(found.drop(columns=unsaid), expected.drop(columns=unsaid))


@pytest.mark.parametrize("blob", ["x''", "x'00'", "zeroblob(20)", "zeroblob(400)", "'no hex'"])
def test_a_payload_that_makes_no_sense_says_nothing(tmp_path: Path, blob: str) -> None:
    comms = read_edited(tmp_path, f"UPDATE NVTX_EVENTS SET jsonText = NULL, binaryData = {blob}").comms.to_frame()
    assert set(comms["bytes"]) == {-1}
    assert len(comms) == 34


class HostCalls:
    """A thread that calls NCCL, as its NVTX ranges and launches tell it."""

    def __init__(self) -> None:
        self.run = Builder()
        self.rank: Rank = self.run.rank(0)
        self.payload: list[tuple[int, int, int, int]] = []

    def range(self, name: str, start: int, end: int, communicator: int = -1, size: int = -1) -> None:
        row = self.rank.range(name, start, end, domain="NCCL")
        if communicator != -1:
            self.payload.append((row, communicator, size, -1))

    def kernel(self, launch: int, name: str = "ncclDevKernel_AllReduce") -> None:
        self.rank.kernel(name, 7, 1000 + launch, 1001 + launch, launch=(launch, launch + 1))

    def comms(self) -> list[tuple[str, int]]:
        """(operation, launch time of its kernel, -1 where it is not known)."""
        trace = self.run.trace()
        columns = np.array(self.payload, np.int64).reshape(-1, 4).T
        payload = Payload(columns[0], columns[1], columns[2], columns[3], np.full(columns.shape[1], -1, np.int64))
        ranges = ExportedRanges({**trace.ranges.columns, "row": np.arange(len(trace.ranges))}, len(trace.ranges))
        comms = read_comms(ranges, payload, trace.ops, trace.api)
        called: dict[Any, int] = dict(
            zip(trace.api.to_frame()["correlation"], trace.api.to_frame()["start_ns"], strict=True)
        )
        return [
            (operation, called.get(correlation, -1))
            for operation, correlation in zip(comms.operation, comms.correlation, strict=True)
        ]


def test_a_call_owns_the_kernel_launched_inside_it() -> None:
    host_calls = HostCalls()
    host_calls.range("ncclAllReduce", 10, 20)
    host_calls.kernel(15)
    host_calls.kernel(30)  # somebody else's
    host_calls.range("ncclBroadcast", 40, 50)  # its kernel was not captured
    assert host_calls.comms() == [("ncclAllReduce", 15), ("ncclBroadcast", -1)]


def test_other_kernels_inside_a_call_are_not_its_communication() -> None:
    host_calls = HostCalls()
    host_calls.range("ncclAllReduce", 10, 20)
    host_calls.kernel(12, "fill_kernel")
    host_calls.kernel(15)
    assert host_calls.comms() == [("ncclAllReduce", 15)]


def test_calls_of_a_group_share_its_only_kernel() -> None:
    host_calls = HostCalls()
    for name, start in (("ncclGroupStart", 10), ("ncclSend", 20), ("ncclRecv", 30), ("ncclGroupEnd", 40)):
        host_calls.range(name, start, start + 5)
    host_calls.kernel(42)
    assert host_calls.comms() == [("ncclSend", 42), ("ncclRecv", 42)]


def test_only_the_outermost_end_of_nested_groups_launches() -> None:
    host_calls = HostCalls()
    names = (
        "ncclGroupStart",
        "ncclGroupStart",
        "ncclSend",
        "ncclGroupEnd",
        "ncclGroupStart",
        "ncclRecv",
        "ncclGroupEnd",
    )
    for index, name in enumerate((*names, "ncclGroupEnd")):
        host_calls.range(name, 10 * index, 10 * index + 5)
    host_calls.kernel(72)
    assert host_calls.comms() == [("ncclSend", 72), ("ncclRecv", 72)]


def test_as_many_kernels_as_calls_are_taken_in_order() -> None:
    host_calls = HostCalls()
    host_calls.range("ncclGroupStart", 0, 1)
    for start in (10, 20, 30):
        host_calls.range("ncclAllReduce", start, start + 5)
    host_calls.range("ncclGroupEnd", 40, 50)
    for launch in (41, 43, 45):
        host_calls.kernel(launch)
    assert host_calls.comms() == [("ncclAllReduce", 41), ("ncclAllReduce", 43), ("ncclAllReduce", 45)]


def test_one_kernel_a_communicator_serves_its_calls() -> None:
    host_calls = HostCalls()
    host_calls.range("ncclGroupStart", 0, 1)
    for start, communicator in ((10, 111), (20, 222), (30, 111)):
        host_calls.range("ncclSend", start, start + 5, communicator, 8)
    host_calls.range("ncclGroupEnd", 40, 50)
    host_calls.kernel(41, "ncclDevKernel_SendRecv")
    host_calls.kernel(43, "ncclDevKernel_SendRecv")
    assert host_calls.comms() == [("ncclSend", 41), ("ncclSend", 43), ("ncclSend", 41)]


def test_what_a_group_launched_for_whom_is_not_guessed() -> None:
    host_calls = HostCalls()
    host_calls.range("ncclGroupStart", 0, 1)
    for start in (10, 20, 30):
        host_calls.range("ncclSend", start, start + 5)
    host_calls.range("ncclGroupEnd", 40, 50)
    host_calls.kernel(41)
    host_calls.kernel(43)
    assert host_calls.comms() == [("ncclSend", -1)] * 3


def test_a_capture_that_starts_inside_a_group_does_not_upset_the_next() -> None:
    host_calls = HostCalls()
    host_calls.range("ncclGroupEnd", 0, 5)
    host_calls.kernel(2)
    host_calls.range("ncclAllReduce", 10, 20)
    host_calls.kernel(15)
    for name, start in (("ncclGroupStart", 30), ("ncclSend", 40), ("ncclGroupEnd", 50)):
        host_calls.range(name, start, start + 5)
    host_calls.kernel(52)
    host_calls.range("ncclAllGather", 60, 65)  # outside any group, and its kernel is missing
    for name, start in (("ncclGroupStart", 70), ("ncclRecv", 80), ("ncclGroupEnd", 90)):
        host_calls.range(name, start, start + 5)
    host_calls.kernel(92)
    assert host_calls.comms() == [
        ("ncclAllReduce", 15), ("ncclSend", 52), ("ncclAllGather", -1), ("ncclRecv", 92),
    ]  # fmt: skip


def test_threads_do_not_share_groups() -> None:
    host_calls = HostCalls()
    host_calls.range("ncclGroupStart", 0, 1)
    with host_calls.rank.on_thread(2):
        host_calls.range("ncclAllReduce", 10, 20)
        host_calls.kernel(15)
    host_calls.range("ncclSend", 12, 13)
    host_calls.range("ncclGroupEnd", 30, 40)
    host_calls.kernel(35)
    assert host_calls.comms() == [("ncclAllReduce", 15), ("ncclSend", 35)]


def test_ranges_that_are_no_communication_are_left_alone() -> None:
    host_calls = HostCalls()
    for start, name in enumerate(("ncclCommInitRank", "ncclGroupStart", "ncclGroupEnd", "ncclMemAlloc")):
        host_calls.range(name, 10 * start, 10 * start + 5)
    host_calls.rank.range("ncclAllReduce", 100, 110, domain="mine")  # somebody's own range of that name
    assert host_calls.comms() == []
