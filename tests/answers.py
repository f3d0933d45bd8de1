"""What every command says of every capture in `tests/data`, kept in a folder: to see what a change of the code changes.

`python -m tests.answers FOLDER` writes one file an answer: the exit code, what was printed and what was complained of.
Two such folders, of two commits, are compared with `diff -r`. `--quick` asks some captures of each kind alone, which
takes a minute.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from collectors.workloads.catalog import WORKLOADS

ROOT = Path(__file__).parent.parent
DATA = Path("tests/data")
FORMATS = ("text", "json", "md")
PAIRS = {
    "dpmp": ("nvtx:DP Embedding", "nvtx:MP Embedding"),
    "opt": ("nvtx:emb_lookup", "nvtx:optimizer"),
    "pipelines": ("nvtx:emb_lookup", "nvtx:optimizer"),
    "a2a": ("nvtx:comms", "nvtx:irrelevant compute"),
    "delta": ("memcpy:DtoH", "nvtx:train compute"),
    "ddp": ("nvtx:forward", "nvtx:backward"),
}
OTHERS = (
    "asynctp", "communication", "contention", "counters", "dependent", "dualpipe", "jax", "pairs", "perfetto",
    "planted", "public", "rocm", "settings", "xpu",
)  # fmt: skip
QUICK = re.compile(
    r"(nsys.(dpmp_hidden_sync|graph_overlap|rowpar_s1.per-rank|peer_copies|full_gpu)|torch.(a2a_async|ddp|dpmp_race|delta"
    r"_sync|full_queue)|real.(mcore_pp|dpmp_before)|workload.dpmp.overlapped.2gpu.nsys-per|stats.small)[^/]*/"
    r"(check-overlap(.pair)?.(text|json|md|memory.json)|what-if.json|syncs.text|collectives.text|report|compare.text)$"
    r"|other.(jax|public|rocm|xpu|counters|planted).*/check-overlap.json$|/compare.json$"
)


def others() -> dict[str, list[str]]:
    """Captures of the other folders, those of one program's ranks together."""
    found: dict[str, list[str]] = {}
    for folder in OTHERS:
        for path in sorted((DATA / folder).rglob("*")):
            if path.is_file() and path.name[0] != "*" and path.suffix != ".md" and path.suffixes != [".json", ".md"]:
                program = re.sub(r"[.-]?rank\d+.*|(\.\w+)+$", "", str(path.relative_to(DATA)))
                kind = "sqlite" if ".sqlite" in path.name else path.name.split(".", 1)[1].removesuffix(".gz")
                kind = re.sub(r"rank\d+\.", "", kind)
                found.setdefault(f"other.{program.replace('/', '.')}.{kind}", []).append(str(path))
    return found


def groups() -> dict[str, list[str]]:
    """Captures of one run each: a name, and the files."""
    found: dict[str, list[str]] = {}
    for path in sorted((DATA / "nsys").glob("*.sqlite")):
        found.setdefault(f"nsys.{path.name.replace('.sqlite', '').replace('.rank', '.').rstrip('0123')}", [])
    for path in sorted((DATA / "nsys").glob("*gpu*.sqlite")) + sorted((DATA / "nsys").glob("peer*.sqlite")):
        found[f"nsys.{path.stem}"] = [str(path)]
    found = {name: files for name, files in found.items() if files}
    ranks = sorted(map(str, (DATA / "nsys").glob("rowpar_s1.rank?.nsys2025.sqlite")))
    found |= {"nsys.rowpar_s1.per-rank": ranks, "nsys.rowpar_s1.rank1": ranks[1:2]}
    for folder in ("torch", "torch-stacks", "real"):
        for name, files in itertools.groupby(
            sorted((DATA / folder).glob("*.json.gz")), lambda path: path.name.split(".rank")[0]
        ):
            found[f"{folder}.{name}"] = [str(path) for path in files]
    found["torch.dpmp_overlap.rank1"] = [str(DATA / "torch/dpmp_overlap.rank1.json.gz")]
    for path in sorted((DATA / "nsys-stats").glob("*.[ct]*")):
        found[f"stats.{path.stem}"] = [str(path)]
    for path in sorted((DATA / "workloads").glob("*.*")):
        if path.is_dir():
            found[f"workload.{path.name}"] = [str(path)]
    return found


def pair_of(name: str) -> tuple[str, str] | None:
    """The selectors that a capture of this name is asked about, beside the default pair."""
    kind, *rest = name.split(".")
    if kind == "workload" and (workload := WORKLOADS.get(rest[0])) and rest[1] in workload.variants:
        expected = workload.variants[rest[1]]
        return None if expected.a == "comm" else (expected.a, expected.b)
    return next((pair for start, pair in PAIRS.items() if rest[0].startswith(start)), None)


def questions() -> Iterator[tuple[str, list[str]]]:
    """Each answer's name, and the command line that gives it."""
    everything = groups()
    for name, files in everything.items():
        pair = pair_of(name)
        sides = ["-a", pair[0], "-b", pair[1]] if pair else []
        for output in FORMATS:
            for command in ("check-overlap", "collectives", "syncs", "streams", "info", "what-if"):
                yield f"{name}/{command}.{output}", [command, *files, "--format", output]
            if pair:
                yield f"{name}/check-overlap.pair.{output}", ["check-overlap", *files, *sides, "--format", output]
        rules = Path("docs/contracts") / f"{name.split('.')[1]}.toml"
        for output in FORMATS if name.startswith("workload.") and (ROOT / rules).exists() else ():
            yield f"{name}/contract.{output}", ["contract", *files, str(rules), "--format", output]
        yield f"{name}/check-overlap.memory.json", ["check-overlap", *files, *sides, "-f", "json", "--memory", "4GB"]
        yield f"{name}/check-overlap.unaligned.json", ["check-overlap", *files, *sides, "-f", "json", "--no-align"]
        yield f"{name}/check-overlap.rank0.json", ["check-overlap", *files, *sides, "-f", "json", "--ranks", "0"]
        yield f"{name}/report", ["report", *files, *sides, "-o", "WRITTEN"]
        for to, out in (("perfetto", "x.json"), ("sqlite", "x.db"), ("parquet", "x")):
            yield f"{name}/export.{to}", ["export", *files, *sides, "--to", to, "-o", f"WRITTEN/{out}"]
    for name, files in others().items():
        for command in ("check-overlap", "collectives", "syncs", "info", "what-if"):
            yield f"{name}/{command}.json", [command, *files, "--format", "json"]
    for first, second in (
        ("torch.dpmp_serial", "torch.dpmp_overlap"),
        ("torch.opt_serial", "torch.opt_overlap"),
        ("torch.a2a_sync", "torch.a2a_async"),
        ("torch.delta_sync", "torch.delta_async"),
        ("nsys.dpmp_serial.2gpu", "nsys.dpmp_overlap.2gpu"),
        ("workload.rowpar.s1.4gpu.torch", "workload.rowpar.s4.4gpu.torch"),
        ("workload.pipelines.serial.4gpu.torch", "workload.pipelines.overlap.4gpu.torch"),
    ):
        pair = pair_of(second)
        sides = ["-a", pair[0], "-b", pair[1]] if pair else []
        both = [argument for name in (first, second) for argument in group_argument(everything[name])]
        baseline = [part for path in everything[first] for part in ("--baseline", path)]
        for output in FORMATS:
            yield f"{second}/compare.{output}", ["compare", *both, *sides, "--format", output]
            asked = ["check-overlap", *everything[second], *sides, *baseline, "--format", output]
            yield f"{second}/check-overlap.baseline.{output}", asked


def group_argument(files: list[str]) -> list[str]:
    """One run as an argument of `compare`: a folder, a file or a glob."""
    return files if len(files) == 1 else [files[0].replace(".rank0.", ".rank*.")]


def answered(arguments: list[str]) -> str:
    """What a command line prints and writes, as it would say it, with the versions of packages left as they are."""
    from traceviz.cli import main

    written = Path(tempfile.mkdtemp(prefix="written"))
    out, complaints = io.StringIO(), io.StringIO()
    sys.argv = ["traceviz", *(argument.replace("WRITTEN", str(written)) for argument in arguments)]
    code: object = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(complaints):
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    parts = [f"{' '.join(arguments)}\nexit code {code}\n", out.getvalue(), "-- complaints\n", complaints.getvalue()]
    for path in sorted(written.rglob("*")):
        parts.append(f"-- {path.relative_to(written)}\n")
        if path.suffix in (".md", ".json", ".html"):
            parts.append(
                re.sub(r".{100000,}", lambda line: hashlib.sha256(line[0].encode()).hexdigest(), path.read_text())
            )
        elif path.suffix == ".db":
            import sqlite3

            parts += [line + "\n" for line in sqlite3.connect(path).iterdump()]
        elif path.suffix == ".parquet":
            import pandas as pd

            frame = pd.read_parquet(path)
            parts.append(f"{frame.dtypes.to_string()}\n{frame.to_csv(index=False)}")
    shutil.rmtree(written)
    return "".join(parts).replace(str(written), "WRITTEN")


def main() -> None:
    """Write all answers, side by side in two processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="only answers whose name holds this")
    parser.add_argument("--quick", action="store_true", help="only some answers, which take a minute")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--part", type=int, help="which part this process does itself (used by the command)")
    given = parser.parse_args()
    os.chdir(ROOT)
    os.environ.update(
        COLUMNS="140", NO_COLOR="1", TERM="dumb", TZ="UTC", PATH="", TRACEVIZ_CACHE="off", TRACEVIZ_CHROMIUM="/nowhere"
    )  # no browser that would draw
    if given.part is None:
        again = [sys.executable, "-m", "tests.answers", str(given.folder.absolute()), "--only", given.only]
        again += ["--quick"] * given.quick
        again += ["--processes", str(given.processes), "--part"]
        parts = [subprocess.Popen([*again, str(part)]) for part in range(given.processes)]
        sys.exit(max(part.wait() for part in parts))
    asked = [
        (name, line) for name, line in questions() if given.only in name and (not given.quick or QUICK.match(name))
    ]
    for name, line in asked[given.part :: given.processes]:
        path = given.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(answered(line))


if __name__ == "__main__":
    main()
