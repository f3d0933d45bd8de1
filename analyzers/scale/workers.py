"""Who looks at the captures of a run: a Dask cluster, or as many processes here as the memory budget has room for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from analyzers.common.errors import TracevizError
from analyzers.readers.formats import format_of
from analyzers.readers.inputs import Input, find_inputs
from analyzers.readers.reading import Reading
from analyzers.workers.dask import dask_workers
from analyzers.workers.local import Workers, local_workers

BASE_BYTES = 200_000_000  # of a Python process with the libraries loaded


@contextlib.contextmanager
def workers_for(runs: Sequence[Sequence[str]], reading: Reading, *, lists: bool = False) -> Iterator[Workers]:
    """The workers of a Dask scheduler where one is named, else processes on this machine.

    Parameters
    ----------
    runs : the paths of each.
    lists : whether what is asked for lists every sync point.

    Raises
    ------
    TracevizError : no such scheduler, no such captures, no room for one within the memory budget, or a budget for a
        cluster.
    """
    if reading.dask is not None:
        if reading.memory is not None:
            hint = "Leave out --memory, and start them with: dask worker --memory-limit SIZE."
            raise TracevizError(
                "--memory bounds this machine's processes; Dask's workers have a limit of their own.", hint=hint
            )
        with dask_workers(reading.dask) as far:
            yield far
        return
    count = reading.processes
    if reading.memory is not None:
        inputs = [one for paths in runs for one in find_inputs(paths, keep_bad=reading.skip_bad)[0]]
        count = min(count, room_for(inputs, reading.memory, lists=lists))
    with local_workers(count) as near:
        yield near


def room_for(inputs: Sequence[Input], memory: int, *, lists: bool = False) -> int:
    """How many captures a memory budget has room for at once, beside this process where they are several.

    Raises
    ------
    TracevizError : the budget has no room for one.
    """
    need, stays = needed(inputs), kept(inputs, lists=lists)
    if need + stays > memory:
        raise TracevizError(
            f"The largest capture takes about {need / 1e6:,.0f} MB of memory to read, and what is kept of all of them "
            f"{stays / 1e6:,.0f} MB; the budget is {memory / 1e6:,.0f} MB.",
            hint=f"Give --memory {-(-(need + stays) // 10**6)}MB or more.",
        )
    return max(1, (memory - BASE_BYTES - stays) // need)


def needed(inputs: Sequence[Input]) -> int:
    """Bytes of memory that a process takes at most to read and analyse any one of these captures."""
    return BASE_BYTES + max(int(one.bytes * format_of(one.kind).memory.read) for one in inputs)


def kept(inputs: Sequence[Input], *, lists: bool = False) -> int:
    """Bytes of memory at most that summaries and answers of all captures take in the process that joins them."""
    each = [(one.bytes, format_of(one.kind).memory) for one in inputs]
    return sum(int(size * (memory.listed if lists else memory.kept)) for size, memory in each)
