"""Write the made captures of `tests/data`."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

from tests.support.made import pftrace, rocm, rocprof, xla, xpu

DATA = Path(__file__).parents[2] / "data"


def captures() -> Iterator[tuple[str, str | bytes]]:
    """Name within `tests/data`, and content, of each."""
    for rank in range(2):
        yield f"rocm/roctracer.rank{rank}.json.gz", rocm.capture(rank)
        yield f"rocm/sdk.rank{rank}.json.gz", rocm.capture(rank, 1, sdk=True)
    for rank in range(2):
        yield f"xpu/rank{rank}.json.gz", xpu.capture(rank)
    yield "rocm/rocprofv3_results.json.gz", rocprof.capture()
    program = xla.made(devices=4)
    yield "jax/gpu4.trace.json.gz", xla.viewer_json(program)
    yield "jax/perfetto_trace.json.gz", xla.viewer_json(program, perfetto=True)
    yield "jax/gpu4.xplane.pb", xla.xspace(program)
    for rank in range(2):
        name = f"dpmp_hidden_sync.rank{rank}"
        captured = json.loads(gzip.decompress((DATA / "torch" / f"{name}.json.gz").read_bytes()), parse_float=str)
        yield f"perfetto/{name}.pftrace", gzip.compress(pftrace.torch(pftrace.held(captured)), mtime=0)
    yield "perfetto/rocprofv3_results.pftrace", gzip.compress(pftrace.rocprofv3(rocprof.capture()), mtime=0)


if __name__ == "__main__":
    for name, content in captures():
        path, plain = DATA / name, content.encode() if isinstance(content, str) else content
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(gzip.compress(plain, mtime=0) if name.endswith(".gz") else plain)
        print(path)
