"""`python -m tests.second_simulator START COUNT`: what is named beside the truth, and each disagreement.

`python -m tests.second_simulator show SEED RANK STEP` prints one step of one rank in numbers.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence

from tests.second_simulator.machine import Machine
from tests.second_simulator.measure import FORMATS, Answer, answers
from tests.second_simulator.programs import program
from tests.second_simulator.timeline import timeline


def measure(start: int, count: int) -> None:
    told = [answer for seed in range(start, start + count) for answer in answers(seed)]
    for form in FORMATS:
        _print_form(form, [answer for answer in told if answer.form == form])


def _print_form(form: str, every: list[Answer]) -> None:
    clear = [answer for answer in every if answer.critical and answer.truth.cause]
    known = [answer for answer in clear if answer.worth]
    named = sum(answer.named == answer.truth.cause for answer in clear)
    worth = sum(answer.worth_most == answer.truth.cause for answer in known)
    print(f"{form}: {named} of {len(clear)} named as true; worth most {worth} of {len(known)}")
    print(f"  truths: {dict(Counter(answer.truth.cause for answer in clear))}")
    large = [(answer, *each) for answer in every if answer.critical for each in answer.large]
    brings = sum(back for *_, back in large)
    says = sum(not back and cause in answer.then for answer, cause, back in large)
    print(f"  of {len(large)} causes that hold over 30 %: {brings} bring back a quarter, {says} say what comes next")
    apart = [abs(answer.real_ns - answer.truth.real_ns) for answer in every]
    print(f"  real overlap: {apart.count(0)} of {len(apart)} ranks to the nanosecond, at most {max(apart)} ns apart")
    wrong = [answer for answer in clear if answer.named != answer.truth.cause]
    for (truth, other), number in Counter((answer.truth.cause, answer.named) for answer in wrong).most_common():
        print(f"  {truth} → {other}: {number}")
    by_definition = [answer for answer in wrong if answer.named == answer.held_most]
    _print_list("named wrong, yet held longest by definition", by_definition)
    _print_list("named wrong", [answer for answer in wrong if answer.named != answer.held_most])
    _print_list("another worth most", [answer for answer in known if answer.worth_most != answer.truth.cause])
    print(f"  of {len(every)} ranks, also those whose truth is not clear:")
    _print_list("held otherwise than defined", [answer for answer in every if answer.held_off])
    print(f"  worth known on {sum(bool(answer.worth) for answer in every)}, "
          f"over 10 % off on {sum(bool(answer.worth_off) for answer in every)}")  # fmt: skip
    _print_list("worth over 10 % off, and outside its range", [answer for answer in every if answer.worth_outside])


def _print_list(title: str, found: Sequence[Answer]) -> None:
    print(f"  {title}: {len(found)}", *found, sep="\n    ")


if __name__ == "__main__":
    if sys.argv[1] == "show":
        seed, rank, step = (int(word) for word in sys.argv[2:5])
        print(timeline(Machine(program(seed)).run(), rank, step))
    else:
        measure(int(sys.argv[1]), int(sys.argv[2]))
