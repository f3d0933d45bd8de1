"""Files of every format that end too early are refused in one line, however far they go."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from analyzers.common.errors import TracevizError
from analyzers.load import load
from tests.analyzers.readers.vendors import test_ascend as ascend
from tests.analyzers.readers.vendors.test_perfetto import held
from tests.support.made import pftrace, rocm, rocprof, xla, xpu

MADE: dict[str, Callable[[], str | bytes]] = {  # by the names of files
    "trace.json": rocm.capture,
    "xpu.json": xpu.capture,
    "trace_view.json": lambda: json.dumps(ascend.made(2)),
    "host.trace.json": lambda: xla.viewer_json(xla.made()),
    "host.xplane.pb": lambda: xla.xspace(xla.made()),
    "1_results.json": rocprof.capture,
    "1.pftrace": lambda: pftrace.torch(held("graph_nodes")),
}


@pytest.mark.parametrize("share", [0.1, 0.5, 0.98])
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("name", MADE)
def test_a_cut_off_file_is_refused_in_one_line(tmp_path: Path, name: str, packed: bool, share: float) -> None:
    made = MADE[name]()
    content = made.encode() if isinstance(made, str) else made
    content = gzip.compress(content, 1, mtime=0) if packed else content
    path = tmp_path / (name + ".gz" if packed else name)
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(TracevizError, match="truncated") as refusal:
        load([path])
    assert "\n" not in str(refusal.value)
