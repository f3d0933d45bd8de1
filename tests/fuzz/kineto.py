"""Mutations of torch.profiler traces, on their events and on their bytes."""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.mutant import HOSTILE_INTS, HOSTILE_TEXTS, Change, Seed, mutations, some

DATA = Path(__file__).parents[1] / "data"
Json = dict[str, Any]
Edit = Callable[[Random, Json], "str | None"]
GPU = ("kernel", "gpu_memcpy", "gpu_memset")
CALLS = ("cuda_runtime", "cuda_driver")
BAD_TIMES = (-1, -1e9, 0, 1e15, 1e18, 2**63, 1e300, -1e300, 1e-9, 0.0005)
WRONG = ("x", "", None, True, [], {}, [1, 2], {"a": 1}, 1.5, -7, 10**30, float("nan"), float("inf"))
FIELDS = ("ts", "dur", "pid", "tid", "name", "cat", "args", "ph")
GONE, EACH_ITS_OWN = object(), object()
NAMES = (*HOSTILE_TEXTS, "\ud800", EACH_ITS_OWN)
MARKER = "@@raw@@"


def seeds() -> list[Seed]:
    """Small real runs."""

    def run(folder: str, name: str, *pairs: tuple[str, str]) -> Seed:
        files = sorted((DATA / folder).glob(name))
        return Seed(tuple(files), (*pairs, ("comm", "compute")))

    dpmp = ("nvtx:DP Embedding", "nvtx:MP Embedding")
    return [
        run("torch", "full_gpu.rank?.json.gz", ("nvtx:branch A", "nvtx:branch B")),
        run("torch", "dpmp_overlap.rank?.json.gz", dpmp),
        run("torch", "dpmp_hidden_sync.rank0.json.gz", dpmp),
        run("torch", "rowpar_s4.rank?.json.gz", ("collective:all_reduce", "compute")),
        run("torch", "delta_sync.rank1.json.gz", ("memcpy", "compute")),
    ]


@lru_cache(maxsize=8)
def _loaded(path: Path) -> Json:
    return json.loads(gzip.decompress(path.read_bytes()))


def _places(document: Json, *kinds: str) -> list[int]:
    return [k for k, event in enumerate(document["traceEvents"]) if not kinds or event.get("cat") in kinds]


def _any_kind(rng: Random, document: Json) -> tuple[str, list[int]]:
    kinds = sorted({str(event.get("cat", "")) for event in document["traceEvents"]})
    kind = rng.choice(kinds)
    return kind, _places(document, kind)


def drop(rng: Random, document: Json, *kinds: str, share: float = 0.0) -> str:
    """Some events of one category are gone, or a share of those of some."""
    kind, rows = (", ".join(kinds), _places(document, *kinds)) if kinds else _any_kind(rng, document)
    gone = set(some(rng, rows, share or rng.choice((0.01, 0.3, 1))))
    if share:
        gone -= set(rows[-5:])  # the last ones may have run on as the capture ended
    document["traceEvents"] = [event for k, event in enumerate(document["traceEvents"]) if k not in gone]
    return f"{len(gone)} {kind} dropped"


def duplicate(rng: Random, document: Json) -> str:
    """Some events are there twice."""
    kind, rows = _any_kind(rng, document)
    again = some(rng, rows, 0.2)
    document["traceEvents"] += [copy.deepcopy(document["traceEvents"][k]) for k in again]
    return f"{len(again)} {kind} twice"


def reorder(rng: Random, document: Json) -> str:
    """Events in any order."""
    rng.shuffle(document["traceEvents"])
    return "shuffled"


def stretch(rng: Random, document: Json) -> str:
    """Ops last far into those behind them."""
    rows = some(rng, _places(document, *GPU), 0.2)
    for k in rows:
        document["traceEvents"][k]["dur"] = document["traceEvents"][k].get("dur", 1) * rng.choice((10, 1000, 10**6))
    return f"{len(rows)} ops stretched"


def change(rng: Random, document: Json, keys: Sequence[str], values: Sequence[Any]) -> str:
    """A field, or without `keys` an argument, has another value in some events, or is missing (GONE)."""
    kind, rows = _any_kind(rng, document)
    inside = [] if keys else sorted({key for k in rows for key in document["traceEvents"][k].get("args") or {}})
    key, value = rng.choice(keys or inside or ("correlation",)), rng.choice(values)
    for k in (chosen := some(rng, rows, rng.choice((0.02, 0.3, 1)))):
        event = document["traceEvents"][k]
        place = event if keys else event.get("args")
        if isinstance(place, dict):
            place[key] = f"name {k}" if value is EACH_ITS_OWN else value
            if value is GONE:
                del place[key]
    return f"{key} of {len(chosen)} {kind} is {str(value)[:20]!r}"


def hostile_ids(rng: Random, document: Json) -> str:
    """Ids beyond what JSON's readers, or 64 bits, hold; reused ones; thousands of streams."""
    key = rng.choice(("correlation", "stream", "device", "External id", "pid", "tid", "context"))
    how = rng.choice(("one value", "shifted over 2^53", "all distinct", "few"))
    value = rng.choice((*HOSTILE_INTS, 2**64, 10**25))
    for k in range(len(document["traceEvents"])):
        event = document["traceEvents"][k]
        place = event if key in ("pid", "tid") else event.get("args") or {}
        if isinstance(place.get(key), int):
            shifted, few = place[key] + 2**53, place[key] % 3
            place[key] = {"one value": value, "shifted over 2^53": shifted, "all distinct": k, "few": few}[how]
    return f"{key}: {how} ({value})"


def never_closed(rng: Random, document: Json) -> str:
    """Ranges begin and do not end."""
    rows = some(rng, _places(document, "user_annotation", "cpu_op"), 0.3)
    for k in rows:
        event = document["traceEvents"][k]
        event["ph"] = rng.choice(("B", "b", "X"))
        event.pop("dur", None)
    return f"{len(rows)} ranges never end"


def header(rng: Random, document: Json) -> str:
    """What stands around the events is wrong, hostile or missing."""
    keys = [key for key in document if key != "traceEvents"] or ["schemaVersion"]
    key = rng.choice(keys)
    value = rng.choice((*WRONG, *HOSTILE_INTS, "drop"))
    if value == "drop":
        document.pop(key, None)
    elif isinstance(document.get(key), dict) and document[key] and rng.random() < 0.7:
        document[key][rng.choice(sorted(document[key]))] = value
    elif isinstance(document.get(key), list) and document[key] and isinstance(document[key][0], dict):
        document[key][0][rng.choice(sorted(document[key][0]))] = value
    else:
        document[key] = value
    return f"header {key} is {value!r}"


def foreign(rng: Random, document: Json) -> str:
    """Somebody else's Chrome trace."""
    for event in document["traceEvents"]:
        event["cat"] = rng.choice(("blink", "v8", "toplevel", ""))
    return "foreign categories"


def deep(rng: Random, document: Json) -> str:
    """Brackets within brackets."""
    depth = rng.choice((50, 2_000, 200_000))
    document["traceEvents"][rng.randrange(len(document["traceEvents"]))]["args"] = {"x": MARKER}
    document["@raw"] = "[" * depth + "]" * depth
    return f"{depth} levels"


EDITS: dict[str, tuple[Edit, bool]] = {  # how it is done, and whether what it takes away leaves a trace
    "drop": (drop, False),
    "drop GPU ops": (lambda rng, document: drop(rng, document, "kernel", share=0.1), True),
    "drop calls": (lambda rng, document: drop(rng, document, *CALLS, share=0.3), True),
    "no GPU work": (lambda rng, document: drop(rng, document, *GPU, share=1), False),
    "duplicate": (duplicate, False),
    "reorder": (reorder, True),
    "overlap": (stretch, False),
    "times": (lambda rng, document: change(rng, document, ("ts", "dur"), BAD_TIMES), False),
    "fields": (lambda rng, document: change(rng, document, FIELDS, (*WRONG, GONE, GONE)), False),
    "arguments": (lambda rng, document: change(rng, document, (), (*WRONG, GONE, GONE)), False),
    "names": (lambda rng, document: change(rng, document, ("name",), NAMES), False),
    "ids": (hostile_ids, False),
    "open ranges": (never_closed, False),
    "header": (header, False),
    "foreign": (foreign, False),
    "deep": (deep, False),
}


def _written(rng: Random, document: Json, target: Path) -> None:
    raw = document.pop("@raw", "")
    layout = rng.choice((None, 2, "tight", "list"))
    if layout == "list":
        document = document["traceEvents"]
    indent, separators = (2, None) if layout == 2 else (None, (",", ":") if layout == "tight" else None)
    text = json.dumps(document, indent=indent, separators=separators, ensure_ascii=rng.random() < 0.8)
    data = text.replace(f'"{MARKER}"', raw).encode(errors="surrogatepass")
    target.write_bytes(gzip.compress(data, 1, mtime=0) if target.suffix == ".gz" else data)


def _edited(edit: Edit) -> Change:
    def change_file(rng: Random, source: Path, target: Path) -> str | None:
        document = copy.deepcopy(_loaded(source))
        what = edit(rng, document)
        if what is not None:
            _written(rng, document, target)
        return what

    return change_file


MUTATIONS = mutations(EDITS, _edited)
