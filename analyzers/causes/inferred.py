"""How surely an inferred link is what an op waited for: how often the start behind it followed the end before it.

A stream took the same wait in each of six steps. In four of them the work that it is taken to wait for ended last of
all that the op behind the wait was queued behind, and after its launch; so there the wait held the op, if it is for
that work. Where it did, the op started a few µs after that end, as a GPU needs to start the next op: "4 of 4 starts
followed within 3 µs". A link that is for other work meets such ends by chance alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from analyzers.arrays.types import Ints
from analyzers.common.wording import duration
from analyzers.ordering.inference import AT_ONCE_NS
from analyzers.ordering.lanes import MAX_NS, MIN_NS, take_or
from analyzers.ordering.ordering import Ordering, Step
from analyzers.overlap.measure import Inferred


def how_surely(ordering: Ordering, path: Sequence[Step]) -> Inferred | None:
    """The least sure of the inferred links of a path; None where the capture states all of them."""
    found = [
        _of_link(ordering, record, wait)
        for record, wait in pairwise(path)
        if record.kind == "record" and not wait.exact
    ]
    return min(found, key=lambda one: (one.followed / max(one.starts, 1), one.starts), default=None)


def in_words(one: Inferred) -> str:
    """Such as "inferred: 6 of 6 starts followed within 4.1 µs"."""
    if not one.starts:
        return "inferred from the order of calls alone"
    starts = f"{one.followed} of {one.starts} start{'s' if one.starts > 1 else ''} followed"
    return f"inferred: {starts} within {duration(AT_ONCE_NS if one.within_ns is None else one.within_ns)}"


def _of_link(ordering: Ordering, record: Step, wait: Step) -> Inferred:
    """Of one link: over all inferred links of the same two streams behind which the op of the same place comes."""
    graph, edges, lanes = ordering.graph, ordering.graph.edges, ordering.lanes
    links = np.flatnonzero((edges.call == wait.call) & (edges.record == record.call) & ~edges.exact)
    link = links[graph.instant_ns[graph.node_of(links)] == wait.instant_ns][0]
    rows = np.flatnonzero(~edges.exact & (edges.source == edges.source[link]))
    node, of_link = graph.node_of(rows), graph.node_of(np.array([link]))
    same_lane = graph.lane[node] == graph.lane[of_link]
    rows, node = rows[same_lane], node[same_lane]
    unit, place = lanes.unit(graph.lane[node], graph.position[node]), ordering.linked.places.place
    same = (take_or(place, unit) == take_or(place, unit[rows == link])) | (rows == link)
    rows, unit = rows[same & (unit >= 0)], unit[same & (unit >= 0)]
    ended = _ends_that_hold(ordering, rows)
    unit, ended = unit[ended > MIN_NS], ended[ended > MIN_NS]
    held, first = np.unique(unit, return_index=True)  # several waits may come before one op
    after = lanes.start_ns[held] - ended[first]
    at_once = after[(after >= 0) & (after <= AT_ONCE_NS)]
    return Inferred(int(at_once.size), int(after.size), int(at_once.max()) if at_once.size else None)


def _ends_that_hold(ordering: Ordering, rows: Ints) -> Ints:
    """When the work behind some edges ended, ns; `MIN_NS` where other work, or the launch, held the op longer."""
    graph, edges, lanes = ordering.graph, ordering.graph.edges, ordering.lanes
    node = graph.node_of(rows)
    lane, position = graph.lane[node], graph.position[node]
    unit, before = lanes.unit(lane, position), lanes.unit(lane, position - 1)
    source = lanes.unit(edges.source[rows], edges.source_position[rows] - 1)
    ended = take_or(lanes.end_ns, source, MIN_NS)
    free = np.maximum(take_or(lanes.end_ns, before, MIN_NS), take_or(lanes.enqueue_ns, unit, MAX_NS))
    ended_last = ordering.released_at(lane, position).waited == take_or(lanes.op, source, -2)
    return np.where(ended_last & (ended >= free), ended, MIN_NS)
