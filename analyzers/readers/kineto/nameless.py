"""Kernels of a Kineto file that have no name: what they are can't be told, nor on which side they belong."""

from __future__ import annotations

import re

import numpy as np

from analyzers.common.wording import count_of
from analyzers.trace.columns import codes, is_one_of, of_codes
from analyzers.trace.tables import Trace
from analyzers.trace.unread import noted

NAMES_LOST = "names-lost"
_NO_NAME = re.compile(r"[\W_]*(?:unknown(?:[\W_]+kernel)?[\W_]*)?", re.IGNORECASE)


def with_nameless(trace: Trace) -> Trace:
    """Note of a trace of one capture how many of its kernels have no name, and warn of it."""
    code, names = codes(trace.ops, "name")
    nameless = is_one_of(trace.ops, "kind", ("kernel",)) & of_codes(code, [not _is_name(name) for name in names])
    if not nameless.any():
        return trace
    found = count_of(int(np.count_nonzero(nameless)), "kernel")
    (capture,) = trace.captures
    trace = noted(trace, f"the names of {found} are not in the file")
    return trace.warn(
        NAMES_LOST, f"The names of {found} are not in {capture.path}: which of them communicate can't be told."
    )


def _is_name(text: str) -> bool:
    """Whether a text names a kernel.

    >>> [_is_name(text) for text in ("gemm", "unknown_gemm", "", " ", "[unknown]", "<unknown kernel>", "??")]
    [True, True, False, False, False, False, False]
    """
    return _NO_NAME.fullmatch(text) is None
