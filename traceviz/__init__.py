"""Did it really overlap? A verdict, the cause and the evidence from GPU profiles."""

from __future__ import annotations

__version__ = "0.1.0"
