"""Pages about several runs, with names that would do harm, in a real browser."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from analyzers.arrays.names import Names
from analyzers.compare.compare import compare
from analyzers.load import load
from analyzers.verdict.check import check_overlap
from tests.browser.chromium import Chromium
from tests.browser.conftest import Page
from tests.support.timeline_traces import HOSTILE, HOSTILE_PAIR, hostile, loaded
from traceviz.history import database as history
from traceviz.history.trends import trends
from traceviz.timelines.files import write
from traceviz.timelines.stack import compared
from traceviz.timelines.trend import write_plot

pytestmark = pytest.mark.browser

HARMLESS = "document.querySelectorAll('a[href]:not([href^=\"#\"]), img, iframe, script[src]').length"


def test_before_and_after_with_hostile_names_and_labels(browser: Chromium, tmp_path: Path) -> None:
    traces = [loaded(hostile()), loaded(hostile())]
    result = compare(traces, *HOSTILE_PAIR, labels=[HOSTILE[0], HOSTILE[2]])
    write(tmp_path / "stacked.html", compared(result, traces))
    opened = Page(browser, tmp_path / "stacked.html")
    titles = opened.js("[...document.querySelectorAll('.annotation-text')].map((one) => one.textContent)")
    assert all(title.startswith(name) for title, name in zip(titles, (HOSTILE[0], HOSTILE[2]), strict=True))
    assert opened.js(HARMLESS) == 0
    opened.was_quiet()


def test_a_history_with_hostile_names(browser: Chromium, tmp_path: Path) -> None:
    trace = load(["tests/data/torch/opt_overlap.rank0.json.gz"])
    named = Names.repeated(HOSTILE[2], len(trace.devices))
    trace = replace(trace, devices=trace.devices.having(name=named))
    for commit in (*HOSTILE[:3], "new"):
        result = check_overlap(trace, "nvtx:optimizer", "nvtx:emb_lookup", explain=False)
        history.save(tmp_path / "r.db", result, trace, commit=commit)
    write_plot(trends(history.saved_runs(tmp_path / "r.db")), tmp_path / "trend.html")
    opened = Page(browser, tmp_path / "trend.html", "new Promise((done) => setTimeout(done, 300))")
    assert opened.js("document.querySelectorAll('#trend .scatterlayer .point').length") == 8
    assert HOSTILE[2] in opened.js("document.getElementById('trend').textContent")
    assert opened.js(HARMLESS) == 0
    opened.was_quiet()
