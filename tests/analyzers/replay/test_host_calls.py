"""A host call that waits in no range: what check-overlap says it is worth, what-if says too, of one replay."""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from analyzers.common.errors import TracevizError
from analyzers.load import load
from analyzers.replay.answer import parse_change, what_if
from analyzers.replay.host_changes import DropSync
from analyzers.replay.worth import with_worth
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from tests.support.command_lines import invoked

REPORT = Path(__file__).parents[2] / "data" / "public" / "worth-without-what-if" / "report.sqlite.gz"
PAIR = "memcpy:DtoH", "compute"
MS = 1_000_000


def report(folder: Path, call: str) -> Path:
    """The report with another host call in the place of cudaHostAlloc, which waits as long."""
    path = folder / "report.sqlite"
    path.write_bytes(gzip.decompress(REPORT.read_bytes()))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE StringIds SET value = ? WHERE value = 'cudaHostAlloc_v3020'", (f"{call}_v3020",))
        connection.commit()
    return path


def copied_ns(path: Path) -> int:
    """How long all copies take: each could run beside the kernel that is launched behind it, or before it."""
    with closing(sqlite3.connect(path)) as connection:
        ((total,),) = connection.execute("SELECT SUM(end - start) FROM CUPTI_ACTIVITY_KIND_MEMCPY")
    return int(total)


@pytest.mark.parametrize("call", ["cudaHostAlloc", "cudaFree", "cudaDeviceSynchronize"])
def test_both_say_that_all_copies_would_overlap_without_it(tmp_path: Path, call: str) -> None:
    path = report(tmp_path, call)
    assert copied_ns(path) == 4 * MS
    trace = load([path])
    checked = with_worth(check_overlap(trace, *PAIR), trace)
    missed = {one.cause: one for rank in checked.ranks for one in rank.missed}
    assert sum(one.ns for one in missed.values()) == missed["host-sync"].recoverable_ns == 4 * MS
    predicted = what_if(trace, (), *PAIR)
    change = DropSync(f"call:{call}")
    assert predicted.best is not None and predicted.best.change == str(change) == f"drop-sync call:{call}"
    (rank,) = predicted.best.ranks
    assert (rank.now_ratio, rank.ratio) == (0.0, 1.0)
    if call == "cudaDeviceSynchronize":  # which is written to order: no stream waits before it copies what is computed
        assert (checked.fix, predicted.fix, predicted.best.safety) == (None, None, "unsafe")
        assert predicted.best.assumptions[0].startswith("nothing else orders 'Memcpy DtoH' (stream 13) behind 'gemm'")
    else:
        assert checked.fix is not None and checked.fix.change == predicted.best.change
        assert (checked.fix.now_step_ns, checked.fix.step_ns) == (predicted.best.now_ns, predicted.best.step_ns)
    asked = what_if(trace, [change], *PAIR)
    assert asked.best is not None and asked.best.step_ns == predicted.best.step_ns


def test_a_call_is_named_on_the_command_line(tmp_path: Path) -> None:
    assert parse_change("drop-sync call:cudaHostAlloc") == DropSync("call:cudaHostAlloc")
    line = ["what-if", str(REPORT), "-a", PAIR[0], "-b", PAIR[1], "--change", "drop-sync call:cudaHostAlloc"]
    answer = json.loads(invoked(*line, "--format", "json").output)
    assert answer["changes"][0]["change"] == "drop-sync call:cudaHostAlloc"


@pytest.mark.parametrize(
    ("call", "why"), [("cudaHostAllo", "no call of 'cudaHostAllo' is on record"), ("cudaLaunchKernel", "no call that")]
)
def test_a_call_that_is_not_there_or_does_not_wait_is_refused(call: str, why: str) -> None:
    trace: Trace = load([REPORT])
    with pytest.raises(TracevizError, match=why):
        what_if(trace, [DropSync(f"call:{call}")], *PAIR)
