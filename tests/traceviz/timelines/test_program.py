"""What a page hands the browser to run: plotly, which is the same but for what makes it start sooner."""

from __future__ import annotations

import re

import pytest
from plotly.offline import get_plotlyjs

from traceviz.timelines.document import CALL, compiled_once, of_bars_alone


def test_plotly_has_brackets_around_the_function_that_holds_it_and_is_the_same_else() -> None:
    plotly = get_plotlyjs()
    before, call, function = plotly.partition(CALL)
    if not call:  # up to version 5 it came with brackets
        assert "(self,(function(){" in plotly
        assert compiled_once(plotly) == plotly
        return
    assert function.endswith("}));")
    assert compiled_once(plotly) == f"{before}{call}({function[:-3]})));"


@pytest.mark.parametrize("program", ["", "var Plotly = 1;", f"!{CALL}function(){{}}));", f"!{CALL}() => {{}}, 1);"])
def test_a_program_of_another_shape_stays_as_it_is(program: str) -> None:
    assert compiled_once(program) == program


def test_of_the_kinds_of_traces_plotly_sets_up_bars_alone_and_is_the_same_else() -> None:
    plotly = get_plotlyjs()
    kinds = re.findall(r"\.register\(\[([^\]]+)\]\)", plotly)
    if "r(" in kinds[0]:  # up to version 5 it is packed in another way
        assert of_bars_alone(plotly) == plotly
        return
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
        "P.register([x(),cd()]);",
        f"{BAR}P.register([x(),cd()]);",
        f"{BAR}{SET_UP}P.register([x(),y()]);",
        f"{BAR}{SET_UP}P.register([cd(),y(1)]);",
        f"{BAR}{SET_UP}P.register([x(),cd()]);P.register([cd(),y()]);",
    ],
)
def test_plotly_that_is_packed_in_another_way_sets_up_all_kinds(program: str) -> None:
    assert of_bars_alone(program) == program
