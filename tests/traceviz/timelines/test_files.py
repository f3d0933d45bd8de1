"""What a timeline becomes: a page, an image, a figure in a notebook, and the program that a page carries."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from plotly.offline import get_plotlyjs

import traceviz as tv
from analyzers.common.errors import TracevizError
from tests.support.command_lines import invoked
from tests.support.timeline_traces import HOSTILE_PAIR, drawn, hostile, two_instances
from traceviz.timelines import files
from traceviz.timelines.draw import figure
from traceviz.timelines.marks import ROLE
from traceviz.timelines.page import SCRIPT_START, compiled_once, data, in_script, of_bars_alone, page
from traceviz.timelines.palette import DARK, LIGHT

ASK = ["timeline", "tests/data/torch/dpmp_overlap.rank0.json.gz", "-a", "nvtx:DP Embedding", "-b", "nvtx:MP Embedding"]


@pytest.fixture
def no_kaleido(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kaleido", None)


def test_a_page_is_one_file_that_names_no_address_to_load_from(tmp_path: Path) -> None:
    run = invoked(*ASK, "-o", str(tmp_path / "x.html"))
    assert run.exit_code == 0, run.output
    assert "the median of 3" in run.output
    assert [path.name for path in tmp_path.iterdir()] == ["x.html"]
    text = (tmp_path / "x.html").read_text()
    assert "<script src" not in text
    assert '<link rel="stylesheet' not in text
    assert "default-src 'none'" in text


@pytest.mark.parametrize(
    "words",
    [
        *(["timeline", "not/there", "-o", name] for name in ("x.pdf", "x", "html")),
        ["compare", "not/there", "nor/there", "--timeline", "x.txt"],
    ],
)
def test_a_name_that_says_no_kind_is_refused_before_anything_is_read(words: list[str]) -> None:
    with pytest.raises(TracevizError, match=r"End it in \.html, \.png or \.svg"):
        invoked(*words)


@pytest.mark.usefixtures("no_kaleido")
def test_without_kaleido_a_picture_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(TracevizError, match=r"pip install 'traceviz-gpu\[png\]', or write \.html"):
        files.write(tmp_path / "x.png", drawn(two_instances(), "nvtx:A", "nvtx:B")[1])
    assert list(tmp_path.iterdir()) == []


def test_a_browser_that_is_none_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEVIZ_CHROMIUM", "/bin/true")
    with pytest.raises(TracevizError, match=r"kaleido could not draw the \.png: .* Install Chrome or Chromium"):
        files.image(figure(drawn(two_instances(), "nvtx:A", "nvtx:B")[1]), "png")


def test_a_folder_that_is_not_there_is_an_error_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(TracevizError, match="No such file") as caught:
        files.write_bytes(tmp_path / "no" / "x.html", b"")
    assert caught.value.path == str(tmp_path / "no" / "x.html")


def test_the_figure_has_whole_ns_and_the_overlap_that_was_found() -> None:
    result, picture = drawn(two_instances(), "nvtx:A", "nvtx:B")
    lengths = [
        custom[3]
        for one in figure(picture).data
        if one.meta["role"] == ROLE["overlap"]
        for custom in one.customdata
        if custom
    ]
    assert sorted(lengths) == [5_000, 15_000]
    assert sum(lengths) == result.ranks[0].overlap_ns


def test_the_api_draws_the_same_figure() -> None:
    trace = two_instances()
    found, expected = tv.timeline(trace, "nvtx:A", "nvtx:B"), figure(drawn(trace, "nvtx:A", "nvtx:B")[1])
    assert json.loads(found.to_json()) == json.loads(expected.to_json())
    assert tv.timeline(trace, "nvtx:A", "nvtx:B", dark=True).layout.paper_bgcolor == DARK.ground


def test_a_name_cannot_end_the_script_it_stands_in() -> None:
    assert in_script(["</script><!--", "a&b\u2028"]) == '["\\u003c/script\\u003e\\u003c!--","a\\u0026b\\u2028"]'
    assert json.loads(in_script(["</script>"])) == ["</script>"]
    text = page(drawn(hostile(), *HOSTILE_PAIR)[1])
    assert "<script>window.hacked" not in text
    assert "\x1b" not in json.dumps(data(drawn(hostile(), *HOSTILE_PAIR)[1])["texts"], ensure_ascii=False)


def contrast(one: str, other: str) -> float:
    """Of two colours, as WCAG 2 defines it."""

    def luminance(color: str) -> float:
        parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_text_can_be_read_on_every_colour(theme: object) -> None:
    assert isinstance(theme, type(LIGHT))
    for fill, text in theme.fill.values():
        assert contrast(fill, text) >= 3  # large or bold text, WCAG AA
    assert contrast(theme.ground, theme.text) >= 7
    assert contrast(theme.ground, theme.faint) >= 4.5


@pytest.mark.usefixtures("no_kaleido")
def test_without_kaleido_words_stand_in_for_a_notebooks_page_where_no_script_runs() -> None:
    shown, sizes = tv.timeline(two_instances(), "nvtx:A", "nvtx:B").shown()
    assert set(shown) == {"text/html", "text/plain"}
    assert sizes == {}
    assert re.search(r"</iframe><p>.* overlapped .*trust this notebook", shown["text/html"])
    assert shown["text/plain"].startswith("Timeline: ")
    assert len(shown["text/html"]) < 3_000_000, "plotly alone takes 4.8 MB"


@pytest.mark.usefixtures("no_kaleido")
def test_names_stay_text_in_the_frame_of_a_notebook_and_behind_it() -> None:
    shown, _ = tv.timeline(hostile(), *HOSTILE_PAIR).shown()
    assert re.findall(r"<(\w+)", shown["text/html"]) == ["div", "iframe", "p", "script"]


def test_a_figure_that_was_changed_shows_as_plotly_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = tv.timeline(two_instances(), "nvtx:A", "nvtx:B")
    shown: list[str] = []
    monkeypatch.setattr(type(drawn), "shown", lambda self: shown.append("page") or ({}, {}))
    monkeypatch.setattr(type(drawn).__mro__[1], "_ipython_display_", lambda self: shown.append("figure"))
    pytest.importorskip("IPython", reason="a notebook has it")
    drawn._ipython_display_()
    drawn.update_layout(title="mine")
    drawn._ipython_display_()
    assert shown == ["page", "figure"]


def test_of_plotlys_program_two_things_are_changed_and_the_rest_is_the_same() -> None:
    """Brackets around the function that holds it, and of some 47 kinds of traces bars alone are set up."""
    plotly = get_plotlyjs()
    kinds = re.findall(r"\.register\(\[([^\]]+)\]\)", plotly)
    before, call, function = plotly.partition(SCRIPT_START)
    if not call:  # up to version 5 it came with brackets, and is packed in another way
        assert "(self,(function(){" in plotly
        assert compiled_once(plotly) == of_bars_alone(plotly) == plotly
        return
    assert function.endswith("}));")
    assert compiled_once(plotly) == f"{before}{call}({function[:-3]})));"
    (kinds,) = kinds
    assert kinds.count(",") > 40
    before, after = of_bars_alone(plotly).split(".register([", 1)
    only, after = after.split("])", 1)
    assert only in kinds.split(",")
    assert f"{before}.register([{kinds}]){after}" == plotly


BAR = 'var ab=W((e,t)=>{"use strict";t.exports={moduleType:"trace",name:"bar"}});'
SET_UP = 'var cd=W((e,t)=>{"use strict";t.exports=ab()});'


def test_of_kinds_that_are_packed_like_this_bars_are_found_in_any_place() -> None:
    assert of_bars_alone(f"{BAR}{SET_UP}P.register([x(),cd(),$y()]);") == f"{BAR}{SET_UP}P.register([cd()]);"


@pytest.mark.parametrize(
    "program",
    [
        "",
        f"!{SCRIPT_START}function(){{}}));",
        f"!{SCRIPT_START}() => {{}}, 1);",
        "P.register([x(),cd()]);",
        f"{BAR}P.register([x(),cd()]);",
        f"{BAR}{SET_UP}P.register([x(),y()]);",
        f"{BAR}{SET_UP}P.register([cd(),y(1)]);",
        f"{BAR}{SET_UP}P.register([x(),cd()]);P.register([cd(),y()]);",
    ],
)
def test_a_program_that_is_packed_in_another_way_stays_as_it_is(program: str) -> None:
    assert compiled_once(program) == of_bars_alone(program) == program
