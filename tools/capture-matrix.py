#!/usr/bin/env python3
"""Capture every workload under both profilers, in every nsys mode, check each answer, and time it unprofiled.

    python tools/capture-matrix.py OUT --gpus 4 --jobs 3 --budget 500
    python tools/capture-matrix.py OUT --gpus 2 --lanes 0,1 2,3 --jobs 2 --only 'ddp.*' --skip tests/data/workloads
    python tools/capture-matrix.py OUT --gpus 2 --list

Each run is one `traceviz workload NAME --variant V --collect … --check`, or one without a profiler (`clock`). It is
named as its fixture, NAME.VARIANT.GPUS.WAY, with the ways torch, clock, nsys-one-report, nsys-per-rank, nsys-rank0. One
line each is printed as it ends. OUT/results.json has all of them, OUT/NAME/ captures, manifest and the exports of nsys'
reports, OUT/NAME.log what the run said. A run that results.json has, and that ended as it should, is not repeated:
the matrix can be made in several calls. Those most worth having come first.

How long: on H200s and 64 cores some 15 s a torch or clock run and 25 s an nsys run, most of it imports, start-up and
nsys' writing. With `--jobs 3` these overlap, and only the measured parts take turns on the GPUs: all of `--gpus 4` (17
variants in 5 ways, 85 runs) then takes some 11 minutes, one way of all variants 2 to 3 minutes. To try the script
without a GPU: `--device cpu`, where checks fail for want of GPU work.
"""

from __future__ import annotations

import argparse
import ast
import fnmatch
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HOME = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HOME))

from collectors.workloads.catalog import WORKLOADS  # noqa: E402

WAYS = ("torch", "nsys-one-report", "clock", "nsys-per-rank", "nsys-rank0")
FIRST = ("a2a", "delta", "rowpar", "ddp", "fsdp")  # the rest follows
PATIENCE_SECONDS = 75  # what a run has, told to end, before it is killed
PIECE = 12 << 20  # bytes of captures in one archive


@dataclass(frozen=True)
class Run:
    """One command; `devices` are the GPUs it may see, where that is part of what it shows."""

    workload: str
    variant: str
    gpus: int
    way: str
    devices: str = ""

    @property
    def name(self) -> str:
        """As its folder and its fixture are called."""
        seen = f".gpus{self.devices.replace(',', '-')}" if self.devices else ""
        return f"{self.workload}.{self.variant}.{self.gpus}gpu.{self.way}{seen}"

    def words(self, out: Path, device: str, turn: Path | None, check: bool) -> list[str]:
        """The command."""
        words = [sys.executable, "-m", "traceviz", "workload", self.workload, "--variant", self.variant]
        words += ["--ranks", str(self.gpus), "--device", device]
        words += ["--turn", str(turn)] if turn else []
        if self.way == "clock":
            return [*words, "--steps", "30", "--results", str(out / f"{self.name}.json")]
        tool, _, mode = self.way.partition("-")
        words += ["--collect", tool, "-o", str(out / self.name), "--overwrite"]
        words += [f"--{mode}"] if mode in ("per-rank", "rank0") else []
        return [*words, "--check"] if check else words


def plan(gpus: int) -> list[Run]:
    """All runs on so many GPUs, those most worth having first."""
    names = [*FIRST, *(name for name, one in WORKLOADS.items() if name not in FIRST and one.is_here)]
    runs = [Run(name, variant, gpus, way) for way in WAYS for name in names for variant in WORKLOADS[name].variants]
    last = ",".join(str(gpu) for gpu in range(gpus, 2 * gpus))
    return runs + [Run("dpmp", "overlapped", gpus, way, last) for way in WAYS if way not in ("clock", "nsys-rank0")]


class Matrix:
    """Runs what is planned, several at a time, and keeps the results."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.out = options, options.out.resolve()
        self.lock, self.began = threading.Lock(), time.monotonic()
        self.file = self.out / "results.json"
        self.results: dict[str, dict[str, Any]] = json.loads(self.file.read_text()) if self.file.exists() else {}
        self.check = not [
            name for name in ("pandas", "msgspec", "isal", "pyarrow") if not importlib.util.find_spec(name)
        ]

    def wanted(self) -> list[Run]:
        """What is planned, chosen, and not there yet."""
        options = self.options
        done = {name for name, one in self.results.items() if one["ok"]}
        done |= {folder.name for folder in options.skip.iterdir()} if options.skip else set()
        only = options.only or ["*"]
        chosen = [run for run in plan(options.gpus) if any(fnmatch.fnmatchcase(run.name, glob) for glob in only)]
        return [run for run in chosen if run.name not in done and (options.others or not run.devices)]

    def run_all(self) -> None:
        """Run all, in lanes of GPUs of their own, in each as many at a time as asked for."""
        options = self.options
        wanted = self.wanted()
        waiting = deque(run for run in wanted if not run.devices)
        pinned = deque(run for run in wanted if run.devices)  # on GPUs that lanes use too: afterwards, one by one
        turns = [self.out / f".turn{index}" if options.jobs > 1 else None for index in range(len(options.lanes))]
        workers = [
            threading.Thread(target=self.work, args=(waiting, lane, turn))
            for lane, turn in zip(options.lanes, turns, strict=True)
            for _ in range(options.jobs)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        self.work(pinned, "", None)
        for run in (*waiting, *pinned):
            print(f"left for another call: {run.name}")

    def work(self, waiting: deque[Run], lane: str, turn: Path | None) -> None:
        """Take one run after the other, while there is time."""
        while self.options.budget is None or time.monotonic() - self.began < self.options.budget:
            with self.lock:
                if not waiting:
                    return
                run = waiting.popleft()
            result = self.execute(run, run.devices or lane, turn)
            with self.lock:
                self.results[run.name] = result
                self.file.write_text(json.dumps(self.results, indent=1) + "\n", encoding="utf-8")
                print(line(run, result), flush=True)

    def execute(self, run: Run, devices: str, turn: Path | None) -> dict[str, Any]:
        """One run, stopped where it takes too long."""
        log = self.out / f"{run.name}.log"
        environment = {**os.environ, "TRACEVIZ_CACHE": str(self.out / run.name / ".cache"), "PYTHONUNBUFFERED": "1"}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HOME), environment.get("PYTHONPATH")]))
        if devices:
            environment["CUDA_VISIBLE_DEVICES"] = devices
        words = run.words(self.out, self.options.device, turn, self.check)
        began, late = time.monotonic(), False
        with log.open("wb") as said:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment, start_new_session=True
            )
            try:
                process.wait(self.options.timeout)
            except subprocess.TimeoutExpired:
                late = True
                end(process)
        kept = self.keep(run)
        text = log.read_text(errors="replace")
        found = read(text)
        ok = not late and process.returncode == 0
        times = self.out / f"{run.name}.json"
        clock = json.loads(times.read_text()) if run.way == "clock" and times.exists() else {}
        wall = round(time.monotonic() - began, 1)
        return {
            "ok": ok,
            "exit_code": process.returncode,
            "late": late,
            "wall_s": wall,
            "devices": devices,
            **found,
            **clock,
            "bytes": kept,
            "said": "" if ok else text[-1500:],
        }

    def keep(self, run: Run) -> int:
        """Put exports beside their reports, and give the reports up unless asked for; returns the captures' bytes."""
        folder = self.out / run.name
        for report in sorted(folder.glob("*.nsys-rep")):
            made = sorted(folder.glob(f".cache/nsys/{report.stem}-*.sqlite"))
            if made:
                made[-1].replace(report.with_suffix(".sqlite"))
            else:
                export(report)
            if not self.options.reports and report.with_suffix(".sqlite").exists():
                report.unlink()
        subprocess.run(["rm", "-rf", str(folder / ".cache")], check=False)
        return sum(path.stat().st_size for path in folder.glob("*")) if folder.exists() else 0


def end(process: subprocess.Popen[bytes]) -> None:
    """Ask a run to end, which takes its ranks along; then kill what is left."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def export(report: Path) -> None:
    """Export a report where traceviz has not; a failed one leaves nothing."""
    from analyzers.readers.nsys.export import find_nsys

    made = report.with_suffix(".sqlite")
    words = [str(next(find_nsys()).path), "export", "--type=sqlite", "--force-overwrite=true", f"--output={made}"]
    for more in (["--include-blobs=true"], []):  # NCCL's sizes; nsys from 2024 on
        if not subprocess.run([*words, *more, str(report)], capture_output=True, check=False).returncode:
            return
    made.unlink(missing_ok=True)


def read(text: str) -> dict[str, Any]:
    """What a run's output says of its check and its times."""
    said = re.search(r"^check: (\w+), real overlap ratio (\S+), (\[.*\])$", text, re.MULTILINE)
    problems = re.findall(r"^check: NOT as expected: (.*)$", text, re.MULTILINE)
    passed = True if re.search(r"^check: as expected$", text, re.MULTILINE) else False if problems or said else None
    step = re.search(r"step time: median ([\d.]+) ms, P90 ([\d.]+) ms", text)
    notes = re.findall(r"^traceviz: (.*)$", text, re.MULTILINE)
    return {
        "checked": passed,
        "verdict": said[1] if said else None,
        "ratio": None if not said or said[2] == "None" else float(said[2]),
        "causes": ast.literal_eval(said[3]) if said else [],
        "problems": problems,
        "step_ms": [float(step[1]), float(step[2])] if step else None,
        "notes": [note for note in notes if not note.startswith("usable in")],
    }


def line(run: Run, result: dict[str, Any]) -> str:
    """A run's result in one line."""
    how = "late" if result["late"] else "ok" if result["ok"] else f"exit {result['exit_code']}"
    check = {True: "check passed", False: "check FAILED", None: "no check"}[result["checked"]]
    ratio = "" if result["ratio"] is None else f" {result['verdict']} {result['ratio']:.3f}"
    cause = f" {result['causes'][0][0]}" if result["causes"] else ""
    step = f" step {result['step_ms'][0]:.3f} ms, P90 {result['step_ms'][1]:.3f}" if result["step_ms"] else ""
    problems = "".join(f"\n    {problem}" for problem in result["problems"])
    size = f" {result['bytes'] / 1e6:.1f} MB" if result["bytes"] else ""
    return f"{run.name:45} {result['wall_s']:6.1f} s {how:7} {check}{ratio}{cause}{step}{size}{problems}"


def pack(out: Path, folder: Path) -> None:
    """All captures, manifests, logs and results in archives of a few MB."""
    folder.mkdir(parents=True, exist_ok=True)
    pieces: list[list[Path]] = [[]]
    size = 0
    for path in sorted(path for path in out.rglob("*") if path.is_file() and path.suffix != ".nsys-rep"):
        weight = path.stat().st_size // (1 if path.suffix == ".gz" else 5)  # an export packs to a fifth and less
        if size + weight > PIECE and pieces[-1]:
            pieces.append([])
            size = 0
        pieces[-1].append(path)
        size += weight
    for index, paths in enumerate(pieces):
        with tarfile.open(folder / f"matrix{index}.tar.gz", "w:gz", compresslevel=6) as archive:
            for path in paths:
                archive.add(path, path.relative_to(out))


def main() -> None:
    """Run the matrix that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--gpus", type=int, default=2, help="ranks of each run")
    parser.add_argument("--lanes", nargs="+", default=[""], metavar="0,1", help="groups of GPUs to use side by side")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time in each; they take turns on the GPUs")
    parser.add_argument("--only", nargs="+", metavar="GLOB", help="runs of these names")
    parser.add_argument("--skip", type=Path, metavar="DIR", help="leave out runs that DIR has a folder of")
    parser.add_argument("--others", action="store_true", help="also runs pinned to the next GPUs (2,3 for --gpus 2)")
    parser.add_argument("--budget", type=float, metavar="SECONDS", help="start no run after this long")
    parser.add_argument("--timeout", type=float, default=150, metavar="SECONDS", help="for each run")
    parser.add_argument("--reports", action="store_true", help="keep .nsys-rep files beside their exports")
    parser.add_argument("--pack", type=Path, metavar="DIR", help="afterwards, put OUT into archives there")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu tries the script alone")
    parser.add_argument("--list", action="store_true", help="say what would be run")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    matrix = Matrix(options)
    if options.list:
        print("\n".join(run.name for run in matrix.wanted()))
        return
    if not matrix.check:
        print("traceviz' dependencies are not here: captures are made and not checked")
    matrix.run_all()
    if options.pack:
        pack(matrix.out, options.pack)
    bad = [name for name, one in matrix.results.items() if not one["ok"]]
    print(f"{len(matrix.results)} runs, {len(bad)} not ok: {' '.join(bad)}")


if __name__ == "__main__":
    main()
