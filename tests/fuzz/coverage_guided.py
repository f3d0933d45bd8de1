"""Coverage-guided fuzzing of one loader's bytes: `python -m tests.fuzz.coverage_guided --loader kineto --minutes 60`.

Needs `pip install atheris`. Starts from the real captures that `tests.fuzz` mutates, small ones first; anything but a
Trace or one TracevizError is a crash, whose input is kept in the folder that `--crashes` names. Runs in rounds, each a
process of its own that goes on with what the last one found: atheris 3.0 never frees what a comparison of arrays in the
code under test results in, some 70 kB an input.
"""

from __future__ import annotations

import argparse
import gzip
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SMALL = 64 << 10  # bytes of a seed: what is small is mutated often
ROUND = 20_000  # inputs


def main() -> int:
    """Run until the time is up or a crash is found; 1 after a crash."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.coverage_guided", description=__doc__)
    parser.add_argument("--loader", choices=("kineto", "nsys", "nsys-stats"), required=True)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--crashes", type=Path, default=Path("fuzz-crashes"))
    parser.add_argument("--corpus", type=Path, help=argparse.SUPPRESS)  # of one round
    asked = parser.parse_args()
    if asked.corpus:
        _round(asked.loader, asked.corpus, asked.crashes, asked.minutes)
    asked.crashes.mkdir(exist_ok=True)
    began, inputs = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="traceviz-atheris-") as corpus:
        _seeds(asked.loader, Path(corpus))
        while (left := asked.minutes - (time.monotonic() - began) / 60) > 0:
            words = [*sys.argv[1:], "--corpus", corpus, "--minutes", str(left)]
            ran = subprocess.run(
                [sys.executable, "-m", "tests.fuzz.coverage_guided", *words], stderr=subprocess.PIPE, check=False
            )
            said = ran.stderr.decode(errors="replace")
            inputs += sum(map(int, re.findall(r"number_of_executed_units: (\d+)", said)))
            reached = (re.findall(r"cov: \d+ ft: \d+", said) or ["nothing yet"])[-1]
            print(f"{(time.monotonic() - began) / 60:5.1f} min, {inputs:9,} inputs, {reached}", flush=True)
            if ran.returncode:
                print(f"A round ended with {ran.returncode}.")
                print("\n".join(line for line in said.splitlines() if not line.startswith("#"))[-4000:])
                return 1
    return 0


def _round(loader: str, corpus: Path, crashes: Path, minutes: float) -> None:
    """Try inputs until there were enough, the time is up, or one crashes; ends the process."""
    import atheris  # type: ignore[import-not-found]

    with atheris.instrument_imports(include=["analyzers"]):
        from analyzers.common.errors import TracevizError
        from analyzers.readers.kineto import read as kineto
        from analyzers.readers.nsys import read as nsys
        from analyzers.readers.nsys import stats
    read = {"kineto": kineto.read, "nsys": nsys.read_sqlite, "nsys-stats": stats.read}[loader]
    target = corpus.with_name(
        f"{corpus.name}.input" + {"kineto": ".json", "nsys": ".sqlite", "nsys-stats": ".txt"}[loader]
    )

    def once(data: bytes) -> None:
        target.write_bytes(data)
        try:
            read(target)
        except TracevizError as error:
            assert "\n" not in str(error), error
        finally:
            target.unlink()

    limits = [f"-max_total_time={int(60 * minutes) + 1}", f"-runs={ROUND}", "-timeout=60", "-rss_limit_mb=6000"]
    atheris.Setup([sys.argv[0], *limits, f"-artifact_prefix={crashes}/", "-print_final_stats=1", str(corpus)], once)
    atheris.Fuzz()


def _seeds(loader: str, corpus: Path) -> None:
    """Real captures, and for JSON their first events too, which are small enough to be changed in every place."""
    from tests.fuzz.run import LOADERS

    for seed in LOADERS[loader].seeds():  # type: ignore[attr-defined]
        for path in seed.files:
            data = path.read_bytes()
            data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
            if loader == "kineto":
                head = data[:SMALL]
                end = head.rfind(b"\n  },\n  {")
                (corpus / f"{path.name}.head").write_bytes(head[:end] + b"\n  }\n]}")
            if len(data) < SMALL or loader == "nsys":
                (corpus / path.name).write_bytes(data)


if __name__ == "__main__":
    sys.exit(main())
