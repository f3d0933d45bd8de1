"""What each point of a lane knows, and which ops it was released by, on random nets against plain loops."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from analyzers.ordering.graph import EDGE_KINDS, Edges, Graph, LatestWaits, join
from analyzers.ordering.lanes import Lanes
from tests.support.order_of import Edge, array, plain

Node = tuple[int, int, int]  # lane, position, instant


@dataclass
class Net:
    """Lanes 0 to 6 of three processes; of the second process no lane ever learns anything.

    A lane's units are queued at `queued[lane]` and end at `ends[lane]`. An edge leads from a lane at an instant to
    another lane of its process, at an instant no earlier.
    """

    seed: int
    processes: tuple[int, ...] = (0, 0, 0, 1, 2, 2, 2)

    def __post_init__(self) -> None:
        dice = random.Random(self.seed)
        count = len(self.processes)
        self.queued = [sorted(dice.sample(range(0, 60, 2), dice.randint(0, 5))) for _ in range(count)]
        self.ends = [[dice.randint(0, 12) for _ in queue] for queue in self.queued]
        self.rows: list[dict[str, int]] = []
        for number in range(dice.randint(0, 14)):
            lane = dice.choice([lane for lane, process in enumerate(self.processes) if process != 1])
            source = dice.choice([s for s in range(count) if s != lane and self.processes[s] == self.processes[lane]])
            instant = dice.randint(0, 30) * 2
            learned = dice.randint(max(instant - 20, 0), instant)
            row = {"lane": lane, "instant_ns": instant, "source": source, "source_instant_ns": learned}
            row |= {"position": self.count(lane, instant), "source_position": self.count(source, learned)}
            row |= {"kind": dice.randint(0, 3), "record": dice.choice([-1, 100 + number]), "call": 200 + number}
            self.rows.append(row | {"exact": dice.randint(0, 1)})

    def count(self, lane: int, instant: int) -> int:
        return sum(queued < instant for queued in self.queued[lane])

    @property
    def edges(self) -> Edges:
        columns = {name: array(*(row[name] for row in self.rows)) for name in Edges.__struct_fields__}
        return Edges(**{**columns, "exact": columns["exact"] == 1})  # type: ignore[arg-type]

    @property
    def lanes(self) -> Lanes:
        sizes = [len(queue) for queue in self.queued]
        units, numbers = sum(sizes), np.arange(len(self.processes))
        given = {"process": array(*self.processes), "stream": numbers, "first": array(*np.append(0, np.cumsum(sizes)))}
        given |= {"end_ns": array(*(end for ends in self.ends for end in ends)), "op": np.arange(units) + 1000}
        given |= {"enqueue_ns": array(*(at for queue in self.queued for at in queue))}
        return Lanes(**{**dict.fromkeys(Lanes.__struct_fields__, np.full(numbers.size, -1)), **given})

    @cached_property
    def nodes(self) -> list[Node]:
        return sorted({(row["lane"], row["position"], row["instant_ns"]) for row in self.rows})

    def of(self, node: Node) -> list[dict[str, int]]:
        return [row for row in self.rows if (row["lane"], row["position"], row["instant_ns"]) == node]

    def before(self, lane: int, instant: int) -> Node | None:
        """The last node of a lane before an instant."""
        return max((node for node in self.nodes if node[0] == lane and node[2] < instant), default=None)

    def known(self, node: Node | None, lane: int) -> int:
        """How many of a lane's units are complete at a node: what its edges tell, and those of earlier nodes there."""
        if node is None:
            return 0
        counts = [0]
        for earlier in self.nodes:
            if earlier[0] == node[0] and earlier <= node:
                for row in self.of(earlier):
                    counts.append(row["source_position"] if row["source"] == lane else 0)
                    counts.append(self.known(self.before(row["source"], row["source_instant_ns"]), lane))
        return max(counts)

    def behind(self, node: Node) -> list[tuple[int, int]]:
        """The ops (end, number) behind the event waits and default streams of a node."""
        found = []
        for earlier in self.nodes:
            if earlier[:2] == node[:2] and earlier <= node:
                for row in self.of(earlier):
                    if EDGE_KINDS[row["kind"]] in ("event", "default"):
                        source, position = row["source"], row["source_position"]
                        if position:
                            unit = sum(map(len, self.queued[:source])) + position - 1
                            found.append((self.ends[source][position - 1], unit + 1000))
                        reached = self.before(source, row["source_instant_ns"])
                        if reached and reached[1] == position:  # it ran nothing since
                            found += self.behind(reached)
        return found


def nets(count: int) -> list[Net]:
    return [Net(seed) for seed in range(count)]


def test_a_node_is_each_point_at_which_a_lane_learns() -> None:
    for net in nets(40):
        graph = Graph(net.lanes, net.edges)
        assert list(zip(graph.lane, graph.position, graph.instant_ns, strict=True)) == net.nodes
        of_edges = graph.node_of(np.arange(graph.edges.size))
        for name in ("lane", "position", "instant_ns"):
            assert getattr(graph, name)[of_edges].tolist() == getattr(graph.edges, name).tolist()
        assert sorted(plain(graph.edges, net.lanes)) == sorted(plain(net.edges, net.lanes))
        assert graph.node_of(np.array([-1])).tolist() == [-1]
        ends = np.append(graph.edge_first, graph.edges.size)
        for number, node in enumerate(net.nodes):
            calls = graph.edges.call[ends[number] : ends[number + 1]].tolist()
            assert of_edges[ends[number] : ends[number + 1]].tolist() == [number] * len(calls)
            assert sorted(calls) == sorted(row["call"] for row in net.of(node))
        for lane in range(net.lanes.size):
            own = range(*graph.first[lane : lane + 2])
            assert list(own) == [number for number, node in enumerate(net.nodes) if node[0] == lane]
        for edge, (lane, instant) in enumerate(zip(graph.edges.source, graph.edges.source_instant_ns, strict=True)):
            node = net.before(lane, instant)
            assert graph.source_node[edge] == (-1 if node is None else net.nodes.index(node))


def test_the_last_node_lies_before_an_instant_and_at_or_before_a_position() -> None:
    for net in nets(25):
        graph = Graph(net.lanes, net.edges)
        asked = [(lane, value) for value in range(61) for lane in range(-1, 7)]
        before, at = [], []
        for lane, value in asked:
            own = [(number, node) for number, node in enumerate(net.nodes) if node[0] == lane]
            before.append(max((number for number, (_, _, instant) in own if instant < value), default=-1))
            at.append(max((number for number, (_, position, _) in own if position <= value), default=-1))
        lanes, values = (array(*column) for column in zip(*asked, strict=True))
        assert graph.last_before(lanes, values).tolist() == before
        assert graph.last_at(lanes, values).tolist() == at


def knows(net: Net, node: Node, lane: int) -> int:
    return net.known(node, lane) if net.processes[node[0]] == net.processes[lane] else 0


def test_a_node_knows_what_its_edges_tell_and_what_their_sources_knew() -> None:
    for net in nets(60):
        graph = Graph(net.lanes, net.edges)
        for lane in [*range(net.lanes.size), 0]:
            known, expected = graph.known(lane), [knows(net, node, lane) for node in net.nodes]
            assert known.at(np.arange(-1, len(net.nodes))).tolist() == [0, *expected]
            beside = [node for node in net.nodes if net.processes[node[0]] == net.processes[lane]]
            assert known.count.size == len(beside) + 1  # no place for other processes' many nodes
            for other, (low, high) in enumerate(pairwise(graph.first.tolist())):
                assert known.of_lane(low, high).tolist() == expected[low:high]
                first = [next((n for n in range(low, high) if expected[n] >= count), -1) for count in range(8)]
                assert graph.first_knowing(other, lane, np.arange(8)).tolist() == first


def test_an_op_is_released_by_the_last_to_end_of_all_behind_its_waits() -> None:
    for net in nets(120):
        lanes = net.lanes
        releases = LatestWaits(Graph(lanes, net.edges))
        points = [(lane, position) for lane, queue in enumerate(net.queued) for position in range(len(queue) + 1)]
        released = releases.of(*(array(*column) for column in zip(*points, strict=True)))
        for one, (lane, position) in enumerate(points):
            first = int(lanes.first[lane])
            assert released.previous[one] == (first + position - 1 + 1000 if position else -1)
            here = [node for node in net.nodes if node[:2] == (lane, position)]
            behind = net.behind(here[-1]) if here else []
            ends, last = {op: end for end, op in behind}, int(released.waited[one])
            assert ends[last] == max(ends.values()) if ends else last == -1


def test_edges_of_several_parts_follow_each_other() -> None:
    parts = nets(6)
    joined = plain(join([net.edges for net in parts]), parts[0].lanes)
    assert joined == [edge for net in parts for edge in plain(net.edges, parts[0].lanes)]
    assert all(isinstance(edge, Edge) for edge in joined)
    assert len(joined) == sum(len(net.rows) for net in parts) > 0
