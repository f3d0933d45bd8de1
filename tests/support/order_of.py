"""The package's lanes, calls and links as plain values, for tests."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from analyzers.arrays.types import Ints
from analyzers.ordering.calls import host_calls
from analyzers.ordering.graph import EDGE_KINDS, Edges, all_edges
from analyzers.ordering.lanes import UNSEEN_STREAMS, Lanes, find_lanes
from analyzers.ordering.links import LinkedCalls, link
from analyzers.trace.tables import Trace


class Edge(NamedTuple):
    """One edge, with its lanes by name."""

    kind: str
    lane: str
    instant_ns: int
    position: int
    source: str
    source_instant_ns: int
    source_position: int
    record: int = -1
    call: int = -1
    exact: bool = True


class Link(NamedTuple):
    """What one wait or synchronization waits for: the instant of the record (-1 none), and where it was."""

    record: int
    source: str
    exact: bool = False


def array(*values: int) -> Ints:
    return np.array(values, np.int64)


def name_of(lanes: Lanes, lane: int) -> str:
    """A lane as "s7" (stream 7), "t1" (host thread 1) or "unseen by t1"; of other processes than the first "1:s7"."""
    if lane == -1:
        return ""
    process, stream, thread = (int(column[lane]) for column in (lanes.process, lanes.stream, lanes.thread))
    name = f"s{stream}" if thread == -1 else f"unseen by t{thread}" if stream == UNSEEN_STREAMS else f"t{thread}"
    return f"{process}:{name}" if process else name


def names_of(lanes: Lanes, numbers: Ints) -> list[str]:
    return [name_of(lanes, lane) for lane in numbers.tolist()]


def named(lanes: Lanes, name: str) -> int:
    """The lane of this name."""
    return names_of(lanes, np.arange(lanes.size)).index(name)


def lanes_of(trace: Trace, *hosts: tuple[int, int]) -> Lanes:
    """The lanes of a trace, with those of some (process, thread) besides."""
    return find_lanes(trace, array(*(process for process, _ in hosts)), array(*(thread for _, thread in hosts)))


def linked(trace: Trace) -> LinkedCalls:
    return link(trace, host_calls(trace))


def links_of(trace: Trace, which: str = "waits") -> list[Link]:
    """What each of the waits (or "syncs") of a trace waits for."""
    found = linked(trace)
    links, records = getattr(found, which), found.calls.records
    return [
        Link(-1 if record == -1 else int(records.start_ns[record]), name_of(found.calls.lanes, source), bool(exact))
        for record, source, exact in zip(links.record, links.source, links.exact, strict=True)
    ]


def edges_of(trace: Trace, kind: str = "") -> list[Edge]:
    """All edges (of a kind) that a trace shows, sorted."""
    calls = linked(trace)
    return sorted(edge for edge in plain(all_edges(trace, calls), calls.calls.lanes) if kind in ("", edge.kind))


def plain(edges: Edges, lanes: Lanes) -> list[Edge]:
    columns: dict[str, list[Any]] = {name: getattr(edges, name).tolist() for name in Edge._fields}
    columns["kind"] = [EDGE_KINDS[kind] for kind in columns["kind"]]
    columns["lane"], columns["source"] = names_of(lanes, edges.lane), names_of(lanes, edges.source)
    return [Edge(*row) for row in zip(*columns.values(), strict=True)]
