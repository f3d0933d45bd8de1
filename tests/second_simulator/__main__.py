"""`python -m tests.second_simulator START COUNT`: how often the named cause is the true one, and each disagreement."""

from __future__ import annotations

import sys
from collections import Counter

from tests.second_simulator.measure import FORMATS, Answer, answers


def main(start: int, count: int) -> None:
    told = [answer for seed in range(start, start + count) for answer in answers(seed)]
    for form in FORMATS:
        mine = [answer for answer in told if answer.form == form]
        right = sum(answer.right for answer in mine)
        worth = sum(answer.worth_most == answer.truth.cause for answer in mine)
        print(f"{form}: {right} of {len(mine)} named as held longest, {worth} as worth most")
        print(f"  truths: {dict(Counter(answer.truth.cause for answer in mine))}")
        same = sum(answer.real_ns == answer.truth.real_ns for answer in mine)
        print(f"  real overlap to the nanosecond: {same} of {len(mine)}")
        _list([answer for answer in mine if not answer.right])


def _list(wrong: list[Answer]) -> None:
    for (truth, named), number in Counter((answer.truth.cause, answer.named) for answer in wrong).most_common():
        print(f"  {truth} → {named}: {number}")
    for answer in wrong:
        print(f"    {answer}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
