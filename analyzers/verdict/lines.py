"""The first lines of an answer, what a reviewer reads in thirty seconds; text, Markdown, JSON and notebooks have these.

In this order, each at most two rows of a terminal: the verdict, and how the step stands against a baseline's; what is
apparent only; a race or a loss; what bounds the step, and what perfect overlap would save; the profiler's weight; the
cause; host syncs; the fix. What is not known is left out. All figures are a step's, where the run has steps.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from analyzers.causes.table import CAUSE_TABLE
from analyzers.common.records import Record
from analyzers.common.wording import count_of, duration, part_of, percent, shortened, size
from analyzers.overlap.measure import RankOverlap
from analyzers.syncs.of_steps import AS_WRITTEN, SYNC_SHARE_THAT_MATTERS, StepSync
from analyzers.verdict.bound import Bound
from analyzers.verdict.figures import OverlapFigures
from analyzers.verdict.fix import GAINS, SAFE, Fix
from analyzers.verdict.profiler import MANIFEST

MAYBE_PROFILERS = frozenset(cause.name for cause in CAUSE_TABLE if cause.may_be_profilers)

DIFFER = 0.01  # of what could overlap: apparent and real times that differ by less are told as one
MIN_STEP_DIFFERENCE = 0.03  # of a step: two ranks' that differ by more are told apart
LITTLE = 0.05  # of what is achievable: where the threshold is met, why less than this was missed is not told
RACES = {"missing-wait": "Possible race", "rests-on-host-sync": "Order at risk"}
LOSSES = dict.fromkeys(("lost-work", "unread-work", "unreadable-events", "dropped-events", "skipped-bad"), "Lost")
MIN_PROFILER_WEIGHT = 1.1  # times the real step: a lighter profiler is not told of
ROW, ROWS = 84, 2  # letters of a row of a terminal, behind the mark of a list, and rows of a line
LONGEST_NAME = 40  # letters of a range's name

_PARTS = [re.compile(rf"[{marks}]\s+(?=\S)") for marks in (".;", ":", ",")]  # where a sentence may end a line, at best
_QUOTED = re.compile(r"(?<=\s)'([^']+)'")
# What a cause is told without where it is too long, the least first, and what stands there instead.
_SHORTER = (
    (re.compile(r", [\d.<]+ % of (it|its longest gaps) this one"), ""),
    (re.compile(r", issued after .+"), ""),
    (re.compile(r": launches return only once their kernels are done \((.+)\)"), r", \1"),
    (re.compile(r" before it launched [^:,]+|; the host was still behind the GPU when it launched .+"), ""),
)
_SHORTER_PARTS = (("waiting for late ranks", "late ranks"), ("waiting for events", "events"), ("exposed ", ""))
# Spaces at which no row ends: between a number and its unit, and between what is numbered and its number.
_KEPT = re.compile(
    r"(?<=\d) (?=(?:%|ns|µs|ms|s|B|[KMGT]iB)(?!\w))|(?:(?<=\brank)|(?<=\branks)|(?<=\bdevice)|(?<=\bstream)) (?=\d)"
)


class Line(Record, frozen=True):
    """One of the first lines: its kind, such as "verdict", "race", "loss", "bound", "cause" or "fix", and its text."""

    kind: str
    text: str


def lines_of(result: OverlapFigures) -> tuple[Line, ...]:
    """The first lines of an answer."""
    first, *rest = _pieces(f"{result.verdict.upper()}: {result.first_sentence}")
    found = [Line("verdict", first), *(Line("why", text) for text in rest)]
    return (*found, *(Line(kind, text) for kind, text in _after_the_verdict(result) if text))


def _pieces(text: str) -> list[str]:
    """A text in pieces of at most two rows each, that end where a part of a sentence does, if any does."""
    found = []
    while not _fits(text):
        parts = ([one.end() for one in kind.finditer(text) if _fits(text[: one.end()].rstrip())] for kind in _PARTS)
        ends = next(filter(None, parts), [])
        if not ends:
            break
        found.append(text[: ends[-1]].rstrip(" ,;:"))
        text = text[ends[-1] :].lstrip()
        text = f"{text[:1].upper()}{text[1:]}"
    return [*found, text]


def _after_the_verdict(result: OverlapFigures) -> Iterator[tuple[str, str]]:
    rank = result.deciding_rank
    if rank is not None:
        yield "apparent", _apparent(result, result.deciding_window or rank)
    yield "race", _first_of(result, RACES)
    yield "loss", _first_of(result, LOSSES)
    if rank is None:
        return
    if result.bound is not None:
        yield "bound", _bound(result, result.bound)
        yield "ceiling", result.bound.ceiling_sentence(result.names)
    yield "profiler", _profiler(result)
    yield "cause", _cause(result, rank)
    yield "sync", _sync(result)
    yield "fix", _fix(result)


def _first_of(result: OverlapFigures, titles: Mapping[str, str]) -> str:
    """The first warning of some codes, under the title of its code, and how many more there are."""
    found = [one for code in titles for one in result.warnings if one.code == code]
    if not found:
        return ""
    more = f" (and {len(found) - 1} more)." if found[1:] else "."
    return _in_two_rows(f"{titles[found[0].code]}: {found[0].message.rstrip('.')}", more)


def _apparent(result: OverlapFigures, rank: RankOverlap) -> str:
    """Apparent overlap beside real, and for whom a side waits."""
    if rank.is_apparent:
        return _only_apparent(result, rank)
    one = rank.typical
    if one.overlap_ns - one.real_overlap_ns < DIFFER * one.could_overlap_ns:
        return ""
    side, name = max(zip((rank.a, rank.b), result.names, strict=True), key=lambda one: one[0].wait_ns)
    waiting = percent(side.wait_ns / side.busy_ns)
    late = result.device_labels.late(result.waited_for)
    real = f"{duration(one.overlap_ns)} overlapped, {duration(one.real_overlap_ns)} of it real"
    return f"{real}: {name} spends {waiting} of its time waiting for {late}."


def _only_apparent(result: OverlapFigures, rank: RankOverlap) -> str:
    """That waits are not seen, and about how much of the communication they are."""
    waiting = rank.unseen.waiting if rank.unseen else None
    about = f"; probably about {percent(waiting)} of its communication is waiting" if waiting is not None else ""
    where = result.device_labels.name(rank.rank, rank.device)
    if result.ranks_given > 1 and result.ranks_given >= (result.ranks_known or 0):
        unmatched = f"some communication of {where} matches no other rank's, so its waits are not seen"
        return f"Apparent only: {unmatched}{about}."
    return f"Apparent only: the ranks that {where} may have waited for were not captured{about}."


def _cause(result: OverlapFigures, rank: RankOverlap) -> str:
    """What stopped most overlap, and how much of what was missed it is."""
    found = result.findings
    if not found or (result.passed and rank.missed_ns < LITTLE * rank.could_overlap_ns):
        return ""
    typical = rank.typical
    missed_ns = typical.could_overlap_ns - typical.real_overlap_ns if typical.step is not None else rank.missed_ns
    ns = round(missed_ns * found[0].ns / max(rank.missed_ns, 1))
    all_of_it = duration(missed_ns) == duration(ns)
    share = f"all {duration(ns)}" if all_of_it else part_of(ns, missed_ns)
    of = f" ({share} missed)."
    marked = " (perhaps the profiler's)" if _is_profilers(result, found[0].cause.cause) else ""
    text, end = f"{'Still missed: ' if result.passed else 'Cause: '}{found[0].text}", marked + of
    if not _fits(text + end):
        text = _QUOTED.sub(lambda name: f"'{shortened(name[1], LONGEST_NAME)}'", text)
    for part, instead in _SHORTER:
        text = text if _fits(text + end) else part.sub(instead, text)
    return _in_two_rows(text, end)


def _bound(result: OverlapFigures, one: Bound) -> str:
    """Where the time of a step goes, and of whose."""
    head, colon, rest = one.sentence.partition(": ")
    whose = f" on {result.device_labels.name(one.rank, one.device)}" if len(one.ranks) > 1 else ""
    text = f"{head}{whose}{colon}{rest}"
    for long, short in _SHORTER_PARTS:
        text = text if _fits(text) else text.replace(long, short)
    return text


def _profiler(result: OverlapFigures) -> str:
    """The profiler's weight, where it matters; of a host-bound step that it is not known, for it slows the host."""
    one = result.profiler
    if one is not None and one.weight >= MIN_PROFILER_WEIGHT:
        return one.sentence
    if one is not None and one.source == MANIFEST:
        return ""
    if result.bound is None or result.bound.kind != "host-bound":
        return ""
    return "How much of it is the profiler's is not known: it slows every launch (traceviz collect measures it)."


def _is_profilers(result: OverlapFigures, cause: str) -> bool:
    """Whether the profiler slows the program so much that it may have made what is late late."""
    return result.profiler is not None and result.profiler.is_heavy and cause in MAYBE_PROFILERS


def costliest_syncs(result: OverlapFigures) -> list[StepSync]:
    """Host syncs by what they cost a step: of a host-bound one the host's time, else the GPU's."""
    host_bound = result.bound is not None and result.bound.kind == "host-bound"

    def cost(one: StepSync) -> int:
        return max(one.blocked_ns, one.idle_ns) if host_bound else one.idle_ns

    return sorted(result.host_syncs, key=lambda one: (-cost(one), -one.blocked_ns))


def _sync(result: OverlapFigures) -> str:
    """The host sync that costs most, where it blocks what for how long, and how many more there are."""
    step_ns = result.bound.step_ns if result.bound is not None else 0
    found = [
        one for one in costliest_syncs(result) if max(one.blocked_ns, one.idle_ns) >= SYNC_SHARE_THAT_MATTERS * step_ns
    ]
    if not found:
        return ""
    one = found[0]
    what = AS_WRITTEN.get(operator := one.origin.split(" → ")[0] or one.call, operator)
    copied = f" ({size(one.bytes)} {one.copy}, {one.memory or 'host'})" if one.copy and one.bytes >= 0 else ""
    sides = [name for name in result.names if name in one.ranges.split(" → ") and name != one.range]
    where = " in " + ", ".join(shortened(name, LONGEST_NAME) for name in (*sides, one.range)) if one.range else ""
    at = f" at {one.frame}" if one.frame else ""
    each = " a step" if one.steps else ""
    cost = f" blocks the host {duration(one.blocked_ns)}{each}, GPU idle {duration(one.idle_ns)}"
    more = f"; {count_of(len(found) - 1, 'more sync')}" if found[1:] else ""
    return _in_two_rows(f"{'Hidden' if one.hidden else 'Host'} sync: {what}{copied}{where}{at}", f"{cost}{more}.")


def _fix(result: OverlapFigures) -> str:
    """The fix in a sentence, or that there is none, and what bounds the step instead."""
    one = result.fix
    if one is not None:
        other = (
            result.bound is not None
            and abs(result.bound.step_ns - one.now_step_ns) > MIN_STEP_DIFFERENCE * one.now_step_ns
        )
        return fix_sentence(one, " on the slowest rank" if other and len(result.ranks) > 1 else "")
    if not result.was_replayed:
        return _in_two_rows(f"No fix was looked for: {result.worth_unknown}", ".") if result.worth_unknown else ""
    bound = f" The step is {result.bound.kind}." if result.bound is not None else ""
    return f"No fix: nothing that the capture suggests saves {percent(GAINS)} of the step.{bound}"


def fix_sentence(one: Fix, whose: str = "") -> str:
    """A fix with the step now and then, of `whose`; what is not surely safe as a question."""
    named = "Fix" if one.safety == SAFE and one.tells else "Perhaps"
    return _in_two_rows(f"{named}: {one.advice}", f": predicted {one.step_in_words}{whose}.")


def _fits(text: str) -> bool:
    """Whether a line takes no more rows of a terminal than it may; a word that no row holds begins one, and goes on."""
    rows, used = 1, 0
    for word in _KEPT.sub("_", text).split():
        if used and used + 1 + len(word) > ROW:
            rows, used = rows + 1, 0
        used += len(word) + (used > 0)
        rows, used = rows + (used - 1) // ROW, (used - 1) % ROW + 1
    return rows <= ROWS


def _in_two_rows(text: str, end: str) -> str:
    """A line that ends with `end`, and goes without the last words of `text` where it would take three rows.

    >>> _in_two_rows("Cause: " + "word " * 40, " (all of it).")[-29:]
    'word word word … (all of it).'
    """
    if _fits(text + end):
        return text + end
    end = "" if end == "." else end
    most = next(most for most in range(ROWS * ROW, 0, -1) if _fits(f"{text[:most].rstrip()} …{end}"))
    short = text[:most].rstrip()
    whole, _, rest = short.rpartition(" ")
    inside_a_word = text[len(short)] != " " and len(rest) < LONGEST_NAME
    return f"{whole if inside_a_word else short} …{end}"
