"""Migrations of pages of unified memory: the driver moves them, so they are no copies of the program.

A kernel that touches a page which is elsewhere stands still until it was moved. The migration then runs beside that
kernel, and that it does is no overlap. Nothing records which kernel it was. A program can also ask for pages ahead of
time (`cudaMemPrefetchAsync`); nobody need wait for these.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from analyzers.arrays.types import Mask
from analyzers.common.errors import TraceWarning
from analyzers.common.wording import count_of
from analyzers.trace.columns import codes, is_one_of, of_codes
from analyzers.trace.tables import Trace

KIND = "migration"
NO_STREAM = -1  # they run on no stream of the program's
CAUSES = ("cause not said", "asked for by the program", "page fault", "prefetch by the driver", "eviction",
          "access counters")  # fmt: skip
BY_PROGRAM = 1


def migration_name(direction: str, cause: int) -> str:
    """What a migration is called, by which `migration:TEXT` picks it.

    >>> migration_name("HtoD", 2), migration_name("", 9)
    ('Page migration HtoD (page fault)', 'Page migration (cause not said)')
    """
    return f"Page migration {direction}".rstrip() + f" ({CAUSES[cause if cause < len(CAUSES) else 0]})"


def is_migration(trace: Trace) -> Mask:
    """Ops that are migrations."""
    return is_one_of(trace.ops, "kind", (KIND,))


def may_hold_kernels(trace: Trace) -> Mask:
    """Migrations that the program did not ask for: a kernel may stand still for each."""
    code, names = codes(trace.ops, "name")
    asked = of_codes(code, [f"({CAUSES[BY_PROGRAM]})" in name for name in names])
    return is_migration(trace) & ~asked


def about_migrations(trace: Trace) -> Trace:
    """Warn of a capture's migrations, with how many there were of each cause."""
    rows = np.flatnonzero(is_migration(trace))
    if not rows.size:
        return trace
    code, names = codes(trace.ops, "name")
    found = Counter[str]()
    for one, count in zip(*np.unique(code[rows], return_counts=True), strict=True):
        found[names[one].rpartition("(")[2].removesuffix(")")] += int(count)
    causes = ", ".join(f"{count:,} {cause}" for cause, count in found.most_common())
    warning = TraceWarning(
        "page-migrations",
        f"{count_of(rows.size, 'page migration')} of unified memory ({causes}): the driver moves pages, and kernels "
        "that touch them stand still meanwhile. They are no copies of the program, and count on a side only as "
        "'migration'.",
    )
    return trace.warn(warning.code, warning.message)


def held_kernels(count: int) -> str:
    """Why a pair can't be judged of which so many ops are migrations that kernels may have stood still for."""
    if not count:
        return ""
    return (
        f"{count_of(count, 'op')} of the sides {'is a page migration' if count == 1 else 'are page migrations'} that "
        "the program did not ask for: a kernel that touches such a page stands still until it is there, and which one "
        "did is not recorded, so running beside them can't be told from waiting for them"
    )
