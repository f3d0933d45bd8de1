from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from traceviz.output.document import Block, Bullets, Headline, Paragraph, Table, markdown, plain, quoted, worded
from traceviz.output.printed import print_blocks, without_colours

EVIL = "\x1b[31mred\x1b]8;;http://evil\x07\r\n\x00\x9b2J\u202eabc\u2028|<script>alert(1)</script>"


def printed(*blocks: Block, width: int = 200, terminal: bool = False) -> str:
    file = io.StringIO()
    print_blocks(blocks, Console(file=file, width=width, force_terminal=terminal, color_system=None))
    return file.getvalue()


def every_block(text: str) -> list[Block]:
    return [
        Headline(text, text, "bad"),
        Paragraph(text, text),
        Bullets(text, [text, text]),
        Table([text, "n"], [[text, text]], text, frozenset({"n"}), text),
    ]


@pytest.mark.parametrize("terminal", [False, True])
def test_no_control_character_of_a_name_reaches_the_terminal(terminal: bool) -> None:
    shown = printed(*every_block(EVIL), terminal=terminal)
    own = re.sub(r"\x1b\[[0-9;]*m", "", shown) if terminal else shown  # rich's own styles
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029]", own)
    assert "<script>" in own, "the text itself stays"


NUMBERS = "DP ran 0.16 of 1.01 ms: 16 %, threshold 60 % on rank 0 device 1, stream 7, ± 49.0 µs, 0 % → 46.6 % in 3 s"


@pytest.mark.parametrize("width", range(16, 60))
def test_no_line_ends_between_a_number_and_its_unit(width: int) -> None:
    for block in (Headline("PARTIAL", NUMBERS), Paragraph(NUMBERS, "Title"), Bullets("Some", [NUMBERS])):
        lines = [line.rstrip() for line in printed(block, width=width).splitlines()]
        assert max(map(len, lines)) <= width
        assert not any(re.match(r"\s*(%|ms|µs|s)\b|\s*%", line) for line in lines)
        assert not any(re.search(r"(rank|device|stream|±)$", line) for line in lines)
        assert "".join("".join(lines).split()).endswith("".join(NUMBERS.split()))


def test_a_word_that_no_line_holds_goes_on_in_the_next() -> None:
    text = printed(Bullets("", [f"a {'x' * 30} b"]), width=14)
    assert text.splitlines() == ["  • a", "    " + "x" * 10, "    " + "x" * 10, "    " + "x" * 10, "    b"]


@given(st.text())
def test_plain_text_holds_nothing_that_moves_a_cursor(text: str) -> None:
    assert plain(text) == plain(plain(text))
    assert len(plain(text)) == len(text)
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e]", plain(text))


def test_words_in_brackets_are_no_markup_of_the_terminal() -> None:
    shown = printed(*every_block("[bold]x[/bold] [link=http://evil]y[/link] :smile:"))
    assert " ".join(shown.split()).count("[bold]x[/bold] [link=http://evil]y[/link] :smile:") == 12


@pytest.mark.parametrize(
    ("name", "inert"),
    [
        ("<script>", "&lt;script&gt;"),
        ("a|b", r"a\|b"),
        ("[x](http://evil)", "\\[x\\](http:\u200b//evil)"),
        ("https://evil.com www.evil.com", "https:\u200b//evil.com www\u200b.evil.com"),
        ("*a* _b_ `c` ~~d~~ $e$ # f", r"\*a\* \_b\_ \`c\` \~\~d\~\~ \$e\$ \# f"),
        ("@user", "@\u200buser"),
        ("&lt;", "&amp;lt;"),
        ("a\\|b", "a\\\\\\|b"),
        ("a\nb", "a\N{REPLACEMENT CHARACTER}b"),
        ("at::native::f", "at::native::f"),
    ],
)
def test_markdown_of_a_name_is_inert(name: str, inert: str) -> None:
    assert quoted(name) == inert


@given(st.lists(st.text(), min_size=2, max_size=2), st.text())
def test_a_table_keeps_its_shape_whatever_its_names_hold(cells: list[str], title: str) -> None:
    lines = markdown([Table(["a", "b"], [cells, cells], title)]).rstrip("\n").splitlines()
    rows = lines[-4:]
    assert [len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) for row in rows] == [3, 3, 3, 3]
    assert all(row.startswith("|") and row.endswith("|") for row in rows)


def test_markdown_of_every_block() -> None:
    text = markdown(
        [
            Headline("PARTIAL", "half of it"),
            Paragraph("text", "Title"),
            Bullets("Caveats", ["one", "two"]),
            Table(("side", "ops"), [("A", "1")], "Sides", frozenset({"ops"}), "a note"),
        ]
    )
    assert text == (
        "## PARTIAL: half of it\n\n**Title:** text\n\n**Caveats**\n\n- one\n- two\n\n"
        "**Sides**\n\n| side | ops |\n|---|---:|\n| A | 1 |\n\na note\n"
    )


def test_a_note_of_several_lines_stays_so() -> None:
    table = Table(["a"], [["1"]], note="one\ntwo")
    assert printed(table).endswith("one\ntwo\n")
    assert markdown([table]).endswith("| 1 |\n\none\n\ntwo\n")


def test_a_long_name_is_folded_not_cut() -> None:
    name = "kernel_" + "x" * 300
    shown = printed(Table(["a"], [[name]]), Bullets("t", [name]), width=60)
    assert shown.count("x") == 600


@pytest.mark.parametrize("width", [24, 40, 60, 80, 120])
def test_neither_headers_nor_figures_are_broken_inside_a_word(width: int) -> None:
    """What has no room stands in a table below, whose rows begin as those above."""
    headers = (
        "rank",
        "A busy",
        "overlap / min(A, B)",
        "late-launch",
        "event-dependency",
        "worst straggler",
        "real overlap",
    )
    rows = [("0", "983.9 µs", "8.5%", "561.3 µs", "1.234 ms", "rank 1, 467.1 µs (#20)", "84.26 µs")] * 2
    numeric = frozenset(header for header in headers if header != "worst straggler")
    lines = printed(Table(headers, rows, "", numeric), width=width).splitlines()
    assert max(map(len, lines)) <= width
    words = {word for line in lines for word in line.split()}
    assert {word for header in headers for word in header.split()} <= words
    text = "\n".join(lines)
    for cell, header in zip(rows[0], headers, strict=True):
        assert header not in numeric or text.count(cell) >= 2
    tables = sum(line.startswith("rank") for line in lines)
    assert tables > 1 if width <= 60 else tables == 1 or width == 80


@pytest.mark.parametrize("width", range(20, 34))
def test_no_cell_parts_a_number_from_its_unit(width: int) -> None:
    table = Table(("change", "next"), [("drop it", "host work (41.8 %)"), ("keep it", "rank 3, 1.25 ms")])
    lines = printed(table, width=width).splitlines()
    assert sum(line.count("(41.8 %)") for line in lines) == 1
    assert sum(line.count("1.25 ms") for line in lines) == 1
    assert all("rank 3" in line for line in lines if "rank" in line)


def test_lines_are_as_wide_as_they_look() -> None:
    """A letter of Chinese takes two columns; a word that no line holds begins a line, and the next one follows it."""
    assert printed(Paragraph("漢字漢字 漢字漢字"), width=14).splitlines() == ["漢字漢字", "漢字漢字"]
    shown = printed(Paragraph(f"a {'x' * 25} bb"), width=10).splitlines()
    assert shown == ["a", "x" * 10, "x" * 10, "xxxxx bb"]


def test_a_name_of_up_to_24_letters_is_not_broken_for_room() -> None:
    table = Table(("call", "in"), [("cudaStreamSynchronize", "a range with a long name, in words")])
    assert "cudaStreamSynchronize" in printed(table, width=36)


def test_figures_stay_figures_where_their_header_has_another_word() -> None:
    (table,) = worded([Table(("stream", "ops"), [("7", "2")], numeric=frozenset({"stream", "ops"}))], "SYCL")
    assert isinstance(table, Table)
    assert (tuple(table.headers), table.numeric) == (("queue", "ops"), {"queue", "ops"})


def test_a_table_without_columns_is_no_error() -> None:
    assert printed(Table((), ())).strip() == ""


def test_a_table_stands_in_columns_figures_to_the_right_and_headers_at_the_bottom() -> None:
    table = Table(
        ("rank", "overlap / achievable", "call"),
        [("0", "6 %", "測量"), ("11", "97.2 %", "cudaStreamSynchronize in forward")],
        numeric=frozenset({"rank", "overlap / achievable"}),
    )
    assert without_colours([table], 44, "utf-8").splitlines() == [
        "       overlap /",  # words get the room that there is, and headers are no narrower than their longest word
        "rank  achievable  call",
        "   0         6 %  測量",
        "  11      97.2 %  cudaStreamSynchronize in",
        "                  forward",
    ]


WORDS = st.lists(st.text("a测µ–1% ", max_size=30), min_size=2, max_size=5)


@given(st.lists(WORDS, min_size=1, max_size=4), st.integers(20, 80), st.sampled_from(["utf-8", "ascii"]))
def test_a_pipe_gets_what_a_terminal_gets_but_for_colours_and_no_line_is_too_wide(
    rows: list[list[str]], width: int, encoding: str
) -> None:
    count = min(map(len, rows))
    headers = [f"{name} {k}" for k, name in enumerate(("one", "two or more", "three", "of four", "five")[:count])]
    table = Table(headers, [row[:count] for row in rows], "title", frozenset(headers[1:2]), rows[0][0])
    blocks = [Headline("PARTIAL", rows[0][1], "bad"), table, Bullets("Why", rows[0]), Paragraph(rows[0][0], "Title")]
    shown = without_colours(blocks, width, encoding)
    assert max(map(cell_len, shown.splitlines())) <= width
    file = io.TextIOWrapper(io.BytesIO(), encoding)
    file.reconfigure(errors="replace")
    print_blocks(blocks, Console(file=file, width=width, color_system=None))
    file.seek(0)
    lines = [line.rstrip() for line in file.read().splitlines()]
    assert lines == shown.encode(encoding, "replace").decode(encoding).splitlines()


@given(st.lists(WORDS, min_size=1, max_size=4), st.integers(20, 80))
def test_no_letter_of_a_table_is_left_out_or_shown_twice(rows: list[list[str]], width: int) -> None:
    count = min(map(len, rows))
    headers = [f"{name} head" for name in ("one", "two", "three", "four", "five")[:count]]
    # Where tables stand below each other, each begins with the first column.
    table = Table(headers, [["row", *row[1:count]] for row in rows], numeric=frozenset(headers[2:3]))
    shown = without_colours([table], width, "utf-8")
    for letter in "测µ–1%":
        assert shown.count(letter) == sum(cell.count(letter) for row in table.rows for cell in row)
