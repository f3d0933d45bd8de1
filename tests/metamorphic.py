"""Real captures changed in ways whose effect on every figure is known: `python -m tests.metamorphic` runs them all.

Files are changed, not tables: JSON events with Decimal, SQLite rows with SQL; figures are read from the command line's
JSON. Times, places of evidence and names of files may change; what is compared is each figure of four commands.
"""

from __future__ import annotations

import functools
import gzip
import json
import re
import shutil
import sqlite3
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from tests.fuzz.commands import in_process

DATA = Path(__file__).parent / "data"
Files = Sequence[Path]
Change = Callable[[Files, Path], "list[Path] | None"]
MORE = 7_777  # ns to shift by
STREAMS = 1000
RANKS = 10
KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
# Where a thing is, not how long it is; and words, in which places stand.
PLACES = re.compile(
    r"(start_ns|end_ns|at_ns|covered_ns|launched_ns|until_ns|first_ns|last_ns|offset_ns|drift|evidence|next_behind|message|path|thread|index|instance|label|"
    r"captures|warnings|clocks|reason|paired_by|range|op|delayed)$"
)


# Numbers of streams and ranks in texts and ids; when what an id names starts, which is a place, too.
STREAM_IN_TEXT, RANK_IN_TEXT = re.compile(r"(?<=stream )\d+"), re.compile(r"(?<=rank )\d+|(?<=:r)\d+")
START_IN_ID = re.compile(r"^((?:inst|gap|sync):.*:)\d+$")
TIME = re.compile(r"[_.]ns(\[\d+\])*$")
RANK = re.compile(r"rank$|ranks\[\d+\]$")
STREAM_NUMBER = re.compile(
    r"streams\[\d+\]$|stream$|\.(other|main|communication)$|last_by_rank"
)  # and counts by the rank's number
OF_LAUNCHES = re.compile(
    r"^syncs|\.missed\[|\.(remedy|fix|cause_fix)\b|worth_unknown$|confidence$|sure$|_error_ns$|_ratio_(low|high)$"
    r"|\.bound\..*idle_(host|wait|profiler)_ns$|\.profiler\."
)
IN_WORDS = re.compile(r"\.lines\[|\.words$")  # sentences of figures that are compared by themselves
# How surely a figure is known, and what is only said where it is known.
HOW_SURELY = re.compile(
    r"_(low|high)$|_bounds_ns|ranks_(known|met)$|apparent|unaccounted_ns$|waiting_share_estimate$|last_arrival|"
    r"exit code$|\.passed$|\.verdict$|\.deciding|\.missed\[|contention"
)
OF_ALL = re.compile(r"worth_unknown$")  # what counts all ops, not the pair's alone
# Of the named fix: how kernels slow each other is guessed from all that runs, so each lies in the other's range.
PREDICTED = re.compile(r"\.(remedy|fix|cause_fix)\.((recoverable|step)(_low|_high)?_ns|ratio)$")
ROUNDING = 50  # ns that a sum of many figures may differ by, where an offset between clocks is rounded to a whole ns


# With ten ranks that were not captured it is not known what a collective waits for, and so nothing is run again.
EXPLAINED = {("rename ranks", "nsys rowpar_s1 a report a rank")}
# The stream that is added communicates, or is busy where the GPU is idle, which is told of the GPU, not of the pair.
EXPLAINED |= {("add an unrelated stream", name) for name in ("nsys collectives.2gpu.pinned", "torch graph_nodes")}
# Without a common host clock, collectives alone set clocks up to 5 µs otherwise.
EXPLAINED |= {("split by rank", name) for name in ("nsys delta_sync.2gpu", "nsys dpmp_hidden_sync.2gpu.nsys2023")}


class Relation(NamedTuple):
    """A change, and what it does to figures: a factor for times, numbers added to ranks and, in texts, to streams.

    Causes, sync points and confidences rest on what launches and clocks take, in ns: doubling all does not double them.
    In a report of its own a rank's host clock moves with its GPU's; in a common one it stays.
    """

    name: str
    change: Change
    times: int = 1
    ranks: int = 0
    streams: int = 0
    causes: bool = True  # whether causes and sync points stay as they are
    pair_only: bool = False  # only what the pair's own work says stays
    surely: bool = True  # whether it is known as surely: not where ranks, clocks or launches are lacking afterwards


def runs() -> dict[str, tuple[list[Path], tuple[str, str]]]:
    """Name -> captures of one run, and a pair of selectors of work in it."""
    found: dict[str, list[Path]] = defaultdict(list)
    for path in sorted((DATA / "torch").glob("*.json.gz")):
        found["torch " + path.name.split(".")[0]].append(path)
    for path in sorted((DATA / "nsys").glob("*gpu*.sqlite")):
        found["nsys " + path.name.removesuffix(".sqlite")].append(path)
    found["nsys rowpar_s1 a report a rank"] = sorted((DATA / "nsys").glob("rowpar_s1.rank?.nsys2025.sqlite"))
    sides = {"dpmp": ("nvtx:DP Embedding", "nvtx:MP Embedding"), "full_gpu": ("nvtx:branch A", "nvtx:branch B")}
    return {
        name: (files, next((pair for word, pair in sides.items() if word in name), ("comm", "compute")))
        for name, files in sorted(found.items())
    }


def _each(change: Callable[[Any, int], None], files: Files, out: Path, names: Callable[[str], str] = str) -> list[Path]:
    """Change copies of all files, each by its own kind; `change` gets the document or the database, and the number."""
    made = []
    for number, path in enumerate(files):
        target = out / names(path.name)
        if path.suffix == ".sqlite":
            shutil.copyfile(path, target)
            with closing(sqlite3.connect(target)) as database:
                change(database, number)
                database.commit()
        else:
            document = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)
            change(document, number)
            target.write_bytes(gzip.compress(json.dumps(document, default=float).encode(), 1, mtime=0))
        made.append(target)
    return made


def _timed(database: sqlite3.Connection) -> Iterator[tuple[str, list[str]]]:
    for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        columns = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
        if table.startswith(("CUPTI_ACTIVITY", "NVTX_EVENTS")) and "start" in columns:
            yield table, [column for column in ("start", "end") if column in columns]


def shift(files: Files, out: Path) -> list[Path]:
    """All times of all files later by as much."""

    def change(capture: Any, number: int) -> None:
        if isinstance(capture, dict):
            for event in capture["traceEvents"]:
                if "ts" in event:
                    event["ts"] += Decimal(MORE) / 1000
            return
        for table, columns in _timed(capture):
            capture.execute(f'UPDATE "{table}" SET ' + ", ".join(f'"{name}" = "{name}" + {MORE}' for name in columns))

    return _each(change, files, out)


def shift_one(files: Files, out: Path) -> list[Path] | None:
    """The clock of the last of several files is off: collectives align it again.

    Not of torch.profiler's, whose hosts' clocks are taken to agree.
    """
    if len(files) < 2 or files[0].suffix != ".sqlite":
        return None

    def change(capture: Any, number: int) -> None:
        if number == len(files) - 1:
            if isinstance(capture, dict):
                capture["baseTimeNanoseconds"] = int(capture["baseTimeNanoseconds"]) + 3 * MORE
            else:
                capture.execute(f"UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = utcEpochNs + {3 * MORE}")

    return _each(change, files, out)


def double(files: Files, out: Path) -> list[Path]:
    """All times twice as far from the first capture's zero, and durations twice as large."""
    zeros: list[int] = []

    def change(capture: Any, number: int) -> None:
        if isinstance(capture, dict):
            zeros.append(int(capture["baseTimeNanoseconds"]))
            capture["baseTimeNanoseconds"] = 2 * zeros[-1] - zeros[0]
            for event in capture["traceEvents"]:
                for key in ("ts", "dur"):
                    if key in event:
                        event[key] *= 2
            return
        for table, columns in _timed(capture):
            capture.execute(f'UPDATE "{table}" SET ' + ", ".join(f'"{name}" = "{name}" * 2' for name in columns))
        zeros.extend(capture.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME").fetchone())
        capture.execute(f"UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = {2 * zeros[-1] - zeros[0]}")

    return _each(change, files, out)


def reorder(files: Files, out: Path) -> list[Path]:
    """Events, or rows of every table of events, in another order."""

    def change(capture: Any, number: int) -> None:
        if isinstance(capture, dict):
            Random(number).shuffle(capture["traceEvents"])
            return
        for table, _ in list(_timed(capture)):
            schema = capture.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()[0]
            capture.execute(f'ALTER TABLE "{table}" RENAME TO mixed')
            capture.execute(schema)
            capture.execute(f'INSERT INTO "{table}" SELECT * FROM mixed ORDER BY rowid * 7919 % 10007')
            capture.execute("DROP TABLE mixed")

    return _each(change, files, out)


def rename_streams(files: Files, out: Path) -> list[Path]:
    """Every stream has another number, the same wherever it is spoken of."""

    def change(capture: Any, number: int) -> None:
        if isinstance(capture, dict):
            for event in capture["traceEvents"]:
                args = event.get("args", {})
                on_gpu = event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset", "cuda_sync", "gpu_user_annotation")
                if on_gpu and isinstance(event.get("tid"), int) and event["tid"] >= 0:
                    event["tid"] += STREAMS
                for key in ("stream", "wait_on_stream"):
                    if isinstance(args.get(key), int) and args[key] >= 0:
                        args[key] += STREAMS
            return
        for (table,) in capture.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for column in ("streamId", "nullStreamId"):
                if column in [row[1] for row in capture.execute(f'PRAGMA table_info("{table}")')]:
                    capture.execute(f'UPDATE "{table}" SET "{column}" = "{column}" + {STREAMS} WHERE "{column}" >= 0')

    return _each(change, files, out)


def rename_ranks(files: Files, out: Path) -> list[Path] | None:
    """Rank r is now r + 10, by the file's name and what stands in the file."""
    if not all(re.search(r"rank\d", path.name) for path in files):
        return None

    def change(capture: Any, number: int) -> None:
        if isinstance(capture, dict):
            capture["distributedInfo"]["rank"] += RANKS
        else:
            capture.execute("DELETE FROM META_DATA_CAPTURE")

    return _each(change, files, out, lambda name: re.sub(r"rank(\d+)", lambda m: f"rank{int(m[1]) + RANKS}", name))


def split(files: Files, out: Path) -> list[Path] | None:
    """One report over all ranks becomes one a rank: only that process's rows are left in each."""
    if len(files) != 1 or files[0].suffix != ".sqlite":
        return None
    made = []
    with closing(sqlite3.connect(files[0])) as database:
        query = "SELECT DISTINCT globalPid, deviceId FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY deviceId, globalPid"
        owners = database.execute(query).fetchall()
    if [device for _, device in owners] != list(range(len(owners))):  # a rank is its GPU's number here
        return None
    for rank, (owner, _) in enumerate(owners):
        target = out / f"rank{rank}.sqlite"
        shutil.copyfile(files[0], target)
        with closing(sqlite3.connect(target)) as database:
            for table, _ in list(_timed(database)):
                columns = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
                column = "globalPid" if "globalPid" in columns else "globalTid"
                database.execute(f'DELETE FROM "{table}" WHERE {column} >> 24 <> {owner >> 24}')
            database.commit()
        made.append(target)
    return made


def unrelated(files: Files, out: Path) -> list[Path]:
    """Another process's-worth of work on a stream of its own, which no range launched and nothing waits for."""

    def change(capture: Any, number: int) -> None:
        if isinstance(capture, dict):
            events = capture["traceEvents"]
            model = next(event for event in events if event.get("cat") == "kernel" and "nccl" not in event["name"])
            args = {key: model["args"][key] for key in ("device", "context") if key in model["args"]}
            for k in range(5):
                more = {**args, "stream": 999, "correlation": 10**8 + k}
                ts = model["ts"] + k * Decimal("3.5")
                events.append({**model, "name": "unrelated", "tid": 999, "ts": ts, "dur": 3, "args": more})
            return
        names = [row[1] for row in capture.execute("PRAGMA table_info(CUPTI_ACTIVITY_KIND_KERNEL)")]
        odd = {"streamId": "999", "correlationId": "100000000 + rowid"}
        texts = ", ".join(odd.get(name, f'"{name}"') for name in names)
        capture.execute(
            f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT {texts} FROM CUPTI_ACTIVITY_KIND_KERNEL LIMIT 1"
        )

    return _each(change, files, out)


RELATIONS = [
    Relation("shift all times", shift),
    Relation("shift one rank's clock", shift_one),
    Relation("double all durations", double, times=2, causes=False, surely=False),  # how far hosts agree stays
    Relation("reorder events", reorder),
    Relation("rename streams", rename_streams, streams=STREAMS),
    Relation("rename ranks", rename_ranks, ranks=RANKS, surely=False),  # rank 10 of a job has ten before it
    Relation("split by rank", split, causes=False, surely=False),  # of one host clock there are several
    Relation("add an unrelated stream", unrelated, pair_only=True, surely=False),  # which no call launched
]


def figures(files: Files, pair: tuple[str, str], *, pair_only: bool = False) -> dict[str, Any]:
    """Every figure of the commands by its path in the JSON."""
    names = [str(path) for path in files]
    sides = [f"{side}+!stream:999" if pair_only else side for side in pair]
    commands = [["check-overlap", *names, "-a", sides[0], "-b", sides[1]]]
    commands += [] if pair_only else [["streams", *names], ["collectives", *names], ["syncs", *names]]
    found: dict[str, Any] = {}
    for words in commands:
        ended = in_process([*words, "--format", "json"])
        assert not ended.crash and ended.code != 2, (words, ended.err, ended.crash)
        found[f"{words[0]} exit code"] = ended.code
        found |= {f"{words[0]}{path}": value for path, value in _flat(ended.answer)}
    return found


@functools.cache  # each relation begins from the same ones
def _original(files: tuple[Path, ...], pair: tuple[str, str], pair_only: bool) -> dict[str, Any]:
    return figures(files, pair, pair_only=pair_only)


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if PLACES.search(path):
        return
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _flat(one, f"{path}.{key}")
    elif isinstance(value, list):
        for k, one in enumerate(value):
            yield from _flat(one, f"{path}[{k}]")
    else:
        yield path, START_IN_ID.sub(r"\1", value) if isinstance(value, str) else value


def expected(before: dict[str, Any], relation: Relation) -> dict[str, Any]:
    """What the figures must have become."""
    after = {}
    for path, value in before.items():
        known = isinstance(value, int) and not isinstance(value, bool)
        if known and TIME.search(path):
            after[path] = value * relation.times
        elif known and RANK.search(path):
            after[path] = value + relation.ranks
        elif path.endswith("_gb_s") and value is not None:
            after[path] = value / relation.times
        elif isinstance(value, str):
            after[path] = _renumbered(value, relation)
        else:
            after[path] = value
    return after


def _renumbered(text: str, relation: Relation) -> str:
    """A text or an id with the numbers that streams and ranks have become."""
    text = STREAM_IN_TEXT.sub(lambda found: str(int(found[0]) + relation.streams), text)
    return RANK_IN_TEXT.sub(lambda found: str(int(found[0]) + relation.ranks), text)


def differences(files: Files, pair: tuple[str, str], relation: Relation, folder: Path) -> list[str] | None:
    """Figures that are not as expected; None where the relation does not apply."""
    folder.mkdir()
    changed = relation.change(files, folder)
    if changed is None:
        return None
    wanted = expected(_original(tuple(files), pair, relation.pair_only), relation)
    got = figures(changed, pair, pair_only=relation.pair_only)
    paths = [
        path for path in sorted(wanted.keys() | got.keys()) if not (STREAM_NUMBER.search(path) or IN_WORDS.search(path))
    ]
    if not relation.causes:
        paths = [path for path in paths if not OF_LAUNCHES.search(path)]
    if relation.pair_only:
        paths = [path for path in paths if not OF_ALL.search(path) and not PREDICTED.search(path)]
    if not relation.surely:
        paths = [path for path in paths if not HOW_SURELY.search(path)]
    predicted = list(_beyond(wanted, got)) if relation.pair_only else []
    return predicted + [
        f"{path}: {wanted.get(path)} -> {got.get(path)}"
        for path in paths
        if not _same(wanted.get(path), got.get(path), ROUNDING if relation.times > 1 and TIME.search(path) else 0)
    ]


def _beyond(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    """Predictions of which one does not lie in the range of the other."""
    for name in ("recoverable", "step"):
        likely, low, high = (f"check-overlap.remedy.{name}{which}_ns" for which in ("", "_low", "_high"))
        for one, other in ((before, after), (after, before)):
            if likely in one and likely in other and not one[low] <= other[likely] <= one[high]:
                yield f"{likely}: {other[likely]} is not within {one[low]} to {one[high]}"


def _same(one: Any, other: Any, rounding: int) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= 1e-3 * max(1.0, abs(one))
    if rounding and isinstance(one, int) and isinstance(other, int):
        return abs(one - other) <= rounding
    return bool(one == other)


def main() -> int:
    """Print the table of relations by captures; 1 where one does not hold."""
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        for relation in RELATIONS:
            held = compared = 0
            for number, (run, (files, pair)) in enumerate(runs().items()):
                found = differences(files, pair, relation, Path(name) / f"{relation.name} {number}")
                if found is None:
                    continue
                compared, held = compared + 1, held + (not found)
                failed += bool(found) and (relation.name, run) not in EXPLAINED
                if found:
                    print(f"  {relation.name}, {run}: {len(found)} figures differ, as {found[:4]}", flush=True)
            print(f"| {relation.name} | {held} of {compared} |", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
