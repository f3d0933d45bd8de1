"""Several ranks in one Kineto file, as tools merge the files of ranks: whose each event is, by what the tools wrote.

SGLang puts a label before every pid, "[TP00] 5000". Correlation ids, streams and threads begin anew in each rank's
events: without labels nothing tells these apart. That there are several in one process is sure where torch.profiler
marks the same step twice at once: it runs once in a process, one step after the other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

from analyzers.common.errors import TracevizError
from analyzers.readers.kineto.events import CALLS, Batch, Head, Rows

WORK = ("op", *CALLS)  # groups whose rows must have an owner
_DIMENSIONS = ("rank", "pp", "dp", "tp", "cp", "ep")  # the order in which ranks are counted
_LABEL = re.compile(rf"(?<![a-z])({'|'.join(_DIMENSIONS)})[\s_\-:#=]*(\d{{1,9}})", re.IGNORECASE)
_MARKS, _STEP = "user_annotation", re.compile(r"ProfilerStep#\d+")  # of torch.profiler's steps

Label = tuple[tuple[str, int], ...]  # (("dp", 0), ("tp", 1))


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


def split(path: Path, batch: Batch) -> list[Owned]:
    """The events of each rank, in their order; one of all where no label tells ranks apart, as in most files.

    Without labels ids of launches may tell, see `refuse_unlabelled`.
    """
    pids = {head.pid for group in WORK for head in batch.rows[group].heads.values()}
    labels = {pid: _of(pid) for pid in pids}
    if not any(labels.values()):
        return [Owned(batch.rows, {})]
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
        return ranks.get(_of(head.pid), min(ranks.values()))

    owners = {group: rows.numbers(owner) for group, rows in batch.rows.items()}
    return [
        Owned(
            {group: rows[np.flatnonzero(owners[group] == rank)] for group, rows in batch.rows.items()}, {"label": rank}
        )
        for rank in sorted(ranks.values())
    ]


def refuse_unlabelled(path: Path, pids: Sequence[int], ambiguous: int) -> None:
    """Refuse a file of several processes without labels, some ops of which any of them may have launched."""
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


def _of(pid: int | str) -> Label:
    return label_of(pid) if isinstance(pid, str) else ()


def _ranks(labels: set[Label]) -> dict[Label, int]:
    """The rank of each label: by a dimension that numbers all of them, else by their order, pipeline stages first."""
    for dimension in ("rank", "tp", "dp", "pp", "cp", "ep"):
        numbers = {label: dict(label).get(dimension, -1) for label in labels}
        if min(numbers.values()) >= 0 and len({*numbers.values()}) == len(labels):
            return numbers
    return {label: rank for rank, label in enumerate(sorted(labels))}
