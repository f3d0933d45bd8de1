"""Small captures of ten steps with five kernels each, some of which were lost."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from tests.support.kineto_files import KinetoFile

STEPS, KERNELS = 10, 5
LAUNCHES = STEPS * KERNELS


def ten_steps(path: Path, lost: Collection[int] = (), *, rank: int = 0, longer_ns: int = 0) -> Path:
    """Write such a capture.

    Parameters
    ----------
    lost : numbers of the launches, 0 to 49, whose kernel is not in it. longer_ns : by how much each kernel takes
        longer than 400 ns; rank 1's take 10 ns longer than rank 0's.
    """
    file = KinetoFile(rank)
    for launch in range(LAUNCHES):
        step, place = divmod(launch, KERNELS)
        begin = 10_000 * step + 1_000 * place
        if not place:
            file.range(f"ProfilerStep#{step}", begin, begin + 9_000)
        file.kernel("gemm", 7, begin + 100, begin + 500 + 10 * rank + longer_ns, launch=begin + 10)
        if launch in lost:
            file.events.pop()
    return file.write(path)
