"""What each host thread launched, and which stream it is at home on."""

from __future__ import annotations

import numpy as np

from analyzers.keys import lanes as rows_by_key
from analyzers.ordering_calls import HostCalls
from analyzers.ordering_lanes import LONG_AGO, UNSEEN, Lanes, pick
from analyzers.trace import Ints, Mask, Trace, ints


class Launches:
    """Per host lane, what it launched, in order of time."""

    def __init__(self, lanes: Lanes) -> None:
        lane = lanes.lane_of_unit()
        order = np.lexsort((lanes.enqueue, lanes.launcher))
        self._start, host = lanes.enqueue[order], lanes.launcher[order]
        self._lane, self._unit = lane[order], order
        self._first = np.searchsorted(host, np.arange(lanes.size + 1))

    def of(self, host: int) -> tuple[Ints, Ints]:
        """Lane and start of each launch of a host lane."""
        low, high = self._first[host], self._first[host + 1]
        return self._lane[low:high], self._start[low:high]

    def units(self, host: int) -> Ints:
        """Unit of each launch of a host lane."""
        return self._unit[self._first[host] : self._first[host + 1]]

    def last_start(self, host: int, instant: Ints) -> Ints:
        """Start of a host lane's last launch before each instant."""
        start = self.of(host)[1]
        start = np.append(LONG_AGO, start)
        return start[np.searchsorted(start, instant) - 1]

    def last_lane(self, host: Ints, instant: Ints, wanted: Mask) -> Ints:
        """Of the wanted lanes, the one each host lane launched on last before each instant; -1 where there is none."""
        answer = np.full(host.size, -1, np.int64)
        for (which,), rows in rows_by_key(host).items():
            if which >= 0:
                lane, start = self.of(which)
                lane, start = lane[wanted[lane]], start[wanted[lane]]
                at = np.searchsorted(start, instant[rows]) - 1
                answer[rows] = pick(lane, at)
        return answer

    def visits(self, host: int, communication: Mask, home: int, at_home: Ints) -> tuple[Ints, Ints]:
        """The computing streams a host lane launched on, one after another: lane and first launch of each visit.

        The thread counts as back at its home stream at the instants `at_home`, too.
        """
        lane, start = self.of(host)
        lane, start = lane[~communication[lane]], start[~communication[lane]]
        lane, start = np.append(lane, np.full(at_home.size, home)), np.append(start, at_home)
        order = np.argsort(start, kind="stable")
        lane, start = lane[order], start[order]
        new = np.append(True, lane[1:] != lane[:-1])
        return lane[new], start[new]


def homes(trace: Trace, calls: HostCalls, wait_lane: Ints, outside: Mask, launches: Launches) -> Ints:
    """For each host lane the stream it comes back to; -1 where nothing tells.

    That is a stream which runs nothing itself, if the thread makes one wait; else the context's default stream, if the
    thread uses it; else the computing stream with the lowest number it launches on: CUDA numbers the default stream
    first. A thread that launches nothing has the home of its process's first.

    Parameters
    ----------
    wait_lane : the lane that each of `calls.waits` makes wait.
    outside : those waits that no communication library made for itself.
    """
    lanes, home = calls.lanes, np.full(calls.lanes.size, -1, np.int64)
    default = _default_lanes(trace, lanes)
    by_process: dict[int, int] = {}
    for host in np.flatnonzero(lanes.is_host()):
        lane, _ = launches.of(int(host))
        used = np.bincount(lane[~lanes.communication[lane]], minlength=lanes.size) > 0
        waiting = wait_lane[(calls.waits.host == host) & outside & (wait_lane >= 0)]
        hidden = waiting[lanes.stream[waiting] == UNSEEN]
        waited = np.bincount(waiting, minlength=lanes.size) > 0
        preferred = np.flatnonzero(default & (used | waited))
        if hidden.size:
            home[host] = hidden[0]
        elif preferred.size:
            home[host] = preferred[0]
        elif used.any():
            home[host] = min(np.flatnonzero(used), key=lambda each: int(lanes.stream[each]))
        if home[host] >= 0:
            by_process.setdefault(int(lanes.process[host]), int(home[host]))
    for host in np.flatnonzero(lanes.is_host() & (home < 0)):
        home[host] = by_process.get(int(lanes.process[host]), -1)
    return home


def _default_lanes(trace: Trace, lanes: Lanes) -> Mask:
    """Lanes that are their context's default stream."""
    default = np.zeros(lanes.size, dtype=bool)
    rows = trace.streams[trace.streams["default"].to_numpy() == 1]
    found = lanes.of_streams(ints(rows, "process"), ints(rows, "context"), ints(rows, "stream"))
    default[found[found >= 0]] = True
    return default
