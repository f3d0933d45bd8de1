"""The same events give the same Trace however the JSON is laid out, and wherever pieces are cut."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.common.errors import TracevizError
from analyzers.readers import json_stream as stream
from analyzers.readers.kineto import fast
from analyzers.readers.kineto import kineto_trace as kineto
from analyzers.readers.kineto.fast import QuickDecoder, scan
from analyzers.trace.tables import Trace
from tests.support.exports import alike
from tests.support.kineto_files import one_way
from tests.support.nightly import mostly_nightly

DATA = Path(__file__).parents[3] / "data" / "torch"
REAL = DATA / "dpmp_hidden_sync.rank1.json.gz"
Document = dict[str, Any]


def load(path: Path) -> Document:
    """The file with numbers kept as they are spelled."""
    return json.loads(gzip.decompress(path.read_bytes()), parse_float=lambda text: f"@{text}@")  # type: ignore[no-any-return]


def dump(document: Any, **options: Any) -> str:
    return re.sub(r'"@([0-9.eE+-]+)@"', r"\1", json.dumps(document, **options))


def as_torch(document: Document) -> str:
    """As the newest Kineto prints: a line for each field."""
    events = []
    for event in document["traceEvents"]:
        lines = [f'    "{key}": {dump(value)}' for key, value in event.items() if key != "args"]
        args = ",".join(f"{dump(key)}: {dump(value)}" for key, value in event.get("args", {}).items())
        lines += [f'    "args": {{\n      {args}\n    }}'] if "args" in event else []
        events.append("\n  {\n" + ",\n".join(lines) + "\n  }")
    header = {key: value for key, value in document.items() if key != "traceEvents"}
    return dump(header, indent=2).removesuffix("\n}") + ',\n  "traceEvents": [' + ",".join(events) + "\n  ]\n}"


def shuffled(document: Document, seed: int) -> Document:
    """The same document with every object's keys in another order."""
    order = random.Random(seed)

    def mix(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: mix(value[key]) for key in order.sample(list(value), len(value))}
        return [mix(each) for each in value] if isinstance(value, list) else value

    return mix(document)  # type: ignore[no-any-return]


LAYOUTS: dict[str, Callable[[Document], str]] = {
    "spaces": dump,
    "compact": lambda document: dump(document, separators=(",", ":")),
    "indent 1": lambda document: dump(document, indent=1),
    "indent 2": lambda document: dump(document, indent=2),
    "indent 4, tabs": lambda document: dump(document, indent="\t\t"),
    "sorted": lambda document: dump(document, sort_keys=True),
    "shuffled": lambda document: dump(shuffled(document, 1)),
    "shuffled, indented": lambda document: dump(shuffled(document, 2), indent=2),
    "a line a field": as_torch,
    "windows": lambda document: dump(document, indent=2).replace("\n", "\r\n"),
}


def assert_same(trace: Trace, expected: Trace, *, header: bool = True) -> None:
    alike(trace, expected, *(() if header else ("devices",)))
    assert trace.warnings == expected.warnings
    if header:
        assert trace.origin_utc_ns == expected.origin_utc_ns
        assert trace.captures[0].metadata == expected.captures[0].metadata
        assert trace.processes[0].claims["distributed"] == expected.processes[0].claims["distributed"]


@pytest.fixture(scope="module")
def document() -> Document:
    return load(REAL)


@pytest.fixture(scope="module")
def expected() -> Trace:
    return kineto.read(REAL)


PIECES = {1_500: "tiny pieces", 30_000: "small pieces", 1 << 23: "whole"}
WAYS = {None: "read", False: "quick", True: "exact"}


@pytest.mark.parametrize(
    ("exact", "piece"),  # by default each piece in one way: reading goes the quick way first, then the exact one
    mostly_nightly(product(WAYS, PIECES), lambda how: how in ((None, 30_000), (False, 1 << 23), (True, 1_500))),
    ids={**WAYS, **PIECES}.get,
)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(
    layout: str, exact: bool | None, piece: int, document: Document, expected: Trace, tmp_path: Path
) -> None:
    path = tmp_path / "rank1.json"
    path.write_text(LAYOUTS[layout](document), newline="")
    with patch.object(stream, "PIECE_BYTES", piece):
        if exact is None:
            trace = kineto.read(path)
        else:
            try:
                trace = one_way(path, exact=exact)
            except (TracevizError, msgspec.DecodeError):
                pytest.skip("the quick way says that it can't")
    assert_same(trace, expected)


@pytest.mark.parametrize(
    ("limit", "value"),
    [("SCANNED_BYTES", 1 << 12), ("SCANNED_BYTES", 1 << 30), ("_FEW_TEXTS", 0), ("_BLOCK", 61), ("_LARGEST", 0)],
)
def test_whatever_is_decoded_one_by_one_or_at_once_is_the_same(limit: str, value: int, expected: Trace) -> None:
    with patch.object(fast, limit, value):
        assert_same(kineto.read(REAL), expected)


def test_what_is_skipped_unread_need_not_be_json_in_a_piece_of_a_few_events(tmp_path: Path) -> None:
    kernel = '{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1.000, "dur": 2.000, "args": {}}'
    flow = '{"ph": "s", "id": 1, "pid": 0, "tid": 7, "ts": 1.000, "cat": "ac2g", "name": "ac2g", "x": NaN}'
    path = tmp_path / "t.json"
    path.write_text(f'{{"traceEvents": [\n{kernel},\n{flow}\n]}}')
    for few in (0, 1 << 12):
        with patch.object(fast, "SCANNED_BYTES", few):
            assert len(one_way(path, exact=False).ops) == 1


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_a_bare_list_has_the_same_events(packed: bool, document: Document, expected: Trace, tmp_path: Path) -> None:
    path = tmp_path / "events.json"
    text = dump(document["traceEvents"]).encode()
    path.write_bytes(gzip.compress(text) if packed else text)
    trace = kineto.read(path)
    assert_same(trace, expected, header=False)
    assert trace.origin_utc_ns is None


def test_gzip_parts_joined_end_to_end_and_padded(document: Document, expected: Trace, tmp_path: Path) -> None:
    text = dump(document).encode()
    path = tmp_path / "rank1.json.gz"
    path.write_bytes(b"".join(gzip.compress(text[at : at + 9999]) for at in range(0, len(text), 9999)) + bytes(100))
    assert_same(kineto.read(path), expected)


@pytest.mark.parametrize("layout", ["spaces", "compact", "indent 2", "a line a field", "windows"])
def test_usual_layouts_need_no_object_per_event(layout: str, document: Document) -> None:
    text = LAYOUTS[layout](document)
    events = text[text.index("[", text.index("traceEvents")) + 1 : text.rindex("]")]
    batch = scan(events.encode(), QuickDecoder())
    assert batch is not None
    assert batch.events == len(document["traceEvents"])


TEXT = st.text(
    st.one_of(st.sampled_from('{}[]",:\\\n\t/ 01"\\'), st.characters(exclude_categories=["Cs"])),
    min_size=1,
    max_size=12,
)
TRAPS = st.sampled_from(
    ['{"ph": "X", "ts": 1.5}', '"ts":', '}, {"ph":"X"', "\n  },\n  {", '"traceEvents": [', "\\", '\\"', "NaN", "\u2028"]
)
VALUES = st.recursive(
    st.one_of(
        TEXT,
        TRAPS,
        st.integers(-(2**70), 2**70),
        st.booleans(),
        st.none(),
        st.floats(allow_nan=False, allow_infinity=False),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.one_of(TEXT, TRAPS), inner, max_size=3)),
    max_leaves=5,
)
KEYS = (
    "External id",
    "device",
    "stream",
    "correlation",
    "grid",
    "block",
    "bytes",
    "Sequence number",
    "Collective name",
)
DIMS = st.recursive(st.integers(-1, 2**62), lambda inner: st.lists(inner, max_size=5), max_leaves=20)
ARGS = st.builds(
    lambda args, dims: args | dims,
    st.dictionaries(st.one_of(st.sampled_from(KEYS), TEXT), VALUES, max_size=4),
    st.dictionaries(st.sampled_from(["Input Dims", "Input dims"]), st.one_of(DIMS, VALUES), max_size=2),
)
TIMES = st.builds(lambda whole, part: f"@{whole}.{part:03}@", st.integers(10**15, 10**15 + 10**9), st.integers(0, 999))
DURATIONS = st.builds(lambda whole, part: f"@{whole}.{part:03}@", st.integers(0, 10**6), st.integers(0, 999))
EVENTS = st.fixed_dictionaries(
    {
        "ph": st.sampled_from("XXXXXMsfi"),
        "cat": st.sampled_from(["kernel", "gpu_memcpy", "cuda_runtime", "cpu_op", "user_annotation", "Trace", "other"]),
        "name": st.one_of(TEXT, TRAPS),
        "pid": st.one_of(st.integers(0, 9), TEXT),
        "tid": st.one_of(st.integers(-(2**40), 2**64 - 1), TEXT),
        "ts": TIMES,
        "dur": DURATIONS,
    },
    optional={"args": ARGS, "id": st.integers(0, 9)},
)


@given(
    events=st.lists(EVENTS, max_size=12),
    header=st.dictionaries(TEXT, VALUES, max_size=3),
    layout=st.sampled_from(sorted(LAYOUTS)),
    ascii_only=st.booleans(),
    piece=st.sampled_from([50, 400, 1 << 20]),
)
def test_any_events_read_the_same_quickly_and_exactly(
    events: list[Document],
    header: Document,
    layout: str,
    ascii_only: bool,
    piece: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("any") / "trace.json"
    with patch.object(json.dumps, "__kwdefaults__", {**(json.dumps.__kwdefaults__ or {}), "ensure_ascii": ascii_only}):
        path.write_text(
            LAYOUTS[layout]({"schemaVersion": 1, **header, "traceEvents": events}), encoding="utf-8", newline=""
        )
    exact = one_way(path, exact=True)
    with patch.object(stream, "PIECE_BYTES", piece):
        for found in (kineto.read(path), one_way(path, exact=True)):
            alike(found, exact)
            assert (found.warnings, found.processes, found.captures) == (
                exact.warnings,
                exact.processes,
                exact.captures,
            )
    complete = [event for event in events if event["ph"] == "X"]
    kernels = [event for event in complete if event["cat"] in ("kernel", "gpu_memcpy")]
    assert exact.ops.name.tolist() == [event["name"] for event in kernels]
    zero = min((int(event["ts"].strip("@").replace(".", "")) for event in complete), default=0)
    assert exact.ops.start_ns.tolist() == [int(event["ts"].strip("@").replace(".", "")) - zero for event in kernels]
