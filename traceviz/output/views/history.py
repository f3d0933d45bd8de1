"""The answer of `history`: as a document and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from analyzers.compare.noise import LEAST_RUNS, Trend
from traceviz.history.trends import PairTrend
from traceviz.output.document import Block, Headline, Table
from traceviz.output.quantities import duration, percent
from traceviz.output.records import Json, to_json
from traceviz.output.tables import Column, table

MOOD_OF_TREND = {"regression": "bad", "improvement": "good", "steady": "good", "too-few": "middle"}
MOST_RUNS = 30


def document(found: Sequence[PairTrend]) -> Json:
    """`traceviz.history/2`: a pair's runs, oldest first, and how the newest stands against those before.

    Runs by another `rule` than the newest's are left out, as are apparent figures where the newest's is real, and real
    ones where it is apparent.
    """
    return {"schema": "traceviz.history/2", "pairs": to_json(found)}


def blocks(found: Sequence[PairTrend]) -> list[Block]:
    """Per pair: what its newest run is, and a table of its runs, newest first."""
    if not found:
        return [Headline("NO RUNS", "there is no run of this pair in the history.", "middle")]
    return [block for one in found for block in (_headline(one), _table(one))]


def _headline(one: PairTrend) -> Headline:
    newest, what = one.runs[-1], one.overlap_name
    sentences = [
        f"{what} {_judged(one.overlap, percent)}" if one.overlap else f"no {what}",
        f"step time {_judged(one.step, lambda ns: duration(round(ns)))}" if one.step else "no step time",
    ]
    if one.flip:
        sentences.insert(0, f"the verdict was {one.verdict_before} and is {newest.verdict}: {one.flip}")
    if one.other_rules:
        sentences.append(f"{_left_out(one.other_rules)}, whose figures are by another rule")
    if one.others_apparent:
        theirs = "real" if one.apparent else "apparent"
        sentences.append(f"{_left_out(one.others_apparent)}, whose overlap is {theirs}, or may be")
    word = "TOO FEW RUNS" if one.call == "too-few" else one.call.upper()
    return Headline(
        word,
        f"run {newest.id}, '{one.a}' against '{one.b}' on {one.gpus}: {'; '.join(sentences)}.",
        MOOD_OF_TREND[one.call],
    )


def _left_out(count: int) -> str:
    return f"{count} run{'s are' if count > 1 else ' is'} left out"


def _judged(one: Trend, shown: Callable[[float], str]) -> str:
    if one.low is None or one.high is None:
        before = "1 run before is" if one.before == 1 else f"{one.before or 'no'} runs before are"
        return f"{shown(one.newest)}; {before} too few to tell noise ({LEAST_RUNS} do)"
    span = f"{shown(one.low)} … {shown(one.high)} expected of the {one.before} runs before"
    return f"{shown(one.newest)} ({span}): {one.call}"


def _table(one: PairTrend) -> Table:
    columns: dict[str, Column] = {
        "run": "id",
        "saved (UTC)": lambda run: run.saved_utc.removesuffix("+00:00").replace("T", " "),
        "commit": lambda run: run.commit_id[:12] or "–",
        "host": "host",
        "verdict": "verdict",
        one.overlap_name: "real_overlap_ratio",
        "step time": "step_ns",
        "steps": "steps",
    }
    words = ("saved (UTC)", "commit", "host", "verdict")
    return table("", one.runs[::-1], columns, words=words, most=MOST_RUNS, more="older")
