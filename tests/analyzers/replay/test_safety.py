"""Whether a change may be made, by hand on programs of a few ops (µs): which orders it takes away, and what of them is
sure.

Each program states its waits, as a capture does that records them. None of the answers looks at a time but to tell how
long a wait held its stream.
"""

from __future__ import annotations

import pytest

from analyzers.replay.change import Change
from analyzers.replay.host_changes import DropSync, Graph, Level, MoveWait, OnTime, Pin
from analyzers.replay.safety import Safety, comes_later, phase_of, safety_of
from analyzers.replay.stream_changes import DropWait, MoreRoom, OwnStream, Scale, Split
from analyzers.replay.tasks import tasks
from analyzers.verdict.fix import CONDITIONAL, DIAGNOSIS, SAFE, UNSAFE
from tests.analyzers.replay.programs import steps

LIKELY, DOUBTFUL = Safety.LIKELY, Safety.DOUBTFUL
PINNED, PAGEABLE = "pinned", "pageable"


def of(change: Change, text: str) -> Safety:
    trace = steps(text)
    return safety_of(change, trace, tasks(trace))


# Waits of streams.


def fed(by: str, reader: str = "gemm", at_once: bool = True) -> str:
    """Per step "feed" runs on stream 9 and "use", on 7, waits for it; or its work is of another launch before that."""
    other = "" if at_once else "[other 20-29]; other 11 @21 28-40"
    feed, memory = by.partition(" ")[::2]
    return f"""
        [head 0-8]; head 7 @1 8-20
        [feed 10-20]; {feed} 9 @12 21-300 {memory}; e=9 @18
        {other}
        [use 30-50]; 7<e @32; {reader} 7 @35 303-400
    """


WAIT = DropWait("nvtx:use", "nvtx:feed")
RECEIVE, REDUCE = "Recv:0", "AllReduce:0"


def reduced(inside: bool) -> str:
    """A reduction on 9, for which stream 7 is told to wait, then a kernel there; in the kernel's range?"""
    return f"""
        [feed 0-10]; AllReduce:0 9 @1 10-300; e=9 @8
        [use 20-40]; 7<e @{21 if inside else 12}; use 7 @25 303-400
    """


@pytest.mark.parametrize(
    ("text", "safety"),
    [
        (fed(RECEIVE), Safety.UNSAFE),  # a receive is needed, however soon behind its call the stream was told to wait
        (fed(RECEIVE, at_once=False), Safety.UNSAFE),
        (fed("HtoD source_memory=pinned"), Safety.UNSAFE),  # data surely flows to who waits for the copy by an event
        (fed("tower"), Safety.UNSAFE),  # work that was forked is joined by who waits for it
        (fed("tower", reader="AllReduce:1"), Safety.UNSAFE),  # a collective sends what was computed
        # A framework makes streams wait right behind a synchronous collective, whether its result is needed or not; a
        # wait in another range is made where the program comes to need it, and so is one behind other launches.
        (reduced(inside=False), Safety.CONDITIONAL),
        (reduced(inside=True), DOUBTFUL),
        (fed(REDUCE), DOUBTFUL),
        (fed(REDUCE, at_once=False), DOUBTFUL),
        (fed("DtoH target_memory=pinned"), LIKELY),  # only what writes to its source has to wait for it
    ],
)
def test_a_wait_by_what_it_is_for(text: str, safety: Safety) -> None:
    assert of(WAIT, text) is safety


def test_an_optimizer_needs_gradients_that_were_reduced() -> None:
    """The same wait, by the name of who waits."""
    text = """
        [reduce 0-10]; AllReduce:0 9 @1 10-300; e=9 @8
        [layer 20-35]; 7<e @21; layer 7 @25 303-400
        [optimizer 40-55]; 11<e @41; optimizer 11 @45 303-400
    """
    assert of(DropWait("nvtx:layer", "nvtx:reduce"), text) is DOUBTFUL
    assert of(DropWait("nvtx:optimizer", "nvtx:reduce"), text) is Safety.UNSAFE


@pytest.mark.parametrize("again", [True, False])
def test_a_wait_that_is_made_again_later_is_not_needed_before(again: bool) -> None:
    """The host makes stream 7 wait for a reduction before the first layer, and once more before the second."""
    text = f"""
        [reduce 0-10]; AllReduce:0 9 @1 10-300; e=9 @8
        [layer 0 20-35]; 7<e @21; layer 0 7 @25 303-400
        [layer 1 40-55]; {"7<e @41" if again else ""}; layer 1 7 @45 403-500
    """
    assert of(DropWait("nvtx:layer 0", "nvtx:reduce"), text) is (Safety.SAFE if again else DOUBTFUL)


# Work submitted earlier.


def tower(by: str = "lookup", behind: bool = False) -> str:
    """A lookup on 7, the stream that steps begin on, then a tower on 9 that waits for it.

    behind : the tower is on the lookup's stream instead, behind it, and nothing waits.
    """
    work, memory = by.partition(" ")[::2]
    return f"""
        [head 0-6]; head 7 @1 8-9
        [lookup 7-13]; {work} 7 @8 15-300 {memory}
        [tower 14-30]; {"" if behind else "9<7 @15"}; product {7 if behind else 9} @20 303-500
    """


EARLIER, COPY = MoveWait("nvtx:tower", "nvtx:lookup"), "HtoD source_memory=pinned"


@pytest.mark.parametrize(
    ("change", "text", "safety"),
    [
        # A wait for the stream that steps begin on stands for all that was launched there until then.
        (EARLIER, tower(), Safety.CONDITIONAL),
        # What is received, or copied, is not read before: neither by an event nor behind it on one stream.
        (EARLIER, tower(RECEIVE), Safety.UNSAFE),
        (EARLIER, tower(RECEIVE, behind=True), Safety.UNSAFE),
        (EARLIER, tower(COPY), Safety.UNSAFE),
        (EARLIER, tower(COPY, behind=True), Safety.UNSAFE),
        (MoveWait("nvtx:use", "nvtx:feed"), fed(RECEIVE), Safety.UNSAFE),
        (EARLIER, tower(behind=True), Safety.CONDITIONAL),  # queued behind on one stream
        # A join is for the result.
        (
            MoveWait("nvtx:merge", "nvtx:tower"),
            tower() + "[merge 31-50]; 7<9 @32; merge 7 @40 503-510",
            Safety.UNSAFE,
        ),
        # On two streams the host submits the tower first, which never waited for the lookup.
        (EARLIER, "[lookup 1-8]; lookup 7 @2 9-300; [tower 10-20]; product 9 @12 19-500", Safety.SAFE),
        # The tower waits for the head, whose event was recorded before the lookup: that order stays.
        (
            EARLIER,
            "[head 0-6]; head 7 @1 8-100; e=7 @6; [lookup 8-15]; lookup 7 @9 102-300; [tower 16-30]; 9<e @17;"
            "product 9 @20 103-500",
            Safety.SAFE,
        ),
        # No backward comes before its forward, though no wait is on record: names say it.
        (
            MoveWait("nvtx:backward", "nvtx:forward"),
            "[forward 1-8]; forward 7 @2 9-300; [backward 11-18]; backward 9 @12 19-300",
            Safety.UNSAFE,
        ),
    ],
)
def test_what_moves_by_what_it_then_comes_before(change: Change, text: str, safety: Safety) -> None:
    assert of(change, text) is safety


@pytest.mark.parametrize(
    ("phase", "place"),
    [
        ("nvtx:forward", 0),
        ("nvtx:fwd 3", 0),
        ("nvtx:loss", 1),
        ("nvtx:backward", 2),
        ("nvtx:Backward pass", 2),
        ("nvtx:clip gradients", 3),
        ("nvtx:optimizer", 4),
        ("nvtx:Optimizer.step#Adam", 4),
        ("nvtx:zero_grad", 4),
        ("nvtx:lookup", -1),
        ("comm", -1),
    ],
)
def test_phases_by_name(phase: str, place: int) -> None:
    assert phase_of(phase) == place


def test_a_phase_needs_those_before_it() -> None:
    assert comes_later("nvtx:forward", "nvtx:backward")
    assert comes_later("nvtx:backward", "nvtx:optimizer")
    assert not comes_later("nvtx:backward", "nvtx:forward")
    assert not comes_later("nvtx:forward 1", "nvtx:forward 2")
    assert not comes_later("nvtx:lookup", "nvtx:optimizer")
    assert not comes_later("nvtx:forward", "nvtx:lookup")


# A stream of its own.


def queued(first: str, middle: str = "gemm", name: str = "out") -> str:
    """Per step three ranges, one behind the other on one stream."""
    return f"""
        [{name} 1-9]; {first} 7 @2 10-200
        [middle 11-20]; {middle} 7 @12 201-500
        [last 21-30]; last 7 @22 501-520
    """


@pytest.mark.parametrize(
    ("where", "text", "safety"),
    [
        ("out", queued("DtoH"), Safety.CONDITIONAL),  # nothing says that what comes behind a copy needs it
        ("out", queued("pack"), DOUBTFUL),  # something probably reads what a kernel wrote
        ("out", queued("pack", REDUCE), Safety.UNSAFE),  # the inputs of a collective stay before it
        ("backward", queued("pack", name="backward"), Safety.UNSAFE),  # a phase, which the next one needs
        ("middle", queued("pack", name="backward"), DOUBTFUL),
    ],
)
def test_work_on_a_stream_of_its_own(where: str, text: str, safety: Safety) -> None:
    assert of(OwnStream(f"nvtx:{where}"), text) is safety


# Host syncs.


def synced(by: str) -> str:
    """Per step a kernel, then what blocks the host in "log"; then a kernel of the same stream."""
    return f"[work 0-9]; K 7 @2 10-100; [log 10-160]; {by}; [next 170-180]; L 7 @172 179-250"


FETCHED = """
    [fetch 0-60]; DtoH 7 @2 10-40 target_memory=pinned; sync7 10-42
    K 7 @70 77-200; [log 80-210]; sync7 90-202; L 7 @220 227-300
"""


def resting(by: str, waits: bool) -> str:
    """Each step the optimizer and a lookup on 7, what blocks the host; then A on 9, for which 7 waits.

    That A comes behind the optimizer rests on what blocks the host alone, or 9 waits for 7.
    """
    return f"""
        [optimizer 0-9]; adam 7 @2 9-50
        [log 10-110]; lookup 7 @11 52-60; {by}
        [use 120-140]; {"9<7 @121" if waits else ""}; A 9 @130 137-250; 7<9 @141
        [dense 145-160]; gemm 7 @146 252-300
    """


ITEM, SYNC = "DtoH 7 @20-72 62-70 target_memory=pageable", "sync7 20-62"


@pytest.mark.parametrize(
    ("where", "text", "safety"),
    [
        # The host reads the value of an item, what was copied to it, and may write again to what it copied from.
        ("log", synced("DtoH 7 @12-106 101-104 target_memory=pageable"), LIKELY),
        ("log", synced("DtoH 7 @12 101-104 target_memory=pinned; sync7 20-106"), LIKELY),
        ("log", synced("HtoD 7 @12 101-104 source_memory=pinned; sync7 20-106"), LIKELY),
        ("log", synced("DtoH 7 @12 101-104 target_memory=pinned; M 7 @20 105-110; sync7 30-112"), LIKELY),
        ("log", synced("sync7 20-102"), Safety.SAFE),  # nothing to read
        ("log", FETCHED, Safety.SAFE),  # a copy that was waited for already
        ("fetch", FETCHED, LIKELY),
        ("log", resting(ITEM, waits=False), Safety.UNSAFE),
        ("log", resting(ITEM, waits=True), LIKELY),
        ("log", resting(SYNC, waits=False), Safety.UNSAFE),
        ("log", resting(SYNC, waits=True), Safety.SAFE),
    ],
)
def test_a_sync_by_what_the_host_reads_and_what_rests_on_it(where: str, text: str, safety: Safety) -> None:
    assert of(DropSync(f"nvtx:{where}"), text) is safety


@pytest.mark.parametrize(
    ("text", "safety"),
    [
        # The host has what it uploads; what it downloads it may read right behind the call, or behind a synchronize.
        ("HtoD 7 @12-152 101-150 source_memory=pageable target_memory=device", Safety.SAFE),
        ("DtoH 7 @12-152 101-150 source_memory=device target_memory=pageable", LIKELY),
        ("DtoH 7 @12-152 101-150 target_memory=pageable; sync7 153-160", LIKELY),
    ],
)
def test_an_upload_may_be_pinned_and_a_download_is_asked_about(text: str, safety: Safety) -> None:
    assert of(Pin("nvtx:batch"), f"K 7 @2 9-100; [batch 10-200]; {text}; L 7 @210 217-300") is safety


def test_all_others() -> None:
    for change in (Graph("nvtx:head"), Split("nvtx:feed", 4), Level("nvtx:use"), Scale("nvtx:use", 0.5)):
        assert of(change, fed(REDUCE)) is Safety.SAFE
    assert of(OnTime(1), fed(REDUCE)) is of(OnTime(), fed(REDUCE)) is Safety.DIAGNOSIS
    assert of(MoreRoom("nvtx:use"), fed(REDUCE)) is DOUBTFUL


def test_of_what_may_not_be_made_nothing_counts() -> None:
    assert {one: (one.named, one.weight, one.least_gain) for one in Safety} == {
        Safety.SAFE: (SAFE, 1.0, 0.02),
        Safety.LIKELY: (CONDITIONAL, 1.0, 0.02),
        Safety.CONDITIONAL: (CONDITIONAL, 0.5, 0.04),
        Safety.DOUBTFUL: (CONDITIONAL, 0.1, 0.04),
        Safety.DIAGNOSIS: (DIAGNOSIS, 0.0, 0.04),
        Safety.UNSAFE: (UNSAFE, 0.0, 0.04),
    }
