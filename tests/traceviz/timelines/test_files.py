from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import traceviz as tv
from analyzers.common.errors import TracevizError
from tests.support.command_lines import invoked
from tests.support.timeline_traces import HOSTILE_PAIR, drawn, hostile, two_instances
from traceviz.timelines import files
from traceviz.timelines.draw import figure
from traceviz.timelines.marks import ROLE
from traceviz.timelines.page import data, in_script, page
from traceviz.timelines.palette import DARK, LIGHT

ASK = ["timeline", "tests/data/torch/dpmp_overlap.rank0.json.gz", "-a", "nvtx:DP Embedding", "-b", "nvtx:MP Embedding"]


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


@pytest.mark.parametrize("name", ["x.pdf", "x", "html"])
def test_a_name_that_says_no_kind_is_refused_before_anything_is_read(name: str) -> None:
    with pytest.raises(TracevizError, match=r"End it in \.html, \.png or \.svg"):
        invoked("timeline", "not/there.json", "-o", name)


def test_without_kaleido_a_picture_is_an_error_that_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    no_kaleido(monkeypatch)
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
