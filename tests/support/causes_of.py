"""The package's causes as plain numbers, for tests."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from analyzers.causes.causes import Explainer
from analyzers.causes.table import CAUSES, alone_by_cause
from analyzers.overlap.pairing import Pairing, best_shift, moves, pair_by, pairing_method, possible_pairing, shifted
from analyzers.select.select import Selection, select
from analyzers.select.sides import without_shared
from analyzers.trace.columns import ints
from analyzers.trace.tables import Trace


def paired(trace: Trace, a: str, b: str) -> Pairing:
    side_a, side_b, _ = without_shared(trace, select(trace, a), select(trace, b))
    return pair(trace, side_a, side_b)


def alone_by_instance(trace: Trace, a: str, b: str, *, rank: int = 0, device: int = 0) -> dict[int, Counter[str]]:
    """Instance -> cause -> ns alone."""
    pairing = paired(trace, a, b)
    explainer = Explainer(trace, pairing.a >= 0, pairing.b >= 0, pairing)
    found: dict[int, Counter[str]] = {}
    for one in explainer.explain(rank, device):
        alone_ns = alone_by_cause(one)
        assert alone_ns.dtype == np.int64, "whole nanoseconds"
        for gap, instance in enumerate(one.gaps.instance.tolist()):
            of = found.setdefault(instance, Counter())
            for cause, name in enumerate(CAUSES):
                of[name] += int(alone_ns[cause, gap])
    return {instance: Counter({k: v for k, v in of.items() if v}) for instance, of in found.items() if of.total()}


def instances(trace: Trace, a: str, b: str, *, rank: int = 0, device: int = 0) -> dict[int, list[int]]:
    """Instance -> rows of its ops on one rank's device."""
    pairing = paired(trace, a, b)
    here = (ints(trace.ops, "rank") == rank) & (ints(trace.ops, "device") == device)
    found: dict[int, list[int]] = {}
    for side in (pairing.a, pairing.b):
        for row in np.flatnonzero(here & (side >= 0)).tolist():
            found.setdefault(int(side[row]), []).append(row)
    return found


def with_one_queue(trace: Trace) -> Trace:
    """The same trace, with CUDA_DEVICE_MAX_CONNECTIONS=1 on record."""
    captures = (replace(trace.captures[0], metadata={"CUDA_DEVICE_MAX_CONNECTIONS": "1"}), *trace.captures[1:])
    return replace(trace, captures=captures)


def pair(trace: Trace, a: Selection, b: Selection) -> Pairing:
    pairing = pair_by(trace, a, b, pairing_method([possible_pairing(trace, a, b)]))
    return shifted(pairing, best_shift([moves(trace, pairing)]))
