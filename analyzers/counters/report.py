"""The counters of a run by what ran: A alone, B alone, both, neither; and what the sides likely contend for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analyzers.arrays.types import Mask
from analyzers.common.errors import TracevizError, TraceWarning
from analyzers.common.notebook import card
from analyzers.common.wording import duration
from analyzers.counters.limits import MOSTLY, Contended, contended
from analyzers.counters.states import DeviceStates, device_states, mixed, pooled
from analyzers.counters.vocabulary import COUNTERS
from analyzers.select.language import names_of
from analyzers.select.select import select
from analyzers.select.sides import without_shared
from analyzers.trace.columns import ints
from analyzers.trace.devices import DeviceLabels
from analyzers.trace.kernels import is_communication
from analyzers.trace.tables import Trace

UNSEEN = 0.1  # of communication, from which on its unseen waits are said
HINT = "Capture with: traceviz collect nsys --gpu-metrics (nsys profile --gpu-metrics-devices=all)."


@dataclass(frozen=True)
class CountersResult:
    """Counters by state, per rank and device; `contended` is told of all of them together."""

    a: str
    b: str
    ranks: tuple[DeviceStates, ...]
    contended: Contended
    warnings: tuple[TraceWarning, ...]

    @property
    def sentence(self) -> str:
        """What the sides likely contend for, in words."""
        return self.contended.sentence

    def to_frame(self) -> pd.DataFrame:
        """One row per (rank, device), state and counter that was sampled: time_ns, mean, p90, in % or MHz."""
        rows = [
            (one.rank, one.device, name, counter, state.time_ns, state.mean(counter), state.p90(counter))
            for one in self.ranks
            for name, state in one.states.items()
            for counter in COUNTERS
            if counter in state.weights
        ]
        columns = ["rank", "device", "state", "counter", "time_ns", "mean", "p90"]
        return pd.DataFrame(rows, columns=columns).set_index(["rank", "device", "state", "counter"])

    def _repr_html_(self) -> str:
        headers = ("rank", "counter", *(f"{name}: mean" for name in ("A alone", "B alone", "both", "neither")))
        rows = [
            (
                one.rank,
                COUNTERS[counter].label,
                *(_cell(one, state, counter) for state in ("a", "b", "both", "neither")),
            )
            for one in self.ranks
            for counter in COUNTERS
        ]
        text = f"A = {self.a}, B = {self.b}. {self.sentence}"
        return card("counters", text, headers, rows, texts=("counter",), warnings=self.warnings)

    def __repr__(self) -> str:
        return f"<counters: '{self.a}' against '{self.b}', {len(self.ranks)} rank(s). {self.sentence}>"


def counters(trace: Trace, a: str = "comm", b: str = "compute") -> CountersResult:
    """Join a run's GPU counters to what ran.

    Raises
    ------
    TracevizError : no GPU counters were captured; a selector can't be read, or the sides share ops.
    """
    refuse_without(trace)
    first, second, notes = without_shared(trace, select(trace, a), select(trace, b))
    names = str(first.selector), str(second.selector)
    ranks = device_states(trace, first.picked, second.picked)
    notes += [
        TraceWarning("empty-side", f"'{side.selector}': {side.reason}.") for side in (first, second) if side.reason
    ]
    warnings = (*trace.warnings, *notes, *about(trace, ranks, first.picked | second.picked))
    return CountersResult(*names, ranks, in_all(ranks, *names_of(*names)), warnings)


def in_all(devices: Sequence[DeviceStates], a: str, b: str, before: Sequence[DeviceStates] = ()) -> Contended:
    """What A and B likely contend for, over all devices.

    Parameters
    ----------
    before : of a run without overlap: its samples of A alone and of B alone stand beside this run's own.
    """
    whole = [one for one in devices if not one.lacks_ops]
    if not whole:
        return Contended(unknown="no rank has both counters and all of its ops")
    states, alone = dict(pooled(whole)), pooled([one for one in before if not one.lacks_ops])
    states |= {side: states[side] + alone[side] for side in ("a", "b")}
    return contended(states, mixed(whole), int(np.median([one.period_ns for one in whole])), a, b)


def refuse_without(trace: Trace) -> None:
    """Refuse a run without GPU counters.

    Raises
    ------
    TracevizError : there are none, or they were left unread.
    """
    if len(trace.counters):
        return
    unread = sum(one.unread_counters for one in trace.captures)
    if unread:
        text = f"{unread:,} rows of GPU counters were left in the file when this trace was read."
        raise TracevizError(text, hint="Load it with counters=True.")
    raise TracevizError("There are no GPU counters in this capture.", path=trace.captures[0].path, hint=HINT)


def about(trace: Trace, devices: Sequence[DeviceStates], ops: Mask) -> list[TraceWarning]:
    """What the reader of the figures has to know."""
    labels = DeviceLabels.of((one.rank, one.device) for one in devices)
    found = []
    sampled = {(one.rank, one.device) for one in devices}
    rank, device = (np.unique(np.stack([ints(trace.ops, "rank"), ints(trace.ops, "device")]), axis=1)).tolist()
    without = [key for key in zip(rank, device, strict=True) if key not in sampled]
    if without:
        listed = ", ".join(DeviceLabels.of(without).short(*key) for key in without[:8])
        found.append(TraceWarning("no-counters", f"No GPU counters of rank {listed}: left out."))
    smeared = [
        labels.short(one.rank, one.device)
        for one in devices
        if (both := one.states["both"]).sampled_ns and both.whole_ns < MOSTLY * both.sampled_ns
    ]
    if smeared:
        text = (
            f"On rank {', '.join(smeared[:8])} most samples while both ran are partly of other times: means by state "
            "lie nearer to each other than the truth. Sample at a higher rate."
        )
        found.append(TraceWarning("smeared", text))
    length = ints(trace.ops, "end_ns") - ints(trace.ops, "start_ns")
    unseen_ns = int(length[ops & (ints(trace.ops, "wait_seen") == 0)].sum())
    if unseen_ns > UNSEEN * int(length[ops & is_communication(trace)].sum()):
        text = "Peers of some communication were not captured: its waiting counts as running."
        found.append(TraceWarning("unseen-waits", text))
    lacking = [one for one in devices if one.lacks_ops]
    if lacking:
        worst = max(lacking, key=lambda one: one.unrecorded_ns)
        ranks = ", ".join(labels.short(one.rank, one.device) for one in lacking)
        text = (
            f"SMs of rank {ranks} were at work where the capture has no op: for {duration(worst.unrecorded_ns)} on "
            f"{labels.name(worst.rank, worst.device)}. Ops are missing, or clocks differ; what the sides contend for "
            "is told without."
        )
        found.append(TraceWarning("unrecorded-work", text))
    return found


def _cell(one: DeviceStates, state: str, counter: str) -> str:
    mean = one.states[state].mean(counter)
    return "–" if mean is None else f"{mean:.0f} {COUNTERS[counter].unit}"
