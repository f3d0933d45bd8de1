"""When, and by what, each side was held while the other ran alone: gaps piece by piece in time, for pictures.

    0 ───────── 20 ──────────── 50 ────────── 60 ────────── 64      the gap of `causes`; B runs 0 to 56
      event-dependency                stream-busy                   by cause: 50 and 6 µs
      not submitted | submitted       [50, 56)                      pieces: [0, 20) and [20, 50), [50, 56)

A piece has one cause, the one that its time counts for: of two things that hold an op, the one released last. It is cut
where the op was submitted, so that one sees for how long the host would have held it, too. Pieces end where the other
side last runs in them. Their `alone_ns` sum up, by gap and cause, to what `alone_by_cause` gives.
"""

from __future__ import annotations

from itertools import pairwise

import msgspec
import numpy as np

from analyzers.arrays.types import Ints, Mask
from analyzers.causes.causes import HOST_BLOCKED, NOT_LAUNCHED, PEER_WAITS, Explained
from analyzers.causes.evidence import EvidenceWriter
from analyzers.causes.queues import LAUNCH
from analyzers.causes.table import TABLE, cause_of_parts
from analyzers.trace.columns import ints, stored


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


class Held(msgspec.Struct, frozen=True):
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


def held(writer: EvidenceWriter, rank: int, device: int, instances: Ints, in_words: int) -> Held | None:
    """The pieces of one rank's device; None where nothing was missed.

    Parameters
    ----------
    instances : places of those in which overlap was missed among the device's, as `RankOverlap.instances` has them.
    in_words : how many pairs of a gap and a cause, the longest ones, are told in words.
    """
    wanted = writer.explainer.instances_of(rank, device)[instances]
    parts: list[Held] = []
    before = 0
    for one in writer.explainer.explain(rank, device) if wanted.size else []:
        found = _pieces(writer, one, wanted, before, in_words)
        before += one.gaps.size
        if found is not None:
            parts.append(found)
    if not parts:
        return None
    words = np.cumsum([0] + [len(one.evidence) for one in parts])
    columns = {name: np.concatenate([getattr(one, name) for one in parts]) for name in Held.__struct_fields__[:8]}
    return Held(
        **columns,
        words=np.concatenate(
            [np.where(one.words < 0, -1, one.words + at) for one, at in zip(parts, words, strict=False)]
        ),
        evidence=tuple(text for one in parts for text in one.evidence),
        links={gap: links for one in parts for gap, links in one.links.items()},
    )


def _pieces(writer: EvidenceWriter, one: Explained, wanted: Ints, before: int, in_words: int) -> Held | None:
    """The pieces of some of the gaps; None where none of these was missed."""
    parts, gaps = one.parts, one.gaps
    submitted = np.clip(one.releases.released_ns[LAUNCH][parts.gap], parts.low_ns, parts.high_ns)
    submitted = np.where(np.isin(parts.state, (HOST_BLOCKED, NOT_LAUNCHED, PEER_WAITS)), parts.low_ns, submitted)
    gap, cause = np.tile(parts.gap, 2), np.tile(cause_of_parts(parts), 2)
    peer = np.tile(parts.state == PEER_WAITS, 2)
    low, high = np.append(parts.low_ns, submitted), np.append(submitted, parts.high_ns)
    early = np.arange(gap.size) < parts.gap.size
    cut = gaps.within_alone(low, high, gap)
    low, high = (np.where(peer, whole, within) for whole, within in zip((low, high), cut, strict=True))
    alone = np.where(peer, high - low, gaps.alone(low, high, gap))
    kept = np.flatnonzero(np.isin(gaps.instance[gap], wanted) & (alone > 0))
    if not kept.size:
        return None
    kept = kept[np.lexsort((low[kept], gap[kept]))]
    gap, cause, early, peer = gap[kept], cause[kept], early[kept], peer[kept]
    goes_on = np.zeros(gap.size, dtype=bool)  # the same as before, after a pause of the other side or on its way
    goes_on[1:] = ~peer[1:] & np.logical_and.reduce([each[1:] == each[:-1] for each in (gap, cause, early)])
    heads = np.flatnonzero(~goes_on)
    ends = np.append(heads[1:], gap.size) - 1
    gap, cause, ns = gap[heads], cause[heads], np.add.reduceat(alone[kept], heads)
    words, evidence, told = _in_words(writer, one, gap, cause, ns, in_words)
    return Held(
        gaps.side[gap],
        gap + before,
        gaps.op[gap],
        cause,
        low[kept[heads]],
        high[kept[ends]],
        ns,
        early[heads],
        words,
        evidence,
        {int(each) + before: links_of(writer, one, int(each)) for each in told.tolist()},
    )


def _in_words(
    writer: EvidenceWriter, one: Explained, gap: Ints, cause: Ints, alone_ns: Ints, most: int
) -> tuple[Ints, tuple[str, ...], Ints]:
    """(position of each piece's words, the words, gaps that have some): a text for each of the longest."""
    pairs, of_pair = np.unique(np.stack([gap, cause]), axis=1, return_inverse=True)
    of_pair = of_pair.reshape(-1)
    total = np.zeros(pairs.shape[1], np.int64)
    np.add.at(total, of_pair, alone_ns)
    longest = np.argsort(-total, kind="stable")[:most]
    number = np.full(total.size, -1, np.int64)
    number[longest] = np.arange(longest.size)
    texts = tuple(
        TABLE[which].evidence(writer, one, where, ns)
        for (where, which), ns in zip(pairs[:, longest].T.tolist(), total[longest].tolist(), strict=True)
    )
    return number[of_pair], texts, np.unique(pairs[0, longest])


def links_of(writer: EvidenceWriter, one: Explained, gap: int) -> tuple[Link, ...]:
    """How the op that ended a gap got there: its launch, what it was queued behind, and through which event."""
    trace, ordering = writer.trace, writer.ordering
    op, late, found = int(one.gaps.op[gap]), int(one.releases.late[gap]), []
    start, end = ints(trace.ops, "start_ns"), ints(trace.ops, "end_ns")
    thread, began, _ = writer.explainer.launches
    for launched in dict.fromkeys((late, op)):
        if launched >= 0 and stored(trace.ops, "launch")[launched] >= 0:
            ends = int(began[launched]), int(thread[launched]), -1, int(start[launched]), -1, launched
            found.append(Link("launch", *ends))
    holder, last = int(one.releases.holder[gap]), int(one.releases.last[gap])
    behind = holder if holder >= 0 else last
    path = ordering.path(behind, op) if behind >= 0 else ()
    if any(step.kind == "wait" for step in path):
        found.append(Link("event", int(end[behind]), -1, behind, int(start[op]), -1, op))
    for record, wait in pairwise(path):
        if (record.kind, wait.kind) == ("record", "wait") and min(record.call, wait.call) >= 0:
            calls = stored(trace.api, "start_ns"), stored(trace.api, "thread")
            (from_ns, from_thread), (to_ns, to_thread) = (
                (int(calls[0][step.call]), int(calls[1][step.call])) for step in (record, wait)
            )
            found.append(Link("record", from_ns, from_thread, -1, to_ns, to_thread, -1))
    return tuple(found)
