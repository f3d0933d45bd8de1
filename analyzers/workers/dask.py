"""Dask's workers as those who work side by side: the same tasks as processes on this machine do, on a cluster.

Captures are named by paths that every worker has (a shared folder), or by URLs that fsspec opens; a worker brings the
latter onto its own disk, and keeps their tables in its own cache. What a worker that is lost had to do, another does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyzers.common.errors import TracevizError
from analyzers.common.progress import Overall
from analyzers.workers.local import attempt

if TYPE_CHECKING:
    from distributed import Client

CONNECT_SECONDS = 20
INSTALL = "Install traceviz-gpu[cluster]."


class DaskWorkers:
    """The workers of a Dask scheduler.

    Parameters
    ----------
    client : of that scheduler.
    """

    scratch: Path | None = None  # the next task on a capture may run on another machine

    def __init__(self, client: Client) -> None:
        self.client = client

    def map(self, function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], overall: Overall) -> list[Any]:
        """Call a function with each task's arguments and `progress`; results in their order, errors among them.

        Raises
        ------
        TracevizError : the scheduler is gone, or every worker that tried a task was lost.
        """
        from distributed import as_completed

        futures = [self.client.submit(attempt, function, task, pure=False) for task in tasks]
        numbers = {future.key: number for number, future in enumerate(futures)}
        results: list[Any] = [None] * len(tasks)
        try:
            for future in as_completed(futures, loop=self.client.loop):
                number = numbers[future.key]
                try:
                    results[number] = future.result()
                except Exception as error:
                    results[number] = _lost(error)
                overall.update(number, 1, 1)
        finally:
            self.client.cancel([future for future in futures if not future.done()])
        return results


@contextlib.contextmanager
def dask_workers(where: Any) -> Iterator[DaskWorkers]:
    """Connect to a scheduler by its address, for the time of the block; or take a client that is there already.

    Raises
    ------
    TracevizError : Dask is not installed, no scheduler answers, or it has no workers.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise TracevizError("Dask is not installed.", hint=INSTALL) from error
    if not isinstance(where, str):
        yield DaskWorkers(where)
        return
    try:
        client = Client(where, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise TracevizError(
            f"No Dask scheduler answers at {where} ({type(error).__name__}).",
            hint="Start one with `dask scheduler`, and give the address it prints.",
        ) from error
    with client:
        if not client.scheduler_info()["workers"]:
            raise TracevizError(
                f"The Dask scheduler at {where} has no workers.", hint=f"Start some: dask worker {where}"
            )
        yield DaskWorkers(client)


def _lost(error: Exception) -> TracevizError:
    from distributed import KilledWorker

    if isinstance(error, KilledWorker):
        return TracevizError(
            "Every Dask worker that worked on this was lost.", hint="Was memory short? See the workers' logs."
        )
    raise error
