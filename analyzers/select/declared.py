"""What the user says is communication, beside what its name tells: selectors, each with where it was given."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from msgspec.structs import replace

from analyzers.select.select import select
from analyzers.trace.communication import Declared
from analyzers.trace.tables import Trace


def declare(trace: Trace, rules: Sequence[Declared]) -> Trace:
    """Mark ops that the rules pick as communication, each by the first rule that picks it.

    Selectors see the trace as it is without the rules: `comm` in one means communication by name.

    Raises
    ------
    TracevizError : a selector can't be read.
    """
    if not rules:
        return trace
    number = np.zeros(len(trace.ops), np.int64)
    for at, rule in enumerate(rules, 1):
        selection = select(trace, rule.selector)
        number[(number == 0) & (selection.picked | selection.before)] = at
    texts = ["", *map(str, rules)]
    distinct = list(dict.fromkeys(texts))
    code = np.array([distinct.index(text) for text in texts])[number]
    return replace(
        trace, ops=trace.ops.assign(declared=pd.Categorical.from_codes(code, dtype=pd.CategoricalDtype(distinct)))
    )
