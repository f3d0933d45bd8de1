"""Run workloads under a profiler and keep the captures together. Use it through `traceviz`."""

from __future__ import annotations

__traceviz__ = True  # tells `traceviz` that this is its own package, not a folder of the same name
