"""The JSON that JAX's profiler writes for viewers: `HOST.trace.json.gz`, and `perfetto_trace.json.gz` out of it.

Lines are named by metadata, every argument is text, and an empty object ends the list.
"""

from __future__ import annotations

from pathlib import Path

from analyzers.common.progress import Progress
from analyzers.readers.json_events import JsonEvents
from analyzers.readers.xla.profile import SAID, Events, Line, Profile, host_in_name, is_device

_MOST_EVENTS = 1_000_000  # that XLA writes for viewers; it leaves out the shortest of more


def profile(path: Path, progress: Progress) -> Profile:
    """Read one file.

    Raises
    ------
    TracevizError : the file can't be read, is empty, truncated, damaged, or not JSON.
    """
    source, found = JsonEvents(path, progress), Profile([], Events())
    number: dict[tuple[int, int], int] = {}
    for event in source.read():
        try:
            start, end = event.span_ps
        except ValueError:
            found.unreadable += 1
            continue
        args = event.args or {}
        said = {key: str(args[key]) for key in SAID if key in args}
        line = number.setdefault((event.pid, event.tid), len(number))
        found.events.add(line, event.name, start, end, said)
    found.unreadable += source.unreadable
    found.unused, found.unread = source.unused, source.work_unread(is_device)
    found.cut = len(found.events.line) >= _MOST_EVENTS
    names = [(source.processes.get(pid, ""), source.threads.get((pid, tid), ""), tid) for pid, tid in number]
    found.lines = [Line.of(*one) for one in names]
    found.host = host_in_name(path)
    return found
