"""The counters of a run by what ran: A alone, B alone, both, neither; and what the sides likely contend for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from operator import add
from typing import NamedTuple

import numpy as np

from analyzers.common.errors import TracevizError, TraceWarning
from analyzers.common.frames import DataFrame, framed
from analyzers.common.notebook import card
from analyzers.common.records import Record
from analyzers.common.wording import duration
from analyzers.counters.limits import MIN_FILLED_SHARE, Contended, contended
from analyzers.counters.states import DeviceStates, device_states, mixed, pooled
from analyzers.counters.vocabulary import COUNTERS
from analyzers.select.language import names_of, parse
from analyzers.select.select import select
from analyzers.select.sides import Shared, SharedOps, about_shared, count_shared, share_out
from analyzers.trace.devices import DeviceKey, DeviceLabels
from analyzers.trace.kernels import is_communication
from analyzers.trace.narrow import Narrowing, counted, steps_used
from analyzers.trace.ranks import ops_of_devices
from analyzers.trace.run import ALL, Run
from analyzers.trace.step_table import StepsUsed
from analyzers.trace.tables import COUNTERS_UNJOINED, Trace

MIN_UNSEEN_SHARE = 0.1  # of communication, from which on its unseen waits are said
COUNTERS_HINT = "Capture with: traceviz collect nsys --gpu-metrics (nsys profile --gpu-metrics-devices=all)."


class CountersResult(Record, frozen=True):
    """Counters by state, per rank and device; `contended` is told of all of them together."""

    a: str
    b: str
    ranks: tuple[DeviceStates, ...]
    contended: Contended
    warnings: tuple[TraceWarning, ...]
    steps: StepsUsed | None = None  # those that the figures are of

    @property
    def sentence(self) -> str:
        """What the sides likely contend for, in words."""
        return self.contended.sentence

    def to_frame(self) -> DataFrame:
        """One row per (rank, device), state and counter that was sampled: time_ns, mean, p90, in % or MHz."""
        rows = [
            (one.rank, one.device, name, counter, state.time_ns, state.mean(counter), state.p90(counter))
            for one in self.ranks
            for name, state in one.states.items()
            for counter in COUNTERS
            if counter in state.weights
        ]
        keys = ["rank", "device", "state", "counter"]
        return framed(rows, [*keys, "time_ns", "mean", "p90"], keys)

    def _repr_html_(self) -> str:
        states = {"a": "A alone", "b": "B alone", "both": "both", "neither": "neither"}
        headers = ("rank", "counter", *(f"{name}: mean" for name in states.values()))
        rows = []
        for one in self.ranks:
            for counter, about in COUNTERS.items():
                means = (one.states[state].mean(counter) for state in states)
                cells = ("–" if mean is None else f"{mean:.0f} {about.unit}" for mean in means)
                rows.append((one.rank, about.label, *cells))
        text = f"A = {self.a}, B = {self.b}. {self.sentence}"
        return card("counters", text, headers, rows, texts=("counter",), warnings=self.warnings)

    def __repr__(self) -> str:
        return f"<counters: '{self.a}' against '{self.b}', {len(self.ranks)} rank(s). {self.sentence}>"


def counters(run: Trace | Run, a: str = "comm", b: str = "compute", narrowing: Narrowing = ALL) -> CountersResult:
    """Join a run's GPU counters to what ran, part by part.

    Raises
    ------
    TracevizError : no GPU counters were captured; a selector can't be read, or the sides share ops.
    """
    run = Run.of(run)
    narrowing = counted(run.trace, narrowing)
    names = str(parse(a)), str(parse(b))
    shared = reduce(add, run.map(partial(_shared, a=a, b=b), narrowing).values())
    notes = about_shared(shared, *names)
    parts = [*run.map(partial(_joined, a=a, b=b, given_to=shared.given_to), narrowing).values()]
    ranks = tuple(sorted((one for part in parts for one in part.ranks), key=lambda one: (one.rank, one.device)))
    if not ranks:
        _refuse(run.trace)
    found = in_all(ranks, *names_of(*names))
    for side, name in enumerate(names):
        if all(part.reasons[side] for part in parts):
            found = Contended(unknown=f"'{name}' picks nothing")
            notes.append(TraceWarning("empty-side", f"'{name}': {parts[0].reasons[side]}."))
    warnings = (*run.trace.warnings, *notes, *_about(parts, ranks))
    return CountersResult(*names, ranks, found, warnings, steps_used(run.trace, narrowing))


class _Part(NamedTuple):
    """What one part of a run says.

    reasons : why each side is empty, "" where it is not. without : (rank, device) that worked and have no samples.
    unseen_ns, communication_ns : of both sides' communication.
    """

    ranks: tuple[DeviceStates, ...]
    reasons: tuple[str, str]
    without: tuple[DeviceKey, ...]
    unseen_ns: int
    communication_ns: int


def _shared(trace: Trace, a: str, b: str) -> Shared:
    return count_shared(trace, select(trace, a), select(trace, b))


def _joined(trace: Trace, a: str, b: str, given_to: SharedOps) -> _Part:
    first, second = share_out(trace, select(trace, a), select(trace, b), given_to)
    ranks = device_states(trace, first.picked, second.picked)
    sampled = {(one.rank, one.device) for one in ranks}
    length, ops = trace.ops.end_ns - trace.ops.start_ns, first.picked | second.picked
    unseen_ns, communication_ns = (
        int(length[ops & some].sum()) for some in (trace.ops.wait_seen == 0, is_communication(trace))
    )
    without = tuple(key for key in ops_of_devices(trace) if key not in sampled)
    return _Part(ranks, (first.reason, second.reason), without, unseen_ns, communication_ns)


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


def unread(trace: Trace) -> Contended | None:
    """That counters were left in the file, where they were; None where there are none."""
    rows = sum(one.unread_counters for one in trace.captures)
    if not rows:
        return None
    return Contended(unknown=f"{rows:,} rows of GPU counters were left unread here; traceviz counters reads them")


def _refuse(trace: Trace) -> None:
    """Say why a run has no GPU counters: they were left unread, nothing tells whose they are, or there are none."""
    if rows := sum(one.unread_counters for one in trace.captures):
        text = f"{rows:,} rows of GPU counters were left in the file when this trace was read."
        raise TracevizError(text, hint="Load it with counters=True.")
    path = trace.captures[0].path
    for lacks in (text for one in trace.captures for text in one.lacks if text.startswith(COUNTERS_UNJOINED)):
        text = f"GPU counters can't be joined to ranks: it can't be told {lacks}."
        raise TracevizError(text, path=path, hint="Export the report with a newer nsys.")
    hint = COUNTERS_HINT if "CUDA" in trace.runtime else f"Of {trace.runtime} no profiler's counters are read yet."
    raise TracevizError("There are no GPU counters in this capture.", path=path, hint=hint)


def _about(parts: Sequence[_Part], devices: Sequence[DeviceStates]) -> list[TraceWarning]:
    """What the reader of the figures has to know."""
    labels = DeviceLabels.of((one.rank, one.device) for one in devices)
    found = []
    without = sorted(key for part in parts for key in part.without)
    if without:
        listed = ", ".join(DeviceLabels.of(without).short(*key) for key in without[:8])
        found.append(TraceWarning("no-counters", f"No GPU counters of rank {listed}: left out."))
    smeared = [
        labels.short(one.rank, one.device)
        for one in devices
        if (both := one.states["both"]).sampled_ns and both.whole_ns < MIN_FILLED_SHARE * both.sampled_ns
    ]
    if smeared:
        text = (
            f"On rank {', '.join(smeared[:8])} most samples while both ran are partly of other times: means by state "
            "lie nearer to each other than the truth. Sample at a higher rate."
        )
        found.append(TraceWarning("smeared", text))
    if sum(part.unseen_ns for part in parts) > MIN_UNSEEN_SHARE * sum(part.communication_ns for part in parts):
        text = "Peers of some communication were not captured: its waiting counts as running."
        found.append(TraceWarning("unseen-waits", text))
    lacking = [one for one in devices if one.lacks_ops]
    if lacking:
        worst = max(lacking, key=lambda one: one.unrecorded_ns)
        where = labels.names((one.rank, one.device) for one in lacking)
        most = f", at most on {labels.name(worst.rank, worst.device)}" if len(lacking) > 1 else ""
        text = (
            f"SMs of {where} were at work for {duration(worst.unrecorded_ns)}{most}, where the capture has no op. "
            "Ops are missing, or clocks differ; what the sides contend for is told without."
        )
        found.append(TraceWarning("unrecorded-work", text))
    return found
