"""What Dask costs: two local worker processes of a Dask cluster against two processes without it.

    python -m tests.benchmarks.dask_overhead [--ranks 8] [--mb 100] [--rounds 3] [--folder FOLDER]

Ranks are torch.profiler traces as in `tests.benchmarks.many_ranks`. Each round has a cluster of its own (a scheduler
and two workers of one thread each, which have nothing loaded) and caches of its own; both ways take turns. Processor
seconds are those of the command and of all the cluster's processes while it runs. Bar: at most 1.25 times, in medians
of wall and of processor seconds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.analyzers.scale.test_dask import cluster
from tests.benchmarks.many_ranks import DATA, make
from tests.support.endings import answered

BAR = 1.25


def spent(pids: list[int]) -> float:
    """Processor seconds that processes have taken so far."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(map(int, fields[11:15]))  # of its own, and of children that have ended
    return ticks / os.sysconf("SC_CLK_TCK")


def timed(command: list[str], pids: list[int]) -> tuple[float, float, bytes]:
    """Wall and processor seconds of a command, those of other processes meanwhile included, and what it prints."""
    others, before, began = spent(pids), os.times(), time.perf_counter()
    found = answered(subprocess.run(command, capture_output=True, check=False))
    assert found.returncode in (0, 1, 3)
    wall, after = time.perf_counter() - began, os.times()
    own = after.children_user + after.children_system - before.children_user - before.children_system
    return wall, own + spent(pids) - others, found.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--mb", type=int, default=100, help="of JSON a rank")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=DATA / "dask", help="where the ranks are; removed if made")
    options = parser.parse_args()
    made = not options.folder.exists()
    options.folder.mkdir(parents=True, exist_ok=True)
    paths = [str(path) for path in make(options.folder, options.ranks, options.mb)]
    asked = [sys.executable, "-m", "traceviz", "check-overlap", *paths, "--format", "json"]
    rows: dict[str, list[tuple[float, float]]] = {}
    for _ in range(options.rounds):
        answers = set()
        for name in ("without Dask, first", "again", "with Dask, first", "again with Dask"):
            if name.endswith("first"):
                cache = tempfile.TemporaryDirectory(dir=options.folder)
                os.environ["TRACEVIZ_CACHE"] = cache.name
            if "Dask" not in name or name.startswith("without"):
                *taken, said = timed([*asked, "--memory", "2GB", "--workers", "2"], [])
                rows.setdefault(name, []).append((taken[0], taken[1]))
                answers.add(said)
                continue
            if name.endswith("first"):
                folder = Path(tempfile.mkdtemp(dir=options.folder))
                running = cluster(folder, 2)
                address, _ = running.__enter__()
                pids = [
                    int(pid)
                    for pid in Path("/proc/self/task").joinpath(str(os.getpid()), "children").read_text().split()
                ]
            *taken, said = timed([*asked, "--dask", address], pids)
            rows.setdefault(name, []).append((taken[0], taken[1]))
            answers.add(said)
            if name.startswith("again"):
                running.__exit__(None, None, None)
                shutil.rmtree(folder, ignore_errors=True)
        assert len(answers) == 1
    medians = {
        name: tuple(statistics.median(column) for column in zip(*found, strict=True)) for name, found in rows.items()
    }
    for name, (wall, processors) in medians.items():
        print(
            f"{options.ranks} ranks × {options.mb} MB, {name:20}: {wall:6.1f} s, {processors:6.1f} s of CPU", flush=True
        )
    over = [
        medians[f"{with_dask}"][k] / medians[without][k]
        for with_dask, without in (("with Dask, first", "without Dask, first"), ("again with Dask", "again"))
        for k in (0, 1)
    ]
    print("with Dask / without, wall and CPU: first {:.2f} {:.2f}, again {:.2f} {:.2f}".format(*over))
    if made:
        shutil.rmtree(options.folder)
    assert max(over[:2]) <= BAR


if __name__ == "__main__":
    main()
