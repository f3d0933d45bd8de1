"""The answer of `counters`: as a document and as JSON; what GPU counters say in the answers of other commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from analyzers.counters.by_state import CountersResult
from analyzers.counters.limits import Contended
from analyzers.counters.states import DeviceStates, SideState, pooled
from analyzers.counters.vocabulary import COUNTERS
from analyzers.trace.devices import DeviceLabels
from traceviz.output.document import Block, Headline, Paragraph, Table
from traceviz.output.quantities import duration
from traceviz.output.records import Json, picked, to_json
from traceviz.output.views.caveats import caveats, steps

STATE_LABELS = {"a": "A alone", "b": "B alone", "both": "both", "waiting": "waiting", "neither": "neither"}
# Columns of the table by rank, in which there is room for few.
MAIN = (
    *("sm_active", "tensor_active", "dram_read", "dram_write", "nvlink_in", "nvlink_out", "nic_in", "nic_out"),
    "gpc_clock",
)


def document(result: CountersResult) -> Json:
    """`traceviz.counters/1`: per rank, device and state; times are whole ns, counters % or MHz.

    `likely` is told of all ranks together; `unknown` says why nothing can be, "" where it can.
    """
    ranks = [{**picked(one, "rank device period_ns samples"), "states": in_states(one.states)} for one in result.ranks]
    return {
        "schema": "traceviz.counters/1",
        **picked(result, "steps pair=a+b"),
        **(to_json(result.contended) or {}),
        "ranks": ranks,
        **picked(result, "warnings"),
    }


def in_states(states: Mapping[str, SideState]) -> Json:
    """Of each state how long it took, how much of that was sampled, and the counters in it."""
    return {
        state: {
            **picked(one, "time_ns sampled_ns whole_ns"),
            "counters": {name: {"mean": one.mean(name), "p90": one.p90(name)} for name in one.weights},
        }
        for state, one in states.items()
    }


def blocks(result: CountersResult) -> list[Block]:
    """What the sides contend for, the counters of all ranks together, the main ones of each."""
    count = len(result.ranks)
    period = duration(result.ranks[0].period_ns) if result.ranks else ""
    shown: list[Block] = [
        Headline("COUNTERS", result.sentence),
        *steps(result.steps),
        Table(("side", "selector"), (("A", result.a), ("B", result.b))),
        _together(pooled(result.ranks), f"{count} rank{'s' if count > 1 else ''}, a sample every {period}"),
    ]
    if count > 1:
        shown.append(_by_rank(result.ranks))
    return shown + caveats(result.warnings)


def _present(states: Mapping[str, SideState]) -> list[str]:
    return [name for name in STATE_LABELS if states[name].sampled_ns]


def _together(states: Mapping[str, SideState], whose: str) -> Table:
    present = _present(states)
    rows = [("time", "", *(duration(states[name].time_ns) for name in present))]
    for counter, named in COUNTERS.items():
        if any(counter in states[name].weights for name in present):
            rows.append((named.label, named.unit, *(_cell(states[name], counter) for name in present)))
    headers = ("counter", "unit", *(STATE_LABELS[name] for name in present))
    note = "A sample counts for each state as long as it shares with it."
    if "waiting" in present:
        note = f"Waiting: a collective that only waits for its last rank is resident. {note}"
    return Table(headers, rows, f"Mean (P90): {whose}", frozenset(headers[2:]), note)


def _by_rank(ranks: Sequence[DeviceStates]) -> Table:
    labels = DeviceLabels.of((one.rank, one.device) for one in ranks)
    known = [name for name in MAIN if any(name in state.weights for one in ranks for state in one.states.values())]
    rows = [
        (
            labels.short(one.rank, one.device),
            STATE_LABELS[name],
            duration(state.time_ns),
            *(mean(state, k) for k in known),
        )
        for one in ranks
        for name, state in ((name, one.states[name]) for name in _present(one.states))
    ]
    headers = ("rank", "state", "time", *(f"{COUNTERS[name].label}, {COUNTERS[name].unit}" for name in known))
    return Table(headers, rows, "Mean by rank", frozenset(headers) - {"state"})


def mean(state: SideState, counter: str) -> str:
    """A counter's mean in a state; a dash where it was not sampled."""
    value = state.mean(counter)
    return "–" if value is None else f"{value:,.0f}"


def _cell(state: SideState, counter: str) -> str:
    return "–" if state.mean(counter) is None else f"{mean(state, counter)} ({state.p90(counter):,})"


def contended(found: Contended | None) -> list[Block]:
    """What the sides likely contend for; nothing where there are no counters."""
    if found is None:
        return []
    title, _, text = found.sentence.partition(": ")
    return [Paragraph(text, title)]
