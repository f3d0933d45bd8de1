"""Types of columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.signedinteger[Any]]  # as narrow as a table keeps them
