"""NCCL's calls: what their payload says, and which kernel is whose."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analyzers.readers.nsys.events import ExportedRanges
from analyzers.readers.nsys.nccl import Payload, read_comms
from analyzers.readers.nsys.nsys_export import read_sqlite
from analyzers.trace.tables import Trace
from tests.support.builder import Builder
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


START, END = "ncclGroupStart", "ncclGroupEnd"
REDUCE, SEND, RECV, GATHER = "ncclAllReduce", "ncclSend", "ncclRecv", "ncclAllGather"
Call = tuple[str, int] | tuple[str, int, int]  # a range's name, when it begins and, if it has one, its communicator


def comms(calls: list[Call], launches: list[int], *, kernel: str = "ncclDevKernel_AllReduce") -> list[tuple[str, int]]:
    """(operation, launch time of its kernel, -1 where it is not known) of calls that last 5 ns each."""
    run = Builder()
    rank = run.rank(0)
    payload = []
    for name, start, *communicator in calls:
        row = rank.range(name, start, start + 5, domain="NCCL")
        payload += [(row, one, 8, -1, -1) for one in communicator]
    for launch in launches:
        rank.kernel(kernel, 7, 1000 + launch, 1001 + launch, launch=(launch, launch + 1))
    return joined(run.trace(), payload)


def joined(trace: Trace, payload: Sequence[tuple[int, ...]] = ()) -> list[tuple[str, int]]:
    columns = np.array(payload, np.int64).reshape(-1, 5).T
    ranges = ExportedRanges({**trace.ranges.columns, "row": np.arange(len(trace.ranges))}, len(trace.ranges))
    found = read_comms(ranges, Payload(*columns), trace.ops, trace.api)
    called: dict[Any, int] = dict(zip(trace.api.correlation, trace.api.start_ns, strict=True))
    return [(one, called.get(each, -1)) for one, each in zip(found.operation, found.correlation, strict=True)]


@pytest.mark.parametrize(
    ("calls", "launches", "expected"),
    [
        # A call owns the kernel launched inside it: not somebody else's, and its own may not have been captured.
        ([(REDUCE, 10), ("ncclBroadcast", 40)], [12, 30], [(REDUCE, 12), ("ncclBroadcast", -1)]),
        # Calls of a group share its only kernel.
        ([(START, 10), (SEND, 20), (RECV, 30), (END, 40)], [42], [(SEND, 42), (RECV, 42)]),
        # Only the outermost end of nested groups launches.
        (
            [(START, 0), (START, 10), (SEND, 20), (END, 30), (START, 40), (RECV, 50), (END, 60), (END, 70)],
            [72],
            [(SEND, 72), (RECV, 72)],
        ),
        # As many kernels as calls are taken in order.
        (
            [(START, 0), (REDUCE, 10), (REDUCE, 20), (REDUCE, 30), (END, 40)],
            [41, 43, 45],
            [(REDUCE, 41), (REDUCE, 43), (REDUCE, 45)],
        ),
        # One kernel a communicator serves its calls.
        (
            [(START, 0), (SEND, 10, 111), (SEND, 20, 222), (SEND, 30, 111), (END, 40)],
            [41, 43],
            [(SEND, 41), (SEND, 43), (SEND, 41)],
        ),
        # What a group launched for whom is not guessed.
        ([(START, 0), (SEND, 10), (SEND, 20), (SEND, 30), (END, 40)], [41, 43], [(SEND, -1)] * 3),
        # A capture that starts inside a group does not upset the next; a call outside any may lack its kernel.
        (
            [
                (END, 0),
                (REDUCE, 10),
                (START, 30),
                (SEND, 40),
                (END, 50),
                (GATHER, 60),
                (START, 70),
                (RECV, 80),
                (END, 90),
            ],
            [2, 12, 52, 92],
            [(REDUCE, 12), (SEND, 52), (GATHER, -1), (RECV, 92)],
        ),
        # Other ranges of NCCL's are no communication.
        ([("ncclCommInitRank", 0), (START, 10), (END, 20), ("ncclMemAlloc", 30)], [], []),
    ],
)
def test_a_call_has_the_kernel_that_was_launched_for_it(
    calls: list[Call], launches: list[int], expected: list[tuple[str, int]]
) -> None:
    assert comms(calls, launches) == expected


def test_other_kernels_inside_a_call_are_not_its_communication() -> None:
    assert comms([(REDUCE, 10)], [12], kernel="fill_kernel") == [(REDUCE, -1)]


def test_threads_do_not_share_groups_and_somebodys_own_range_is_no_call() -> None:
    run = Builder()
    rank = run.rank(0)
    rank.range(START, 0, 1, domain="NCCL")
    with rank.on_thread(2):
        rank.range(REDUCE, 10, 20, domain="NCCL")
        rank.kernel("ncclDevKernel_AllReduce", 7, 1015, 1016, launch=(15, 16))
    rank.range(SEND, 12, 13, domain="NCCL")
    rank.range(END, 30, 40, domain="NCCL")
    rank.kernel("ncclDevKernel_SendRecv", 7, 1035, 1036, launch=(35, 36))
    rank.range(REDUCE, 100, 110, domain="mine")
    assert joined(run.trace()) == [(REDUCE, 15), (SEND, 35)]
