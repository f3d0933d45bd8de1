"""Whether ranks run one program: those that surely do not are refused, those that hardly do leave the verdict open.

Ranks of one job need not do the same: a pipeline's last stage computes a loss, experts and embeddings run kernels of
their own. But they share most operators, ranges and kernels (of the captures in `tests/data` at least 81 % of the
names and 67 % of the kernels of the rank with fewer), and in a process group that they share all make the same calls,
as NCCL demands. Captures of different programs share a median 46 % of the names and 62 % of the kernels; a group's
name says little, as every job has a group 0.

- Ranks that differ in both, by more than half: of one program all the same where a group that they share makes the
  same calls; of different ones where it makes others, or where each states groups and they share none; else in doubt.
- Ranks that are alike and make no call in common in a group that they share: in doubt.

What is not on record differs in nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
import numpy as np

from analyzers.arrays.groups import distinct, rows_by_key
from analyzers.arrays.types import Ints
from analyzers.common.errors import TracevizError
from analyzers.trace.columns import codes, ints_at, is_one_of, of_codes
from analyzers.trace.communication import operation_of
from analyzers.trace.kernels import function, is_bookkeeping, is_communication
from analyzers.trace.numbered import family
from analyzers.trace.steps import STEP
from analyzers.trace.tables import Trace

DOUBTED = "not-one-run"  # code of the warning that leaves a verdict open: captures are hardly of one run
SHARED = 0.5  # of the names of the rank with fewer: ranks that share less of them differ
FEWEST = 3  # names that tell something where some are shared
MOST_PROGRAMS = 64  # that are compared with each other
NAMED = 3  # names in a sentence
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
        many = any(differ and min(map(len, pair)) >= FEWEST for differ, pair in zip(found, pairs, strict=True))
        return all(found) or (many and False not in found)


_KINDS = ("kernels", "names")


def _differ(one: Names, other: Names) -> bool | None:
    """Whether two ranks' names differ; None where there are too few to tell."""
    fewer, both = min(len(one), len(other)), len(one & other)
    if not fewer or (both and fewer < FEWEST):
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
    computing = ~(is_communication(trace) | is_bookkeeping(trace)) & is_one_of(trace.ops, "kind", ("kernel",))
    kernels = _names(trace, "ops", np.flatnonzero(computing), function)
    told = is_one_of(trace.ranges, "kind", ("nvtx", "annotation", "op"))
    code, texts = codes(trace.ranges, "name")
    told &= ~of_codes(code, [STEP.match(text) is not None for text in texts])
    names = _names(trace, "ranges", np.flatnonzero(told), family)
    none: Names = frozenset()
    return {rank: _Program(kernels.get(rank, none), names.get(rank, none)) for rank in trace.rank_ids}


def _names(trace: Trace, table: str, rows: Ints, change: Callable[[str], str]) -> dict[int, Names]:
    """The distinct names of some rows of a table, by rank."""
    frame = getattr(trace, table)
    code, texts = codes(frame, "name")
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
    texts = [codes(comms, column) for column in ("group", "group_ranks", "operation", "dtype")]
    stated = np.flatnonzero((texts[0][0] >= 0) & (texts[1][0] >= 0))
    elements = np.maximum(ints_at(comms, "in_elements", stated), ints_at(comms, "out_elements", stated))
    keys = [ints_at(comms, "process", stated), *(code[stated].astype(np.int64) for code, _ in texts), elements]
    found: dict[int, dict[tuple[str, str], set[Kind]]] = {}
    for process, group, ranks, operation, dtype, size in rows_by_key(*keys):
        name, listed = texts[0][1][group], texts[1][1][ranks]
        if not name or not listed:
            continue
        own = found.setdefault(trace.processes[process].rank, {}).setdefault((name, listed), set())
        what = operation_of(texts[2][1][operation]) if operation >= 0 else ""
        if what in SAME_SIZES and size >= 0:
            own.add((what, size, texts[3][1][dtype] if dtype >= 0 else ""))
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
    return ", ".join(sorted(names)[:NAMED]) + (" …" if len(names) > NAMED else "")


def _call(kinds: frozenset[Kind]) -> str:
    operation, size, dtype = min(kinds)
    return f"{operation} of {size:,} {dtype}".rstrip()
