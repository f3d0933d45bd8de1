"""Answers for assistants and scripts: JSON of at most `MOST_TOKENS`, with ids to expand and what to run next.

All times are whole ns, keys have the names of the full answers. Lists hold the worst first; `left_out` counts, by list,
what is not in them. What is too long for its place ends with "…".
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from analyzers.common.errors import TraceWarning
from analyzers.common.wording import shortened
from analyzers.trace.step_table import StepsUsed
from traceviz.output.document import Block, Headline, Paragraph, plain
from traceviz.output.records import Json, picked, to_json

MOST_TOKENS = 2_000
LONGEST_TEXT, LONGEST_NAME = 320, 80  # letters
SHORTER = (200, 120, 60)  # to which texts are cut where what is left is still too much
MOST_CAVEATS, MOST_NEXT = 5, 3
# Codes of warnings of figures or of order; the others are of how something is told, or of little.
MAY_CHANGE_IT = (
    *(
        "missing-wait",
        "lost-work",
        "cut-durations",
        "dropped-events",
        "skipped-bad",
        "absurd-times",
        "unknown-events",
        "unread-work",
        "unreadable-events",
        "graph-as-one-row",
    ),
    *("ranks-missing", "ranks-unstated", "not-one-run", "one-rank", "rank-conflict", "captures-apart", "same-gpu"),
    *("clocks-not-aligned", "clocks-contradict", "hosts-contradict", "no-common-clock", "pasted-clocks"),
    *("order-refuted", "unmatched-calls", "partly-matched", "unsure-matches", "cut-off", "few-collectives"),
    *("steps-renumbered", "ends-apart", "waiting-is-not-overlap"),
    *("launched-before", "missing-launch", "uneven-ends", "no-kernels", "no-gpu-work", "outside-steps", "other-thread"),
    *("unknown-work", "names-lost", "range-names-lost", "unit-differs", "page-migrations", "missing-links"),
    *("profiler-distorts", "few-instances", "too-few-steps", "unrecorded-work", "smeared", "waits-by-traffic"),
)
_TOKEN = re.compile(r"[A-Za-z]{1,4}|[0-9]{1,3}|[^A-Za-z0-9\s]")


def brief(
    schema: str,
    found: Json,
    warnings: Iterable[TraceWarning],
    following: Sequence[str],
    most: Mapping[str, int],
    left_out: Mapping[str, int] | None = None,
) -> Json:
    """A brief answer: what was found, what to know beside it, and the commands to run next; as `fitted` takes it."""
    answer = {"schema": schema, **found, "caveats": caveats(warnings), "next": following}
    return fitted(answer, {**most, "caveats": MOST_CAVEATS}, left_out)


def fitted(answer: Json, most: Mapping[str, int], left_out: Mapping[str, int] | None = None) -> Json:
    """An answer that `MOST_TOKENS` hold: lists lose their last, the longest list first; then texts get shorter.

    Parameters
    ----------
    most : how many of each list to begin with.
    left_out : what the lists lack already.
    """
    following = answer.pop("next")[:MOST_NEXT]
    lacking = Counter(left_out or {})
    fit = {name: _shortened(value, LONGEST_TEXT) for name, value in answer.items()}
    for name, count in most.items():
        lacking[name] += max(len(fit[name]) - count, 0)
        fit[name] = fit[name][:count]

    def put_together() -> Json:
        return {**fit, "left_out": {name: count for name, count in lacking.items() if count}, "next": following}

    def is_too_much(value: Json) -> bool:
        return tokens(as_line(value)) > MOST_TOKENS

    while is_too_much(put_together()):
        lists = [name for name in most if len(fit[name]) > 1]
        if not lists:
            break
        longest = max(lists, key=lambda name: tokens(as_line(fit[name])))
        fewer = max(len(fit[longest]) // 8, 1)
        fit[longest] = fit[longest][:-fewer]
        lacking[longest] += fewer
    for length in SHORTER:
        if is_too_much(put_together()):
            fit = _shortened(fit, length)
    while len(following) > 1 and is_too_much(put_together()):
        following = following[:-1]
    return put_together()


def _shortened(value: Any, most: int) -> Any:
    """All texts within a value cut to a length."""
    if isinstance(value, str):
        return shortened(plain(value), most)
    if isinstance(value, dict):
        return {key: _shortened(one, most) for key, one in value.items()}
    return [_shortened(one, most) for one in value] if isinstance(value, list | tuple) else value


def tokens(text: str) -> int:
    """How many tokens a text takes at most: assistants' vocabularies have most words, and pairs of signs, in one.

    >>> tokens('{"missed_ns":1133472}')
    12
    """
    return len(_TOKEN.findall(text))


def as_line(answer: Any) -> str:
    """An answer in one line, without blanks that say nothing."""
    return json.dumps(answer, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def rounded(value: Any) -> Any:
    """A full answer with ratios of four digits: more are noise to who reads it in brief."""
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, list | tuple) else value


def caveats(warnings: Iterable[TraceWarning]) -> list[Json]:
    """What to know beside the figures: what could change a verdict first, each code once."""
    found: dict[str, Json] = {}
    times: Counter[str] = Counter()
    for one in warnings:
        found.setdefault(one.code, {"code": one.code, "message": one.message})
        times[one.code] += 1
    for code, count in times.items():
        found[code] |= {"times": count} if count > 1 else {}
    return sorted(found.values(), key=lambda one: one["code"] not in MAY_CHANGE_IT)


def lines(blocks: Sequence[Block]) -> list[str]:
    """Headlines and paragraphs as plain lines."""
    shown = [one for one in blocks if isinstance(one, Headline | Paragraph)]
    return [f"{one.word}: {one.text}" if isinstance(one, Headline) else one.text for one in shown]


def steps_in_brief(used: StepsUsed | None) -> Json | None:
    """The run's steps in short; `numbers` are those that figures are of, null for everything."""
    if used is None:
        return None
    left_out = [one.step for one in used.left_out][:8]
    numbers = None if used.numbers is None else spans(used.numbers)
    return {**picked(to_json(used), "count whole first last source by"), "left_out": left_out, "numbers": numbers}


def spans(numbers: Iterable[int]) -> str:
    """Numbers as `--ranks` and people write them.

    >>> spans([0, 1, 2, 5])
    '0-2,5'
    """
    runs: list[list[int]] = []
    for one in sorted(set(numbers)):
        if runs and one == runs[-1][1] + 1:
            runs[-1][1] = one
        else:
            runs.append([one, one])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def name(text: str) -> str:
    """A name of so many letters as a brief answer has room for."""
    return shortened(plain(str(text)), LONGEST_NAME)
