"""Headless Chromium for tests, one for all; without a browser they are skipped, and say so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.chromium import Chromium, find
from traceviz.timelines.page import page
from traceviz.timelines.picture import Picture

READY = """new Promise((done) => { const timer = setInterval(() => {
  if (document.getElementById('timeline')?.dataset.ready) { clearInterval(timer); done(); } }, 20); })"""
REFINED = "(document.getElementById('timeline').dataset.refined || '0')"


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
    """A page that has been opened, and what a test does with it; `ready` is a promise of when it is drawn."""

    def __init__(self, browser: Chromium, path: Path, ready: str = READY) -> None:
        self.browser, self.path = browser, path
        browser.open(path.as_uri())
        browser.evaluate(ready)

    def js(self, script: str) -> Any:
        return self.browser.evaluate(script)

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.browser.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, button: str) -> None:
        self.js(f"document.getElementById('{button}').click()")

    def point(self, x: float, y: float) -> None:
        """Point at a place, from beside it."""
        self.mouse("mouseMoved", x - 2, y)
        self.mouse("mouseMoved", x, y)

    def press(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1)

    def look(self, low: float, high: float) -> None:
        """Go to a part of the axis, ms, and wait until it is drawn as finely as it can be."""
        before = self.js(REFINED)
        self.js(f"Plotly.relayout('timeline', {{'xaxis.range': [{low}, {high}]}}).then(() => 0)")
        self.wait(f"{REFINED} !== '{before}'")
        self.settle()

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

    def was_quiet(self) -> None:
        """Holds it to have asked for nothing, complained of nothing, and run nothing that stood in a name."""
        assert (self.requests, self.complaints, self.js("window.hacked ?? null")) == ([], [], None)


@pytest.fixture
def show(browser: Chromium, tmp_path: Path) -> Iterator[Callable[[Picture], Page]]:
    """Opens a picture's page, which has to stay quiet to the test's end."""
    opened: list[Page] = []

    def show(picture: Picture) -> Page:
        path = tmp_path / "timeline.html"
        path.write_text(page(picture), encoding="utf-8")
        opened.append(Page(browser, path))
        return opened[-1]

    yield show
    opened[-1].was_quiet()
