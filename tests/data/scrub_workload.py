"""Make fixtures of what tools/capture-matrix.py wrote, without what tells about the capturing machine.

    python tests/data/scrub_workload.py MATRIX/ddp.step.4gpu.torch MATRIX/a2a.sync.4gpu.nsys-rank0 tests/data/workloads

Of nsys' reports the exports are kept, scrubbed and gzipped, and the manifest names those; of the manifest goes the
host's name, its checkout, paths in the command; of a torch.profiler trace the path it was written to, and what nobody
reads.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path, PurePath

from scrub_nsys import scrub_export
from slim_torch import packed, read, slim, text

DROPPED = ("--turn", "--output", "-o")  # with their values


def scrub(source: Path, target: Path) -> None:
    """Write a capture folder's copy."""
    target.mkdir(parents=True)
    manifest = json.loads((source / "manifest.json").read_text(encoding="utf-8"))
    for one in manifest["captures"]:
        one["path"] = re.sub(r"\.(nsys-rep|qdrep)$", ".sqlite", one["path"])
        if one["path"].endswith(".sqlite"):
            export = target / one["path"]
            scrub_export(source / one["path"], export)
            one["path"] += ".gz"
            (target / one["path"]).write_bytes(packed(export.read_bytes()))
            export.unlink()
        else:
            small = text(slim(read(source / one["path"])))
            (target / one["path"]).write_bytes(packed(small.encode()))
    manifest["host"].update(name="host", system="Linux")
    manifest["git"] = None
    manifest["command"] = scrubbed_command(manifest["command"])
    for rank in manifest["ranks"]:
        rank["host"] = "host"
    lines = json.dumps(manifest, indent=1, ensure_ascii=False) + "\n"
    (target / "manifest.json").write_text(lines, encoding="utf-8")


def scrubbed_command(words: list[str]) -> list[str]:
    """A command without folders."""
    kept = [word for index, word in enumerate(words) if not {word, words[index - 1] if index else ""} & set(DROPPED)]
    return [PurePath(word).name if word.startswith("/") else word for word in kept]


def main() -> None:
    """Scrub capture folders into a folder of fixtures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=Path, nargs="+")
    parser.add_argument("target", type=Path)
    arguments = parser.parse_args()
    for source in arguments.sources:
        scrub(source, arguments.target / source.name)


if __name__ == "__main__":
    main()
