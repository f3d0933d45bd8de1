"""Load captures into one Trace and compute from it; never prints, plots or exits. Use it through `traceviz`."""

from __future__ import annotations

__traceviz__ = True  # tells `traceviz` that this is its own package, not a folder of the same name
