"""The quick way's steps over bytes give what regular expressions give one by one."""

from __future__ import annotations

import re
from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from analyzers.readers.kineto import fast
from analyzers.readers.kineto.fast import Texts, with_nines

BYTES = st.binary(max_size=60) | st.lists(st.sampled_from([b"0", b"9", b"12", b"/", b":", b"x"])).map(b"".join)
FILLER = st.sampled_from(
    [
        *(b'{"ph": "X"', b'{\n\t "ph":"i"', b'"ph": 1', b'"ph"', b'"ph": "long"', b'{ "ph":\n"X"', b'{{"ph": "s"'),
        *(b'"ts": 1.5', b'"ts":2', b'"ts"', b'"to": 1', b'"pt": 1', b'"X"', b'"', b" ", b"\n", b",", b"}", b"name"),
    ]
)
OPENS = rb'(?=\{[ \t\r\n]*("ph"):[ \t\r\n]?"(.)")'


def array(text: bytes) -> fast.Bytes:
    return np.frombuffer(text, np.uint8)


@given(BYTES, st.integers(1, 9))
def test_every_digit_becomes_a_nine_and_nothing_else_changes(text: bytes, block: int) -> None:
    with patch.object(fast, "_BLOCK", block):
        assert with_nines(array(text)).tobytes() == re.sub(rb"[0-9]", b"9", text)


def test_no_other_byte_becomes_a_nine() -> None:
    text = bytes(range(256))
    assert with_nines(array(text)).tobytes() == re.sub(rb"[0-9]", b"9", text)


@given(
    st.lists(st.sampled_from([b"a", b"b", b"ab", b"c9", b""]), min_size=1, max_size=30),
    st.integers(1, 4),
    st.sampled_from([0, 30]),
)
def test_texts_are_numbered_by_their_value(texts: list[bytes], step: int, few: int) -> None:
    offsets = np.cumsum([0, *map(len, texts)], dtype=np.int32)
    for first in range(min(step, len(texts))):
        with patch.object(fast, "_FEW_TEXTS", few):  # by Arrow, or by hand
            number, values = Texts(array(b"".join(texts)), offsets).distinct(first, step)
        listed = list(values)
        assert [listed[each] for each in number] == texts[first::step]
        assert listed == list(dict.fromkeys(texts[first::step]))
        assert len(listed) == len(values)


@given(st.lists(BYTES.map(lambda text: b"t" + text), min_size=1, max_size=9))
def test_shapes_have_a_zero_for_each_run_of_digits(texts: list[bytes]) -> None:
    offsets = np.cumsum([0, *map(len, texts)], dtype=np.int32)
    shapes, runs = Texts(array(b"".join(texts)), offsets).shapes()
    assert list(shapes) == [re.sub(rb"[0-9]+", b"0", text) for text in texts]
    found = [[match.span() for match in re.finditer(rb"[0-9]+", text)] for text in texts]
    spans = [span for each in found for span in each]
    assert runs.starts.tolist() == [start for start, _ in spans]
    assert runs.lengths.tolist() == [end - start for start, end in spans]
    assert runs.first.tolist() == [sum(map(len, found[:text])) for text in range(len(texts))]


@given(st.lists(FILLER, max_size=25).map(b"".join), st.sampled_from([1, 2, 7, 1 << 19]))
def test_events_are_found_where_a_brace_stands_before_their_phase(text: bytes, block: int) -> None:
    with patch.object(fast, "_BLOCK", block):
        starts, letter, time, alone = fast._events(array(text))
    last = len(text) - len('"ph": "X"')  # what follows a key ends within the text
    opens = [match for match in re.finditer(OPENS, text, re.DOTALL) if match.start(1) < last]
    if opens and text[: opens[0].start()].strip(b" \t\r\n"):
        assert (starts[0], letter[0]) == (0, 0)
        starts, letter, time, alone = starts[1:], letter[1:], time[1:], alone[1:]
    assert starts.tolist() == [match.start() for match in opens]
    assert letter.tolist() == [match[2][0] for match in opens]
    times = [match.start() for match in re.finditer(rb'"ts":', text) if match.start() < last]
    phases = [match.start() for match in re.finditer(rb'(?="ph")', text)]
    for at, end, next_time, is_alone in zip(starts, [*starts, len(text)][1:], time, alone, strict=True):
        assert next_time == min((each for each in times if each >= at), default=len(text))
        assert is_alone == (sum(at <= each < end for each in phases) == 1)
