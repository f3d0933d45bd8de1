"""What a page hands the browser to run."""

from __future__ import annotations

import pytest
from plotly.offline import get_plotlyjs

from traceviz.timelines.page import CALL, compiled_once


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
