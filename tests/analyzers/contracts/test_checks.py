"""Each kind of rule on small traces, by hand: what holds it, what breaks it and says so, what leaves it open."""

from __future__ import annotations

from typing import Any

import pytest

from analyzers.contracts.checks import check_contract
from analyzers.contracts.result import ContractResult, RuleResult
from analyzers.contracts.rules import read_contract
from analyzers.trace.lost import count_lost_work
from analyzers.trace.narrow import only_steps
from analyzers.trace.tables import Trace
from tests.support.builder import Builder, Rank

MAIN, SIDE = 7, 9
BESIDE = {"may_run_beside": ["nvtx:A", "nvtx:B"]}


def ruled(trace: Trace, **rule: Any) -> RuleResult:
    [result] = check_contract(trace, read_contract({"rule": rule})).rules
    return result


def launch(rank: Rank, name: str, stream: int, at: int, start: int, end: int, **more: Any) -> None:
    """A kernel, launched at `at` in a range of 10 ns with the kernel's first letter for a name."""
    rank.range(name[0], at, at + 10, **more)
    rank.kernel(name, stream, start, end, launch=(at + 1, at + 3), **more)


def two(between: Any = None, *, side: int = SIDE, late: int = 100) -> Trace:
    """B on the main stream from 50 to 90, something, and A on another one, launched at `late`, running from 200."""
    run = Builder()
    rank = run.rank(0)
    rank.range("step 0", 0, 400)
    rank.wait_stream(SIDE, MAIN, 5)  # waits are recorded, and this one is for nothing
    launch(rank, "B", MAIN, 20, 50, 90)
    if between is not None:
        between(rank)
    launch(rank, "A", side, late, 200, 240)
    return run.trace()


def test_nothing_between_is_free_even_where_they_did_not_meet() -> None:
    result = ruled(two(), **BESIDE)
    assert (result.outcome, result.checked, result.failed) == ("held", 1, 0)


@pytest.mark.parametrize(
    ("between", "side", "kinds"),
    [
        (None, MAIN, ["B (stream 7)", "A (stream 7)"]),
        (
            lambda rank: rank.wait_stream(SIDE, MAIN, 40),
            SIDE,
            ["B", "event recorded on stream 7", "waited for by", "A"],
        ),
        (
            lambda rank: rank.synchronize("stream", 40, 95, stream=MAIN),
            SIDE,
            ["B", "the host waits, cudaStreamSynchronize", "launched after that", "A"],
        ),
        (lambda rank: rank.synchronize("device", 40, 95), SIDE, ["B", "the host waits", "launched after that", "A"]),
    ],
)
def test_a_path_breaks_it_and_is_told(between: Any, side: int, kinds: list[str]) -> None:
    result = ruled(two(between, side=side), **BESIDE)
    assert (result.outcome, result.checked, result.failed) == ("broken", 1, 1)
    [found] = result.findings
    assert (found.rank, found.where, found.exact) == (0, "occurrence 0", True)
    assert len(found.path) == len(kinds)
    assert all(text.startswith(begin) for text, begin in zip(found.path, kinds, strict=True))


def test_a_wait_for_an_event_of_before_the_work_is_no_order() -> None:
    run = Builder()
    rank = run.rank(0)
    event = rank.record(MAIN, 5)
    launch(rank, "B", MAIN, 20, 50, 90)
    rank.wait(SIDE, event, 40)
    launch(rank, "A", SIDE, 100, 200, 240)
    assert ruled(run.trace(), **BESIDE).outcome == "held"


def by_another(rank: Rank) -> None:
    rank.synchronize("stream", 40, 95, stream=MAIN, thread=2)


def unknown_wait(rank: Rank) -> None:
    rank.wait(SIDE, -1, 40)  # nobody knows for what


@pytest.mark.parametrize("open_about", [by_another, unknown_wait])
@pytest.mark.parametrize(("end", "outcome"), [(200, "inconclusive"), (201, "held")])
def test_what_is_open_leaves_it_open_unless_work_ran_on_when_the_other_began(
    open_about: Any, end: int, outcome: str
) -> None:
    """What one thread hands to another is on no record; but A, from 200 on, did not wait for what still ran then."""
    run = Builder()
    rank = run.rank(0)
    rank.wait_stream(SIDE, MAIN, 5)
    launch(rank, "B", MAIN, 20, 50, end)
    open_about(rank)
    launch(rank, "A", SIDE, 100, 200, 240)
    assert ruled(run.trace(), **BESIDE).outcome == outcome


def test_without_records_of_waits_only_other_paths_break_it() -> None:
    """Torch's default: the calls are there, of which stream they are is not."""

    def unrecorded(rank: Rank) -> None:
        rank.record(MAIN, 35, stated=False)
        rank.call("cudaStreamWaitEvent", 40, 41)

    def trace(between: Any, side: int = SIDE) -> Trace:
        run = Builder()
        rank = run.rank(0)
        launch(rank, "B", MAIN, 20, 50, 90)
        between(rank)
        launch(rank, "A", side, 100, 200, 240)
        return run.trace()

    result = ruled(trace(unrecorded), **BESIDE)
    assert (result.outcome, "enable_cuda_sync_events" in result.remedy) == ("inconclusive", True)
    assert ruled(trace(unrecorded, MAIN), **BESIDE).outcome == "broken"
    assert ruled(trace(lambda rank: rank.synchronize("device", 40, 95)), **BESIDE).outcome == "broken"


def steps(*waits: bool) -> Trace:
    """A step a flag: B's two ops on the main stream, the second behind A's wait, if the step makes one."""
    run = Builder()
    rank = run.rank(0)
    for number, waits_here in enumerate(waits):
        at = 1000 * number
        rank.range(f"step {number}", at, at + 900)
        launch(rank, "B1", MAIN, at + 20, at + 50, at + 90)
        rank.wait_stream(SIDE, MAIN, at + 40)
        launch(rank, "B2", MAIN, at + 60, at + 90, at + 130)
        if waits_here:
            rank.wait_stream(SIDE, MAIN, at + 80)
        launch(rank, "A", SIDE, at + 100, at + 200, at + 240)
    return run.trace()


PAIR = {"may_run_beside": ["kernel:A", "kernel:B*"]}


def test_all_pairs_and_some_pairs_differ() -> None:
    result = ruled(steps(False, False), **PAIR)
    assert (result.outcome, result.checked, result.failed) == ("broken", 2, 2)
    assert ruled(steps(False, False), **PAIR, pairs="some").outcome == "held"
    result = ruled(steps(False, True), **PAIR, pairs="some")
    assert (result.outcome, result.checked, result.failed) == ("broken", 2, 1)
    assert [one.where for one in result.findings] == ["step 1"]


@pytest.mark.parametrize(("more", "outcome"), [({}, "broken"), ({"within": "step"}, "held")])
def test_ranges_of_a_step_are_compared_one_by_one_or_all_together(more: dict[str, str], outcome: str) -> None:
    """Buckets: each A waits for the B of its number, and may run beside the next."""
    run = Builder()
    rank = run.rank(0)
    rank.range("step 0", 0, 900)
    for number in range(3):
        at = 100 * number
        launch(rank, "B", MAIN, at + 20, at + 50, at + 90)
        rank.wait_stream(SIDE, MAIN, at + 40)
        launch(rank, "A", SIDE, at + 60, at + 100, at + 120)
    assert ruled(run.trace(), **BESIDE, pairs="some", **more).outcome == outcome


def test_work_of_different_steps_is_not_compared() -> None:
    """Step 1's B is behind step 0's A, which orders nothing within a step."""
    run = Builder()
    rank = run.rank(0)
    for number in (0, 1):
        at = 1000 * number
        rank.range(f"step {number}", at, at + 900)
        launch(rank, "B", MAIN, at + 20, at + 50, at + 90)
        launch(rank, "A", SIDE, at + 100, at + 200, at + 240)
        rank.wait_stream(MAIN, SIDE, at + 300)
    assert ruled(run.trace(), **PAIR).outcome == "held"


def test_a_part_of_a_trace_is_held_by_what_lies_outside_it() -> None:
    trace = steps(False, True)
    assert ruled(only_steps(trace, 0, 1), **PAIR, pairs="some").outcome == "held"
    assert ruled(only_steps(trace, 1, 2), **PAIR, pairs="some").outcome == "broken"


def test_without_step_marks_nothing_that_is_ordered_can_be_told() -> None:
    run = Builder()
    rank = run.rank(0)
    rank.kernel("B", MAIN, 50, 90, launch=(20, 23))
    rank.kernel("A", MAIN, 200, 240, launch=(100, 103))
    result = ruled(run.trace(), **PAIR)
    assert (result.outcome, result.remedy[:14]) == ("inconclusive", "Mark the steps")


def test_a_step_in_which_the_capture_ended_is_left_out() -> None:
    run = Builder()
    rank = run.rank(0)
    for number in (0, 1):
        at = 1000 * number
        rank.range(f"step {number}", at, at + 900)
        launch(rank, "B1", MAIN, at + 20, at + 50, at + 90)
        rank.wait_stream(SIDE, MAIN, at + 40)
        launch(rank, "A", SIDE, at + 100, at + 200, at + 240)
        if number == 0:
            launch(rank, "B2", MAIN, at + 60, at + 300, at + 330)
        else:
            rank.call("cudaLaunchKernel", at + 110, at + 112)  # B2, of which the capture has no more
    result = ruled(run.trace(), **PAIR, pairs="some")
    assert (result.outcome, result.checked, result.cut_off) == ("held", 1, 1)
    assert result.sentence.endswith("in 1 instance, without 1 in which the capture ends.")


def with_another_thread(side: int, thread: int = 2) -> Trace:
    """While A's range is open, another thread launches an op that may be A's, on a stream."""
    run = Builder()
    rank = run.rank(0)
    rank.range("step 0", 0, 400)
    rank.wait_stream(SIDE, MAIN, 5)
    launch(rank, "B", MAIN, 20, 50, 90)
    launch(rank, "A", side, 100, 200, 240)
    rank.kernel("other", 11, 260, 270, launch=(105, 107), thread=thread)
    return run.trace()


@pytest.mark.parametrize(
    ("side", "pairs", "outcome"),
    [
        (SIDE, "all", "inconclusive"),
        (SIDE, "some", "held"),
        (MAIN, "all", "broken"),
        (MAIN, "some", "inconclusive"),
    ],
)
def test_work_of_other_threads_that_may_be_a_sides_leaves_open_what_it_could_change(
    side: int, pairs: str, outcome: str
) -> None:
    result = ruled(with_another_thread(side), **BESIDE, pairs=pairs)
    assert result.outcome == outcome
    if outcome == "inconclusive":
        assert result.reason == "while 'nvtx:A' was open, thread 2 launched 1 op that nothing ties to it"
    assert ruled(with_another_thread(side, thread=1), **BESIDE, pairs=pairs).outcome != "inconclusive"


# No host sync.


def blocked(call: str = "stream", *, thread: int | None = None, launches: bool = False, at: int = 40) -> Trace:
    run = Builder()
    rank = run.rank(0)
    rank.range("forward", 10, 200)
    rank.range("log loss", 30, 60)
    rank.range("aten::item", 35, 55, kind="op")
    launch(rank, "B", MAIN, 20, 50, 90)
    if launches:
        rank.kernel("other", SIDE, 60, 70, launch=(25, 28), thread=thread)
    rank.synchronize(call, at, at + 12, stream=MAIN, thread=thread)
    launch(rank, "A", MAIN, 300, 400, 440)
    return run.trace()


@pytest.mark.parametrize("call", ["stream", "device"])
def test_a_sync_in_a_range_breaks_it(call: str) -> None:
    result = ruled(blocked(call), no_host_sync_in="forward")
    assert (result.outcome, result.checked, result.failed) == ("broken", 1, 1)
    assert (
        result.findings[0].text == f"cuda{call.capitalize()}Synchronize from aten::item in 'log loss' blocks the host"
    )


@pytest.mark.parametrize(
    ("listed", "outcome"),
    [
        ("cudaStreamSynchronize", "held"),
        ("api:cudaStream*", "held"),
        ("aten::item", "held"),
        ("op:aten::item", "held"),
        ("log loss", "held"),
        ("nvtx:log loss", "held"),
        ("op:log loss", "broken"),
        ("nvtx:forward", "broken"),  # the range itself is no exception
        ("cudaEventSynchronize", "broken"),
    ],
)
def test_what_is_listed_is_excepted(listed: str, outcome: str) -> None:
    assert ruled(blocked(), **{"no_host_sync_in": "forward", "except": [listed]}).outcome == outcome


def test_another_threads_sync_is_open_if_it_launches_work_and_else_none_of_its() -> None:
    result = ruled(blocked(thread=2, launches=True), no_host_sync_in="forward")
    assert (result.outcome, "nothing tells for whom" in result.reason) == ("inconclusive", True)
    assert ruled(blocked(thread=2), no_host_sync_in="forward").outcome == "held"


# Waits.


def waited(*, at: int | None, by: int = MAIN) -> Trace:
    """A on the side stream, launched at 20; B1 and B2 on the main one at 100 and 200, which waits for A at `at`."""
    run = Builder()
    rank = run.rank(0)
    rank.range("step 0", 0, 900)
    rank.wait_stream(SIDE, MAIN, 5)
    launch(rank, "A", SIDE, 20, 50, 90)
    calls = [(100, "B1"), (200, "B2"), *([(at, "")] if at is not None else [])]
    for when, name in sorted(calls):
        if name:
            launch(rank, name, MAIN, when, when + 100, when + 130)
        else:
            rank.wait_stream(by, SIDE, when)
    launch(rank, "C", by if by != MAIN else 11, 600, 700, 730)
    return run.trace()


@pytest.mark.parametrize(
    ("at", "first", "last"),
    [(60, "held", "held"), (150, "broken", "held"), (300, "broken", "broken"), (None, "broken", "broken")],
)
def test_the_wait_has_to_come_before_the_first_or_the_last_op(at: int | None, first: str, last: str) -> None:
    trace = waited(at=at)
    rule = {"wait_on": "kernel:A"}
    assert ruled(trace, **rule, before_first_of="kernel:B*").outcome == first
    assert ruled(trace, **rule, before_last_of="kernel:B*").outcome == last


def test_a_late_wait_and_one_never_made_are_told_apart() -> None:
    [late] = ruled(waited(at=150), wait_on="kernel:A", before_first_of="kernel:B*").findings
    [never] = ruled(waited(at=None), wait_on="kernel:A", before_first_of="kernel:B*").findings
    assert late.text.startswith("stream 7 waits for 'kernel:A' too late: by cudaStreamWaitEvent")
    assert never.text.startswith("stream 7 never waits for 'kernel:A'")


@pytest.mark.parametrize(("at", "outcome"), [(150, "held"), (300, "broken")])
def test_another_stream_may_have_to_wait(at: int, outcome: str) -> None:
    rule = {"wait_on": "kernel:A", "before_last_of": "kernel:B*", "by": "kernel:C"}
    assert ruled(waited(at=at, by=11), **rule).outcome == outcome


# Streams.


def test_a_stream_that_runs_nothing_else_is_its_own() -> None:
    assert ruled(two(), own_stream="nvtx:A").outcome == "held"
    result = ruled(two(side=MAIN), own_stream="nvtx:A")
    assert (result.outcome, result.checked, result.failed) == ("broken", 1, 1)
    assert result.findings[0].text == "its stream also runs B (stream 7) of 'B'"


# Races.


def forks(*, waits: bool) -> Trace:
    """A on a side stream that never waits, or waits for B as it should."""
    run = Builder()
    rank = run.rank(0)
    run.stream(rank, MAIN, default=1)
    for number in range(3):
        at = 1000 * number
        rank.range(f"step {number}", at, at + 900)
        rank.wait_stream(MAIN, SIDE, at + 5)
        launch(rank, "B", MAIN, at + 20, at + 50, at + 300)
        if waits:
            rank.wait_stream(SIDE, MAIN, at + 40)
        start = at + 310 if waits else at + 110
        launch(rank, "A", SIDE, at + 100, start, start + 40)
    return run.trace()


def test_a_missing_wait_between_them_breaks_it() -> None:
    assert ruled(forks(waits=True), no_race_between=["nvtx:A", "nvtx:B"]).outcome == "held"
    for pair in (["nvtx:A", "nvtx:B"], ["nvtx:B", "nvtx:A"]):
        result = ruled(forks(waits=False), no_race_between=pair)
        assert (result.outcome, result.failed) == ("broken", 3)
        assert "does not wait for 'B' on stream 7" in result.findings[0].text


# Copies.


def copies(*, waits: bool, memory: str = "pinned") -> Trace:
    run = Builder()
    rank = run.rank(0)
    for number in range(3):
        at = 1000 * number
        rank.range("flag", at, at + 30)
        rank.copy("DtoH", SIDE, at + 100, at + 120, launch=(at + 5, at + 8), target_memory=memory, bytes=4)
        if waits:
            rank.synchronize("stream", at + 200, at + 210, stream=SIDE)
    return run.trace()


@pytest.mark.parametrize(
    ("waits", "memory", "outcome"),
    [(True, "pinned", "held"), (False, "pinned", "broken"), (False, "pageable", "held"), (True, "", "inconclusive")],
)
def test_the_host_waits_for_copies_to_pinned_memory(waits: bool, memory: str, outcome: str) -> None:
    assert ruled(copies(waits=waits, memory=memory), host_waits_for="memcpy:DtoH").outcome == outcome


# Figures, and all of a contract.


@pytest.mark.parametrize(("bar", "outcome"), [("50%", "broken"), (0, "held")])
def test_a_figure_is_check_overlaps(bar: Any, outcome: str) -> None:
    assert ruled(two(), real_overlap=["nvtx:A", "nvtx:B"], at_least=bar).outcome == outcome


def whole(*outcomes: str) -> ContractResult:
    rules: dict[str, dict[str, Any]] = {
        "held": {"no_host_sync_in": "A"},
        "broken": {"own_stream": "nvtx:A"},
        "inconclusive": {"own_stream": "nvtx:none"},
    }
    return check_contract(two(side=MAIN), read_contract({name: rules[name] for name in outcomes}))


@pytest.mark.parametrize(
    ("rules", "outcome", "code"),
    [
        (("held",), "held", 0),
        (("held", "inconclusive"), "inconclusive", 3),
        (("inconclusive", "broken", "held"), "broken", 1),
    ],
)
def test_one_broken_rule_breaks_a_contract_and_one_open_leaves_it_open(
    rules: tuple[str, ...], outcome: str, code: int
) -> None:
    result = whole(*rules)
    assert [one.outcome for one in result.rules] == list(rules)
    assert (result.outcome, result.exit_code, result.decisive.name) == (outcome, code, outcome)
    assert list(result.to_frame().index) == list(rules)
    assert outcome in repr(result)
    assert outcome in result._repr_html_()


def test_sides_that_share_work_are_an_error_that_names_the_rule() -> None:
    with pytest.raises(Exception, match="rule 'x': 'kernel:A' and 'nvtx:A' pick the same"):
        check_contract(two(), read_contract({"x": {"may_run_beside": ["kernel:A", "nvtx:A"]}}))


def with_calls(*calls: str) -> Trace:
    """A on one stream and B on another, launched in one step with some calls between."""
    run = Builder()
    rank = run.rank(0)
    rank.range("step 0", 0, 1_000)
    launch(rank, "A", MAIN, 10, 100, 200)
    for number, name in enumerate(calls):
        rank.call(name, 30 + 10 * number, 35 + 10 * number)
    launch(rank, "B", SIDE, 500, 600, 700)
    return count_lost_work(run.trace())


@pytest.mark.parametrize(
    ("call", "outcome", "reason"),
    [
        ("cudaGetDevice", "held", ""),
        ("cudaLaunchKernel", "inconclusive", "launches have no GPU work on record: 1 of 3 of rank 0"),
        (
            "",
            "inconclusive",
            "the names of CUDA calls are lost (1 of 3 of rank 0), so nothing tells what blocked the host",
        ),
    ],
)
def test_no_rule_is_held_by_a_capture_that_lost_what_may_break_it(call: str, outcome: str, reason: str) -> None:
    for rule in ({"own_stream": "nvtx:A"}, {"no_host_sync_in": "step 0"}):
        result = ruled(with_calls(call), **rule)
        assert (result.outcome, result.reason) == (outcome, reason)
    assert ruled(with_calls("cudaDeviceSynchronize", ""), no_host_sync_in="step 0").outcome == "broken", "stays so"
