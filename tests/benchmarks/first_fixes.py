"""Which fix is named first, on programs whose fix was made and measured: the table of `docs/measured/what-if.md`.

    python -m tests.benchmarks.first_fixes [PAIR …]

A pair is a program before a fix and after it. It counts where the fix gains over 3 % of a step without a profiler and
makes no kernel quicker. `ACCEPTED` was written before anything ran: a change that is the same one in other words
("level" of the range that makes a rank late is "on-time" of it; a pageable copy that is pinned blocks no longer; a fix
of several changes is begun with any of them), or that takes the same obstacle out of the same place.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import traceviz as tv
from tests.analyzers.replay.test_pairs import FIXES, PAIRS
from tests.answers import DATA

GAINS = 0.03
FORMS = {"torch": ".rank*.json.gz", "default": ".default.rank*.json.gz", "nsys": ".sqlite.gz"}
ACCEPTED: dict[str, tuple[str, ...]] = {
    "a2a_check": ("move-wait nvtx:compute before nvtx:validation", "drop-sync nvtx:validation"),
    "ddp_log": ("drop-sync nvtx:log loss",),
    "dpmp_item": ("drop-sync nvtx:MP embedding", "move-wait nvtx:DP tower before nvtx:MP embedding"),
    "dpmp_move": ("move-wait nvtx:DP tower before nvtx:MP embedding",),
    "delta_sync": ("drop-sync nvtx:stream out", "pin nvtx:stream out"),
    "opt_lookup": ("own-stream nvtx:lookup", "own-stream nvtx:optimizer"),
    "fsdp_late": ("on-time 1", "level nvtx:load batch"),
    "moe_late": ("on-time 1", "level nvtx:route"),
    "halves": ("drop-wait nvtx:half 0 on nvtx:reduce 1", "drop-wait nvtx:half 1 on nvtx:reduce 0"),
    "moe_shared": ("own-stream nvtx:shared expert",),
}
# Of four H100s, with the files of each form; asynctp and contend as a change of the collective's wait or pieces.
ON_H100 = {
    "item": (
        "drop-sync nvtx:MP lookup",
        "move-wait nvtx:DP tower before nvtx:MP lookup",
    ),
    "rank": ("on-time 3", "level nvtx:load batch", "drop-sync nvtx:load batch"),
    "contend": (
        "drop-wait nvtx:compute on nvtx:reduce",
        "drop-wait compute on nvtx:reduce",
        "drop-wait compute on comm",
    ),
    "ring": (),
    "asynctp": ("split nvtx:tp matmul", "split comm", "split collective:all_gather"),
}


@dataclass(frozen=True)
class First:
    """What is named first before a fix was made: by `check-overlap`, and by `what-if`; `gain` of the step, measured."""

    name: str
    form: str
    gain: float
    made: str
    check_overlap: str
    what_if: str
    lengthens: bool
    unsafe: bool

    @property
    def counts(self) -> bool:
        return self.gain > GAINS and not self.made.startswith("scale")

    def is_right(self, named: str) -> bool:
        return named != "" and any(_same(named, one) for one in accepted(self.name, self.made))


def accepted(name: str, made: str) -> tuple[str, ...]:
    return (made, *ACCEPTED.get(name, ON_H100.get(name, ())))


def _same(named: str, wanted: str) -> bool:
    """Whether a change is the wanted one: pieces and where a stream is joined don't matter; of several, any part."""
    parts = [one.partition(" join-before ")[0] for one in named.split(" + ")]
    if wanted.startswith("split "):
        parts = [one.rpartition(" ")[0] if one.startswith("split ") else one for one in parts]
        wanted = wanted.rpartition(" ")[0] if wanted.rpartition(" ")[2].isdigit() else wanted
    return any(one == each.partition(" join-before ")[0] for each in wanted.split(" + ") for one in parts)


def pairs(only: Sequence[str] = (), h100: str | None = None) -> Iterator[First]:
    """Each pair in each form of its capture before the fix."""
    known = json.loads((PAIRS / "step_time_ms.json").read_text())
    for name, form in itertools.product(FIXES, FORMS):
        if not only or name in only:
            yield from first(PAIRS, name, form, FIXES[name], known)
    folder = Path(h100) if h100 else DATA / "pairs-h100"
    if folder.exists():
        known = json.loads((folder / "step_time_ms.json").read_text())
        for name, form in itertools.product(ON_H100, FORMS):
            if not only or name in only:
                yield from first(folder, name, form, " / ".join(ON_H100[name][:1]), known)


def first(folder: Path, name: str, form: str, made: str, known: dict[str, float]) -> Iterator[First]:
    paths = sorted(folder.glob(f"{name}_before{FORMS[form]}"))
    paths = [one for one in paths if form == "default" or ".default." not in one.name]
    if not paths:
        return
    trace = tv.load([str(path) for path in paths])
    checked = tv.check_overlap(trace)
    fix = checked.fix
    tried = tv.what_if(trace)
    best = tried.fix
    gain = 1 - known[f"{name}_after"] / known[f"{name}_before"]
    yield First(
        name,
        form,
        gain,
        made,
        fix.change if fix else "",
        best.change if best else "",
        any(one is not None and one.step_ns > one.now_step_ns for one in (fix, best)),
        any(one is not None and one.safety == "unsafe" for one in (fix, best)),
    )


def main() -> None:
    only = [one for one in sys.argv[1:] if not one.startswith("/")]
    found = []
    for one in pairs(only, os.environ.get("PAIRS_H100")):
        marks = [
            "·" if not one.counts else "✓" if one.is_right(each) else "✗" for each in (one.check_overlap, one.what_if)
        ]
        print(
            f"{one.name:20} {one.form:8} {-one.gain:+6.1%}  {one.made:45} {marks[0]} {one.check_overlap:45} "
            f"{marks[1]} {one.what_if:45} {'LENGTHENS' * one.lengthens} {'UNSAFE' * one.unsafe}",
            flush=True,
        )
        found.append(one)
    count = [one for one in found if one.counts]
    for what in ("check_overlap", "what_if"):
        right = sum(one.is_right(getattr(one, what)) for one in count)
        print(f"{what}: {right} of {len(count)} right ({right / max(len(count), 1):.0%})")
    print(f"lengthen: {sum(one.lengthens for one in found)}, unsafe: {sum(one.unsafe for one in found)}")


if __name__ == "__main__":
    main()
