"""Why a pair can't be judged: the capture holds what may be of either side, and it could not be used."""

from __future__ import annotations

from collections.abc import Iterable

from analyzers.common.errors import TraceWarning
from analyzers.select import language
from analyzers.select.language import Selector
from analyzers.select.picking import RANGE_ATOMS
from analyzers.trace.losses import KERNELS_UNNAMED, OTHER_UNIT, RANGES_UNNAMED, UNKNOWN_WORK

_OF_ANY = (UNKNOWN_WORK, KERNELS_UNNAMED, OTHER_UNIT)


def lost(warnings: Iterable[TraceWarning], *sides: Selector) -> str:
    """What could not be used of what either side may have, in words; "" where that is nothing.

    Kernels without names may be communication, and then ranks wait in them, whatever the sides are.
    """
    by_range = any(
        atom.kind in RANGE_ATOMS
        for side in sides
        for positive in (True, False)
        for atom in language.atoms(side, positive=positive)
    )
    codes = (*_OF_ANY, RANGES_UNNAMED) if by_range else _OF_ANY
    return " ".join(dict.fromkeys(one.message for one in warnings if one.code in codes)).removesuffix(".")
