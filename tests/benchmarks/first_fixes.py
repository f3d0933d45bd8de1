"""Which fix is named first, on programs whose fix was made and measured: the table of `docs/measured/what-if.md`.

    python -m tests.benchmarks.first_fixes [PAIR …]

A pair is a program before a fix and after it. It counts where the fix gains over 3 % of a step without a profiler and
makes no kernel quicker; what else is as right is in `tests.support.fixes_made`. Pairs of `tests/data/further`, whose
fixes were written before anything of them was captured, come last, where their captures are there.
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
from tests.support.fixes_made import FURTHER, ON_H100, accepted, further, is_same

GAINS = 0.03
FORMS = {"torch": ".rank*.json.gz", "default": ".default.rank*.json.gz", "nsys": ".sqlite.gz"}


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
        return named != "" and any(is_same(named, one) for one in accepted(self.name, self.made))


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
    if (FURTHER / "step_time_ms.json").exists():
        known = json.loads((FURTHER / "step_time_ms.json").read_text())
        for (name, one), form in itertools.product(further().items(), FORMS):
            if not only or name in only:
                yield from first(FURTHER, name, form, one["fix"], known)


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
