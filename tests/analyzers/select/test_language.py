from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.common.errors import TracevizError
from analyzers.select.language import BARE, SELECTOR_KINDS, And, Atom, Not, Or, Selector, atoms, parse

awkward = st.text(
    st.one_of(st.sampled_from(list(',+!()"~\\:* \t\n[]?.')), st.characters(codec="utf-8")), min_size=1, max_size=12
)
numbers = st.integers(-(10**17), 10**17).map(str)
named = st.one_of(
    st.sampled_from(BARE).map(Atom),
    st.builds(Atom, st.sampled_from([kind for kind in SELECTOR_KINDS if kind not in ("stream", "queue")]), awkward),
    st.builds(Atom, st.just("kernel"), st.sampled_from(["a|b", "^x,y+$", "~a", " b ", "(gemm)+", '"', "\\\\", ")"]))
    .filter(lambda atom: atom.text != ")")
    .map(lambda atom: Atom("kernel", atom.text, regex=True)),
    st.builds(Atom, st.sampled_from(["stream", "queue"]), numbers),
)


def joined(part: st.SearchStrategy[Selector]) -> st.SearchStrategy[Selector]:
    parts = st.lists(part, min_size=2, max_size=4).map(tuple)
    return st.one_of(part.map(Not), parts.map(And), parts.map(Or))


selectors: st.SearchStrategy[Selector] = st.recursive(named, joined, max_leaves=8)


@given(selectors)
def test_what_a_selector_prints_reads_back_as_the_same_selector(selector: Selector) -> None:
    assert parse(str(selector)) == selector


@given(st.text(max_size=25))
def test_any_text_is_a_selector_or_a_clear_error(text: str) -> None:
    try:
        parse(text)
    except TracevizError as error:
        assert "selector" in error.message
        assert error.hint


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("comm", Atom("comm")),
        (" comm + ! compute ", And((Atom("comm"), Not(Atom("compute"))))),
        ("comm,compute+memset", Or((Atom("comm"), And((Atom("compute"), Atom("memset")))))),
        ("(comm,compute)+memset", And((Or((Atom("comm"), Atom("compute"))), Atom("memset")))),
        ("!!comm", Not(Not(Atom("comm")))),
        ("nvtx:DP Embedding", Atom("nvtx", "DP Embedding")),
        ("nvtx: DP Embedding ", Atom("nvtx", "DP Embedding")),
        ('nvtx:" a, b+c "', Atom("nvtx", " a, b+c ")),
        (r'nvtx:"say \"hi\" \\ \n"', Atom("nvtx", 'say "hi" \\ \\n')),
        ("op:aten::embedding_bag", Atom("op", "aten::embedding_bag")),
        ("kernel:~gemm|conv", Atom("kernel", "gemm|conv", regex=True)),
        ('kernel:~"a{1,2}"', Atom("kernel", "a{1,2}", regex=True)),
        ('kernel:"~gemm"', Atom("kernel", "~gemm")),
        ("kernel:f(int)", Atom("kernel", "f(int)")),
        ("stream:-1", Atom("stream", "-1")),
        ("memcpy", Atom("memcpy")),
        ("memcpy:DtoH", Atom("memcpy", "DtoH")),
    ],
)
def test_grammar(text: str, expected: Selector) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "a part of it is empty"),
        ("comm,", "a part of it is empty"),
        ("comm++compute", "a part of it is empty"),
        ("foo", "'foo' is not one of comm, compute"),
        ("Comm", "'Comm' is not one of comm, compute"),
        ("nvtx", "'nvtx' is not one of comm"),
        ("range:x", "'range:' is not one of nvtx:…"),
        ("comm:x", "'comm:' is not one of nvtx:…"),
        ("nvtx:", "nothing follows 'nvtx'"),
        ('nvtx:""', "nothing follows 'nvtx'"),
        ('nvtx:"a', "a double quote is not closed"),
        ('nvtx:"a"b', "'b' is left over"),
        ("(comm", "a parenthesis is not closed"),
        ("comm)", "not one of"),
        ("(comm))", "')' is left over"),
        ("stream:x", "a stream is a number, not 'x'"),
        ("queue:0x7f", "a queue is a number, not '0x7f'"),
        ("stream:7*", "a stream is a number, not '7*'"),
        ("stream:~7", "a stream is a number, not '~7'"),
        ("stream:99999999999999999999", "a stream is a number"),
        ("kernel:~(", "'(' is no regular expression"),
        ("kernel:~*", "is no regular expression"),
    ],
)
def test_an_error_says_what_is_wrong_and_shows_examples(text: str, says: str) -> None:
    with pytest.raises(TracevizError) as caught:
        parse(text)
    assert says in caught.value.message
    assert "\n" not in str(caught.value)
    assert "nvtx:DP Embedding" in str(caught.value.hint)


@pytest.mark.parametrize("text", ["(" * 5000 + "comm" + ")" * 5000, "!" * 5000 + "comm"])
def test_nesting_too_deep_is_an_error_of_the_user(text: str) -> None:
    with pytest.raises(TracevizError, match="nested too deeply"):
        parse(text)


@pytest.mark.parametrize(
    ("atom", "whole", "fits", "not_"),
    [
        (Atom("nvtx", "DP"), True, ["DP"], ["DP Embedding", "dp", ""]),
        (Atom("kernel", "gemm"), False, ["sgemm_nn", "gemm"], ["GEMM"]),
        (Atom("nvtx", "step * of"), True, ["step 1 of", "step  of"], ["step 1 of 2", "a step 1 of"]),
        (Atom("nvtx", "a[1]*"), True, ["a[1]", "a[1]x", "a[1]\n"], ["a1", "a1x"]),
        (Atom("nvtx", "a?*"), True, ["a?b"], ["abc"]),
        (Atom("kernel", "f*int"), False, ["void f<int>(int)"], ["int f"]),
        (
            Atom("nvtx", "## forward # ##"),
            True,
            ["## forward 3 ##", "## forward 12 ##", "## forward 007 ##", "## forward # ##"],
            ["## forward ##", "## forward x ##", "## forward 3.5 ##", "## forward 3 4 ##", "## backward 3 ##"],
        ),
        (Atom("nvtx", "## forward ##"), True, ["## forward ##"], ["forward", "## forward 3 ##"]),
        (
            Atom("nvtx", "ProfilerStep#3"),
            True,
            ["ProfilerStep#3"],
            ["ProfilerStep13", "ProfilerStep#13"],
        ),
        (Atom("nvtx", "ProfilerStep##"), True, ["ProfilerStep#3", "ProfilerStep#12"], ["ProfilerStep12"]),
        (Atom("nvtx", "layer 3 micro-batch #*"), True, ["layer 3 micro-batch 5 end"], ["layer 13 micro-batch 5"]),
        (Atom("nvtx", "#"), True, ["1" * 18, "#"], ["1" * 19, "٣", ""]),
        (Atom("op", "block.#"), True, ["block.7"], ["block."]),
        (Atom("hlo", "fusion.#"), True, ["fusion.7"], ["fusion.7.1"]),
        (Atom("kernel", "gemm_#"), False, ["my gemm_#"], ["gemm_7"]),
        (Atom("group", "#"), True, ["#"], ["7"]),
        (Atom("nvtx", "a#", regex=True), True, ["a#"], ["a3"]),
        (Atom("nvtx", "^DP", regex=True), True, ["DP Embedding"], ["MDP"]),
        (Atom("kernel", "(?i)GEMM$", regex=True), False, ["sgemm"], ["gemm_nn"]),
    ],
)
def test_a_text_fits_names_whole_or_in_part(atom: Atom, whole: bool, fits: list[str], not_: list[str]) -> None:
    test = atom.matcher(whole=whole)
    assert [name for name in fits if not test(name)] == []
    assert [name for name in not_ if test(name)] == []


def stands_for(text: str, name: str) -> bool:
    """Whether a text with `#` names a name: letter by letter, a run of digits in the name being one letter."""
    letters = re.findall("[0-9]+|.", name)
    texts = re.findall("[0-9]+|.", text)
    return len(letters) == len(texts) and all(
        one == letter or (one == "#" and letter.isdigit()) for one, letter in zip(texts, letters, strict=True)
    )


@given(st.text("a#12 ", max_size=8), st.text("a#12 ", max_size=8))
def test_a_hash_is_a_whole_number_or_itself(text: str, name: str) -> None:
    assert Atom("nvtx", text).matcher(whole=True)(name) == stands_for(text, name)


def test_numbers_are_told_of_names_that_fit() -> None:
    assert Atom("nvtx", "layer # mb #").numbers("layer 3 mb 12") == (3, 12)
    assert Atom("nvtx", "## forward # ##").numbers("## forward # ##") == ()
    assert Atom("nvtx", "## forward # ##").numbers("## backward 3 ##") == ()
    assert Atom("nvtx", "forward 3").numbers("forward 3") == ()


def test_atoms_are_told_by_whether_they_pick_or_take_out() -> None:
    selector = parse("nvtx:a+!(comm,!nvtx:b),!stream:7")
    assert [str(atom) for atom in atoms(selector)] == ["nvtx:a", "nvtx:b"]
    assert [str(atom) for atom in atoms(selector, positive=False)] == ["comm", "stream:7"]
