from __future__ import annotations

import fcntl
import gc
import os
import signal
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import Phase, settings

from analyzers.common.errors import TracevizError
from analyzers.readers.nsys.export import find_nsys
from analyzers.trace import run as runs

# No deadline: a slow machine is no bug. `--hypothesis-profile=thorough` searches longer; brief is for the gate's
# further environments, where versions are of interest. Where CI is set examples are the same each time, as in
# Hypothesis' own profile for it: a change is not held up by what was found by chance, and what failed fails again.
SAME = bool(os.environ.get("CI"))
settings.register_profile("usual", deadline=None, max_examples=60, derandomize=SAME)
settings.register_profile("gate", deadline=None, max_examples=20, derandomize=SAME)
settings.register_profile("thorough", deadline=None, max_examples=2000)
settings.register_profile("brief", deadline=None, max_examples=15, derandomize=SAME)
# Many short runs, each the same: only whether a test fails is of interest, not by how little.
settings.register_profile(
    "mutation", deadline=None, max_examples=15, derandomize=True, database=None, phases=[Phase.explicit, Phase.generate]
)
settings.load_profile("gate")

runs.LEAST_OPS = 0  # small captures are asked rank by rank, too; tests that run commands as processes ask as users do

# A shell has what it runs in the background ignore SIGINT, and so would all that the tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Look for garbage seldom, as the command does. What is frozen, Hypothesis 6.108 can't find."""
    gc.set_threshold(200_000)


@cache
def _why_no_nsys() -> str:
    """Why no real nsys can be run here; "" where one is found, as the commands find it."""
    try:
        return "" if any(find_nsys()) else "no nsys is installed here (tools/install-nsys.sh puts one on Debian)"
    except TracevizError as error:
        return error.message


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test marked `nsys` is skipped without one, before anything is set up for it."""
    if item.get_closest_marker("nsys") and (reason := _why_no_nsys()):
        pytest.skip(reason)


@pytest.fixture(autouse=True, scope="session")
def _cache_of_our_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test may find, or leave, anything in the cache of whoever runs it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRACEVIZ_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("COLUMNS", raising=False)  # which processes of `pytest -n` are given
        yield


@pytest.fixture(autouse=True)
def _one_nsys_at_a_time(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests with a real nsys take turns, also with other test runs: beside another, its agent loses its connection."""
    if not any(
        request.node.get_closest_marker(mark) for mark in ("nsys", "torch")
    ):  # real ranks: some of them under nsys
        yield
        return
    with (Path(tempfile.gettempdir()) / "traceviz-tests-nsys.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        yield
