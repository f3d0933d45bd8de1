"""What captures are called in a report: others read it on other machines, so no name begins at a machine's root."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from glob import escape, glob
from pathlib import Path

from msgspec.structs import replace

from analyzers.trace.run import Run
from analyzers.trace.tables import Trace


def shown_paths(paths: Sequence[str]) -> dict[str, str]:
    """What each path is called: as it was given, relative to here, or by as many of its last parts as tell it apart.

    >>> shown_paths(["runs/a.json", "s3://bucket/b.json"])
    {'runs/a.json': 'runs/a.json', 's3://bucket/b.json': 's3://bucket/b.json'}
    >>> shown_paths(["/x/serial/rank0.json", "/x/beside/rank0.json"])
    {'/x/serial/rank0.json': 'serial/rank0.json', '/x/beside/rank0.json': 'beside/rank0.json'}
    """
    here = Path.cwd()
    names: dict[str, str] = {}
    tails: dict[str, list[str]] = {}
    for path in dict.fromkeys(paths):
        local = path.removeprefix("file://")
        if not Path(local).is_absolute():
            names[path] = local
        elif Path(local).is_relative_to(here):
            names[path] = str(Path(local).relative_to(here))
        else:
            parts = Path(local).parts[1:] or ("capture",)
            tails[path] = [str(Path(*parts[-count:])) for count in range(1, len(parts) + 1)]
    taken = Counter([*names.values(), *(tail for each in tails.values() for tail in each)])
    names |= {path: next((tail for tail in each if taken[tail] == 1), each[-1]) for path, each in tails.items()}
    return names


def gathered(paths: Sequence[str]) -> list[str]:
    """One glob instead of all ranks' files, where it stands for these files and no others; else the paths."""
    if len(paths) < 2:
        return list(paths)
    head = os.path.commonprefix(paths)  # noqa: RUF071
    tail = os.path.commonprefix([path[len(head) :][::-1] for path in paths])[::-1]  # noqa: RUF071
    between = [path[len(head) : len(path) - len(tail)] for path in paths]
    pattern = f"{escape(head)}*{escape(tail)}"
    is_numbered = all(part.isdigit() for part in between)
    return [pattern] if is_numbered and set(glob(pattern)) == set(paths) else list(paths)  # noqa: PTH207


def renamed_run(run: Run, names: Mapping[str, str]) -> Run:
    """A run whose captures carry other names."""
    return replace(run, trace=renamed(run.trace, names))


def renamed(trace: Trace, names: Mapping[str, str]) -> Trace:
    """A trace whose captures carry other names, in what it says as well."""
    if all(names.get(one.path, one.path) == one.path for one in trace.captures):
        return trace
    warnings = trace.warnings
    for known in sorted(names, key=len, reverse=True):
        warnings = tuple(replace(one, message=one.message.replace(known, names[known])) for one in warnings)
    captures = tuple(replace(one, path=names.get(one.path, one.path)) for one in trace.captures)
    whole = None if trace.whole is None else renamed(trace.whole, names)
    return replace(trace, captures=captures, warnings=warnings, whole=whole)
