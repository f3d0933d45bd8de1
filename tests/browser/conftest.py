"""Headless Chromium for tests, one for all; without a browser they are skipped, and say so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.chromium import Chromium, find

READY = """new Promise((done) => { const timer = setInterval(() => {
  if (document.getElementById('timeline')?.dataset.ready) { clearInterval(timer); done(); } }, 20); })"""


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    path = find()
    if path is None:
        pytest.skip("no Chromium: install one, or name one in $TRACEVIZ_CHROMIUM")
    with Chromium(path, tmp_path_factory.mktemp("chromium")) as one:
        one.call("Emulation.setDeviceMetricsOverride", width=1280, height=900, deviceScaleFactor=1, mobile=False)
        yield one


@pytest.fixture
def kaleido() -> object:
    if find() is None:
        pytest.skip("no Chromium: install one, or name one in $TRACEVIZ_CHROMIUM")
    return pytest.importorskip("kaleido")


class Page:
    """A page that has been opened, and what a test does with it."""

    def __init__(self, browser: Chromium, path: Path) -> None:
        self.browser, self.path = browser, path
        browser.open(path.as_uri())
        browser.evaluate(READY)

    def js(self, script: str) -> Any:
        return self.browser.evaluate(script)

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.browser.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def wait(self, condition: str) -> None:
        """Wait until an expression is true."""
        self.js(
            f"""new Promise((done, fail) => {{ let left = 1500; const timer = setInterval(() => {{
            if ({condition}) {{ clearInterval(timer); done(); }}
            else if (!left--) {{ clearInterval(timer); fail(new Error('never: ' + {condition!r})); }} }}, 20); }})"""
        )

    def settle(self) -> None:
        """Let what is under way come to its end."""
        self.js("new Promise((done) => setTimeout(done, 250))")

    @property
    def requests(self) -> list[str]:
        """Addresses it asked for besides its own."""
        asked = [
            event["params"]["request"]["url"]
            for event in self.browser.events
            if event.get("method") == "Network.requestWillBeSent"
        ]
        return [url for url in asked if url != self.path.as_uri() and not url.startswith(("data:", "blob:"))]

    @property
    def complaints(self) -> list[str]:
        """What went to its console, and what it threw."""
        loud = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [str(event["params"]) for event in self.browser.events if event.get("method") in loud]
