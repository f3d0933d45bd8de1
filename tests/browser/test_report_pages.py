"""The report in a real browser, and its Mermaid chart in the real Mermaid."""

from __future__ import annotations

import html
import os
import re
from pathlib import Path

import pytest

from tests.browser.chromium import Chromium
from tests.browser.conftest import Page
from tests.support.timeline_traces import HOSTILE_PAIR, hostile, loaded, two_instances
from traceviz.reports import files as reports
from traceviz.reports.gantt import gantt
from traceviz.reports.report import make

pytestmark = pytest.mark.browser


def test_every_section_of_a_report_is_seen_without_requests_or_complaints(browser: Chromium, tmp_path: Path) -> None:
    written = reports.write(make(loaded(hostile()), *HOSTILE_PAIR), tmp_path)
    assert [path.name for path in written] == ["summary.md", "report.html", "results.json", "timeline.png"]
    opened = Page(browser, tmp_path / "report.html")
    opened.settle()
    opened.was_quiet()
    assert opened.js("[...document.querySelectorAll('section')].every((one) => one.clientHeight > 40)")
    links = opened.js("[...document.querySelectorAll('a[href]')].map((one) => one.getAttribute('href'))")
    assert links
    assert all(link.startswith("#") for link in links)


@pytest.mark.parametrize("name", ["plain", "hostile"])
def test_mermaid_draws_the_gantt(browser: Chromium, tmp_path: Path, name: str) -> None:
    script = os.environ.get("TRACEVIZ_MERMAID")
    if not script:
        pytest.skip("no Mermaid: name its mermaid.min.js in $TRACEVIZ_MERMAID")
    pair = HOSTILE_PAIR if name == "hostile" else ("nvtx:A", "nvtx:B")
    code = gantt(make(loaded(hostile() if name == "hostile" else two_instances()), *pair).picture)
    program = Path(script).read_text(encoding="utf-8")
    (tmp_path / "chart.html").write_text(
        f"<meta charset=utf-8><pre id=code>{html.escape(code)}</pre><div id=out></div><script>{program}</script>",
        encoding="utf-8",
    )
    browser.open((tmp_path / "chart.html").as_uri())
    drawn = browser.evaluate(
        "mermaid.render('chart', document.getElementById('code').textContent).then(({svg}) => svg)"
    )
    bars = re.findall(r"<rect[^>]* id=\"chart-?task", drawn) or re.findall(r'<rect[^>]*class="task ', drawn)
    assert len(bars) == len(re.findall(r" :.*\d+, \d+$", code, re.MULTILINE))
    assert browser.evaluate("window.hacked ?? null") is None
    assert "hacked()" not in drawn or "onclick" not in drawn
