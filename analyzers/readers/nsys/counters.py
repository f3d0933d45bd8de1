"""Metrics in an nsys export: samples of hardware counters, with names of any chip and version told by rule.

`GPU_METRICS` has a row a metric a sample. The lowest byte of its `typeId` is the GPU's index on the host, as in
`TARGET_INFO_GPU`; `TARGET_INFO_GPU_METRICS` names the metrics. A sample's time is its begin: reads and writes of DRAM
fit the kernels that make them within 2 µs if it is taken so, and are a whole period off if not. Traffic of network
cards has rows of its own.

`NET_NIC_METRIC` (`nsys profile --nic-metrics`) has a row a metric a sample of a card's port, [start, end) and a value;
`TARGET_INFO_NETWORK_METRICS` names the metric and its unit, bytes/ms. Nothing in an export says which card a GPU uses,
so the cards count together. They are sampled each at its own instants: their means are taken over the samples of the
one that has most.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec
import numpy as np

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Floats, Ints, Mask
from analyzers.readers.nsys.file import NO_TIME, NsysFile
from analyzers.trace.schemas import Counters as CounterSamples
from analyzers.trace.schemas import Devices
from analyzers.trace.tables import COUNTERS_UNJOINED

SOURCE, NAMES = "GPU_METRICS", "TARGET_INFO_GPU_METRICS"
QUICK_ROWS = 4_000_000  # read unasked, in some two seconds: half a second of 4 GPUs at 200 kHz, 2 s at 20 kHz × 30
GPU = 0xFF  # of a typeId
MOST_PERCENT = 100
HERTZ = 1_000_000  # a clock above that is not in MHz, whatever its name says

# Counter -> names of metrics, by their begin, without the unit in brackets; what matches several is their sum.
METRIC_RULES = {
    "sm_active": r"sms? active",
    "sm_issue": r"sm issue",
    "tensor_active": r"tensor (pipe )?active",
    "dram_read": r"v?dram read",
    "dram_write": r"v?dram write",
    # User data of requests and responses where newer versions count the protocol apart; else all that crosses.
    "nvlink_in": r"nvlink rx(?!.*protocol)",
    "nvlink_out": r"nvlink tx(?!.*protocol)",
    "pcie_in": r"pcie (rx|read)",
    "pcie_out": r"pcie (tx|write)",
    "warps": r"(compute|sm) warps in flight",
    "unallocated_warps": r"unallocated warps in active sms",
    "gpc_clock": r"gpc clock",
    "sys_clock": r"sys clock",
}
CLOCK_METRICS = ("gpc_clock", "sys_clock")
Samples = dict[str, Ints]  # "start_ns" and each counter's values
_NAME = re.compile(r"(?P<name>[^\[]*?)\s*(\[(?P<unit>[^\]]*)\])?\s*")


def counter_of(metric: str) -> str | None:
    """Which counter a metric of nsys is; None where it is none of ours, or in another unit.

    >>> counter_of("SMs Active [Throughput %]"), counter_of("NVLink TX Bandwidth [%]"), counter_of("GPC Clock [MHz]")
    ('sm_active', 'nvlink_out', 'gpc_clock')
    >>> counter_of("Compute Warps in Flight [Avg]"), counter_of("GR Active [Throughput %]")
    (None, None)
    """
    found = _NAME.fullmatch(metric.strip())
    if found is None:
        return None
    name, unit = found["name"].lower(), (found["unit"] or "").lower()
    for counter, rule in METRIC_RULES.items():
        if re.match(rule + r"\b", name):
            fits = "hz" in unit if counter in CLOCK_METRICS else "%" in unit
            return counter if fits or not unit else None
    return None


class Counters(msgspec.Struct, frozen=True):
    """Samples as the table has them, and what was left out.

    unread : rows, as nobody asked for them. lacks : what a reader of the counters has to know, in words.
    """

    table: CounterSamples
    unread: int = 0
    lacks: tuple[str, ...] = ()


def read_counters(file: NsysFile, devices: Devices, told: Mask, shift_ns: int, *, asked: bool) -> Counters:
    """Samples of the GPUs that the capture's processes worked on, and of their host's network cards.

    Parameters
    ----------
    devices : the table; a GPU that several processes worked on has a copy of its samples for each.
    told : its rows whose GPU is known: others have no samples.
    shift_ns : what the export added to every time.
    asked : whether to read them however many there are.
    """
    rows = file.most_rows(SOURCE) + file.most_rows(NICS)
    if rows > QUICK_ROWS and not asked:
        text = f"what {rows:,} rows of GPU counters say: they are read where a question needs them (traceviz counters)"
        return Counters(CounterSamples.of(), rows, (text,))
    frames, lacks = _of_gpus(file, devices, told, shift_ns)
    lacks += _gaps(frames)
    of_cards, unknown = _of_nics(file)
    lacks += unknown
    if of_cards:
        owners = zip(devices.process.tolist(), devices.device.tolist(), strict=True)
        frames += [_frame(of_cards, owner, shift_ns) for owner in owners]
    joined = {name: np.concatenate([frame[name] for frame in frames]) for name in (frames[0] if frames else ())}
    return Counters(CounterSamples.of(joined), 0, tuple(lacks))


def _of_gpus(file: NsysFile, devices: Devices, told: Mask, shift_ns: int) -> tuple[list[Samples], list[str]]:
    lacks: list[str] = []
    frames: list[Samples] = []
    if not file.most_rows(SOURCE) or not file.has(NAMES, "typeId", "metricId", "metricName"):
        return frames, lacks
    metrics = _metrics(file)
    unknown = {name for name, counter in metrics.names.items() if counter is None}
    if unknown:
        listed = ", ".join(sorted(unknown)[:3]) + (", …" if len(unknown) > 3 else "")
        lacks.append(f"what {len(unknown)} of {len(metrics.names)} GPU metrics say: no rule knows them ({listed})")
    known = np.flatnonzero(told)
    used = rows_by_key(devices.gpu[known])
    sampled = set()
    for gpu, samples in _samples(file, metrics):
        sampled.add(gpu)
        rows = known[used.get((gpu,), np.empty(0, np.int64))]
        owners = zip(devices.process[rows].tolist(), devices.device[rows].tolist(), strict=True)
        frames += [_frame(samples, owner, shift_ns) for owner in owners]
    if not told.all():
        lacks.append(
            f"{COUNTERS_UNJOINED}: nothing tells which GPU of the host a process calls device "
            f"{', '.join(map(str, np.unique(devices.device[~told]).tolist()))}"
        )
    idle = sorted(sampled - {gpu for (gpu,) in used})
    if idle and told.all():
        lacks.append(f"whose GPU {', '.join(map(str, idle))} is: sampled, but no process here worked on it")
    return frames, lacks


class _Metrics(msgspec.Struct, frozen=True):
    """counter : (GPU, metric id) -> the counter that it is, or is a part of; names : metric's name -> counter."""

    counter: dict[tuple[int, int], str]
    names: dict[str, str | None]


def _metrics(file: NsysFile) -> _Metrics:
    rows = file.rows(f"SELECT DISTINCT typeId & {GPU}, metricId, metricName FROM {NAMES}")
    names = {str(name): counter_of(str(name)) for _, _, name in rows}
    found = {(int(gpu), int(metric)): str(name) for gpu, metric, name in rows}
    counters = {key: counter for key, name in found.items() if (counter := names[name]) is not None}
    return _Metrics(counters, names)


def _samples(file: NsysFile, metrics: _Metrics) -> Iterator[tuple[int, Samples]]:
    """Each GPU's samples, by time: rows of all metrics brought side by side."""
    if not metrics.counter:
        return
    keys = sorted(metrics.counter)
    code_of = np.full((GPU + 1, max(metric for _, metric in keys) + 1), len(keys), np.int64)
    for code, key in enumerate(keys):
        code_of[key] = code
    columns = {
        "at": file.time(SOURCE, "timestamp"),
        "type": file.column(SOURCE, "typeId"),
        "metric": file.column(SOURCE, "metricId"),
        "value": file.column(SOURCE, "value"),
    }
    wanted = ", ".join(map(str, sorted({metric for _, metric in keys})))
    parts: list[list[tuple[Ints, Ints]]] = [[] for _ in keys]
    for batch in file.batches(SOURCE, columns, f"metricId IN ({wanted})"):
        code = code_of[batch["type"] & GPU, batch["metric"]]
        code[batch["at"] == NO_TIME] = len(keys)
        order = np.argsort(code.astype(np.uint16), kind="stable")
        ends = np.cumsum(np.bincount(code, minlength=len(keys) + 1))[:-1]
        at, value = batch["at"][order], batch["value"][order]
        for part, times, values in zip(parts, np.split(at, ends)[:-1], np.split(value, ends)[:-1], strict=True):
            part.append((times.copy(), values.astype(np.int32)))
    for gpu in sorted({gpu for gpu, _ in keys}):
        mine = [code for code, key in enumerate(keys) if key[0] == gpu]
        series = {
            code: (np.concatenate([at for at, _ in parts[code]]), np.concatenate([values for _, values in parts[code]]))
            for code in mine
            if parts[code]
        }
        times = _instants([at for at, _ in series.values()])
        if times.size:
            yield gpu, _beside(times, [(metrics.counter[keys[code]], *one) for code, one in series.items()])


def _instants(all_times: list[Ints]) -> Ints:
    """All instants at which a GPU was sampled; mostly all metrics have the same."""
    if not all_times:
        return np.empty(0, np.int64)
    first = all_times[0]
    if all(np.array_equal(first, one) for one in all_times) and (np.diff(first) > 0).all():
        return first
    return np.unique(np.concatenate(all_times))


def _beside(times: Ints, series: list[tuple[str, Ints, Ints]]) -> Samples:
    found: Samples = {"start_ns": times}
    for counter, at, values in series:
        whole = values
        if at.size != times.size or not np.array_equal(at, times):
            whole = np.full(times.size, -1, values.dtype)
            whole[np.searchsorted(times, at)] = values
        if counter in CLOCK_METRICS:
            whole = np.where(whole >= HERTZ, np.rint(whole / 1e6), whole).astype(np.int32)
        before = found.get(counter)
        summed = (
            whole if before is None else np.where((whole < 0) | (before < 0), np.maximum(whole, before), whole + before)
        )
        found[counter] = summed if counter in CLOCK_METRICS else np.minimum(summed, MOST_PERCENT)
    return found


def _frame(samples: Samples, owner: tuple[int, int], shift_ns: int) -> Samples:
    """The table's columns. A sample ends where it says so, else where the next begins, or after a period."""
    start = samples["start_ns"]
    if "end_ns" not in samples:
        gaps = np.diff(start)
        period = int(np.median(gaps)) if gaps.size else 0
        end = np.append(start[1:], start[-1:] + period)
        samples["end_ns"] = np.where(end - start > 1.5 * period, start + period, end)
    unknown = np.full(start.size, -1, np.int64)
    return {
        **{name: np.full(start.size, value) for name, value in zip(("process", "device"), owner, strict=True)},
        **{name: samples[name] - shift_ns for name in ("start_ns", "end_ns")},
        **{name: samples.get(name, unknown) for name in (*METRIC_RULES, *NIC_RULES)},
    }


def _gaps(frames: list[Samples]) -> list[str]:
    """How much of the time between first and last sample has none, where that is more than a period."""
    lost, whole = 0, 0
    for frame in frames:
        between = frame["start_ns"][1:] - frame["end_ns"][:-1]
        lost += int(between.sum())
        whole += int(frame["end_ns"][-1] - frame["start_ns"][0])
    if not lost:
        return []
    return [f"what GPUs did in {lost / 1e6:.3g} ms of {whole / 1e6:.3g} ms: samples of counters are missing there"]


# Network cards.

NICS, NIC_NAMES = "NET_NIC_METRIC", "TARGET_INFO_NETWORK_METRICS"
# A port is InfiniBand's or Ethernet's; what IPoIB sends is among InfiniBand's bytes.
NIC_RULES = {
    "nic_in": re.compile(r"((ib|eth): )?bytes received", re.IGNORECASE),
    "nic_out": re.compile(r"((ib|eth): )?bytes sent", re.IGNORECASE),
}
PER_NS = {"s": 1e-9, "sec": 1e-9, "ms": 1e-6, "us": 1e-3, "µs": 1e-3, "ns": 1.0}
_BYTES_PER = re.compile(r"bytes?\s*/\s*(?P<per>\w+)", re.IGNORECASE)
GBIT_PER_S = 8  # of a byte/ns
MIN_SAMPLED_SHARE = 0.5  # of a sample that each card has to have been sampled for


class NicSeries(msgspec.Struct, frozen=True):
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


def _of_nics(file: NsysFile) -> tuple[Samples, list[str]]:
    """Samples of all cards of the host together, Gbit/s and -1 where not sampled; and metrics in units not known."""
    if not file.most_rows(NICS) or not file.has(NIC_NAMES, "metricsListId", "metricsIdx", "name", "unit"):
        return {}, []
    metrics, lacks = {}, []
    for of_list, index, name, unit in file.rows(f"SELECT metricsListId, metricsIdx, name, unit FROM {NIC_NAMES}"):
        counter = next((counter for counter, rule in NIC_RULES.items() if rule.fullmatch(str(name).strip())), None)
        per = _BYTES_PER.fullmatch(str(unit).strip())
        scale = PER_NS.get(per["per"].lower()) if per else None
        if counter and scale is None:
            lacks.append(f"how much network cards moved: {name} is in {str(unit)!r}")
        elif counter and scale is not None:
            metrics[int(of_list), int(index)] = (counter, scale)
    series = _nic_series(file, metrics)
    if not series:
        return {}, lacks
    grid = max((one for some in series.values() for one in some), key=lambda one: one.start.size)
    rates = {counter: together(series.get(counter, []), grid) for counter in NIC_RULES}
    return {"start_ns": grid.start, "end_ns": grid.end, **rates}, lacks


def _nic_series(file: NsysFile, metrics: dict[tuple[int, int], tuple[str, float]]) -> dict[str, list[NicSeries]]:
    """By counter the samples of each port; metrics : list and index of one -> counter, bytes/ns of a value of 1."""
    value = 'CAST(round("value") AS INTEGER)' if file.has(NICS, "value") else "-1"
    columns = {
        **{name: file.time(NICS, name) for name in ("start", "end")},
        **{name: file.column(NICS, name) for name in ("globalId", "portId", "metricsListId", "metricsIdx")},
        "value": f"coalesce({value}, -1)",
    }
    rows = file.ints(NICS, columns)
    fine = (rows["start"] != NO_TIME) & (rows["end"] > rows["start"]) & (rows["value"] >= 0)
    rows = {name: values[fine] for name, values in rows.items()}
    found: dict[str, list[NicSeries]] = {}
    keys = rows_by_key(*(rows[name] for name in ("metricsListId", "metricsIdx", "globalId", "portId")))
    for (of_list, index, *_), own in keys.items():
        if (of_list, index) in metrics:
            counter, scale = metrics[of_list, index]
            own = own[np.argsort(rows["start"][own], kind="stable")]
            start, end = rows["start"][own], rows["end"][own]
            end = np.minimum(end, np.append(start[1:], np.iinfo(np.int64).max))  # no instant counts twice
            kept = end > start
            found.setdefault(counter, []).append(NicSeries(start[kept], end[kept], rows["value"][own][kept] * scale))
    return found


def together(series: list[NicSeries], grid: NicSeries) -> Ints:
    """The sum of all cards over each sample of one of them, in Gbit/s; -1 where one of them was not sampled."""
    total, known = np.zeros(grid.start.size), np.full(grid.start.size, bool(series))
    for one in series:
        (low, low_ns), (high, high_ns) = one.integral(grid.start), one.integral(grid.end)
        sampled = high_ns - low_ns
        total += (high - low) / np.maximum(sampled, 1)
        known &= sampled >= MIN_SAMPLED_SHARE * (grid.end - grid.start)
    return np.where(known, np.rint(total * GBIT_PER_S), -1).astype(np.int64)
