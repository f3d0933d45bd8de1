"""Traffic of a host's network cards in an nsys export (`nsys profile --nic-metrics`): bytes in and out.

`NET_NIC_METRIC` has a row a metric a sample of a card's port, [start, end) and a value; `TARGET_INFO_NETWORK_METRICS`
names the metric and its unit, bytes/ms. Nothing in an export says which card a GPU uses, so the cards count together.
They are sampled each at its own instants: their means are taken over the samples of the one that has most.
"""

from __future__ import annotations

import re

import msgspec
import numpy as np

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Floats, Ints
from analyzers.readers.nsys.file import NO_TIME, NsysFile

SOURCE, NAMES = "NET_NIC_METRIC", "TARGET_INFO_NETWORK_METRICS"
# A port is InfiniBand's or Ethernet's; what IPoIB sends is among InfiniBand's bytes.
RULES = {
    "nic_in": re.compile(r"((ib|eth): )?bytes received", re.IGNORECASE),
    "nic_out": re.compile(r"((ib|eth): )?bytes sent", re.IGNORECASE),
}
PER_NS = {"s": 1e-9, "sec": 1e-9, "ms": 1e-6, "us": 1e-3, "µs": 1e-3, "ns": 1.0}
_UNIT = re.compile(r"bytes?\s*/\s*(?P<per>\w+)", re.IGNORECASE)
GBIT_PER_S = 8  # of a byte/ns
WHOLE = 0.5  # of a sample that each card has to have been sampled for


class Nics(msgspec.Struct, frozen=True):
    """Samples, by time: "start_ns", "end_ns", and "nic_in" and "nic_out" in Gbit/s, -1 where not sampled."""

    samples: dict[str, Ints]
    lacks: tuple[str, ...] = ()


class _Series(msgspec.Struct, frozen=True):
    """One metric of one port: its samples, by time, in bytes/ns."""

    start: Ints
    end: Ints
    rate: Floats

    def integral(self, at: Ints) -> tuple[Floats, Floats]:
        """Bytes, and ns sampled, from the first sample to each instant."""
        length = (self.end - self.start).astype(np.float64)
        edges = np.stack([self.start, self.end], axis=1).ravel()
        sums = []
        for values in (self.rate * length, length):
            after = np.cumsum(values)
            sums.append(np.interp(at, edges, np.stack([after - values, after], axis=1).ravel()))
        return sums[0], sums[1]


def read_nics(file: NsysFile, shift_ns: int) -> Nics | None:
    """Traffic of all cards of the host together; None where none was sampled.

    Parameters
    ----------
    shift_ns : what the export added to every time.
    """
    if not file.most_rows(SOURCE) or not file.has(NAMES, "metricsListId", "metricsIdx", "name", "unit"):
        return None
    metrics, unknown = _metrics(file)
    lacks = tuple(f"how much network cards moved: {name} is in {unit!r}" for name, unit in unknown)
    series = _series(file, metrics)
    if not series:
        return Nics({}, lacks) if lacks else None
    grid = max((one for some in series.values() for one in some), key=lambda one: one.start.size)
    found = {"start_ns": grid.start - shift_ns, "end_ns": grid.end - shift_ns}
    for counter in RULES:
        found[counter] = _together(series.get(counter, []), grid)
    return Nics(found, lacks)


def _metrics(file: NsysFile) -> tuple[dict[tuple[int, int], tuple[str, float]], list[tuple[str, str]]]:
    """(List, index) of a metric -> counter and bytes/ns of a value of 1; and those in units that are not known."""
    found, unknown = {}, []
    for of_list, index, name, unit in file.rows(f"SELECT metricsListId, metricsIdx, name, unit FROM {NAMES}"):
        counter = next((counter for counter, rule in RULES.items() if rule.fullmatch(str(name).strip())), None)
        if counter is None:
            continue
        per = _UNIT.fullmatch(str(unit).strip())
        scale = PER_NS.get(per["per"].lower()) if per else None
        if scale is None:
            unknown.append((str(name), str(unit)))
        else:
            found[int(of_list), int(index)] = (counter, scale)
    return found, unknown


def _series(file: NsysFile, metrics: dict[tuple[int, int], tuple[str, float]]) -> dict[str, list[_Series]]:
    value = 'CAST(round("value") AS INTEGER)' if file.has(SOURCE, "value") else "-1"
    columns = {
        **{name: file.time(SOURCE, name) for name in ("start", "end")},
        **{name: file.column(SOURCE, name) for name in ("globalId", "portId", "metricsListId", "metricsIdx")},
        "value": f"coalesce({value}, -1)",
    }
    rows = file.ints(SOURCE, columns)
    fine = (rows["start"] != NO_TIME) & (rows["end"] > rows["start"]) & (rows["value"] >= 0)
    rows = {name: values[fine] for name, values in rows.items()}
    found: dict[str, list[_Series]] = {}
    keys = rows_by_key(*(rows[name] for name in ("metricsListId", "metricsIdx", "globalId", "portId")))
    for (of_list, index, *_), own in keys.items():
        if (of_list, index) not in metrics:
            continue
        counter, scale = metrics[of_list, index]
        own = own[np.argsort(rows["start"][own], kind="stable")]
        start, end = rows["start"][own], rows["end"][own]
        end = np.minimum(end, np.append(start[1:], np.iinfo(np.int64).max))  # no instant counts twice
        kept = end > start
        found.setdefault(counter, []).append(_Series(start[kept], end[kept], rows["value"][own][kept] * scale))
    return found


def _together(series: list[_Series], grid: _Series) -> Ints:
    """The sum of all cards over each sample of one of them, in Gbit/s; -1 where one of them was not sampled."""
    total, known = np.zeros(grid.start.size), np.full(grid.start.size, bool(series))
    for one in series:
        (low, low_ns), (high, high_ns) = one.integral(grid.start), one.integral(grid.end)
        sampled = high_ns - low_ns
        total += (high - low) / np.maximum(sampled, 1)
        known &= sampled >= WHOLE * (grid.end - grid.start)
    return np.where(known, np.rint(total * GBIT_PER_S), -1).astype(np.int64)
