"""Exports with GPU metrics, gunzipped or made, and what they hold by a plain loop: shares no code with the package."""

from __future__ import annotations

import gzip
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

CONTEND = Path(__file__).parents[1] / "data" / "counters"
# Counter -> the H100's metrics that make it up, word for word.
METRICS = {
    "sm_active": ("SMs Active [Throughput %]",),
    "sm_issue": ("SM Issue [Throughput %]",),
    "tensor_active": ("Tensor Active [Throughput %]",),
    "dram_read": ("DRAM Read Bandwidth [Throughput %]",),
    "dram_write": ("DRAM Write Bandwidth [Throughput %]",),
    "nvlink_in": ("NVLink RX Requests User Data [Throughput %]", "NVLink RX Responses User Data [Throughput %]"),
    "nvlink_out": ("NVLink TX Requests User Data [Throughput %]", "NVLink TX Responses User Data [Throughput %]"),
    "pcie_in": ("PCIe RX Throughput [Throughput %]",),
    "pcie_out": ("PCIe TX Throughput [Throughput %]",),
    "warps": ("Compute Warps in Flight [Throughput %]",),
    "unallocated_warps": ("Unallocated Warps in Active SMs [Throughput %]",),
    "gpc_clock": ("GPC Clock Frequency [MHz]",),
    "sys_clock": ("SYS Clock Frequency [MHz]",),
}
PERIOD = 50_000


def contend(which: str, folder: Path) -> Path:
    """One of the two real captures as an export."""
    target = folder / f"contend_{which}.sqlite"
    target.write_bytes(gzip.decompress((CONTEND / f"contend_{which}.sqlite.gz").read_bytes()))
    return target


def of_rank(which: str, gpu: int, folder: Path) -> Path:
    """One rank's share of a real capture: what nsys would have written around that rank alone."""
    path = contend(which, folder)
    with closing(sqlite3.connect(path)) as database:
        (owner,) = database.execute(
            "SELECT DISTINCT globalPid FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE deviceId = ?", (gpu,)
        ).fetchone()
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for name in tables:
            columns = [column for _, column, *_ in database.execute(f"PRAGMA table_info({name})")]
            for column in ("globalPid", "globalTid"):
                if column in columns:
                    database.execute(f"DELETE FROM {name} WHERE {column} >> 24 != {owner} >> 24")
        database.commit()
    return path.rename(folder / f"{which}.rank{gpu}.sqlite")


def samples(path: Path) -> dict[int, dict[int, dict[str, int]]]:
    """GPU -> time of a sample -> metric -> value as the file has it."""
    found: dict[int, dict[int, dict[str, int]]] = {}
    with closing(sqlite3.connect(path)) as database:
        told = database.execute("SELECT typeId, metricId, metricName FROM TARGET_INFO_GPU_METRICS")
        names = {(kind, metric): name for kind, metric, name in told}
        for at, kind, metric, value in database.execute("SELECT timestamp, typeId, metricId, value FROM GPU_METRICS"):
            found.setdefault(kind % 256, {}).setdefault(at, {})[names[kind, metric]] = value
    return found


def value_of(counter: str, sample: dict[str, int]) -> int:
    """A counter's value in a sample: per cent, or MHz."""
    total = sum(sample[metric] for metric in METRICS[counter])
    return round(total / 1e6) if counter.endswith("clock") else total


def with_metrics(path: Path, gpus: Iterable[int], times: Iterable[int], value: Callable[[str, int, int], int]) -> None:
    """Give an export without metrics its own: `value(counter, gpu, time)` in per cent, or MHz."""
    names = [(number, metric) for number, metric in enumerate(metric for group in METRICS.values() for metric in group)]
    first = {group[0]: counter for counter, group in METRICS.items()}
    with closing(sqlite3.connect(path)) as database:
        database.execute(
            "CREATE TABLE TARGET_INFO_GPU_METRICS (typeId INTEGER NOT NULL, sourceId INTEGER NOT NULL, "
            "typeName TEXT NOT NULL, metricId INTEGER NOT NULL, metricName TEXT NOT NULL)"
        )
        database.execute(
            "CREATE TABLE GPU_METRICS (rawTimestamp INTEGER NOT NULL, timestamp INTEGER NOT NULL, "
            "typeId INTEGER NOT NULL, metricId INTEGER NOT NULL, value INTEGER NOT NULL)"
        )
        for gpu in gpus:
            kind = 0x1000100000000 | gpu
            database.executemany(
                "INSERT INTO TARGET_INFO_GPU_METRICS VALUES (?, 0, '', ?, ?)", [(kind, *each) for each in names]
            )
            for at in times:
                rows = []
                for number, metric in names:
                    known = value(first[metric], gpu, at) if metric in first else 0
                    rows.append((at, at, kind, number, known * (10**6 if "MHz" in metric else 1)))
                database.executemany("INSERT INTO GPU_METRICS VALUES (?, ?, ?, ?, ?)", rows)
        database.commit()


# As nsys documents its export: https://docs.nvidia.com/nsight-systems, SQLite Schema Reference; units as exports have
# them. No such capture was made on hardware here.
NIC_METRICS = ("IB: Bytes sent", "IB: Bytes received", "IB: Send waits", "Eth: Bytes sent", "Eth: Bytes received")


def with_nics(path: Path, samples: Iterable[tuple[int, int, str, int, int, float]], unit: str = "bytes/ms") -> None:
    """Give an export traffic of network cards: card, port, metric, begin, end and value of each."""
    with closing(sqlite3.connect(path)) as database:
        database.executescript(
            """
            CREATE TABLE NET_NIC_METRIC (start INTEGER NOT NULL, end INTEGER NOT NULL, globalId INTEGER NOT NULL,
                portId INTEGER NOT NULL, metricsListId INTEGER NOT NULL, metricsIdx INTEGER NOT NULL,
                value REAL NOT NULL);
            CREATE TABLE TARGET_INFO_NETWORK_METRICS (metricsListId INTEGER NOT NULL, metricsIdx INTEGER NOT NULL,
                name TEXT NOT NULL, description TEXT NOT NULL, unit TEXT NOT NULL);
            CREATE TABLE NIC_ID_MAP (nicId INTEGER NOT NULL, globalId INTEGER NOT NULL);
            CREATE TABLE TARGET_INFO_NIC_INFO (GUID INTEGER, stateName TEXT NOT NULL, nicId INTEGER NOT NULL,
                name TEXT NOT NULL, deviceId INTEGER NOT NULL, vendorId INTEGER NOT NULL, linkLayer INTEGER NOT NULL);
            """
        )
        database.executemany(
            "INSERT INTO TARGET_INFO_NETWORK_METRICS VALUES (0, ?, ?, '', ?)",
            [(index, name, "ticks/ms" if "waits" in name else unit) for index, name in enumerate(NIC_METRICS)],
        )
        rows = [
            (start, end, 281_474_976_710_656 + card, port, 0, NIC_METRICS.index(metric), value)
            for card, port, metric, start, end, value in samples
        ]
        database.executemany("INSERT INTO NET_NIC_METRIC VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        for card in {one[2] for one in rows}:
            database.execute("INSERT INTO NIC_ID_MAP VALUES (?, ?)", (card - 281_474_976_710_656, card))
            database.execute("INSERT INTO TARGET_INFO_NIC_INFO VALUES (0, '', ?, 'mlx5', 4129, 5555, 2)", (card % 256,))
        database.commit()
