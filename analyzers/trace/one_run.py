"""Whether captures can be the ranks of one run: contradictions are refused, doubts are warnings."""

from __future__ import annotations

import re

import numpy as np

from analyzers.arrays.groups import distinct, rows_by_key
from analyzers.arrays.types import Ints
from analyzers.common.errors import TracevizError
from analyzers.trace.columns import codes, ints, ints_at, stored
from analyzers.trace.tables import Capture, Trace

APART_NS = 24 * 3600 * 10**9  # captures of one run lie within a day
MEET_FROM = 0.2  # of the shortest capture has to lie within all of them, for their times to meet well
UNNAMED = ("file-name", "gpu", "order")  # rules by which the captures themselves say nothing of ranks
FEW = 8  # so many ops may be alike by chance, or in an example made up by hand
HINT = "Give the captures of one run only."


def check_one_run(trace: Trace) -> Trace:
    """Warn where captures hardly look like ranks of one run; ranks have to be named.

    Raises
    ------
    TracevizError : they can't be: world sizes or process groups disagree, one was given twice, or they were taken days
        apart.
    """
    _check_copies(trace)
    _check_worlds(trace)
    _check_groups(trace)
    return _check_gpus(_check_times(trace))


def _check_copies(trace: Trace) -> None:
    """A copy under another name is another rank by its file's name or by order alone, and has the very same times."""
    seen: dict[tuple[object, ...], Capture] = {}
    process = {key: rows for key, rows in rows_by_key(stored(trace.ops, "process")).items() if rows.size > FEW}
    for (number,), rows in process.items() if len(process) > 1 else ():
        one = trace.processes[number]
        capture = trace.captures[one.capture]
        times = [int(ints_at(trace.ops, column, rows).sum()) for column in ("start_ns", "end_ns", "correlation")]
        key = (one.pid, rows.size, *times)
        other = seen.setdefault(key, capture)
        if other is not capture and one.rule in UNNAMED:
            raise TracevizError(f"{capture.path} holds the same work, to the ns, as {other.path}.", hint=HINT)


def _check_gpus(trace: Trace) -> Trace:
    """Ranks of one job each have a GPU of their own."""
    used: dict[tuple[str, int], int] = {}
    for number in distinct(stored(trace.ops, "process")).tolist():
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
            hint=HINT,
        )


def _check_groups(trace: Trace) -> None:
    """A rank that another counts into its process group must know that group by the same ranks."""
    (group, groups), (listed, lists) = codes(trace.comms, "group"), codes(trace.comms, "group_ranks")
    process = ints(trace.comms, "process")
    known = np.flatnonzero((group >= 0) & (listed >= 0))
    keys: list[Ints] = [column[known].astype(np.int64) for column in (process, group, listed)]
    ranks_of = [_listed(text) for text in lists]
    found: dict[tuple[int, str], tuple[int, ...]] = {}
    for its_process, its_group, its_list in rows_by_key(*keys):
        rank = trace.processes[its_process].rank
        if rank in ranks_of[its_list] and groups[its_group]:
            found[rank, groups[its_group]] = ranks_of[its_list]
    for (rank, name), ranks in found.items():
        for other in ranks:
            others = found.get((other, name), ranks)
            if others != ranks:
                raise TracevizError(
                    f"Rank {rank} says that process group {name} has the ranks {_text(ranks)}, rank {other} that it "
                    f"has {_text(others)}.",
                    hint=HINT,
                )


def _check_times(trace: Trace) -> Trace:
    """Times are on one origin by now; captures without a start time say nothing."""
    lasting = [one for one in trace.captures if one.start_utc_ns is not None and one.last_ns > one.first_ns]
    dated = sorted(lasting, key=lambda one: one.first_ns)
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
        return _check_meeting(trace, dated)
    gap_ns, before, after = apart
    if gap_ns >= APART_NS:
        raise TracevizError(
            f"{after.path} was captured {gap_ns / APART_NS:.1f} days after {before.path}: no ranks of one run.",
            hint=HINT,
        )
    text = (
        f"{after.path} begins {gap_ns / 1e9:,.1f} s after {before.path} ends: are they ranks of one run, and its same "
        "steps?"
    )
    return trace.warn("captures-apart", text)


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
