"""The timeline in a real browser."""

from __future__ import annotations

import re
from collections.abc import Callable
from xml.etree import ElementTree

import numpy as np
import plotly
import pytest

from analyzers.load import load
from analyzers.verdict.check import OverlapResult
from tests.browser.chromium import Chromium
from tests.browser.conftest import REFINED, Page
from tests.support.builder import Builder
from tests.support.timeline_traces import (
    HOSTILE_PAIR,
    US,
    drawn,
    hostile,
    late_behind_an_event,
    many_ranks,
    race,
    two_instances,
)
from traceviz.timelines.draw import figure
from traceviz.timelines.files import image
from traceviz.timelines.marks import ROLE
from traceviz.timelines.picture import Picture

pytestmark = pytest.mark.browser

Show = Callable[[Picture], Page]
EVERYTHING = (0, 800 * US)
DP_MP = ("nvtx:DP Embedding", "nvtx:MP Embedding")
# Bars of a role that are drawn as themselves, as [row's y, whole ns], out of the figure's own data.
BARS = """document.getElementById('timeline').data.filter((one) => one.meta.role === %d && !one.meta.many)
  .flatMap((one) => one.customdata.map((custom, k) => [one.y[k], custom[3]])).filter((bar) => bar[0] !== null)"""
OPS = """document.getElementById('timeline').data.filter((one) => [0, 2, 4].includes(one.meta.role))
  .flatMap((one) => one.customdata).filter((custom) => custom.length)
  .reduce((sum, custom) => sum + (/^([0-9,]+) marks/.test(custom[0]) ?
     Number(custom[0].match(/^[0-9,]+/)[0].replaceAll(',', '')) : 1), 0)"""
VISIBLE = """(() => { const div = document.getElementById('timeline'), range = div._fullLayout.xaxis.range;
  const one = div.data.find((trace) => trace.meta.role === %d && !trace.meta.many);
  return one.x.filter((length, k) => one.base[k] + length / 2 > range[0] && one.base[k] + length / 2 < range[1]).length;
  })()"""
RANGE = "document.getElementById('timeline')._fullLayout.xaxis.range"


@pytest.fixture(scope="module")
def capture() -> tuple[OverlapResult, Picture]:
    return drawn(load(["tests/data/torch/dpmp_overlap.rank*.json.gz"]), *DP_MP)


@pytest.fixture
def opened(show: Show, capture: tuple[OverlapResult, Picture]) -> Page:
    return show(capture[1])


@pytest.mark.parametrize("pixels", [480, 640, 1280])
def test_titles_of_bands_end_within_the_page(browser: Chromium, show: Show, pixels: int) -> None:
    run, picture = drawn(load(["tests/data/torch/rowpar_s4.rank*.json.gz"]), "comm", "compute")
    assert any("; real " in band.title for band in picture.bands), f"none is long: {run}"
    browser.call("Emulation.setDeviceMetricsOverride", width=pixels, height=900, deviceScaleFactor=1, mobile=False)
    try:
        opened = show(picture)
        ends = "[...document.querySelectorAll('.annotation-text')].map((one) => one.getBoundingClientRect().right)"
        assert max(opened.js(ends)) <= pixels
    finally:
        browser.call("Emulation.setDeviceMetricsOverride", width=1280, height=900, deviceScaleFactor=1, mobile=False)


def test_of_plotlys_traces_those_that_are_drawn_are_set_up(opened: Page) -> None:
    kinds = opened.js("Object.keys(Plotly.PlotSchema.get().traces)")
    newer = int(plotly.__version__.partition(".")[0]) > 5
    assert sorted(kinds) == ["bar", "scatter"] if newer else {"bar", "scatter"} < set(kinds)


def middle_of_bar(opened: Page, role: str, bar: int) -> tuple[float, float]:
    """Where on the screen a role's bar that lies in view is."""
    box = opened.js(
        f"""(() => {{ const div = document.getElementById('timeline'), {{xaxis, yaxis}} = div._fullLayout;
        const box = div.getBoundingClientRect();
        const one = div.data.find((trace) => trace.meta.role === {ROLE[role]} && !trace.meta.many);
        const seen = one.x.map((length, k) => [one.base[k] + length / 2, one.y[k]])
          .filter(([x]) => x > xaxis.range[0] && x < xaxis.range[1]);
        const [x, y] = seen[{bar}];
        return [box.left + xaxis._offset + xaxis.l2p(x), box.top + yaxis._offset + yaxis.l2p(y)]; }})()"""
    )
    return float(box[0]), float(box[1])


def test_the_overlap_it_shades_is_as_long_as_the_overlap_that_was_found(
    opened: Page, capture: tuple[OverlapResult, Picture]
) -> None:
    result, picture = capture
    found = [opened.js(BARS % ROLE[role]) for role in ("overlap", "overlap-wait")]
    shaded = opened.js(
        "(() => { const one = document.getElementById('timeline').data[0];"
        "return one.y.map((y, k) => [y, Math.round(one.x[k] * 1e6)]); })()"
    )
    for band, rank in zip(picture.bands, result.ranks, strict=True):
        y = next(row.y for row in band.rows if row.kind == "overlap")
        real, waiting = (sum(ns for at, ns in bars if at == y) for bars in found)
        assert real == rank.real_overlap_ns
        assert real + waiting == rank.overlap_ns
        top = band.rows[0].y
        assert sum(ns for at, ns in shaded if y < at < top) == rank.real_overlap_ns


def test_pointing_at_an_op_tells_about_it_and_draws_its_arrows(opened: Page) -> None:
    texts = opened.js("[...document.querySelectorAll('.barlayer text')].map((one) => one.textContent)")
    assert {"DP Embedding", "MP Embedding"} <= set(texts), "ranges of the launching thread"
    resting = opened.js("document.querySelectorAll('.arrows g path').length")  # the largest gap's
    x, y = middle_of_bar(opened, "a", 2)
    opened.point(x, y)
    opened.wait("document.querySelector('.hoverlayer .hovertext')")
    text = opened.js("document.querySelector('.hoverlayer').textContent")
    assert "EmbeddingBag_updateOutputKernel_sum_mean" in text
    assert "stream 25" in text
    assert "launched" in text
    assert "host 626" in text or "host 627" in text
    assert opened.js("document.querySelectorAll('.arrows path.launch').length") == 1
    opened.mouse("mouseMoved", x, 5)
    opened.wait(f"document.querySelectorAll('.arrows g path').length === {resting}")
    assert resting > 1


def test_a_missing_wait_has_its_own_sign_words_and_arrow(show: Show) -> None:
    opened = show(drawn(race(), "nvtx:make", "nvtx:use", (0, 160 * US))[1])
    assert "missing wait" in opened.js("document.querySelector('.legend').textContent")
    x, y = middle_of_bar(opened, "race", 0)
    opened.point(x, y)
    opened.wait("document.querySelector('.arrows path.race')")
    opened.press(x, y)
    opened.settle()
    text = opened.js("document.querySelector('.hoverlayer').textContent")
    assert "does not wait for" in text
    assert "a possible race" in text
    opened.mouse("mouseMoved", x, 5)
    opened.settle()
    assert opened.js("document.querySelectorAll('.arrows path.race').length") == 1, "a click keeps it"


def test_of_many_ranks_the_rest_is_a_click_away(show: Show) -> None:
    opened = show(drawn(many_ranks(64), "nvtx:A", "nvtx:B")[1])
    titles = "[...document.querySelectorAll('.annotation-text')].map((one) => one.textContent)"
    shown = opened.js(titles)
    assert len(shown) == 4
    assert [title.partition(",")[0] for title in shown] == ["rank 3", "rank 5", "rank 7", "rank 33"]
    assert shown[2].endswith("(worst)")
    ops = opened.js(OPS)
    opened.click("fold")
    opened.wait(f"{titles}.length === 64")
    opened.wait(f"{OPS} === 128")
    assert ops == 2 * 4
    opened.click("theme")
    opened.settle()
    opened.click("fold")
    opened.wait(f"{titles}.length === 4")
    opened.wait(f"{OPS} === 8")


def test_the_largest_gaps_links_are_drawn_and_what_held_a_side_tells_why(show: Show) -> None:
    opened = show(drawn(late_behind_an_event(), "kernel:a", "kernel:b")[1])
    kinds = "[...document.querySelectorAll('.arrows g path')].map((one) => one.getAttribute('class')).sort().join()"
    opened.wait(f"{kinds} === 'event,launch,record'")
    x, y = middle_of_bar(opened, "early-event-dependency", 0)
    opened.point(x, y)
    opened.wait("document.querySelector('.hoverlayer .hovertext')")
    text = opened.js("document.querySelector('.hoverlayer').textContent")
    assert "60.0 µs in which the other side ran alone" in text
    assert "waited 101 µs for b of b" in text
    assert opened.js(kinds) == "event,launch,record"
    texts = opened.js("[...document.querySelectorAll('.barlayer text')].map((one) => one.textContent)")
    assert {"not launched 60.0 µs", "event wait 41.0 µs"} <= set(texts)


def test_one_goes_to_the_worst_gap_to_instances_and_to_what_one_searches_for(show: Show) -> None:
    """`two_instances`: B from 10 and 110, A until 65 and 155; the longer gap is that from 10 to 45."""
    opened = show(drawn(two_instances(), "nvtx:A", "nvtx:B")[1])

    def shows(low: float, high: float) -> None:
        opened.wait(f"Math.abs({RANGE}[0] - {low}) < 1e-6 && Math.abs({RANGE}[1] - {high}) < 1e-6")

    where = "document.getElementById('where').textContent"
    opened.click("next")
    shows(0.110 - 0.15 * 0.045, 0.155 + 0.15 * 0.045)
    assert opened.js(where) == "occurrence 1: 2 of 2"
    opened.click("before")
    shows(0.010 - 0.15 * 0.055, 0.065 + 0.15 * 0.055)
    opened.click("gap")
    opened.wait(f"{where} === 'gap 1 of 2: rank 0, A blocked by'")
    assert opened.js("document.querySelectorAll('.arrows rect').length") == 1
    opened.click("gap")
    opened.wait(f"{where} === 'gap 2 of 2: rank 0, A blocked by'")
    search = "document.getElementById('search')"
    opened.js(f"{search}.value = 'dens'; {search}.dispatchEvent(new KeyboardEvent('keydown', {{key: 'Enter'}}))")
    opened.wait(f"{where} === '1 of 2, on stream 9'")
    low, high = opened.js(RANGE)
    assert (low + high) / 2 == pytest.approx(0.055)
    opened.js(f"{search}.value = 'none'; {search}.dispatchEvent(new KeyboardEvent('keydown', {{key: 'Enter'}}))")
    opened.wait(f"{where} === 'not found'")


def test_keys_go_to_everything_and_back_and_host_rows_fold_away_and_come_back(
    opened: Page, capture: tuple[OverlapResult, Picture]
) -> None:
    for key, low in (("o", capture[1].first_ns), ("i", capture[1].low_ns)):
        opened.js(f"document.dispatchEvent(new KeyboardEvent('keydown', {{key: '{key}'}}))")
        opened.wait(f"Math.abs({RANGE}[0] - {low / 1e6}) < 1e-6")
    ticks = "[...document.querySelectorAll('.ytick text')].map((one) => one.textContent.trim()).filter(Boolean)"
    before = opened.js(ticks)
    assert any(label.startswith("host") for label in before)
    for _ in range(2):
        opened.click("host")
        opened.wait(f"!{ticks}.some((label) => label.startsWith('host') || label.startsWith('ranges of'))")
        assert "ranges on GPU" in opened.js(ticks)
        opened.click("host")
        opened.wait(f"{ticks}.length === {len(before)}")


def test_ticks_have_one_number_of_digits_at_every_zoom(opened: Page) -> None:
    ticks = "[...document.querySelectorAll('.xtick text')].map((one) => one.textContent)"
    for span in (2.0, 0.3, 0.05, 0.004):
        opened.look(3.0, 3.0 + span)
        texts = opened.js(ticks)
        assert len(texts) > 2
        assert len({len(text.partition(".")[2]) for text in texts}) == 1, texts
        assert len(set(texts)) == len(texts)


def test_legend_and_unit_follow_what_is_in_view(show: Show) -> None:
    """`late_behind_an_event`: A is not launched until 60 µs, and blocked by the event until 102."""
    opened = show(drawn(late_behind_an_event(), "kernel:a", "kernel:b")[1])
    legend = "[...document.querySelectorAll('.legendtext')].map((one) => one.textContent)"
    ticks = "[...document.querySelectorAll('.xtick text')].map((one) => one.textContent)"
    seen = {}
    for low, high in ((0.0, 0.04), (0.07, 0.1), (-2.0, 2.0)):
        opened.look(low, high)
        entries, units = opened.js(legend), {text.rpartition(" ")[2] for text in opened.js(ticks)}
        hovers = opened.js(
            "document.getElementById('timeline').data.flatMap((one) => one.customdata).map((one) => one[6])"
        )
        units |= {word for text in hovers if text for word in (text.split(" ")[2], text.split(" ")[5])}
        seen[low] = ["not launched yet either" in entries, "blocked by event wait" in entries, *units]
    assert seen == {0.0: [True, False, "µs"], 0.07: [False, True, "µs"], -2.0: [True, True, "ms"]}


def test_at_the_worst_gap_every_kernel_of_the_rank_that_decides_is_drawn(show: Show) -> None:
    """Four ranks, each with 400 kernels of B of 2 µs, more than a pixel, at 0 and 50 ms, and A behind them."""
    run, count = Builder(), 400
    for number in range(4):
        rank = run.rank(number)
        for begin in (0, 50_000):
            for k in range(count):
                launched = (begin - 5_000) * US + k
                start = begin * US + 2_500 * k
                rank.kernel("b", 7, start, start + 2_000, launch=(launched, launched + 1))
            event = rank.record(7, (begin - 9) * US)
            rank.wait(9, event, (begin - 7) * US)
            rank.kernel("a", 9, (begin + 1_001) * US, (begin + 1_101) * US, launch=((begin - 5) * US, (begin - 4) * US))
    picture = drawn(run.trace(), "kernel:a", "kernel:b", (20_000 * US, 21_000 * US))[1]
    opened = show(picture)
    before = opened.js(REFINED)
    opened.click("gap")
    opened.wait(f"{REFINED} !== '{before}'")
    opened.settle()
    low, high = opened.js(RANGE)
    deciding = {row.y for row in picture.bands[0].rows}
    bars = opened.js(BARS % ROLE["b"])
    assert sum(y in deciding for y, _ in bars) >= count
    assert "rank 0" in opened.js("document.getElementById('where').textContent")
    assert high - low < 4, "ms: that gap alone"


def test_wheel_zooms_and_drag_pans(opened: Page) -> None:
    low, high = opened.js(RANGE)
    opened.mouse("mouseMoved", 700, 300)
    opened.mouse("mouseWheel", 700, 300, deltaX=0, deltaY=-300)
    opened.wait(f"{RANGE}[1] - {RANGE}[0] < {0.95 * (high - low)}")
    opened.wait(f"{REFINED} === '1'")  # until then the page is busy, and a drag would come to nothing
    opened.settle()
    low, high = opened.js(RANGE)
    opened.mouse("mouseMoved", 700, 300)
    opened.mouse("mousePressed", 700, 300, button="left", clickCount=1)
    for x in range(700, 500, -20):
        opened.mouse("mouseMoved", x, 300, button="left", buttons=1)
    opened.mouse("mouseReleased", 500, 300, button="left", clickCount=1)
    opened.wait(f"{RANGE}[0] > {low}")
    moved = opened.js(RANGE)
    assert moved[1] - moved[0] == pytest.approx(high - low)


PANE = """(() => { const strip = document.getElementById('strip').getBoundingClientRect();
  const pane = document.querySelector('#strip div').getBoundingClientRect();
  return [strip.left, strip.width, pane.left, pane.right, strip.top + 25]; })()"""


def drag(opened: Page, y: float, begin: float, end: float) -> None:
    opened.mouse("mouseMoved", begin, y)
    opened.mouse("mousePressed", begin, y, button="left", clickCount=1)
    for part in (0.25, 0.5, 0.75, 1.0):
        opened.mouse("mouseMoved", begin + part * (end - begin), y, button="left", buttons=1)
    opened.mouse("mouseReleased", end, y, button="left", clickCount=1)


def test_the_strip_below_says_where_one_is_and_takes_one_elsewhere(
    opened: Page, capture: tuple[OverlapResult, Picture]
) -> None:
    first, last = (edge / 1e6 for edge in capture[1].active_ns)

    def pane_is_at(low: float, high: float) -> bool:
        left, width, *pane, _ = opened.js(PANE)
        wanted = [left + width * min((edge - first) / (last - first), 1) for edge in (low, high)]
        return pane == pytest.approx(wanted, abs=2)

    opened.js("document.getElementById('strip').scrollIntoView()")
    low, high = opened.js(RANGE)
    left, width, begin, end, y = opened.js(PANE)
    assert pane_is_at(low, high)
    ms = (last - first) / width  # of a pixel
    drag(opened, y, (begin + end) / 2, (begin + end) / 2 + 60)
    opened.wait(f"Math.abs({RANGE}[0] - {low + 60 * ms}) < {ms}")
    opened.wait(f"Math.abs({RANGE}[1] - {high + 60 * ms}) < {ms}")
    opened.settle()
    assert pane_is_at(*opened.js(RANGE))
    low, high = opened.js(RANGE)
    begin = opened.js(PANE)[2]
    drag(opened, y, begin, begin - 40)  # its left edge
    opened.wait(f"Math.abs({RANGE}[0] - {low - 40 * ms}) < {ms}")
    assert opened.js(RANGE)[1] == pytest.approx(high)
    opened.settle()
    length = float(np.diff(opened.js(RANGE))[0])
    drag(opened, y, left + 30, left + 30)  # beside it
    opened.wait(f"Math.abs({RANGE}[0] + {length / 2} - {first + 30 * ms}) < {2 * ms}")
    opened.settle()
    assert float(np.diff(opened.js(RANGE))[0]) == pytest.approx(length)
    opened.mouse("mouseMoved", left + 300, y)


def test_the_strip_below_shows_all_of_each_side_and_follows_the_legend_and_the_theme(
    opened: Page, capture: tuple[OverlapResult, Picture]
) -> None:
    picture = capture[1]
    marks, (first, last) = picture.marks, picture.active_ns
    rows = {row.number: row.y for band in picture.bands for row in band.rows}
    bottom = min(rows.values()) - 0.6
    longest = np.argsort(marks.start - marks.end, kind="stable")
    middles = [  # of the longest op of either side: where it is on the strip, of its width and height
        ((marks.start[k] + marks.end[k] - 2 * first) / 2 / (last - first), rows[int(marks.row[k])] / bottom)
        for k in (next(k for k in longest if marks.role[k] == ROLE[side]) for side in ("a", "b"))
    ]
    colors = f"""(() => {{ const canvas = document.querySelector('#strip canvas'), pen = canvas.getContext('2d');
      return {[list(map(float, one)) for one in middles]}.map(([x, y]) =>
        [...pen.getImageData(Math.floor(x * canvas.width), Math.floor(y * canvas.height), 1, 1).data]); }})()"""
    blue, orange, sky, none = (0, 114, 178, 255), (230, 159, 0, 255), (86, 180, 233, 255), (0, 0, 0, 0)

    def are(*wanted: tuple[int, ...]) -> bool:
        return bool(np.abs(np.array(opened.js(colors)) - wanted).max() < 40)  # a row is two pixels high, hardly more

    assert are(blue, orange)
    number = opened.js("document.getElementById('timeline').data.findIndex((one) => one.meta.role === 0)")
    opened.js(f"Plotly.restyle('timeline', {{visible: 'legendonly'}}, [{number}]).then(() => 0)")
    assert are(none, orange)
    opened.js(f"Plotly.restyle('timeline', {{visible: true}}, [{number}]).then(() => 0)")
    assert are(blue, orange)
    opened.click("theme")
    opened.settle()
    assert are(sky, orange)
    opened.browser.events.clear()  # Chromium warns of a canvas that is read, as it is here


def test_the_legend_hides_and_shows_a_side(opened: Page) -> None:
    shown = "document.getElementById('timeline')._fullData.filter((one) => one.meta.role === 0)[0].visible"
    entry = "[...document.querySelectorAll('.legend .traces')].find((one) => one.textContent.includes('A: nvtx:DP'))"
    box = opened.js(
        f"(() => {{ const box = {entry}.getBoundingClientRect(); return [box.left + 60, box.top + 8]; }})()"
    )
    for wanted in ("'legendonly'", "true"):
        opened.press(*box)
        opened.wait(f"{shown} === {wanted}")
        opened.js(
            "new Promise((done) => setTimeout(done, 400))"
        )  # two clicks shortly after each other are another thing


def test_it_follows_the_readers_theme_and_has_a_switch(opened: Page) -> None:
    ground = "getComputedStyle(document.querySelector('.main-svg')).backgroundColor"
    before = opened.js(ground)
    opened.click("theme")
    opened.wait(f"{ground} !== {before!r}")
    assert opened.js("document.documentElement.dataset.theme") == "dark"
    opened.browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    try:
        assert Page(opened.browser, opened.path).js("document.documentElement.dataset.theme") == "dark"
    finally:
        opened.browser.call("Emulation.setEmulatedMedia", features=[])


@pytest.fixture(scope="module")
def many_ops() -> Picture:
    rng, count = np.random.default_rng(1), 12_000
    run = Builder()
    rank = run.rank(0)
    for stream, names in ((7, [f"gemm{k}" for k in range(7)]), (9, ["ncclDevKernel_AllReduce"])):
        ends = np.cumsum(rng.integers(300, 3 * US, 2 * count)).tolist()
        for k in range(count // 2):
            name, launch = names[k % len(names)], (ends[2 * k] - 200, ends[2 * k] - 100)
            rank.kernel(name, stream, ends[2 * k], ends[2 * k + 1], launch=launch)
    return drawn(run.trace(), "comm", "compute")[1]


def test_zooming_shows_more_and_never_drops_an_op(show: Show, many_ops: Picture) -> None:
    opened = show(many_ops)
    many = """document.getElementById('timeline').data.filter((one) => one.meta.many)
      .reduce((sum, one) => sum + one.x.filter((x) => x !== null).length, 0)"""
    assert opened.js(OPS) == 12_000
    assert opened.js(many) > 100
    low, high = opened.js(RANGE)
    middle, half = (low + high) / 2, (high - low) / 400
    opened.look(middle - half, middle + half)
    assert opened.js(OPS) == 12_000
    inside = f"""document.getElementById('timeline').data.filter((one) => one.meta.many).flatMap((one) => one.base)
      .filter((base) => base > {middle - half} && base < {middle + half}).length"""
    assert opened.js(inside) == 0


def test_what_is_drawn_as_one_is_all_that_lies_in_it(show: Show, many_ops: Picture) -> None:
    opened = show(many_ops)
    role = ROLE["b"]
    bars = opened.js(
        f"""document.getElementById('timeline').data.filter((one) => one.meta.many && one.meta.role === {role})
          .flatMap((one) => one.customdata).map((custom) => [custom[0], custom[2], custom[3], custom[5]])"""
    )
    ops = many_ops.marks.take(many_ops.marks.role == role)
    assert len(bars) > 50
    for told, start, length, busy in bars:
        inside = ops.take((ops.start >= start) & (ops.end <= start + length))
        lengths = inside.end - inside.start
        longest = many_ops.texts[inside.name[int(lengths.argmax())]]
        assert told == f"{inside.size:,} marks drawn as one, the longest {longest}"
        assert (inside.start.min(), inside.end.max()) == (start, start + length)
        milliseconds = re.fullmatch(r"([\d,.]+) ms busy", busy)[1].replace(",", "")
        assert float(milliseconds) == pytest.approx(lengths.sum() / 1e6, rel=0.005)  # three digits


def test_names_from_a_trace_stay_text(show: Show) -> None:
    opened = show(drawn(hostile(), *HOSTILE_PAIR, EVERYTHING)[1])
    shown = []
    for bar in range(opened.js(VISIBLE % ROLE["a"])):
        x, y = middle_of_bar(opened, "a", bar)
        opened.point(x, y)
        opened.settle()
        shown.append(opened.js("document.querySelector('.hoverlayer').textContent"))
    assert any("<script>window.hacked=1</script>" in text for text in shown)
    assert opened.js("document.querySelectorAll('#timeline a[href], #timeline img, #timeline script').length") == 0


def test_a_picture_of_hostile_names_holds_no_markup_of_theirs(kaleido: object) -> None:
    svg = image(figure(drawn(hostile(), *HOSTILE_PAIR, EVERYTHING)[1], slider=False, width=1280), "svg").decode()
    tags = set(re.findall(r"<([a-zA-Z]+)", svg))
    assert not tags & {"script", "img", "a", "foreignObject", "iframe"}
    assert any("<scri" in (one.text or "") for one in ElementTree.fromstring(svg).iter())


def test_a_png_is_as_large_as_asked(kaleido: object, capture: tuple[OverlapResult, Picture]) -> None:
    png = image(figure(capture[1], slider=False, width=800), "png")
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(png[16:20], "big") == 2 * 800


AREA = """(() => { const one = document.getElementById('timeline').data.find((trace) => trace.meta.area === 0);
  return [Math.max(...one.customdata), one.x.length, Math.max(...one.y), Math.min(...one.y)]; })()"""


def test_a_counters_peak_is_seen_however_far_one_zooms_out(show: Show) -> None:
    run = Builder()
    rank = run.rank(0)
    rank.kernel("side_a", 1, 0, 100_000, launch=(0, 5))
    rank.kernel("side_b", 2, 0, 100_000, launch=(5, 9))
    for at in range(0, 100_000, 10):
        run.add("counters", process=0, device=0, start_ns=at, end_ns=at + 10, tensor_active=99 if at == 70_020 else 5)
    picture = drawn(run.trace(), "kernel:side_a", "kernel:side_b")[1]
    opened = show(picture)
    opened.settle()
    peak, points, _, low = opened.js(AREA)
    assert peak == 99
    assert points < 5_000
    before = opened.js(REFINED)
    opened.click("host")  # rows move, and the area with them
    opened.wait(f"{REFINED} !== '{before}'")
    again = opened.js(AREA)
    assert again[0] == 99
    assert again[3] > low
