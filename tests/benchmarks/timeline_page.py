"""How large a timeline's page is, how long it takes to make, to open in Chromium, and to show another part of it.

    python -m tests.benchmarks.timeline_page --ops 2000000 --ranks 64

The trace is synthetic: two streams a rank, ranges around every launch, work of 1 to 40 µs.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from analyzers.syncs.report import order_report
from analyzers.trace.columns import table
from analyzers.trace.ranks import assign_ranks
from analyzers.trace.tables import Capture, Process, Trace
from analyzers.verdict.check import check_overlap
from tests.browser.chromium import Chromium, find
from traceviz.timelines.page import page
from traceviz.timelines.picture import picture

READY = """new Promise((done) => { const timer = setInterval(() => {
  if (document.getElementById('timeline')?.dataset.ready) { clearInterval(timer); done(); } }, 5); })"""
REFINED = """new Promise((done) => { const div = document.getElementById('timeline'), before = div.dataset.refined;
  document.dispatchEvent(new KeyboardEvent('keydown', {key: '%s'}));
  const timer = setInterval(() => { if (div.dataset.refined !== before) { clearInterval(timer); done(); } }, 5); })"""
WATCH = """(() => { window.frames_ = []; let last = performance.now();
  const step = (now) => { frames_.push(now - last); last = now; requestAnimationFrame(step); };
  requestAnimationFrame(step); })()"""
FRAMES = "frames_.sort((a, b) => a - b)[Math.floor(frames_.length * 0.9)]"


def synthetic(ops: int, ranks: int) -> Trace:
    """Half of the ops compute on stream 7, half all-reduce on stream 9, of every rank."""
    rng = np.random.default_rng(0)
    each = ops // (2 * ranks)
    columns: dict[str, list[np.ndarray]] = {name: [] for name in ("process", "stream", "name", "start", "end")}
    for rank in range(ranks):
        for stream in (7, 9):
            edges = np.cumsum(rng.integers(1_000, 40_000, 2 * each))
            columns["start"].append(edges[::2])
            columns["end"].append(edges[1::2])
            for name, value in (("process", rank), ("stream", stream), ("name", stream == 9)):
                columns[name].append(np.full(each, value))
    joined = {name: np.concatenate(parts) for name, parts in columns.items()}
    size = joined["start"].size
    names = np.array(["gemm", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"])
    launched = joined["start"] - 900
    common = {"process": joined["process"], "correlation": np.arange(size)}
    return assign_ranks(
        Trace(
            captures=(Capture("synthetic", "synthetic"),),
            processes=tuple(Process(0, 100 + rank, claims={"manifest": rank}) for rank in range(ranks)),
            ops=table(
                "ops",
                {
                    **common,
                    "device": 0,
                    "context": 1,
                    "stream": joined["stream"],
                    "name": names[joined["name"].astype(int)],
                    "start_ns": joined["start"],
                    "end_ns": joined["end"],
                    "launch": np.arange(size),
                },
            ),
            api=table(
                "api",
                {**common, "thread": 1, "name": "cudaLaunchKernel", "start_ns": launched, "end_ns": launched + 500},
            ),
            ranges=table(
                "ranges",
                {
                    "process": joined["process"],
                    "thread": 1,
                    "name": "step",
                    "start_ns": launched - 50,
                    "end_ns": launched + 600,
                },
            ),
            **{name: table(name) for name in ("syncs", "records", "comms", "devices", "streams")},
        )
    )


def pan(chromium: Chromium) -> float:
    """Drag the plot by the mouse; ms between frames meanwhile, of ten the second longest."""

    def mouse(kind: str, x: int, **more: object) -> None:
        chromium.call("Input.dispatchMouseEvent", type=kind, x=x, y=300, **more)

    chromium.evaluate(WATCH)
    mouse("mouseMoved", 900)
    mouse("mousePressed", 900, button="left", clickCount=1)
    for x in range(900, 500, -5):
        mouse("mouseMoved", x, button="left", buttons=1)
    found = float(chromium.evaluate(FRAMES))
    mouse("mouseReleased", 500, button="left", clickCount=1)
    chromium.evaluate("new Promise((done) => setTimeout(done, 1500))")
    return found


def main() -> None:
    """Print a line a figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ops", type=int, default=2_000_000)
    parser.add_argument("--ranks", type=int, default=4)
    asked = parser.parse_args()
    browser = find()
    if browser is None:
        raise SystemExit("There is no Chromium.")
    trace = synthetic(asked.ops, asked.ranks)
    result, order = check_overlap(trace), order_report(trace)
    began = time.perf_counter()
    text = page(picture(trace, result, order))
    print(f"made in             {time.perf_counter() - began:6.1f} s")
    print(f"size                {len(text.encode()) / 1e6:6.2f} MB, of which plotly 4.8")
    with tempfile.TemporaryDirectory() as folder, Chromium(browser, Path(folder) / "profile") as chromium:
        path = Path(folder) / "timeline.html"
        path.write_text(text, encoding="utf-8")
        began = time.perf_counter()
        chromium.open(path.as_uri())
        chromium.evaluate(READY)
        print(f"opens in            {time.perf_counter() - began:6.2f} s")
        print(f"a frame of panning  {pan(chromium):6.0f} ms (P90)")
        for key, what in (("o", "all of it"), ("i", "the instance")):
            began = time.perf_counter()
            chromium.evaluate(REFINED % key)
            print(f"{what:<19} {time.perf_counter() - began:6.2f} s")
        if asked.ranks > 8:
            began = time.perf_counter()
            chromium.evaluate(
                REFINED.replace(
                    "document.dispatchEvent(new KeyboardEvent('keydown', {key: '%s'}))",
                    "document.getElementById('fold').click()",
                )
            )
            print(f"all ranks           {time.perf_counter() - began:6.2f} s")


if __name__ == "__main__":
    main()
