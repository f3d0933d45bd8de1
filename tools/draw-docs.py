#!/usr/bin/env python
"""Draw the pictures of the manual from the captures that the tests use: `python tools/draw-docs.py`, from the root."""

from __future__ import annotations

from pathlib import Path

from analyzers.compare.compare import compare
from analyzers.load import load
from analyzers.syncs.order_report import order_report
from analyzers.trace.narrow import only_ranks
from analyzers.verdict.check import check_overlap
from traceviz.timelines.draw import figure
from traceviz.timelines.files import IMAGE_WIDTH, image, write_bytes
from traceviz.timelines.picture import Picture, picture
from traceviz.timelines.stack import compared

FOLDER = Path("docs/images")
# Picture -> capture, and the pair that its situation asks about.
SITUATIONS = {
    "dpmp-overlap": ("dpmp_overlap", "nvtx:DP Embedding", "nvtx:MP Embedding"),
    "dpmp-hidden-sync": ("dpmp_hidden_sync", "nvtx:DP Embedding", "nvtx:MP Embedding"),
    "dpmp-race": ("dpmp_race", "nvtx:DP Embedding", "nvtx:MP Embedding"),
    "optimizer-beside-lookup": ("opt_overlap", "nvtx:optimizer", "nvtx:emb_lookup"),
    "all-to-all-with-check": ("a2a_sync", "comm", "nvtx:irrelevant compute"),
    "tracking-deltas": ("delta_async", "memcpy:DtoH", "nvtx:train compute"),
    "row-parallel-loop": ("rowpar_s4", "comm", "compute"),
}


# Before and after of one pair, stacked.
RUNS = ("opt_serial", "opt_overlap", "nvtx:optimizer", "nvtx:emb_lookup")


def main() -> None:
    """Draw them all."""
    for name, (capture, a, b) in SITUATIONS.items():
        trace = load([f"tests/data/torch/{capture}.rank*.json.gz"])
        write(name, picture(trace, check_overlap(trace, a, b), order_report(trace)))
    before, after, a, b = RUNS
    traces = [load([f"tests/data/torch/{capture}.rank0.json.gz"]) for capture in (before, after)]
    write("before-and-after", compared(compare(traces, a, b, labels=(before, after)), traces))
    trace = only_ranks(load(["tests/data/counters/contend_after.sqlite.gz"]), (0, 1))
    result = check_overlap(trace, "comm", "compute")
    write("counters", picture(trace, result, order_report(trace)))
    names = ("reduce_before", "reduce_after")
    traces = [load([f"tests/data/contention/{name}.rank0.json.gz"]) for name in names]
    write("contention", compared(compare(traces, labels=names), traces))


def write(name: str, drawn: Picture) -> None:
    """Draw one into the folder."""
    write_bytes(FOLDER / f"{name}.png", image(figure(drawn, slider=False, width=IMAGE_WIDTH), "png"))
    print(f"{FOLDER / name}.png: {drawn.headline}")


if __name__ == "__main__":
    main()
