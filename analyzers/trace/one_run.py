"""Whether captures can be the ranks of one run: contradictions are refused, doubts are warnings."""

from __future__ import annotations

import re

import numpy as np

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Ints
from analyzers.common.errors import TracevizError
from analyzers.trace.columns import codes, ints
from analyzers.trace.tables import Capture, Trace

APART_NS = 24 * 3600 * 10**9  # captures of one run lie within a day
HINT = "Give the captures of one run only."


def check_one_run(trace: Trace) -> Trace:
    """Warn where captures hardly look like ranks of one run; ranks have to be named.

    Raises
    ------
    TracevizError : they can't be: world sizes or process groups disagree, or they were taken days apart.
    """
    _check_worlds(trace)
    _check_groups(trace)
    return _check_times(trace)


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
    dated = sorted((one for one in trace.captures if one.start_utc_ns is not None), key=lambda one: one.first_ns)
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
        return trace
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


def _listed(text: str) -> tuple[int, ...]:
    """Ranks of a group as printed; none where the text is cut short."""
    return tuple(map(int, re.findall(r"\d+", text))) if re.fullmatch(r"[\[({]?[\d,\s]*[\])}]?", text) else ()


def _text(ranks: tuple[int, ...]) -> str:
    return ", ".join(map(str, ranks[:8])) + (" …" if len(ranks) > 8 else "")
