"""Several ranks in one Kineto file, as tools merge the files of ranks: whose each event is, by what the tools wrote.

SGLang puts a label before every pid, "[TP00] 5000"; others name the rank in the name or the labels of a process ("rank
1 python"), or add so many times a large number to its pids as its rank says. Correlation ids, streams and threads
begin anew in each rank's events: without labels nothing tells these apart. That there are several in one process is
sure where torch.profiler marks the same step twice at once: it runs once in a process, one step after the other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from analyzers.common.errors import TracevizError
from analyzers.common.progress import silent
from analyzers.readers.json_stream import EventStream
from analyzers.readers.kineto import kineto_tables
from analyzers.readers.kineto.events import HOST_CALL_GROUPS, Batch, Head, Rows

WORK = ("op", *HOST_CALL_GROUPS)  # groups whose rows must have an owner
MIN_PID_DISTANCE = 10_000  # pids of ranks are at least so far apart where a rank's number is in them
_DIMENSIONS = ("rank", "pp", "dp", "tp", "cp", "ep")  # the order in which ranks are counted
_LABEL = re.compile(rf"(?<![a-z])({'|'.join(_DIMENSIONS)})[\s_\-:#=]*(\d{{1,9}})", re.IGNORECASE)
_MARKS, _STEP = "user_annotation", re.compile(r"ProfilerStep#\d+")  # of torch.profiler's steps
_NAMES = ("process_name", "process_labels")

Label = tuple[tuple[str, int], ...]  # (("dp", 0), ("tp", 1))
Names = Mapping[int | str, str]  # what a file calls its processes, by pid


class Owned(msgspec.Struct, frozen=True):
    """One rank's events of a file; claims : which rank its label says it is."""

    rows: Mapping[str, Rows]
    claims: Mapping[str, int]


def label_of(text: str) -> Label:
    """The rank that a text names, by its dimensions; empty where it names none.

    >>> label_of("[TP00] 5000"), label_of("[DP01-TP00] 7"), label_of("rank 3 python"), label_of("python 5000")
    ((('tp', 0),), (('dp', 1), ('tp', 0)), (('rank', 3),), ())
    """
    found = {dimension.lower(): int(number) for dimension, number in _LABEL.findall(text)}
    return tuple((one, found[one]) for one in _DIMENSIONS if one in found)


def split(path: Path, batch: Batch, names: Callable[[], Names]) -> list[Owned]:
    """The events of each rank, in their order; one of all where the file holds one rank's, as files mostly do.

    Parameters
    ----------
    names : asked for only where pids do not tell.

    Raises
    ------
    TracevizError : several processes launched work, and some of it has no label that says whose it is.
    """
    pids = {head.pid for group in WORK for head in batch.rows[group].heads.values()}
    labels = {pid: _of(pid) for pid in pids}
    callers = {head.pid for group in HOST_CALL_GROUPS for head in batch.rows[group].heads.values()}
    if not any(labels.values()):
        if len(callers) < 2:
            return [Owned(batch.rows, {})]
        labels = _by_names(labels, names()) or _by_offset(batch.rows["op"], callers)
        if not labels:
            return [Owned(batch.rows, {})]  # ids of launches may tell, see `refuse_unlabelled`
    unlabelled = sorted(str(pid) for pid in pids if not labels.get(pid))
    if unlabelled:
        labelled = next(str(pid) for pid in pids if labels.get(pid))
        raise TracevizError(
            f"holds several ranks' events, and those of process {unlabelled[0]} have no label as {labelled} has.",
            path=path,
            hint="Give each rank's own file.",
        )
    ranks = _ranks(set(labels.values()))

    def owner(head: Head) -> int:
        return ranks.get(labels.get(head.pid, ()) or _of(head.pid), min(ranks.values()))

    owners = {group: rows.numbers(owner) for group, rows in batch.rows.items()}
    return [
        Owned(
            {group: rows[np.flatnonzero(owners[group] == rank)] for group, rows in batch.rows.items()}, {"label": rank}
        )
        for rank in sorted(ranks.values())
    ]


def refuse_unlabelled(path: Path, pids: Sequence[int], ambiguous: int) -> None:
    """Refuse a file of several processes without labels, some ops of which any of them may have launched.

    Raises
    ------
    TracevizError : there are such ops.
    """
    if ambiguous:
        listed = ", ".join(map(str, pids[:4])) + (" …" if len(pids) > 4 else "")
        raise TracevizError(
            f"holds the work of {len(pids)} processes ({listed}), and neither labels nor ids of launches tell whose "
            f"{ambiguous:,} of its GPU ops are.",
            path=path,
            hint="Give each rank's own file, or merge them with labels ([TP00] before the pids, as SGLang does).",
        )


def refuse_mixed(path: Path, ranges: Rows) -> None:
    """Refuse a file in which one process's events are those of several ranks: the same step twice at once.

    On one thread two marks may lie within each other, as one that is written twice; on two threads they may not.

    Raises
    ------
    TracevizError : there is such a step.
    """
    marks: dict[tuple[int | str, str], list[int]] = {}
    for number, head in ranges.heads.items():
        if head.category == _MARKS and _STEP.fullmatch(head.name):
            marks.setdefault((head.pid, head.name), []).append(number)
    for (pid, name), own in marks.items():
        rows = np.flatnonzero(np.isin(ranges.head, own))
        order = rows[np.argsort(ranges.start[rows], kind="stable")]
        start, end = ranges.start[order], ranges.start[order] + ranges.duration[order]
        crossing = (start[1:] > start[:-1]) & (end[1:] > end[:-1])
        of_threads = ranges.head[order][1:] != ranges.head[order][:-1]
        if ((start[1:] < end[:-1]) & (crossing | of_threads)).any():
            raise TracevizError(
                f"holds the events of several ranks under one process ({pid}), and no labels tell whose they are: "
                f"{name} is marked again before it has ended.",
                path=path,
                hint="Give each rank's own file, or merge them with labels ([TP00] before the pids, as SGLang does).",
            )


def names_in(path: Path) -> dict[int | str, str]:
    """What a file's metadata calls its processes, by pid."""
    found: dict[int | str, str] = {}
    for piece in EventStream(path, silent, exact=True).pieces():
        text = bytes(piece)
        if any(f'"{name}"'.encode() in text for name in _NAMES):
            for event in msgspec.json.decode(b"[" + text + b"]"):
                if isinstance(event, dict) and event.get("ph") == "M" and event.get("name") in _NAMES:
                    _add_name(found, event)
    return found


def _add_name(found: dict[int | str, str], event: Mapping[str, Any]) -> None:
    pid, args = event.get("pid"), event.get("args")
    if isinstance(pid, int | str) and isinstance(args, dict):
        said = [str(args[key]) for key in ("name", "labels") if key in args]
        found[pid] = " ".join([*filter(None, [found.get(pid)]), *said])


def _of(pid: int | str) -> Label:
    return label_of(pid) if isinstance(pid, str) else ()


def _by_names(pids: Mapping[int | str, Label], names: Names) -> dict[int | str, Label]:
    found = {pid: label_of(names.get(pid, "")) for pid in pids}
    return found if any(found.values()) else {}


def _by_offset(rows: Rows, callers: set[int | str]) -> dict[int | str, Label]:
    """Ranks by how far pids of GPU rows lie above the number of their device; empty where that tells nothing.

    Rows of device 1 under pid 2,000,001 are those of rank 2, if other ranks' lie 1,000,000 apart as well and one
    process that launches is of the two millions, too.
    """
    device = kineto_tables.devices(rows)
    above: dict[int | str, set[int]] = {}
    for number, head in rows.heads.items():
        own = np.unique(device[rows.head == number])
        above.setdefault(head.pid, set()).update((kineto_tables.number(head.pid) - own).tolist())
    offsets = {pid: next(iter(own)) for pid, own in above.items() if len(own) == 1}
    if len(offsets) < len(above) or len({*offsets.values()}) < 2:
        return {}
    step = int(np.gcd.reduce(np.array([*offsets.values()], np.int64)))
    if step < MIN_PID_DISTANCE or min(offsets.values()) < 0:
        return {}
    found = {pid: offset // step for pid, offset in offsets.items()}
    found |= {pid: kineto_tables.number(pid) // step for pid in callers}
    if {found[pid] for pid in callers} != {found[pid] for pid in offsets}:
        return {}
    return {pid: (("rank", rank),) for pid, rank in found.items()}


def _ranks(labels: set[Label]) -> dict[Label, int]:
    """The rank of each label: by a dimension that numbers all of them, else by their order, pipeline stages first."""
    for dimension in ("rank", "tp", "dp", "pp", "cp", "ep"):
        numbers = {label: dict(label).get(dimension, -1) for label in labels}
        if min(numbers.values()) >= 0 and len({*numbers.values()}) == len(labels):
            return numbers
    return {label: rank for rank, label in enumerate(sorted(labels))}
