"""When, and by what, each side was held while the other ran alone: gaps piece by piece in time, for pictures.

    0 ───────── 20 ──────────── 50 ────────── 60 ────────── 64      the gap of `explain`; B runs 0 to 56
      event-dependency                stream-busy                   by cause: 50 and 6 µs
      not submitted | submitted       [50, 56)                      pieces: [0, 20) and [20, 50), [50, 56)

A piece has one cause, the one that its time counts for: of two things that hold an op, the one released last. It is cut
where the op was submitted, so that one sees for how long the host would have held it, too. Pieces end where the other
side last runs in them. Their `alone_ns` sum up, by gap and cause, to what `alone_by_cause` gives.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import numpy as np

from analyzers.arrays.groups import run_heads
from analyzers.arrays.types import Ints, Mask
from analyzers.causes.evidence import EvidenceWriter, ToldGap
from analyzers.causes.explain import HOST_BLOCKED, NOT_LAUNCHED, PEER_WAITS, Explained
from analyzers.causes.queues import LAUNCH
from analyzers.causes.table import CAUSE_TABLE, cause_of_parts


class Link(msgspec.Struct, frozen=True):
    """What a capture records of an op's way to the GPU, from one instant to another.

    kind : "launch" (its call → the op), "event" (the op that it waited for ends → the op starts) or "record" (the event
        is recorded → the stream is told to wait for it); thread, op : where each end stands, on a host thread or as an
        op's row in `Trace.ops`; -1 where it is the other.
    """

    kind: str
    from_ns: int
    from_thread: int
    from_op: int
    to_ns: int
    to_thread: int
    to_op: int


class GapPieces(msgspec.Struct, frozen=True):
    """Pieces of one rank's device, by gap and time; a row a piece.

    side : the idle side, 0 for A, 1 for B; gap : which of the gaps it is of, from 0; op : row of the op that ended it.
    cause : position in `CAUSES`; start_ns, end_ns : the piece; alone_ns : for how long of it the other side really ran.
    early : whether that op had not been submitted by then either, where something else held it for longer.
    words : position in `evidence`; -1 for the shorter ones of very many.
    links : by gap, of those with words.
    """

    side: Ints
    gap: Ints
    op: Ints
    cause: Ints
    start_ns: Ints
    end_ns: Ints
    alone_ns: Ints
    early: Mask
    words: Ints
    evidence: tuple[str, ...]
    links: dict[int, tuple[Link, ...]]


def gap_pieces(writer: EvidenceWriter, rank: int, device: int, instances: Ints, in_words: int) -> GapPieces | None:
    """The pieces of one rank's device; None where nothing was missed.

    Parameters
    ----------
    instances : places of those in which overlap was missed among the device's, as `RankOverlap.instances` has them.
    in_words : how many pairs of a gap and a cause, the longest ones, are told in words.
    """
    wanted = writer.explainer.instances_of(rank, device)[instances]
    explained = writer.explainer.explain(rank, device) if wanted.size else None
    columns = _pieces(explained, wanted) if explained else {}
    if explained is None or not columns["gap"].size:
        return None
    pairs, of_pair = np.unique(np.stack([columns["gap"], columns["cause"]]), axis=1, return_inverse=True)
    of_pair = of_pair.reshape(-1)
    total_ns = np.zeros(pairs.shape[1], np.int64)
    np.add.at(total_ns, of_pair, columns["alone_ns"])
    longest = np.argsort(-total_ns, kind="stable")[:in_words]
    number = np.full(total_ns.size, -1, np.int64)
    number[longest] = np.arange(longest.size)
    evidence, links = [], {}
    for gap, cause, ns in zip(*pairs[:, longest].tolist(), total_ns[longest].tolist(), strict=True):
        told = ToldGap(writer, explained, gap, ns)
        evidence.append(CAUSE_TABLE[cause].evidence(told))
        links[gap] = links_of(told)
    links = dict(sorted(links.items()))
    return GapPieces(**columns, words=number[of_pair], evidence=tuple(evidence), links=links)


def _pieces(explained: Explained, wanted: Ints) -> dict[str, Any]:
    """The first columns of `GapPieces`, of gaps of the instances that are wanted."""
    parts, gaps = explained.parts, explained.gaps
    submitted = np.clip(explained.releases.released_ns[LAUNCH][parts.gap], parts.low_ns, parts.high_ns)
    submitted = np.where(np.isin(parts.state, (HOST_BLOCKED, NOT_LAUNCHED, PEER_WAITS)), parts.low_ns, submitted)
    gap, cause = np.tile(parts.gap, 2), np.tile(cause_of_parts(parts), 2)
    peer = np.tile(parts.state == PEER_WAITS, 2)
    low, high = np.append(parts.low_ns, submitted), np.append(submitted, parts.high_ns)
    early = np.arange(gap.size) < parts.gap.size
    cut = gaps.within_alone(low, high, gap)
    low, high = (np.where(peer, whole, within) for whole, within in zip((low, high), cut, strict=True))
    alone = np.where(peer, high - low, gaps.alone(low, high, gap))
    kept = np.flatnonzero(np.isin(gaps.instance[gap], wanted) & (alone > 0))
    kept = kept[np.lexsort((low[kept], gap[kept]))]
    gap, cause, early, peer = gap[kept], cause[kept], early[kept], peer[kept]
    begins = run_heads(gap, cause, early)  # else it goes on after a pause of the other side, or on its way
    heads = np.flatnonzero(begins | peer)
    ends = np.append(heads[1:], gap.size)[: heads.size] - 1
    gap = gap[heads]
    return {
        "side": gaps.side[gap],
        "gap": gap.astype(np.int64),
        "op": gaps.op[gap],
        "cause": cause[heads],
        "start_ns": low[kept[heads]],
        "end_ns": high[kept[ends]],
        "alone_ns": np.add.reduceat(alone[kept], heads) if heads.size else alone[kept],
        "early": early[heads],
    }


def links_of(gap: ToldGap) -> tuple[Link, ...]:
    """How the op that ended a gap got there: its launch, what it was queued behind, and through which event."""
    trace, hosts, found = gap.writer.trace, gap.explainer.hosts, []
    start, end = trace.ops.start_ns, trace.ops.end_ns
    for op in dict.fromkeys((gap.late_op, gap.op)):
        if trace.ops.launch[op] >= 0:
            ends = int(hosts.launch_start_ns[op]), int(hosts.thread[op]), -1, int(start[op]), -1, op
            found.append(Link("launch", *ends))
    behind = gap.holder if gap.holder >= 0 else gap.last
    path = gap.path(behind) if behind >= 0 else ()
    if any(step.kind == "wait" for step in path):
        found.append(Link("event", int(end[behind]), -1, behind, int(start[gap.op]), -1, gap.op))
    calls = trace.api
    for record, wait in pairwise(path):
        if (record.kind, wait.kind) == ("record", "wait") and min(record.call, wait.call) >= 0:
            recorded, told = ((int(calls.start_ns[step.call]), int(calls.thread[step.call])) for step in (record, wait))
            found.append(Link("record", *recorded, -1, *told, -1))
    return tuple(found)
