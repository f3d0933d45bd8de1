"""GPU counters at scale: how fast they are read, how much memory that takes, and how long their timeline takes to open.

    python -m tests.benchmarks.counters --gpus 8 --seconds 10 --keep capture.sqlite

The export is a real one, repeated: 20 kHz and 30 metrics a GPU, an all-reduce beside matmuls (tests/data/counters),
each process and GPU beyond the first four a copy under another id. 8 GPUs for 10 s are 48 million rows.
"""

from __future__ import annotations

import argparse
import gzip
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from analyzers.readers.nsys.read import read_sqlite
from tests.benchmarks.timeline_page import READY
from tests.browser.chromium import Chromium, find

REAL = Path(__file__).parents[1] / "data" / "counters" / "contend_after.sqlite.gz"
GPUS = 4  # of the real one
LENGTH_NS = 37_350_000  # of its samples: 747 periods
OTHER_PROCESS = 1 << 20  # beyond all of its ids of processes, which global ids hold from bit 24 on
TIMED = {  # table -> times, ids that are one process's own, and the column that names the process
    "CUPTI_ACTIVITY_KIND_KERNEL": (("start", "end"), ("correlationId",), "globalPid"),
    "CUPTI_ACTIVITY_KIND_MEMSET": (("start", "end"), ("correlationId",), "globalPid"),
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": (("start", "end"), ("correlationId", "eventSyncId"), "globalPid"),
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": ((), ("correlationId", "eventSyncId"), "globalPid"),
    "CUPTI_ACTIVITY_KIND_RUNTIME": (("start", "end"), ("correlationId",), "globalTid"),
    "NVTX_EVENTS": (("start", "end"), (), "globalTid"),
    "GPU_METRICS": (("rawTimestamp", "timestamp"), (), "typeId"),
}
IDS = 1 << 20  # beyond all of its correlation ids


def make(path: Path, gpus: int, seconds: float) -> int:
    """Write the export; returns its rows of counters."""
    path.write_bytes(gzip.decompress(REAL.read_bytes()))
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = OFF")
        database.execute("PRAGMA synchronous = OFF")
        for group in range(1, gpus // GPUS):
            _copy_group(database, group)
        for table, (times, ids, _) in TIMED.items():
            columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
            database.execute(f"CREATE TEMP TABLE one AS SELECT * FROM {table}")
            for repeat in range(1, max(round(seconds * 1e9 / LENGTH_NS), 1)):
                moved = {**dict.fromkeys(times, repeat * LENGTH_NS), **dict.fromkeys(ids, repeat * IDS)}
                wanted = ", ".join(
                    f'"{name}" + {moved.get(name, 0)}' if name in moved else f'"{name}"' for name in columns
                )
                database.execute(f"INSERT INTO {table} SELECT {wanted} FROM one")
            database.execute("DROP TABLE one")
        database.commit()
        return int(database.execute("SELECT count(*) FROM GPU_METRICS").fetchone()[0])


def _copy_group(database: sqlite3.Connection, group: int) -> None:
    """Four more processes, each on a GPU of its own."""
    gpu, process = group * GPUS, group * OTHER_PROCESS
    for table, (_, _, key) in TIMED.items():
        added = gpu if table == "GPU_METRICS" else process << 24
        of_first = f"(({key} >> 24) & {(1 << 24) - 1}) < {OTHER_PROCESS}"
        which = f"WHERE typeId % 256 < {GPUS}" if table == "GPU_METRICS" else f"WHERE {of_first}"
        columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
        wanted = ", ".join(f'"{name}" + {added}' if name in (key, "endGlobalTid") else f'"{name}"' for name in columns)
        database.execute(f"INSERT INTO {table} SELECT {wanted} FROM {table} {which}")
    for table, key in (("TARGET_INFO_GPU", "id"), ("TARGET_INFO_GPU_METRICS", "typeId")):
        columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
        wanted = ", ".join(f'"{name}" + {gpu}' if name == key else f'"{name}"' for name in columns)
        database.execute(f"INSERT INTO {table} SELECT {wanted} FROM {table} WHERE {key} % 256 < {GPUS}")
    database.execute(
        f"INSERT INTO TARGET_INFO_CUDA_DEVICE SELECT gpuId + {gpu}, cudaId, pid + {process} "
        f"FROM TARGET_INFO_CUDA_DEVICE WHERE gpuId < {GPUS}"
    )


def main() -> None:
    """Print a line a figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=8, help="four, or a multiple of it")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--keep", type=Path, help="where the export stays; what is there is used")
    asked = parser.parse_args()
    browser = find()
    if browser is None:
        raise SystemExit("There is no Chromium.")
    with tempfile.TemporaryDirectory() as folder:
        path = asked.keep or Path(folder) / "counters.sqlite"
        if not path.exists():
            make(path, asked.gpus, asked.seconds)
        with closing(sqlite3.connect(path)) as database:
            rows = int(database.execute("SELECT max(rowid) FROM GPU_METRICS").fetchone()[0])
        began = time.process_time()
        read_sqlite(path)
        without = time.process_time() - began
        began = time.process_time()
        read_sqlite(path, counters=True)
        taken = time.process_time() - began - without
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(f"rows                {rows / 1e6:6.1f} million")
        print(f"read                {taken:6.1f} s of CPU, {rows / taken / 1e6:.1f} million rows a second")
        print(f"memory              {peak:6.2f} GB at most")
        page = Path(folder) / "timeline.html"
        began = time.perf_counter()
        words = ["timeline", str(path), "--no-cache", "--counters", "tensor,dram,nvlink", "-o", str(page)]
        subprocess.run([sys.executable, "-m", "traceviz", *words], check=True, stdout=subprocess.DEVNULL)
        print(f"timeline made in    {time.perf_counter() - began:6.1f} s, {page.stat().st_size / 1e6:.1f} MB")
        with Chromium(browser, Path(folder) / "profile") as chromium:
            chromium.call("Performance.enable", timeDomain="threadTicks")
            began = time.perf_counter()
            chromium.open(page.as_uri())
            chromium.evaluate(READY)
            took = time.perf_counter() - began
            found = {one["name"]: one["value"] for one in chromium.call("Performance.getMetrics")["metrics"]}
            print(f"opens in            {took:6.2f} s, {found['TaskDuration']:.2f} s of CPU")


if __name__ == "__main__":
    main()
