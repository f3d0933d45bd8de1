"""Reading a capture takes what its format has planned for it, by which `--memory` shares out its budget."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.analyzers.readers.vendors import test_ascend
from tests.support.made import pftrace, rocprof, xla

MEASURE = """
import re, sys
from pathlib import Path
from analyzers.common.progress import silent
from analyzers.readers.formats import format_of
from analyzers.readers.reading import READING
from analyzers.readers.inputs import kind_of
small, large = map(Path, sys.argv[1:])
def peak():
    return 1024 * int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])
format = format_of(kind_of(large))
format.read(small, silent, READING)  # what is imported is no capture's
before = peak()
format.read(large, silent, READING)
print((peak() - before) / format.whole(large) / format.fold, format.memory.read)
"""


def trace_view(times: int) -> bytes:
    events = test_ascend.made(1)
    work = [one for one in events if one["ph"] != "M"]
    return json.dumps(events + work * (times - 1)).encode()


FILES = {  # of so many layers or steps that what each reading takes beside, whatever its size, is little
    "1_results.json": lambda size: rocprof.capture(layers=size).encode(),
    "1.pftrace": lambda size: pftrace.rocprofv3(rocprof.capture(layers=size)),
    "vm.trace.json": lambda size: xla.viewer_json(xla.made(1, steps=4 * size)).encode(),
    "vm.xplane.pb": lambda size: xla.xspace(xla.made(1, steps=size)),
    "trace_view.json": trace_view,
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", FILES)
def test_reading_takes_no_more_than_planned(tmp_path: Path, name: str) -> None:
    for folder, size in (("small", 4), ("large", 1_000)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_bytes(FILES[name](size))
    command = [sys.executable, "-c", MEASURE, *(str(tmp_path / folder / name) for folder in ("small", "large"))]
    ran = subprocess.run(command, check=True, capture_output=True, text=True)
    taken, planned = map(float, ran.stdout.split())
    assert 0 < taken <= planned
