"""How far GPU clocks may be ahead of each other at an instant, by what host clocks say, however they drift meanwhile.

A clock that is at most 20 µs ahead of its host's at one instant may be 45 ms ahead a quarter of an hour later. What
holds at an instant is the tightest of all bounds, each widened by what clocks may drift until then.
"""

from __future__ import annotations

import msgspec
import numpy as np
import pandas as pd

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Floats, Ints
from analyzers.clocks.differences import ROUNDING_NS
from analyzers.clocks.hosts import HostBounds
from analyzers.matching.pairs import DRIFT
from analyzers.trace.columns import ints


class _Envelope(msgspec.Struct, frozen=True):
    """The least that something may be at most, ns, at instants of a host clock, ascending, of which it drifts away."""

    at_ns: Ints
    most_ns: Floats

    @classmethod
    def of(cls, at: Ints, most: Ints) -> _Envelope:
        """Of bounds at some instants: each instant's own, or what another's leaves of it by then."""
        order = np.argsort(at, kind="stable")
        at, tightest = at[order], most[order].astype(np.float64)
        rise = DRIFT * (at - at[:1])
        tightest = np.minimum.accumulate(tightest - rise) + rise
        tightest = np.minimum.accumulate((tightest + rise)[::-1])[::-1] - rise
        return cls(at, tightest)

    def __call__(self, at: Ints) -> Floats:
        if not self.at_ns.size:
            return np.full(at.size, np.inf)
        after = np.searchsorted(self.at_ns, at)
        rows = np.clip([after - 1, after], 0, self.at_ns.size - 1)
        found: Floats = np.min(self.most_ns[rows] + DRIFT * np.abs(at - self.at_ns[rows]), axis=0)
        return found


class AheadByHosts:
    """Bounds between GPU clocks of one capture, or of captures of one host; of others nothing is known.

    Captures whose bounds cross are left out.
    """

    def __init__(self, hosts: HostBounds, members: pd.DataFrame) -> None:
        self._capture = ints(members, "capture")
        self._host, self._error = hosts.hosts[self._capture], hosts.host_error_ns[self._capture].astype(np.float64)
        rows = rows_by_key(hosts.process, hosts.device)
        keys = zip(ints(members, "process").tolist(), ints(members, "device").tolist(), strict=True)
        own = [rows.get(key, np.empty(0, np.int64)) for key in keys]
        at = hosts.at_ns - hosts.ahead_ns  # when on the host's clock
        most, least = ([each[hosts.at_most[each] == kind] for each in own] for kind in (True, False))
        self._most = [_Envelope.of(at[each], hosts.ahead_ns[each]) for each in most]
        self._least = [_Envelope.of(at[each], -hosts.ahead_ns[each]) for each in least]
        self._usual = [int(np.median(hosts.ahead_ns[each])) if each.size else 0 for each in own]
        crossing = {
            int(capture)
            for capture, most_of, least_of in zip(self._capture, self._most, self._least, strict=True)
            if (most_of(least_of.at_ns) < -least_of.most_ns - ROUNDING_NS).any()
        }
        self._used = ~np.isin(self._capture, list(crossing))

    def __call__(self, one: int, other: int, at: Ints) -> tuple[Floats, Floats]:
        """How far one of `Matches.members` is behind another at least and at most, ns, at instants of the other's."""
        same = self._capture[one] == self._capture[other]
        linked = same or (self._host[one] == self._host[other] >= 0)
        if one == other or not (linked and self._used[one] and self._used[other]):
            nothing = np.zeros(at.size) if one == other else np.full(at.size, np.inf)
            return -nothing, nothing
        on_host, error = at - self._usual[other], 0.0 if same else float(self._error[one] + self._error[other])
        most = self._most[other](on_host) + self._least[one](on_host) + error
        least = -self._least[other](on_host) - self._most[one](on_host) - error
        return least, most
