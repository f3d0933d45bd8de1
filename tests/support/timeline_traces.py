"""Traces whose timelines are known by hand."""

from __future__ import annotations

from dataclasses import replace

from analyzers.clocks.align import align
from analyzers.syncs.order_report import order_report
from analyzers.trace.tables import Trace
from analyzers.verdict.check import OverlapResult, check_overlap
from tests.support.builder import Builder
from traceviz.timelines.picture import Picture, picture

US = 1000

# Names that would do harm wherever they were taken for markup: HTML, Markdown, Mermaid, a terminal's escapes.
HOSTILE = (
    "<script>window.hacked=1</script>",
    "<img src=x onerror=window.hacked=2>",
    "</script><script>window.hacked=3</script>",
    "[click](javascript:window.hacked=4) ![x](http://example.invalid/x.png)",
    "\x1b[31mred\x1b]8;;http://example.invalid\x07",
    'a:b;c\nclick t call hacked()\nsection "x" %%{init: {}}%%',
    '<a href="javascript:hacked()">x</a> & "quotes" `ticks` ```',
    "%{customdata[3]} ${1+1} $\\alpha$ @someone | cell | \u202ereversed",
)


def two_instances() -> Trace:
    """One rank, two instances: A is launched after a host sync and meets B's end in both; µs below.

    | | instance 0 | instance 1 |
    |---|---|---|
    | B, stream 7 | 10 to 50 | 110 to 150 |
    | host blocked (item) | 12 to 40 | 112 to 130 |
    | A, stream 9, waits for an event after B's first op (10 to 20, 110 to 120) | 45 to 65 | 135 to 155 |
    | overlap | 5 | 15 |
    """
    run = Builder()
    rank = run.rank(0)
    for offset, sync_end, launch, start in ((0, 40, 41, 45), (100, 130, 131, 135)):

        def at(us: int, offset: int = offset) -> int:
            return (us + offset) * US

        rank.range("B", at(0), at(11))
        rank.kernel("lookup", 7, at(10), at(20), launch=(at(1), at(2)))
        event = rank.record(7, at(3))
        rank.kernel("lookup", 7, at(20), at(50), launch=(at(4), at(5)))
        rank.synchronize("stream", at(12), sync_end * US, stream=7)
        rank.wait(9, event, (launch - 1) * US + 500)
        rank.range("A", launch * US - 100, (launch + 3) * US)
        rank.kernel("dense", 9, start * US, (start + 20) * US, launch=(launch * US, (launch + 1) * US))
    return run.trace()


def late_behind_an_event() -> Trace:
    """B runs 0 to 100 µs on stream 7; A waits for its end by an event, and its launch returns at 60 µs only."""
    run = Builder()
    rank = run.rank(0)
    rank.kernel("b", 7, 0, 100 * US, launch=(-9 * US, -8 * US))
    event = rank.record(7, -7 * US)
    rank.wait(9, event, 40 * US)
    rank.kernel("a", 9, 102 * US, 150 * US, launch=(58 * US, 60 * US))
    rank.kernel("b", 7, 101 * US, 120 * US, launch=(70 * US, 71 * US))
    return run.trace()


def race() -> Trace:
    """One rank: the main stream 7 gets "produce", 10 to 60 µs; then the side stream 9 gets "consume", at 30, unasked.

    An event is recorded in between, and nobody waits for it. A second "consume", 130 to 150, waits for the second
    "produce", 110 to 125, as it should. Both in ranges.
    """
    run = Builder()
    rank = run.rank(0)
    rank.range("step", 0, 10 * US)
    rank.range("make", 1 * US, 4 * US)
    rank.kernel("produce", 7, 10 * US, 60 * US, launch=(2 * US, 3 * US))
    rank.record(7, 4 * US)
    rank.range("use", 5 * US, 9 * US)
    rank.kernel("consume", 9, 30 * US, 70 * US, launch=(6 * US, 7 * US))
    rank.range("make", 100 * US, 103 * US)
    rank.kernel("produce", 7, 110 * US, 125 * US, launch=(101 * US, 102 * US))
    rank.wait_stream(9, 7, 104 * US)
    rank.range("use", 105 * US, 109 * US)
    rank.kernel("consume", 9, 130 * US, 150 * US, launch=(106 * US, 107 * US))
    return run.trace()


def many_ranks(count: int) -> Trace:
    """Rank k's A and B take 100 µs each and overlap by half; rank 5 takes 300, and rank 7 overlaps by 10 alone.

    Rank 3 is the fastest with 90 µs.
    """
    run = Builder()
    for number in range(count):
        rank = run.rank(number)
        length = {3: 90, 5: 300}.get(number, 100) * US
        overlap = 10 * US if number == 7 else length // 2
        rank.range("A", 0, 5 * US)
        rank.kernel("a", 7, 10 * US, 10 * US + length, launch=(1 * US, 2 * US))
        rank.range("B", 5 * US, 9 * US)
        begin = 10 * US + length - overlap
        rank.kernel("b", 9, begin, begin + length, launch=(6 * US, 7 * US))
    return run.trace()


def hostile() -> Trace:
    """Every name, of ranges, kernels and calls, tries to do harm."""
    run = Builder()
    rank = run.rank(0)
    for k, name in enumerate(HOSTILE):
        begin = 100 * k * US
        rank.range(f"A{name}", begin, begin + 9 * US)
        rank.kernel(name, 7, begin + 10 * US, begin + 60 * US, launch=(begin + 1 * US, begin + 2 * US))
        rank.range(f"B{name}", begin + 10 * US, begin + 19 * US)
        rank.kernel(f"b {name}", 9, begin + 40 * US, begin + 90 * US, launch=(begin + 11 * US, begin + 12 * US))
        rank.range(name, begin + 20 * US, begin + 30 * US, kind="op")
        rank.synchronize("device", begin + 21 * US, begin + 29 * US)
    return run.trace()


HOSTILE_PAIR = ("nvtx:~^A", "nvtx:~^B")


def loaded(trace: Trace) -> Trace:
    """The trace as `load` would hand it out: clocks aligned, collectives matched."""
    aligned = align(trace)
    return replace(aligned.trace, clocks=aligned.clocks, matches=aligned.matches)


def drawn(trace: Trace, a: str, b: str, window: tuple[int, int] | None = None) -> tuple[OverlapResult, Picture]:
    """What was found and its picture."""
    result = check_overlap(trace, a, b)
    return result, picture(trace, result, order_report(trace), window=window)
