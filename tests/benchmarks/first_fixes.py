"""Which fix is named first, on programs whose fix was made and measured: the table of `docs/measured/what-if.md`.

    python -m tests.benchmarks.first_fixes [PAIR …]
    PAIRS_H100=FOLDER PAIRS_FURTHER=FOLDER:FOLDER python -m tests.benchmarks.first_fixes --record

A pair is a program before a fix and after it. It counts where the fix gains over 3 % of a step without a profiler and
makes no kernel quicker; what else is as right is in `tests.support.fixes_made`. Captures of other pairs are too large
to be kept here: `--record` writes what was named of them to `tests/data/further/named.json`, from which the table takes
it. Those are pairs of four H100s, and two sets whose fixes were written before anything of them was captured
(`tools/capture-further-pairs.py`): the first was captured and looked at when the order was decided, the second after.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import traceviz as tv
from tests.analyzers.replay.test_pairs import FIXES, PAIRS
from tests.support.fixes_made import FURTHER, ON_H100, accepted, further, is_same

GAINS = 0.03
RECORD = FURTHER / "named.json"
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


def pairs(only: Sequence[str] = ()) -> Iterator[First]:
    """Each pair of `tests/data/pairs` in each form of its capture before the fix."""
    known = json.loads((PAIRS / "step_time_ms.json").read_text())
    for name, form in itertools.product(FIXES, FORMS):
        if not only or name in only:
            yield from first(PAIRS, name, form, FIXES[name], known)


def others(only: Sequence[str] = ()) -> Iterator[First]:
    """Each pair elsewhere, in the folders that variables name."""
    made = {name: " / ".join(one[:1]) for name, one in ON_H100.items()}
    made_further = {name: one["fix"] for name, one in further().items()}
    folders = [(os.environ.get("PAIRS_H100", ""), made)]
    folders += [(folder, made_further) for folder in os.environ.get("PAIRS_FURTHER", "").split(":")]
    for folder, fixes in folders:
        if folder:
            known = json.loads((Path(folder) / "step_time_ms.json").read_text())
            for name, form in itertools.product(fixes, FORMS):
                if not only or name in only:
                    yield from first(Path(folder), name, form, fixes[name], known)


def recorded() -> list[First]:
    """What was named of the pairs elsewhere."""
    return [First(**one) for one in json.loads(RECORD.read_text())]


def summary(found: Sequence[First]) -> list[str]:
    """How many are right, of those that count; what is never to be."""
    count = [one for one in found if one.counts]
    lines = []
    for command, what in (("check-overlap", "check_overlap"), ("what-if", "what_if")):
        right = sum(one.is_right(getattr(one, what)) for one in count)
        lines.append(f"`{command}` names the fix that was made first in {right} of {len(count)}")
    return [
        *lines,
        f"{sum(one.lengthens for one in found)} lengthen the step, {sum(one.unsafe for one in found)} are unsafe",
    ]


def rows(found: Sequence[First]) -> Iterator[list[str]]:
    """Of each what was made, what is named, and whether that is right; `check-overlap` and `what-if` name the same."""
    for one in found:
        word = "does not count" if not one.counts else "right" if one.is_right(one.check_overlap) else "not right"
        named = one.check_overlap if one.check_overlap == one.what_if else f"{one.check_overlap} / {one.what_if}"
        yield [
            f"{one.name} ({one.form})",
            f"{-one.gain:+.1%}".replace("-", "−"),
            one.made or "–",
            named or "no fix",
            word,
        ]


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
    asked = sys.argv[1:]
    only = [one for one in asked if one != "--record"]
    elsewhere = list(others(only))
    found = [*(() if "--record" in asked else pairs(only)), *elsewhere]
    for row in rows(found):
        print(" | ".join(row), flush=True)
    print("\n".join(summary(found)))
    if "--record" in asked:
        RECORD.write_text(json.dumps([asdict(one) for one in elsewhere], indent=1) + "\n")


if __name__ == "__main__":
    main()
