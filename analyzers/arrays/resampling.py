"""How sure figures over steps have to be, and how often steps are drawn anew to tell how far a median scatters."""

from __future__ import annotations

LEVEL = 0.05  # of being wrong by chance
LEAST_STEPS = 6  # fewest that can tell a change by the sign test: 2 / 2^6 is below the level
DRAWS = 2_000
