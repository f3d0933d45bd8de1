"""The package's causes as plain numbers, for tests."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from analyzers.causes.explain import Explainer
from analyzers.causes.table import CAUSES, alone_by_cause
from analyzers.overlap.pairing import Pairing, best_shift, moves, pair_by, pairing_method, possible_pairing, shifted
from analyzers.select.select import Selection, select
from analyzers.select.sides import without_shared
from analyzers.trace.tables import Trace


def explainer(trace: Trace, a: str, b: str) -> Explainer:
    side_a, side_b, _ = without_shared(trace, select(trace, a), select(trace, b))
    pairing = pair(trace, side_a, side_b)
    return Explainer(trace, pairing.a >= 0, pairing.b >= 0, pairing)


def alone_by_instance(trace: Trace, a: str, b: str, *, rank: int = 0, device: int = 0) -> dict[int, Counter[str]]:
    """Instance -> cause -> ns alone."""
    found: dict[int, Counter[str]] = {}
    if one := explainer(trace, a, b).explain(rank, device):
        alone_ns = alone_by_cause(one)
        assert alone_ns.dtype == np.int64, "whole nanoseconds"
        for gap, instance in enumerate(one.gaps.instance.tolist()):
            of = found.setdefault(instance, Counter())
            for cause, name in enumerate(CAUSES):
                of[name] += int(alone_ns[cause, gap])
    return {instance: Counter({k: v for k, v in of.items() if v}) for instance, of in found.items() if of.total()}


def with_one_queue(trace: Trace) -> Trace:
    """The same trace, with CUDA_DEVICE_MAX_CONNECTIONS=1 on record."""
    captures = (replace(trace.captures[0], metadata={"CUDA_DEVICE_MAX_CONNECTIONS": "1"}), *trace.captures[1:])
    return replace(trace, captures=captures)


def pair(trace: Trace, a: Selection, b: Selection) -> Pairing:
    pairing = pair_by(trace, a, b, pairing_method([possible_pairing(trace, a, b)]))
    return shifted(pairing, best_shift([moves(trace, pairing)]))
