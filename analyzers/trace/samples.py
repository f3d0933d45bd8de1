"""Samples of counters: whose they are."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analyzers.arrays.types import Mask
from analyzers.trace.columns import ints


def of_nics(samples: pd.DataFrame) -> Mask:
    """Which samples are a host's network cards': these are sampled apart from its GPUs."""
    known: Mask = np.logical_or(*(ints(samples, counter) >= 0 for counter in ("nic_in", "nic_out")))
    return known
