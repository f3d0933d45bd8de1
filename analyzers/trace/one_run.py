"""Whether captures can be the ranks of one run, and of one program: contradictions are refused, doubts are warnings."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import msgspec
import numpy as np

from analyzers.arrays.groups import distinct, rows_by_key
from analyzers.arrays.types import Ints
from analyzers.common.errors import TracevizError
from analyzers.trace.columns import as_int64, ints_at
from analyzers.trace.communication import operation_of
from analyzers.trace.kernels import function, is_bookkeeping, is_communication
from analyzers.trace.numbered import family
from analyzers.trace.steps import STEP_NAME
from analyzers.trace.tables import Capture, Trace
from analyzers.trace.windows import refuse_divided, same_times, window_count

# Whether ranks run one program: those that surely do not are refused, those that hardly do leave the verdict open.
#
# Ranks of one job need not do the same: a pipeline's last stage computes a loss, experts and embeddings run kernels of
# their own. But they share most operators, ranges and kernels (of the captures in `tests/data` at least 81 % of the
# names and 67 % of the kernels of the rank with fewer), and in a process group that they share all make the same calls,
# as NCCL demands. Captures of different programs share a median 46 % of the names and 62 % of the kernels; a group's
# name says little, as every job has a group 0.
#
# - Ranks that differ in both, by more than half: of one program all the same where a group that they share makes the
#   same calls; of different ones where it makes others, or where each states groups and they share none; else in doubt.
# - Ranks that are alike and make no call in common in a group that they share: in doubt.
#
# What is not on record differs in nothing.

DOUBTED = "not-one-run"  # code of the warning that leaves a verdict open: captures are hardly of one run
SHARED = 0.5  # of the names of the rank with fewer: ranks that share less of them differ
MIN_TELLING_NAMES = 3  # names that tell something where some are shared
MOST_PROGRAMS = 64  # that are compared with each other
MAX_NAMES_IN_A_SENTENCE = 3  # names in a sentence
# Operations that all ranks of a group call alike, with the same sizes.
SAME_SIZES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "barrier")

Names = frozenset[str]
Kind = tuple[str, int, str]  # operation, elements, dtype
Groups = dict[tuple[str, str], frozenset[Kind]]  # by name and ranks


class _Program(msgspec.Struct, frozen=True):
    """What a rank runs, by name: kernels that compute; operators and ranges but for marks of steps."""

    kernels: Names
    names: Names

    def differs(self, other: _Program) -> bool:
        """Whether what is on record of both differs; of few names, only where both kernels and ranges do."""
        pairs = ((self.kernels, other.kernels), (self.names, other.names))
        found = [_differ(*pair) for pair in pairs]
        many = any(
            differ and min(map(len, pair)) >= MIN_TELLING_NAMES for differ, pair in zip(found, pairs, strict=True)
        )
        return all(found) or (many and False not in found)


_KINDS = ("kernels", "names")


def _differ(one: Names, other: Names) -> bool | None:
    """Whether two ranks' names differ; None where there are too few to tell."""
    fewer, both = min(len(one), len(other)), len(one & other)
    if not fewer or (both and fewer < MIN_TELLING_NAMES):
        return None
    return both < SHARED * fewer


def check_programs(trace: Trace) -> Trace:
    """Warn of ranks that hardly run one program; ranks have to be named.

    Raises
    ------
    TracevizError : two surely run different ones.
    """
    if len(trace.captures) < 2 or len({one.rank for one in trace.processes if one.rank >= 0}) < 2:
        return trace
    groups = _groups(trace)
    for one, other in _strangers(_programs(trace)):
        same_calls = _same_calls(groups.get(one, {}), groups.get(other, {}))
        if same_calls:
            continue
        text = _in_words(trace, one, other)
        why = "no collective says that they belong together"
        if same_calls is False or (groups.get(one) and groups.get(other)):
            why = (
                "they make no call in common in a process group"
                if same_calls is False
                else ("they name no process group in common")
            )
            raise TracevizError(f"{text[0].upper()}{text[1:]}, and {why}.", hint="Give the captures of one run only.")
        return trace.warn(DOUBTED, f"{text}; {why}")
    return _check_calls(trace, groups)


def differ(one: Trace, other: Trace) -> bool:
    """Whether two runs are hardly of one program, by all that their ranks run."""
    whole = [
        _Program(*(frozenset().union(*(getattr(each, kind) for each in _programs(trace).values())) for kind in _KINDS))
        for trace in (one, other)
    ]
    return whole[0].differs(whole[1])


def _check_calls(trace: Trace, groups: Mapping[int, Groups]) -> Trace:
    """Warn where two ranks make no call in common in a group that both name."""
    first_of: dict[tuple[str, str], dict[frozenset[Kind], int]] = {}
    for rank, own in groups.items():
        for key, kinds in own.items():
            for other_kinds, other in first_of.setdefault(key, {}).items():
                if kinds and other_kinds and not kinds & other_kinds:
                    text = (
                        f"ranks {other} and {rank} name the process group {' '.join(filter(None, key))}, and make no "
                        f"call in common in it: {_call(other_kinds)} against {_call(kinds)}"
                    )
                    return trace.warn(DOUBTED, text)
            first_of[key].setdefault(kinds, rank)
    return trace


def _strangers(programs: Mapping[int, _Program]) -> list[tuple[int, int]]:
    """Pairs of ranks whose programs differ, none of which is like a third one that is like the other."""
    ranks: dict[_Program, int] = {}
    for rank, program in programs.items():
        ranks.setdefault(program, rank)
    kinds = list(ranks)[:MOST_PROGRAMS]
    part = list(range(len(kinds)))
    for i, one in enumerate(kinds):
        for j in range(i):
            if part[i] != part[j] and not one.differs(kinds[j]):
                old, new = part[i], part[j]
                part = [new if each == old else each for each in part]
    return [(ranks[kinds[0]], ranks[kinds[part.index(each)]]) for each in dict.fromkeys(part) if each != part[0]]


def _same_calls(one: Groups, other: Groups) -> bool | None:
    """Whether two ranks make calls alike in a group that both name; None where they name none, or call nothing."""
    shared = [(one[key], other[key]) for key in one.keys() & other.keys() if one[key] and other[key]]
    return any(first & second for first, second in shared) if shared else None


def _programs(trace: Trace) -> dict[int, _Program]:
    """The program of each rank that has work."""
    computing = ~(is_communication(trace) | is_bookkeeping(trace)) & trace.ops.kind.is_one_of(("kernel",))
    kernels = _names(trace, "ops", np.flatnonzero(computing), function)
    told = trace.ranges.kind.is_one_of(("nvtx", "annotation", "op"))
    told &= ~trace.ranges.name.matching(STEP_NAME.match)
    names = _names(trace, "ranges", np.flatnonzero(told), family)
    none: Names = frozenset()
    return {rank: _Program(kernels.get(rank, none), names.get(rank, none)) for rank in trace.rank_ids}


def _names(trace: Trace, table: str, rows: Ints, change: Callable[[str], str]) -> dict[int, Names]:
    """The distinct names of some rows of a table, by rank."""
    frame = getattr(trace, table)
    code, texts = frame.name.codes, frame.name.texts
    process = ints_at(frame, "process", rows)
    found: dict[int, set[str]] = {}
    both = distinct(process * (len(texts) + 1) + code[rows])
    for key in both.tolist():
        number, name = divmod(key, len(texts) + 1)
        found.setdefault(trace.processes[number].rank, set()).add(change(texts[name]))
    return {rank: frozenset(names) for rank, names in found.items()}


def _groups(trace: Trace) -> dict[int, Groups]:
    """The process groups that each rank names with their ranks, and the kinds of calls that it makes in each."""
    comms = trace.comms
    stated = np.flatnonzero((comms.group.codes >= 0) & (comms.group_ranks.codes >= 0))
    elements = np.maximum(ints_at(comms, "in_elements", stated), ints_at(comms, "out_elements", stated))
    texts = [names.codes[stated] for names in (comms.group, comms.group_ranks, comms.operation, comms.dtype)]
    found: dict[int, dict[tuple[str, str], set[Kind]]] = {}
    for process, group, ranks, operation, dtype, size in rows_by_key(comms.process[stated], *texts, elements):
        name, listed = comms.group.texts[group], comms.group_ranks.texts[ranks]
        if not name or not listed:
            continue
        own = found.setdefault(trace.processes[process].rank, {}).setdefault((name, listed), set())
        what = operation_of(comms.operation.texts[operation]) if operation >= 0 else ""
        if what in SAME_SIZES and size >= 0:
            own.add((what, size, comms.dtype.texts[dtype] if dtype >= 0 else ""))
    return {rank: {key: frozenset(kinds) for key, kinds in own.items()} for rank, own in found.items()}


def _in_words(trace: Trace, one: int, other: int) -> str:
    programs = _programs(trace)
    paths = {each.rank: trace.captures[each.capture].path for each in trace.processes}
    first, second = programs[one], programs[other]
    what, pair = (
        ("kernels", (first.kernels, second.kernels))
        if _differ(first.kernels, second.kernels)
        else ("ranges", (first.names, second.names))
    )
    return (
        f"ranks {one} ({paths[one]}) and {other} ({paths[other]}) run different programs: their {what} are "
        f"{_some(pair[0] - pair[1])} against {_some(pair[1] - pair[0])}"
    )


def _some(names: Names) -> str:
    return ", ".join(sorted(names)[:MAX_NAMES_IN_A_SENTENCE]) + (" …" if len(names) > MAX_NAMES_IN_A_SENTENCE else "")


def _call(kinds: frozenset[Kind]) -> str:
    operation, size, dtype = min(kinds)
    return f"{operation} of {size:,} {dtype}".rstrip()


# Whether captures can be the ranks of one run: contradictions are refused, doubts are warnings.

APART_NS = 3600 * 10**9  # captures of one run lie within an hour
MEET_FROM = 0.2  # of the shortest capture has to lie within all of them, for their times to meet well
MIN_OPS_TO_BE_ALIKE = 8  # so many ops may be alike by chance, or in an example made up by hand
MIN_OPS_WITHOUT_CHANCE = 50  # and of so many on two GPUs no times are the same
BEGINS = " begins "  # in a warning of captures that do not meet at all
ONE_RUN_HINT = "Give the captures of one run only."


def check_one_run(trace: Trace) -> Trace:
    """Warn where captures hardly look like ranks of one run; ranks have to be named.

    Raises
    ------
    TracevizError : they can't be: world sizes or process groups disagree, one was given twice or in two parts, they run
        different programs, or were taken hours apart.
    """
    trace = _check_copies(trace)
    refuse_divided(trace)
    _check_worlds(trace)
    _check_groups(trace)
    return _check_gpus(check_programs(_check_times(trace)))


def _check_copies(trace: Trace) -> Trace:
    """A copy of a capture is another rank by its file's name, by order, or by a rank that was changed in it.

    Clocks of two GPUs never agree to the ns over many ops. Two processes of one pid and device with the same times are
    one, moved or not; of two pids or devices that is odd, but for few ops, as in an example made up by hand. So it is
    where all of one are the first of the other, or the last, and many.
    """
    rows_of = {number: rows for (number,), rows in rows_by_key(trace.ops.process).items()}
    seen: dict[tuple[int, ...], list[int]] = {}
    for number, rows in rows_of.items():
        if rows.size > MIN_OPS_TO_BE_ALIKE:
            for key in _edges(trace, rows):
                seen.setdefault(key, []).append(number)
    pairs = set[tuple[int, int]]()
    for alike in seen.values():
        first, *others = sorted(alike, key=lambda number: -rows_of[number].size)
        pairs.update((first, other) for other in others)
    for first, other in sorted(pairs):
        one, two = trace.processes[first], trace.processes[other]
        is_many = rows_of[first].size == rows_of[other].size or rows_of[other].size >= MIN_OPS_WITHOUT_CHANCE
        if (
            one.capture != two.capture
            and one.rank != two.rank
            and is_many
            and same_times(trace, first, other, part=True)
        ):
            trace = _about_copy(trace, first, other)
    return trace


def _edges(trace: Trace, rows: Ints) -> list[tuple[int, ...]]:
    """The times of a process's first ops, and of its last ones, which its copy and a part of that share with it."""
    start, end = (ints_at(trace.ops, column, rows) for column in ("start_ns", "end_ns"))
    found = []
    for which, kept in (
        (0, start <= np.partition(start, MIN_OPS_TO_BE_ALIKE)[MIN_OPS_TO_BE_ALIKE]),
        (-1, start >= np.partition(start, -MIN_OPS_TO_BE_ALIKE)[-MIN_OPS_TO_BE_ALIKE]),
    ):
        order = np.lexsort((end[kept], start[kept]))
        order = order[: MIN_OPS_TO_BE_ALIKE + 1] if which == 0 else order[-MIN_OPS_TO_BE_ALIKE:]
        times = np.stack([start[kept][order], end[kept][order]])
        found.append((which, *(times - times[0, 0]).ravel().tolist()))
    return found


def _about_copy(trace: Trace, one: int, other: int) -> Trace:
    first, second = trace.processes[one], trace.processes[other]
    paths = [trace.captures[each.capture].path for each in (second, first)]
    used = [distinct(trace.ops.device[trace.ops.process == each]) for each in (one, other)]
    if first.pid == second.pid and np.array_equal(used[0], used[1]):
        raise TracevizError(f"{paths[0]} holds the same work, to the ns, as {paths[1]}.", hint=ONE_RUN_HINT)
    if np.count_nonzero(trace.ops.process == other) < MIN_OPS_WITHOUT_CHANCE:
        return trace
    text = (
        f"all ops of rank {second.rank} in {paths[0]} start and end, to the ns, as those of rank {first.rank} in "
        f"{paths[1]}: one may be a copy of the other"
    )
    return trace.warn(DOUBTED, text)


def _check_gpus(trace: Trace) -> Trace:
    """Ranks of one job each have a GPU of their own."""
    used: dict[tuple[str, int], int] = {}
    for number in distinct(trace.ops.process).tolist():
        process = trace.processes[number]
        machine, gpu = trace.captures[process.capture].machine, process.claims.get("gpu", -1)
        other = trace.processes[used.setdefault((machine, gpu), number)]
        if machine and gpu >= 0 and other.capture != process.capture:
            text = (
                f"Rank {other.rank} of {trace.captures[other.capture].path} and rank {process.rank} of "
                f"{trace.captures[process.capture].path} both used GPU {gpu} of {machine}: are they ranks of one run?"
            )
            return trace.warn("same-gpu", text)
    return trace


def _check_worlds(trace: Trace) -> None:
    stating = [one for one in trace.captures if one.world_size]
    other = next((one for one in stating if one.world_size != stating[0].world_size), None)
    if other is not None:
        first = stating[0]
        raise TracevizError(
            f"{first.path} is of a job of {first.world_size} ranks, and {other.path} of one of {other.world_size}.",
            hint=ONE_RUN_HINT,
        )


def _check_groups(trace: Trace) -> None:
    """A rank that another counts into its process group must know that group by the same ranks."""
    group, listed = trace.comms.group.codes, trace.comms.group_ranks.codes
    process = as_int64(trace.comms.process)
    known = np.flatnonzero((group >= 0) & (listed >= 0))
    keys: list[Ints] = [column[known].astype(np.int64) for column in (process, group, listed)]
    ranks_of = [_listed(text) for text in trace.comms.group_ranks.texts]
    found: dict[tuple[int, str], tuple[int, ...]] = {}
    for its_process, its_group, its_list in rows_by_key(*keys):
        rank = trace.processes[its_process].rank
        name = trace.comms.group.texts[its_group]
        if rank in ranks_of[its_list] and name:
            found[rank, name] = ranks_of[its_list]
    for (rank, name), ranks in found.items():
        for other in ranks:
            others = found.get((other, name), ranks)
            if others != ranks:
                raise TracevizError(
                    f"Rank {rank} says that process group {name} has the ranks {_text(ranks)}, rank {other} that it "
                    f"has {_text(others)}.",
                    hint=ONE_RUN_HINT,
                )


def _check_times(trace: Trace) -> Trace:
    """Times are on one origin by now; captures without a start time say nothing, and windows are apart by nature."""
    window = {one.capture: one.window for one in trace.processes}
    for number in range(window_count(trace)):
        captures = [one for i, one in enumerate(trace.captures) if window.get(i, 0) == number]
        lasting = [one for one in captures if one.start_utc_ns is not None and one.last_ns > one.first_ns]
        dated = sorted(lasting, key=lambda one: one.first_ns)
        text = _apart(dated)
        trace = trace.warn("captures-apart", text) if text else _check_meeting(trace, dated)
    return trace


def doubt_apart(trace: Trace, as_captured: Trace) -> Trace:
    """Leave the verdict open where captures do not meet in time, and no number of a call says that they do.

    Parameters
    ----------
    trace : its collectives matched. as_captured : the same before its clocks were aligned, by what was matched.
    """
    text = next((one.message for one in as_captured.warnings if one.code == "captures-apart"), "")
    if BEGINS not in text:
        return trace
    if trace.matches is not None:
        collectives = trace.matches.collectives
        if (collectives.matched_by.is_one_of(("sequence",)) & collectives.sure).any():
            return trace
    return trace.warn(DOUBTED, text)


def _apart(dated: list[Capture]) -> str:
    """By how much captures that do not meet lie apart, in words; "" where they meet.

    Raises
    ------
    TracevizError : it is too long for one run.
    """
    apart: tuple[int, Capture, Capture] | None = None
    last = dated[0] if dated else None
    for one in dated[1:]:
        if (
            last is not None
            and one.first_ns > last.last_ns
            and (apart is None or one.first_ns - last.last_ns > apart[0])
        ):
            apart = one.first_ns - last.last_ns, last, one
        last = one if last is None or one.last_ns > last.last_ns else last
    if apart is None:
        return ""
    gap_ns, before, after = apart
    if gap_ns >= APART_NS:
        raise TracevizError(
            f"{after.path} was captured {_long(gap_ns)} after {before.path}: no ranks of one run.",
            hint=ONE_RUN_HINT,
        )
    return (
        f"{after.path}{BEGINS}{gap_ns / 1e9:,.1f} s after {before.path} ends: are they ranks of one run, and its same "
        "steps?"
    )


def _long(ns: int) -> str:
    """Hours or days.

    >>> _long(36 * 3600 * 10**9), _long(5400 * 10**9)
    ('1.5 days', '1.5 hours')
    """
    hours = ns / (3600 * 10**9)
    return f"{hours / 24:.1f} days" if hours >= 24 else f"{hours:.1f} hours"


def _check_meeting(trace: Trace, dated: list[Capture]) -> Trace:
    shortest = min(dated, key=lambda one: one.last_ns - one.first_ns, default=None)
    if shortest is None or len(dated) < 2:
        return trace
    whole_ns = shortest.last_ns - shortest.first_ns
    common_ns = min(one.last_ns for one in dated) - max(one.first_ns for one in dated)
    if common_ns >= MEET_FROM * whole_ns:
        return trace
    text = (
        f"The captures have only {max(common_ns, 0) / 1e6:,.1f} ms in common, of the {whole_ns / 1e6:,.1f} ms of "
        f"{shortest.path}, the shortest: do they hold the same steps?"
    )
    return trace.warn("captures-apart", text)


def _listed(text: str) -> tuple[int, ...]:
    """Ranks of a group as printed; none where the text is cut short."""
    return tuple(map(int, re.findall(r"\d+", text))) if re.fullmatch(r"[\[({]?[\d,\s]*[\])}]?", text) else ()


def _text(ranks: tuple[int, ...]) -> str:
    return ", ".join(map(str, ranks[:8])) + (" …" if len(ranks) > 8 else "")
