from __future__ import annotations

import pytest

from analyzers.select.select import select
from analyzers.trace.tables import Trace
from tests.support.builder import Builder, one_rank


def every_kind() -> Trace:
    """One process with an op of every kind."""
    run, rank = one_rank()
    rank.range("MP Embedding", 0, 100)
    for start in (20, 40):
        rank.range("DP Embedding", start, start + 10)
    rank.range("aten::embedding_bag", 21, 25, kind="op")
    rank.range("python: forward", 0, 100, kind="python")
    rank.range("empty", 60, 61)
    rank.kernel("void at::native::(anonymous namespace)::embedding_bag<float>(float*)", 7, 100, 110, launch=(22, 23))
    rank.kernel("sgemm_nn", 7, 110, 120, launch=(41, 42))
    rank.kernel("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", 9, 120, 130, launch=(51, 51))
    correlation = run.rows["ops"][-1]["correlation"]
    run.add("comms", process=0, correlation=correlation, operation="all_to_allv")
    rank.copy("DtoH", 9, 130, 140, launch=(52, 53))
    rank.copy("PtoP", 11, 140, 150, launch=(54, 55))
    rank.op("Memset (Device)", 11, 150, 160, kind="memset", launch=(56, 57))
    rank.op("graph 5", 13, 160, 170, kind="graph", launch=(58, 59))
    rank.kernel("reduce_kernel", 13, 170, 180, launch=(200, 201))
    return run.trace()


ORDER = ["bag", "gemm", "sendrecv", "DtoH", "PtoP", "memset", "graph", "reduce"]


def picked(text: str, trace: Trace | None = None) -> list[str]:
    return [name for name, is_in in zip(ORDER, select(trace or every_kind(), text).picked, strict=True) if is_in]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nvtx:DP Embedding", ["bag", "gemm"]),
        ("nvtx:MP Embedding", ORDER[:-1]),
        ("nvtx:* Embedding", ORDER[:-1]),
        ("nvtx:~^DP", ["bag", "gemm"]),
        ("nvtx:MP Embedding+!nvtx:DP Embedding", ORDER[2:-1]),
        ("op:aten::embedding_bag", ["bag"]),
        ("kernel:gemm", ["gemm"]),
        ("kernel:~gemm|bag", ["bag", "gemm"]),
        ("kernel:(anonymous namespace)::embedding", ["bag"]),
        ("kernel:at::native::embedding_bag", ["bag"]),  # as suggestions and reports spell it
        ("kernel:*", ["bag", "gemm", "sendrecv", "reduce"]),
        ("stream:9", ["sendrecv", "DtoH"]),
        ("comm", ["sendrecv", "PtoP"]),
        ("compute", ["bag", "gemm", "reduce"]),
        ("collective:all_to_all", ["sendrecv"]),
        ("collective:~reduce", []),
        ("memcpy", ["DtoH", "PtoP"]),
        ("memcpy:DtoH", ["DtoH"]),
        ("memset", ["memset"]),
        ("graph", ["graph"]),
        ("!kernel:*", ["DtoH", "PtoP", "memset", "graph"]),
        ("stream:7,stream:13+compute", ["bag", "gemm", "reduce"]),
        ("(stream:7,stream:13)+kernel:~gemm", ["gemm"]),
    ],
)
def test_every_kind_of_atom_picks_its_ops(text: str, expected: list[str]) -> None:
    assert picked(text) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nvtx:DP embedding", "no range 'DP embedding'; did you mean 'DP Embedding' (2 launches)?"),
        ("nvtx:nothing like it", "no range 'nothing like it'"),
        ("nvtx:empty", "range 'empty' is in the trace, but no GPU op was launched inside it"),
        ("op:aten::embeding_bag", "no operator 'aten::embeding_bag'; did you mean 'aten::embedding_bag' (1 launch)?"),
        ("kernel:sgem_nn", "no kernel named like 'sgem_nn'; did you mean 'sgemm_nn'?"),
        ("kernel:memset", "no kernel named like 'memset'"),
        ("stream:8", "no op ran on stream 8; there are 7, 9, 11, 13"),
        ("collective:all_reduce", "no collective 'all_reduce'; there are all_to_all"),
        ("memcpy:HtoD", "no memcpy 'HtoD'; there are DtoH, PtoP"),
        ("comm+memset", "no op fits all of 'comm+memset'"),
        ("comm+nvtx:DP embedding", "no range 'DP embedding'; did you mean"),
        ("!kernel:*+!stream:9+!stream:11+!stream:13", "no op fits all of"),
    ],
)
def test_nothing_picked_says_why_and_what_comes_near(text: str, reason: str) -> None:
    selection = select(every_kind(), text)
    assert not selection.picked.any()
    assert selection.reason.startswith(reason)


def numbered() -> Trace:
    """Three batches, a step whose name has a hash in it, and a range that has two."""
    run, rank = one_rank()
    for batch in (3, 4, 12):
        rank.range(f"## forward {batch} ##", 100 * batch, 100 * batch + 50)
        rank.kernel(f"forward {batch}", 7, batch, batch + 1, launch=(100 * batch + 1, 100 * batch + 2))
    for at, name in enumerate(("## forward ##", "ProfilerStep#3", "ProfilerStep13")):
        rank.range(name, 2000 + 100 * at, 2050 + 100 * at)
        rank.kernel(name, 7, 20 + at, 21 + at, launch=(2001 + 100 * at, 2002 + 100 * at))
    return run.trace()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nvtx:## forward # ##", ["forward 3", "forward 4", "forward 12"]),
        ("nvtx:## forward 12 ##", ["forward 12"]),
        ("nvtx:## forward ##", ["## forward ##"]),
        ("nvtx:ProfilerStep#3", ["ProfilerStep#3"]),
        ("nvtx:ProfilerStep##", ["ProfilerStep#3"]),
        ("nvtx:ProfilerStep#", ["ProfilerStep13"]),
        ("nvtx:## forward # ##+!nvtx:## forward 4 ##", ["forward 3", "forward 12"]),
    ],
)
def test_a_numbered_family_selects_as_one(text: str, expected: list[str]) -> None:
    trace = numbered()
    assert trace.ops.to_frame()["name"][select(trace, text).picked].tolist() == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "nvtx:## forward 99 ##",
            "no range '## forward 99 ##'; did you mean '## forward # ##' (# is 3 to 12; 3 launches) or '## forward ##' "
            "(1 launch)?",
        ),
        (
            "nvtx:## forword # ##",
            "no range '## forword # ##'; did you mean '## forward # ##' (# is 3 to 12;",
        ),
    ],
)
def test_a_range_that_is_not_there_is_answered_with_the_family_once(text: str, reason: str) -> None:
    assert select(numbered(), text).reason.startswith(reason)


def test_a_family_with_two_numbers_is_suggested_without_a_span() -> None:
    run, rank = one_rank()
    rank.kernel("k", 7, 0, 1)
    for layer in (1, 2):
        for part in (1, 2):
            rank.range(f"layer {layer}.{part}", 0, 1)
    assert select(run.trace(), "nvtx:layer").reason == "no range 'layer'; did you mean 'layer #.#' (0 launches)?"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("comm", "there are no kernels and no peer copies in the trace"),
        ("compute", "there are no compute kernels in the trace"),
        ("memcpy", "there is no memcpy in the trace"),
        ("memset", "there is no memset in the trace"),
        ("graph", "there is no graph in the trace"),
    ],
)
def test_a_trace_without_a_kind_of_op_says_so(text: str, what: str) -> None:
    run, rank = one_rank()
    rank.op("x", 7, 0, 1, kind="memset" if text != "memset" else "memcpy", copy="" if text != "memset" else "HtoD")
    assert select(run.trace(), text).reason == what
    assert select(Builder().trace(), text).reason == "there is no GPU work in what was selected"


def test_a_trace_without_ranges_says_that_there_are_none() -> None:
    run = Builder()
    run.rank(0).kernel("k", 7, 0, 1, launch=(0, 1))
    assert select(run.trace(), "nvtx:x").reason == "no range 'x'; the trace has no ranges"
    unknown = "no kernel known as communication; all kernels ran on stream 7. If yours have other names, give them: "
    unknown += "--comm kernel:NAME"
    assert select(run.trace(), "collective:x").reason == f"no collective 'x'; {unknown}"
    assert select(run.trace(), "comm").reason == unknown


def test_communication_of_other_names_is_looked_for_on_the_busiest_other_stream() -> None:
    run = Builder()
    rank = run.rank(0)
    rank.kernel("gemm", 7, 0, 1000)
    rank.kernel("my_exchange", 27, 100, 400)
    rank.kernel("gemm", 31, 500, 700)
    reason = "no kernel known as communication; busiest other stream: 27. If yours have other names, give them: "
    reason += "--comm kernel:NAME"
    assert select(run.trace(), "comm").reason == reason


def test_where_there_are_no_operators_nvtx_ranges_of_emit_nvtx_stand_in() -> None:
    run, rank = one_rank()
    rank.range("aten::mm", 0, 10)
    rank.kernel("k", 7, 10, 20, launch=(5, 6))
    assert select(run.trace(), "op:aten::mm").picked.tolist() == [True]


def test_the_occurrence_is_the_innermost_range_the_selector_names() -> None:
    trace = every_kind()
    for text in ("nvtx:MP Embedding,nvtx:DP Embedding", "nvtx:DP Embedding,nvtx:MP Embedding"):
        assert select(trace, text).occurrence.tolist() == [1, 2, 0, 0, 0, 0, 0, -1]
    assert select(trace, "nvtx:MP Embedding+!nvtx:DP Embedding").occurrence.tolist() == [-1, -1, 0, 0, 0, 0, 0, -1]
    assert select(trace, "compute").occurrence.tolist() == [-1] * 8


def test_work_another_thread_launched_meanwhile_is_not_taken_and_is_reported() -> None:
    run, rank = one_rank()
    rank.range("A", 0, 100)
    rank.kernel("k", 7, 0, 1, launch=(10, 11))
    for start in (20, 30):
        rank.kernel("k", 7, 5, 6, launch=(start, start + 1), thread=77)
    selection = select(run.trace(), "nvtx:A")
    assert selection.picked.tolist() == [True, False, False]
    (warning,) = selection.warnings
    assert warning.code == "other-thread"
    assert "thread 77 launched 2 GPU ops" in warning.message
