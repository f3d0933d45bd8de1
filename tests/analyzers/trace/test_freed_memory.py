"""Memory that is freed is kept for the next column only where columns are long, and only inside."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from analyzers.trace import freed_memory
from analyzers.trace.freed_memory import LARGE, MANY, freed_memory_kept, give_back_freed_memory

TOUCHES = """
import ctypes
import resource
import numpy as np
from analyzers.trace.freed_memory import MANY, freed_memory_kept

ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: of huge pages there may be enough, or not

def touched():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        np.ones(8 << 20)  # 64 MiB, freed at once
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

free = touched()
with freed_memory_kept(MANY):
    kept = touched()
print(free, kept, touched())
"""


class Recorder:
    """A C library that writes down what is asked of it."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, ...]] = []

    def mallopt(self, option: int, value: int) -> int:
        self.asked.append((option, value))
        return 1

    def malloc_trim(self, pad: int) -> int:
        self.asked.append((pad,))
        return 1


def test_the_system_clears_pages_once_inside_and_each_time_outside() -> None:
    if freed_memory._glibc() is None:
        pytest.skip("another C library than glibc")
    ran = subprocess.run([sys.executable, "-c", TOUCHES], capture_output=True, text=True, check=True)
    free, kept, after = map(int, ran.stdout.split())
    assert kept < free / 10
    assert after > free / 2, "behind it, all is as before"


def test_where_columns_are_short_nothing_is_asked_of_the_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Recorder()
    monkeypatch.setattr(freed_memory, "_glibc", lambda: library)
    with freed_memory_kept(MANY - 1):
        pass
    give_back_freed_memory(MANY - 1)
    give_back_freed_memory(LARGE - 1, LARGE)
    assert library.asked == []
    give_back_freed_memory(MANY)
    assert library.asked == [(0,)]


def test_within_a_block_another_one_asks_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Recorder()
    monkeypatch.setattr(freed_memory, "_glibc", lambda: library)
    with freed_memory_kept(MANY):
        asked = list(library.asked)
        with freed_memory_kept(MANY):
            pass
        assert library.asked == asked
    assert library.asked[-1] == (0,), "at the end of the outer one it goes back"
    with freed_memory_kept(MANY):
        assert len(library.asked) > 2 * len(asked)


def test_behind_an_error_too_the_thresholds_are_glibcs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Recorder()
    monkeypatch.setattr(freed_memory, "_glibc", lambda: library)
    with pytest.raises(ValueError, match="inside"), freed_memory_kept(MANY):
        # No block is of its own (M_MMAP_MAX), and nothing goes back (M_TRIM_THRESHOLD).
        assert library.asked == [(-4, 0), (-1, -1)]
        raise ValueError("inside")
    assert library.asked[2:] == [(-4, 65536), (-3, 32 << 20), (-1, 64 << 20), (0,)]


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freed_memory, "_glibc", lambda: None)
    with freed_memory_kept(MANY):
        assert np.ones(3).sum() == 3
