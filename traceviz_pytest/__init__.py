"""The pytest plugin of traceviz: a fixture that profiles a step and holds a contract about its order of work.

A package of its own, so that a pytest that uses nothing of it imports nothing of traceviz.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from traceviz.testing import ContractResult, Rules

FOLDER = "traceviz-failures"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where reports of contracts that are not held go."""
    group = parser.getgroup("traceviz")
    group.addoption(
        "--traceviz-dir",
        metavar="DIR",
        default=FOLDER,
        help=f"where captures and reports of broken overlap contracts go, a folder a test (default: {FOLDER})",
    )


@pytest.fixture
def overlap_contract(request: pytest.FixtureRequest) -> Callable[..., ContractResult]:
    """Profile a step and hold an overlap contract: `overlap_contract(step, "contract.toml", steps=3, warmup=3)`.

    Skips where torch or a GPU is missing. With an initialised process group every rank calls it; captures of all ranks
    are gathered, and all of them fail or pass alike. A path of a contract is found beside the test, too.
    """
    from traceviz import testing

    reason = testing.unavailable()
    if reason:
        pytest.skip(f"an overlap contract needs a GPU and torch: {reason}")
    base = Path(request.config.getoption("--traceviz-dir"))
    folder = base / re.sub(r"[^\w.-]+", "-", request.node.nodeid.replace("::", "-")).strip("-")

    def hold(step: Callable[[], object], contract: Rules, **more: Any) -> ContractResult:
        __tracebackhide__ = True
        try:
            return testing.check_step(step, _found(contract, request), report=folder, **more)
        except testing.ContractError as error:
            request.node.add_report_section("call", "traceviz", str(error))
            raise

    return hold


def _found(contract: Rules, request: pytest.FixtureRequest) -> Rules:
    """A contract's file: as given, or beside the test."""
    if isinstance(contract, str | Path) and not Path(contract).exists():
        beside = request.path.parent / contract
        return beside if beside.exists() else contract
    return contract
