"""Coverage-guided fuzzing of one loader's bytes: `python -m tests.fuzz.coverage_guided --loader kineto --minutes 60`.

Needs `pip install atheris`. Starts from the real captures that `tests.fuzz` mutates, small ones first; anything but a
Trace or one TracevizError is a crash, whose input is kept in the folder that `--crashes` names.
"""

from __future__ import annotations

import argparse
import gzip
import shutil
import sys
import tempfile
from pathlib import Path

SMALL = 64 << 10  # bytes of a seed: what is small is mutated often


def main() -> None:
    """Run until the time is up or a crash is found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.coverage_guided", description=__doc__)
    parser.add_argument("--loader", choices=("kineto", "nsys", "nsys-stats"), required=True)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--crashes", type=Path, default=Path("fuzz-crashes"))
    asked = parser.parse_args()
    import atheris  # type: ignore[import-not-found]

    with atheris.instrument_imports(include=["analyzers"]):
        from analyzers import kineto, nsys, nsys_stats
        from analyzers.errors import TracevizError
    read = {"kineto": kineto.read, "nsys": nsys.read_sqlite, "nsys-stats": nsys_stats.read}[asked.loader]
    folder = Path(tempfile.mkdtemp(prefix="traceviz-atheris-"))
    suffix = {"kineto": ".json", "nsys": ".sqlite", "nsys-stats": ".txt"}[asked.loader]
    target = folder / f"input{suffix}"

    def once(data: bytes) -> None:
        target.write_bytes(data)
        try:
            read(target)
        except TracevizError as error:
            assert "\n" not in str(error), error

    corpus = folder / "corpus"
    corpus.mkdir()
    _seeds(asked.loader, corpus)
    asked.crashes.mkdir(exist_ok=True)
    options = [f"-max_total_time={int(60 * asked.minutes)}", f"-artifact_prefix={asked.crashes}/", "-timeout=60"]
    atheris.Setup([sys.argv[0], *options, "-rss_limit_mb=6000", "-print_final_stats=1", str(corpus)], once)
    try:
        atheris.Fuzz()  # ends the process
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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
    main()
