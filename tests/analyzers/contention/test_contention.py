"""What overlap costs: like ops, their time alone, and what both sides paid."""

from __future__ import annotations

import random
import statistics
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import traceviz as tv
from analyzers.contention.alone import alone
from analyzers.contention.cost import Contention, SideCost, contention, in_words, side_cost
from analyzers.contention.growth import growth
from analyzers.contention.neighbours import neighbours, stream_contention
from analyzers.contention.timings import Kinds, Timings, join, over_all_ranks, timings
from analyzers.load import load
from analyzers.matching.calls import calls
from analyzers.select.select import select
from analyzers.trace.columns import ints
from analyzers.trace.narrow import clip
from analyzers.trace.tables import Trace
from tests.support.builder import Builder

PAIRS = Path(__file__).parents[2] / "data" / "contention"
DDP = PAIRS.parent / "torch"
A, B = "kernel:alpha", "kernel:beta"


def sides(trace: Trace, a: str = A, b: str = B) -> tuple[Timings, Timings]:
    return timings(trace, select(trace, a).picked, select(trace, b).picked)


def cost(trace: Trace, side: int) -> SideCost:
    mine = sides(trace)[side]
    return side_cost(mine, alone(mine))


def made(*ops: tuple[str, int, int, int]) -> Trace:
    """Kernels (name, stream, start, end) of one grid."""
    run = Builder()
    rank = run.rank(0)
    for name, stream, start, end in ops:
        rank.kernel(name, stream, start, end, grid=1, block=32)
    return run.trace()


def beta(*spans: tuple[int, int]) -> list[tuple[str, int, int, int]]:
    return [("beta", 7, *span) for span in spans]


@pytest.mark.parametrize(
    ("ops", "paid", "slower", "like", "beside"),
    [
        # Three beta alone for 100, one beside alpha for all of its 160: it paid 60, at 160 / 100 of its time.
        ([*beta((0, 100), (100, 200), (200, 300), (400, 560)), ("alpha", 8, 390, 570)], 60, 1.6, 1, 160),
        # Half of its pace beside alpha: covered for 40 of its 120 it did 20 there and 80 alone; and 100 of 200.
        (
            [
                *beta((0, 100), (200, 300), (400, 520), (600, 800)),
                *(("alpha", 8, *span) for span in ((480, 540), (590, 810))),
            ],
            20 + 100,
            2.0,
            2,
            40 + 200,
        ),
        # The last has no like one behind gamma, but those behind beta all took 100.
        (
            [
                *beta((0, 100), (100, 200), (200, 300), (300, 400), (420, 560)),
                ("gamma", 7, 400, 410),
                ("alpha", 8, 415, 600),
            ],
            40,
            1.4,
            1,
            140,
        ),
        # The second shares the GPU with a third on stream 9: what it lost is not alpha's.
        ([*beta((0, 100), (100, 300)), ("beta", 9, 100, 300), ("alpha", 8, 100, 300)], None, None, 0, 400),
        # Covered for 10 of its 300, where others take 100: not alpha made it 200 longer.
        ([*beta((0, 100), (100, 200), (200, 500)), ("alpha", 8, 490, 510)], None, None, 0, 10),
    ],
)
def test_ops_beside_the_other_side_are_measured_against_like_ones_alone(
    ops: list[tuple[str, int, int, int]], paid: int | None, slower: float | None, like: int, beside: int
) -> None:
    trace = made(*ops)
    found = cost(trace, 1)
    assert (found.paid_ns, found.like_kernels, found.beside_ns) == (paid, like, beside)
    assert found.slowdown_beside == (slower and pytest.approx(slower))
    assert found.is_slowed == (slower is not None)
    assert cost(trace, 0).paid_ns is None, "alpha never ran alone"


@pytest.mark.parametrize("name", ["ddp.rank0", "a2a_async.rank0"])
def test_kinds_are_the_distinct_combinations_of_what_tells_ops_apart(name: str) -> None:
    trace = load([DDP / f"{name}.json.gz"])
    ops, about = trace.ops.to_frame(), calls(trace).table.to_frame().set_index("op")
    by_start, previous = ops.sort_values("start_ns", kind="stable"), {}
    for _, lane in by_start.groupby(["process", "device", "context", "stream"]):
        previous |= dict(zip(lane.index[1:], lane["name"].iloc[:-1], strict=True))
    for side, found in zip(("compute", "comm"), sides(trace, "compute", "comm"), strict=True):
        assert len(set(rows_of(found.kinds))) == len(found.kinds)
        rows = np.flatnonzero(select(trace, side).picked).tolist()
        for row, kind in zip(rows, found.kinds.take(found.kind).to_frame().itertuples(), strict=True):
            one, call = ops.loc[row], about.loc[row] if row in about.index else None
            expected = {
                "kind": one["kind"],
                "copy": one["copy"],
                "name": one["name"] if call is None else call["operation"],
                "group": "" if call is None else call["group_ranks"],
                "previous": previous.get(row, "") if call is None else "",
                "bytes": (one if call is None else call)["bytes"],
                **{column: one[column] for column in ("grid", "block", "registers", "shared_bytes")},
            }
            assert {column: getattr(kind, column) for column in expected} == expected


def test_nearly_alone_ops_are_corrected_for_what_they_met() -> None:
    """Beside alpha an op takes 1,000 where 100 were covered (c = 10 %), 1,800 where all were.

    1800 = w / (1 − α), 1000 = w / (1 − 0.1 α): α = (1.8 − 1) / (1.8 − 0.1) = 0.4706, w = 1000 (1 − 0.04706) = 952.9.
    """
    own = of_kinds(kinds(1), [0] * 8, [1000] * 4 + [1800] * 4, [100] * 4 + [1800] * 4)
    assert alone(own).taken_ns[0] == pytest.approx(952.94, abs=0.01)


def rows_of(kinds: Kinds) -> list[tuple[object, ...]]:
    return [*zip(*(column.tolist() for column in kinds.columns.values()), strict=True)]


def kinds(count: int) -> Kinds:
    return Kinds.of({"grid": np.arange(count)})


def of_kinds(
    kinds: Kinds, kind: list[int], taken: list[int], beside: list[int], collective: list[int] | None = None
) -> Timings:
    """Ops of some kinds on rank 0, each of which is a measure."""
    zeros = np.zeros(len(kind), np.int64)
    number = np.array(collective or [-1] * len(kind))
    usual = np.ones(len(kind), dtype=bool)
    return Timings(kinds, np.array(kind), zeros, zeros, np.array(taken), np.array(beside), number, usual)


def test_other_grids_sizes_and_predecessors_are_not_alike() -> None:
    run = Builder()
    rank = run.rank(0)
    for start, grid in ((0, 1), (200, 2), (400, 1)):
        rank.kernel("beta", 7, start, start + 100, grid=grid, block=32)
    rank.kernel("gamma", 7, 600, 610)
    rank.kernel("beta", 7, 620, 700, grid=1, block=32)
    rank.kernel("alpha", 8, 0, 1)
    found = sides(run.trace())[1]
    assert len(set(found.kind.tolist())) == 4, "grid 1 first, grid 2, grid 1 behind beta, grid 1 behind gamma"


def test_other_sizes_of_inputs_are_not_alike_where_they_are_known() -> None:
    """Matrix products of one kernel and grid, one with sums four times as long; a run without sizes knows neither."""
    run = Builder()
    rank = run.rank(0)
    for start, sizes in ((0, 64), (1_000, 256), (2_000, 64)):
        rank.range("aten::mm", start, start + 10, kind="op", sizes=sizes)
        rank.kernel("beta", 7, start + 20, start + 100, launch=(start + 1, start + 2))
    rank.kernel("alpha", 8, 0, 1, launch=(0, 1))
    with_sizes = sides(run.trace())[1]
    assert with_sizes.kinds.sizes[with_sizes.kind].tolist() == [64, 256, 64]
    run.rows["ranges"] = [{**row, "sizes": -1} for row in run.rows["ranges"]]
    without = sides(run.trace())[1]
    assert set(join([with_sizes]).kinds.sizes) == {64, 256}
    assert set(join([with_sizes, without]).kinds.sizes) == {-1}


def test_a_collective_is_alone_only_where_all_its_ranks_are() -> None:
    """Of two ranks' calls one ran beside the other side: both go on as the slower does."""
    own = of_kinds(kinds(1), [0] * 4, [100, 100, 150, 150], [0, 0, 150, 0], [0, 0, 1, 1])
    assert over_all_ranks(own).beside_ns.tolist() == [0, 0, 150, 150]
    assert alone(over_all_ranks(own)).taken_ns[0] == 100


def test_first_steps_and_ops_behind_an_idle_time_are_no_measure() -> None:
    run = Builder()
    rank = run.rank(0)
    rank.range("step 0", 0, 1_000)
    rank.range("step 1", 1_000, 9_000_000)
    rank.kernel("beta", 7, 10, 500, launch=(1, 2))  # the first step's
    rank.kernel("beta", 7, 1_010, 1_110, launch=(1_001, 1_002))
    rank.kernel("beta", 7, 5_000_000, 5_000_300, launch=(1_003, 1_004))  # 5 ms later
    rank.kernel("alpha", 8, 5, 6, launch=(1, 2))
    found = sides(run.trace())[1]
    assert found.usual.tolist() == [False, True, False]


def test_a_window_that_cuts_an_op_makes_it_no_measure() -> None:
    run = Builder()
    rank = run.rank(0)
    rank.kernel("beta", 7, 0, 100)
    rank.kernel("beta", 7, 100, 200)
    rank.kernel("alpha", 8, 0, 10)
    assert sides(clip(run.trace(), 0, 150))[1].usual.tolist() == [True, False]


def test_streams_of_one_number_in_two_contexts_are_two() -> None:
    """Each of two contexts has a stream 7: a beta beside one of the other context's is no measure."""
    run = Builder()
    one = run.rank(0)
    two = replace(one, context=one.context + 1)
    one.kernel("beta", 7, 0, 100, grid=1, block=32)
    one.kernel("beta", 7, 100, 200, grid=1, block=32)
    two.kernel("beta", 7, 0, 100, grid=1, block=32)
    one.kernel("alpha", 8, 150, 200)
    found = sides(run.trace())[1]
    assert found.kinds.crowded[found.kind].tolist() == [1, 0, 1]


@pytest.mark.parametrize("rank", range(4))
def test_one_rank_of_several_claims_nothing_of_its_collectives(rank: int) -> None:
    """What of them was waiting for the absent ranks is not known, so neither is what they took."""
    result = tv.check_overlap([PAIRS / f"contend_before.rank{rank}.json.gz"], min_overlap=0.0)
    after = tv.check_overlap(
        [PAIRS / f"contend_after.rank{rank}.json.gz"], baseline=loaded("contend_before"), min_overlap=0.0
    )
    assert all(one.a.paid_ns is None for one in (*result.contention, *after.contention))
    assert all(one.b.paid_ns for one in after.contention)


def oracle(trace: Trace, mine: str, other: str) -> tuple[float, int] | None:
    """What a side paid and how long it was beside the other, op by op in plain Python; None where nothing tells."""
    rows = [
        (row.rank, row.name, row.stream, row.start_ns, row.end_ns)
        for row in trace.ops.to_frame().sort_values("start_ns", kind="stable").itertuples()
    ]
    last: dict[tuple[int, int], str] = {}
    groups: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for rank, name, stream, start, end in rows:
        before = last.get((rank, stream), "")
        last[rank, stream] = name
        if name.startswith(mine):
            covered = {
                t
                for r, n, _, s, e in rows
                if r == rank and n.startswith(other)
                for t in range(max(s, start), min(e, end))
            }
            groups.setdefault((name, before), []).append((end - start, len(covered)))
    paid, known, met = 0.0, 0, 0
    for ops in groups.values():
        met += sum(x for _, x in ops)
        near = [(d, x / d) for d, x in ops if x <= 0.1 * d]
        beside = [(d, x / d) for d, x in ops if x >= 0.5 * d]
        if not near:
            continue
        d, c = (statistics.median(column) for column in zip(*near, strict=True))
        slower = 0.0
        if beside:
            d1, c1 = (statistics.median(column) for column in zip(*beside, strict=True))
            slower = min(max((d1 / d - 1) / max(d1 / d * c1 - c, 0.4), 0.0), 0.95)
        for taken, x in ops:
            if x:
                paid += taken - d * (1 - slower * c)
                known += x
    if not known or 2 * known < met:
        return None
    pace = known / max(known - paid, known / 100)
    return paid + (met - known) * (1 - 1 / pace), met


@pytest.mark.parametrize("seed", range(30))
def test_random_timelines_cost_what_op_by_op_they_do(seed: int) -> None:
    """Kinds that nobody else stands in for: each behind the same kind alone, or of names that come once."""
    rng = random.Random(seed)
    run = Builder()
    for number in range(2):
        rank = run.rank(number)
        for stream, side in ((7, "beta"), (8, "alpha")):
            at = rng.randint(0, 50)
            name = f"{side}{rng.randint(0, 1)}"
            for _ in range(rng.randint(3, 9)):
                length = rng.randint(20, 60)
                rank.kernel(name, stream, at, at + length, grid=1, block=32)
                at += length + rng.choice((0, 5, 80))
    trace = run.trace()
    for mine, other in (("beta", "alpha"), ("alpha", "beta")):
        a, b = (select(trace, f"kernel:~{one}").picked for one in (mine, other))
        found, expected = timings(trace, a, b)[0], oracle(trace, mine, other)
        result = side_cost(found, alone(found))
        broad = len(found.kinds) != len(set(found.kinds.name))  # the first of a stream came behind nothing
        if expected is None:
            assert result.paid_ns is None or broad
            continue
        paid, met = expected
        assert result.beside_ns == met
        if not broad:
            assert result.paid_ns == max(round(paid), 0)


def test_net_overlap_is_real_overlap_less_what_both_sides_paid() -> None:
    """Together for 160; beta paid 60 and alpha 40 of it: 60 are left, 3/8 of ideal."""
    alpha = [("alpha", 8, *span) for span in ((200, 320), (400, 560))]
    trace = made(*beta((0, 100), (100, 200), (400, 560)), *alpha)
    result = tv.check_overlap(trace, A, B)
    (one,) = contention([sides(trace)], result.ranks)
    assert (one.real_overlap_ns, one.a.paid_ns, one.b.paid_ns, one.net_overlap_ns) == (160, 40, 60, 60)
    assert one.ideal == pytest.approx(60 / 160)
    assert result.cost == one


def words_of(a: SideCost, b: SideCost, *, has_baseline: bool = False) -> str:
    known = a.paid_ns is not None and b.paid_ns is not None
    return in_words(Contention(0, 0, a, b, 400, 300 if known else None, None, 390), "x", "y", has_baseline=has_baseline)


def test_what_overlap_cost_in_words() -> None:
    """A slowdown is claimed where it is sure, a range is told in any case, and unknown sides say what would help."""
    unknown = SideCost(None, None, None, 0, None, None, None, 400)
    slower, perhaps = SideCost(1.3, 1.2, 1.4, 7, 90, 60, 120, 400), SideCost(1.0, 0.9, 2.5, 1, 10, 0, 250, 400)
    few = "too few kernels of either side have a matching one that ran alone"
    lone = f"not known from this capture ({few}: give --baseline)"
    assert words_of(unknown, unknown) == lone
    assert words_of(unknown, unknown, has_baseline=True).startswith("not known (too few kernels of either side have")
    assert words_of(slower, perhaps) == (
        "x 1.30x slower while overlapped with y (1.20–1.40x; 7 matching kernels), 90 ns lost to contention; "
        "no slowdown of y shown while overlapped with x (0.90–2.50x; 1 matching kernel); "
        "net 300 of 400 ns, 75 % of ideal"
    )
    assert words_of(slower, unknown).endswith("; net at most 390 of 400 ns")
    assert "net" not in words_of(perhaps, unknown)


def test_costs_as_a_frame() -> None:
    result = checked("contend_after")
    frame = result.costs()
    assert frame["side"].tolist() == ["comm", "compute"] * 4
    assert frame.loc[(0, 0), "paid_ns"].isna().tolist() == [True, False]
    assert frame["beside_ns"].sum() == sum(side.beside_ns for one in result.contention for side in (one.a, one.b))
    assert result._repr_html_().count("overlap costs: communication not known") == 1


def captures(name: str) -> list[Path]:
    return sorted(PAIRS.glob(f"{name}.rank*.json.gz"))


@cache
def loaded(name: str) -> tv.Trace:
    """All ranks of a capture, which no test changes."""
    return tv.load(captures(name))


@cache
def checked(name: str) -> tv.OverlapResult:
    return tv.check_overlap(loaded(name), min_overlap=0.0)


def busy(name: str, side: str) -> float:
    """Real busy time of a side, ns, mean of ranks, of all twenty steps but the first."""
    result = tv.check_overlap(loaded(name).only(steps=(1, 20)), min_overlap=0.0)
    return float(np.mean([getattr(rank, side).real_busy_ns for rank in result.ranks]))


def test_from_one_capture_the_compute_side_pays_what_the_pair_says() -> None:
    """The bar: within 3 points of its whole time; `contend` of four H100s, by time with overlap over time without."""
    result = checked("contend_after")
    busy = sum(rank.b.busy_ns for rank in result.ranks)
    paid = sum(one.b.paid_ns or 0 for one in result.contention)
    before = checked("contend_before")
    truth = busy / sum(rank.b.busy_ns for rank in before.ranks) - 1
    assert abs(paid / (busy - paid) - truth) < 0.03
    assert abs(paid / (busy - paid) - 0.188) < 0.03, "as measured over twenty steps"
    assert result.cost is not None
    assert result.cost.a.paid_ns is None, "the all-reduce never ran alone"


def test_from_one_capture_of_h200s_the_range_holds_what_the_pair_says() -> None:
    """Their clocks are lower where the capture has overlap, in matmuls alone, too: the median says too little."""
    result = checked("reduce_after")
    truth = busy("reduce_after", "b") / busy("reduce_before", "b") - 1
    taken = sum(rank.b.busy_ns for rank in result.ranks)
    low, high = (
        sum(getattr(one.b, name) or 0 for one in result.contention) for name in ("paid_low_ns", "paid_high_ns")
    )
    assert low / (taken - low) <= truth <= high / (taken - high)


def step_ns(name: str) -> float:
    """From GPU work to GPU work, over all steps but the first: by the first of the six memory-bound kernels."""
    trace, spans = loaded(name).data, []
    for rank in trace.rank_ids:
        vector = trace.ops.to_frame()["name"].astype(str).str.contains("vectorized").to_numpy()
        starts = np.sort(ints(trace.ops, "start_ns")[vector & (ints(trace.ops, "rank") == rank)])[::6]
        spans.append(np.diff(starts)[1:].mean())
    return float(np.mean(spans))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("reduce_before", "reduce_after"),
        ("reduce_before", "reduce_priority"),
        ("reduce_before", "reduce_tiles"),
        ("reduce_before", "reduce_place"),
        ("gather_before", "gather_nccl"),
    ],
)
def test_with_a_baseline_net_overlap_is_the_gain_of_a_step(before: str, after: str) -> None:
    """The bar: within 10 % of the step gained under the same profiler."""
    result = tv.check_overlap(loaded(after), baseline=loaded(before), min_overlap=0.0)
    net = np.mean([one.net_overlap_ns for one in result.contention]) / 20
    gain = step_ns(before) - step_ns(after)
    assert net == pytest.approx(gain, rel=0.1)


@pytest.mark.parametrize("name", ["reduce_before", "gather_before", "contend_before", "gather_copy"])
def test_where_nothing_contends_none_is_claimed(name: str) -> None:
    """One after the other, and an all-gather by copy engines, which leaves the SMs alone."""
    result = checked(name)
    assert not any(one.a.is_slowed or one.b.is_slowed for one in result.contention)


def test_kernels_that_suffer_and_from_whom() -> None:
    """60 lost in all by beta: beside alpha for 120 and gamma for 40, that is 45 and 15.

    stream 7   |beta 0-100|beta 100-200|      |beta 400 ------------ 560|
    stream 8                                  |alpha 390 ---- 520|
    stream 9                                                     |gamma 520-600|
    """
    trace = made(*beta((0, 100), (100, 200), (400, 560)), ("alpha", 8, 390, 520), ("gamma", 9, 520, 600))
    result = stream_contention([neighbours(trace)])
    suffering = {one.name: one for one in result.kernels}
    assert (suffering["beta"].paid_ns, suffering["beta"].beside_ns, suffering["beta"].ops) == (60, 160, 1)
    assert suffering["alpha"].paid_ns is None
    assert [(one.name, one.beside, one.beside_ns, one.paid_ns) for one in result.pairs] == [
        ("beta", "alpha", 120, 45),
        ("beta", "gamma", 40, 15),
    ]
    assert list(result.to_frame()) == ["name", "ops", "beside_ns", "slowdown", "paid_ns"]


def test_growth_is_contention_clocks_and_other_work() -> None:
    """Three of 100 before; one of 120 alone, two of 150 beside and one other of 50 after: 60 + 60 + 50."""
    before = of_kinds(kinds(1), [0] * 3, [100] * 3, [0] * 3)
    after = of_kinds(kinds(2), [0, 0, 0, 1], [120, 150, 150, 50], [0, 150, 150, 0])
    found = growth([before], [after], shares=1)
    assert asdict(found) == {
        "growth_ns": 170, "contention_ns": 60, "clocks_ns": 60, "work_ns": 50, "unknown_ns": 0, "wait_ns": 0,
    }  # fmt: skip


def test_the_same_work_behind_other_ops_or_with_other_channels_is_no_other_work() -> None:
    """Of 100 alone before. After, in another order: 2 alone of 100, 1 beside of 130; the bytes are the same."""
    for told in ({"previous": ["x", "y"]}, {"group": ["0,1", "0,1"], "grid": [8, 16]}):
        both = kinds(2).having(**{"name": "same", "grid": 4, "bytes": 64, **told})
        before = of_kinds(both, [0] * 3, [100] * 3, [0] * 3)
        after = of_kinds(both, [1] * 3, [100, 100, 130], [0, 0, 130])
        found = growth([before], [after], shares=1, wait_ns=7)
        assert asdict(found) == {
            "growth_ns": 30, "contention_ns": 30, "clocks_ns": 0, "work_ns": 0, "unknown_ns": 0, "wait_ns": 7,
        }  # fmt: skip
        other = of_kinds(both.having(bytes=[64, 128]), [1] * 3, [100, 100, 130], [0, 0, 130])
        assert growth([before], [other], shares=1).work_ns == 30, "other bytes are other work"


def test_growth_of_a_pair_sums_to_what_the_ops_take_longer() -> None:
    """Against the ops' own times, added up in plain Python, a rank and step."""
    runs = [loaded(name) for name in ("reduce_before", "reduce_after")]
    result = tv.compare(*runs)
    growths = result.runs[1].growth
    assert growths is not None
    for side, found in zip(("comm", "compute"), growths, strict=True):
        taken = []
        for trace in runs:
            ops = trace.only(steps=(min(result.steps), max(result.steps) + 1)).ops
            is_comm = ops["name"].astype(str).str.contains("nccl")
            mine = ops[(ops["kind"] == "kernel") & (is_comm if side == "comm" else ~is_comm)]
            taken.append(int((mine["end_ns"] - mine["start_ns"] - mine["wait_ns"]).sum()))
        assert found.growth_ns == pytest.approx((taken[1] - taken[0]) / (2 * len(result.steps)), abs=2)
        assert found.contention_ns > 0.6 * found.growth_ns


def test_the_same_from_python_by_parts_too() -> None:
    whole = tv.contention(captures("gather_nccl"))
    assert whole.kernels[0].name.startswith("nvjet")
    assert tv.contention(captures("gather_nccl"), memory="8GB", cache=False) == whole
    assert repr(whole).startswith("<4 kernels overlapped with other streams, and lost ")
    assert "never alone" in whole._repr_html_()


def test_transfers_keep_their_names_beside_kernels_of_many() -> None:
    """128 names of kernels and a few operations: a number of one byte does not hold both."""
    trace = tv.load([DDP / f"ddp.rank{rank}.json.gz" for rank in range(2)]).data
    names = [f"kernel {row % 128}" for row in range(len(trace.ops))]
    ops = trace.ops.having(name=pd.Categorical([*map(_named, trace.ops.to_frame()["name"], names)]))
    trace = replace(trace, ops=ops)
    comm, compute = (select(trace, one).picked for one in ("comm", "compute"))
    kinds = timings(trace, comm, compute)[0].kinds
    assert set(kinds.name) == {"all_reduce"}


def _named(old: str, new: str) -> str:
    return old if "nccl" in old else new


def test_time_alone_is_that_of_medians() -> None:
    """Half of them alone, half of them beside the other side for 0.6 to 1 of their time; but for the last kind."""
    kinds, each = 3, 400
    random.seed(kinds)
    rows = [
        (kind, random.randint(900, 1_100) if i % 2 else random.randint(1_400, 1_600), i % 2)
        for kind in range(kinds)
        for i in range(each)
    ]
    random.shuffle(rows)
    kind, taken, is_alone = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    is_alone[kind == kinds - 1] = 1
    share = np.array([0.0 if one else random.uniform(0.6, 1) for one in is_alone])
    beside = (taken * share).astype(np.int64)
    table = Kinds.of({"grid": np.arange(kinds)})
    none = np.zeros(kind.size, np.int64)
    found = alone(Timings(table, kind, none, none, taken, beside, none - 1, np.ones(kind.size, bool)))
    for one in range(kinds):
        mine = (kind == one) & (is_alone == 1)
        expected = statistics.median(taken[mine].tolist())  # beside nothing for any of their time, they lose nothing
        assert found.taken_ns[one] == pytest.approx(expected)
        fast = sorted(taken[mine].tolist())[(int(mine.sum()) - 1) // 100]
        assert found.least_ns[one] == pytest.approx(max(fast, 0.9 * expected))
