"""How large a timeline's page is, how long it takes to make, to open in Chromium, and to show another part of it.

    python -m tests.benchmarks.timeline_page [--kernels 1000000] [--ranks 64]

Of an nsys export of two processes with so many kernels (`nsys_sqlite`), or, with --ranks, of as many equal ranks.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from analyzers.load import load
from analyzers.syncs.report import order_report
from analyzers.verdict.check import check_overlap
from tests.benchmarks import equal_ranks, nsys_sqlite
from tests.browser.chromium import Chromium, find
from tests.browser.conftest import READY, REFINED, Page
from traceviz.timelines.page import page
from traceviz.timelines.picture import picture

WATCH = """(() => { window.frames_ = []; let last = performance.now();
  const step = (now) => { frames_.push(now - last); last = now; requestAnimationFrame(step); };
  requestAnimationFrame(step); })()"""
FRAMES = "frames_.sort((a, b) => a - b)[Math.floor(frames_.length * 0.9)]"


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Print how long the block took."""
    began = time.perf_counter()
    yield
    print(f"{what:<19} {time.perf_counter() - began:6.2f} s")


def pan(opened: Page) -> float:
    """Drag the plot by the mouse; ms between frames meanwhile, of ten the second longest."""
    opened.js(WATCH)
    opened.mouse("mousePressed", 900, 300, button="left", clickCount=1)
    for x in range(900, 500, -5):
        opened.mouse("mouseMoved", x, 300, button="left", buttons=1)
    found = float(opened.js(FRAMES))
    opened.mouse("mouseReleased", 500, 300, button="left", clickCount=1)
    return found


def main() -> None:
    """Print a line a figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", type=int, default=1_000_000)
    parser.add_argument("--ranks", type=int, default=0)
    asked = parser.parse_args()
    browser = find()
    if browser is None:
        raise SystemExit("There is no Chromium.")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if asked.ranks:
            equal_ranks.make(folder, [asked.ranks])
        else:
            nsys_sqlite.make(folder / "made.sqlite", asked.kernels)
        trace = load([folder / str(asked.ranks) if asked.ranks else folder / "made.sqlite"])
        result, order = check_overlap(trace, *nsys_sqlite.PAIR[1:4:2]), order_report(trace)
        with timed("made in"):
            text = page(picture(trace, result, order))
        print(f"size                {len(text.encode()) / 1e6:6.2f} MB, of which plotly 4.8")
        (folder / "timeline.html").write_text(text, encoding="utf-8")
        with Chromium(browser, folder / "profile") as chromium:
            with timed("opens in"):
                opened = Page(chromium, folder / "timeline.html", READY)
            print(f"a frame of panning  {pan(opened):6.0f} ms (P90)")
            opened.settle()
            keys = "document.dispatchEvent(new KeyboardEvent('keydown', {{key: '{}'}}))"
            ways = [("all of it", keys.format("o")), ("the instance", keys.format("i"))]
            ways += [("all ranks", "document.getElementById('fold').click()")] * (asked.ranks > 8)
            for what, script in ways:
                before = opened.js(REFINED)
                with timed(what):
                    opened.js(script)
                    opened.wait(f"{REFINED} !== '{before}'")


if __name__ == "__main__":
    main()
