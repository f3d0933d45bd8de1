"""Codes of warnings that say what a reader could not use of work that either side of a pair may have."""

from __future__ import annotations

UNKNOWN_WORK = "unknown-work"  # what may be GPU work was left in the file
KERNELS_UNNAMED = "names-lost"
RANGES_UNNAMED = "range-names-lost"
OTHER_UNIT = "unit-differs"  # GPU times are not in the unit of the host's
