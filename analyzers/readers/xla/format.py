"""How profiles of XLA are told and read."""

from __future__ import annotations

from pathlib import Path

from analyzers.common.progress import Progress
from analyzers.readers.format import Format, Head, MemoryPerByte
from analyzers.readers.xla.profile import PERFETTO, SPACE, SPACES, VIEWER
from analyzers.trace.tables import Trace

_SIGNS = (b'"highres-ticks"', b'"name":"/host:', b'"name": "/host:', b'"name":"/device:', b'"name": "/device:')


def _is_json(head: Head) -> bool:
    start = head.plain[:4096]
    return start.lstrip()[:1] == b"{" and any(sign in start for sign in _SIGNS)


def _is_xplane(head: Head) -> bool:
    return head.name.lower().endswith(SPACES)


def _twins(path: Path) -> set[Path]:
    """Files beside a file of a profile that say the same, and more: of `perfetto_trace`, any host's."""
    if path.name == PERFETTO:
        return {one for one in path.parent.glob(f"*{VIEWER}") if one != path}
    plain = path.name.removesuffix(".gz")
    return {path.with_name(plain.removesuffix(SPACE) + VIEWER)} if plain.endswith(SPACE) else set()


def _read_json(path: Path, progress: Progress, nsys: str | None, counters: bool) -> Trace:
    from analyzers.readers.xla.read import read
    from analyzers.readers.xla.trace_json import profile

    return read(path, profile(path, progress))


def _read_xplane(path: Path, progress: Progress, nsys: str | None, counters: bool) -> Trace:
    from analyzers.readers.xla.read import read
    from analyzers.readers.xla.xplane import profile

    return read(path, profile(path, progress))


XLA = Format("xla", _is_json, _read_json, "a JAX profile", (VIEWER,), memory=MemoryPerByte(read=6), twins=_twins)
XPLANE = Format("xplane", _is_xplane, _read_xplane, suffixes=SPACES, memory=MemoryPerByte(read=16), twins=_twins)
