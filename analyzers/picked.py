"""Ops that a selector picks, as data frames for people who go on in pandas."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analyzers.errors import TracevizError
from analyzers.picking import RANGE_ATOMS, named_ranges
from analyzers.regions import launched_in
from analyzers.selection import select
from analyzers.selectors import Atom, parse
from analyzers.trace import Trace, codes


def picked(trace: Trace, text: str) -> pd.DataFrame:
    """The GPU ops that a selector picks; rows of `trace.ops` under their own numbers.

    Raises
    ------
    TracevizError : the selector can't be read.
    """
    return trace.ops[select(trace, text).picked]


def in_ranges(trace: Trace, text: str) -> pd.DataFrame:
    """The GPU ops launched in the ranges that NAME, `nvtx:NAME` or `op:NAME` names, each with its range.

    Returns
    -------
    DataFrame : rows of `trace.ops` under their own numbers, and two more columns: `range`, the name of the innermost
        such range around the launch, and `occurrence`, that range's row in `trace.ranges`.

    Raises
    ------
    TracevizError : more than a name is asked for.
    """
    atom = parse(text) if text.partition(":")[0] in RANGE_ATOMS else Atom("nvtx", text)
    if not isinstance(atom, Atom):
        raise TracevizError(f"{text!r} names no ranges.", hint="Write it as nvtx:NAME or op:NAME; NAME may hold *.")
    occurrence, _ = launched_in(trace, named_ranges(trace, atom))
    rows = np.flatnonzero(occurrence >= 0)
    code, names = codes(trace.ranges, "name")
    used, place = np.unique(code[occurrence[rows]], return_inverse=True)
    name = pd.Categorical.from_codes(place, categories=pd.Index([names[each] for each in used], dtype="str"))
    return trace.ops.iloc[rows].assign(range=name, occurrence=occurrence[rows])
