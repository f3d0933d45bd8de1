"""Which numbers a rank may have, and which one a file's name tells."""

from __future__ import annotations

import re
from pathlib import PurePath

RANKS = range(2**31)  # what `ops.rank` holds
_RANK_IN_NAME = re.compile(r"(?<![a-z0-9])rank[-_.=]?(\d+)(?!\d)", re.IGNORECASE)


def rank_in_name(path: str | PurePath) -> int | None:
    """The rank a file's own name tells, None where it tells none, or two.

    >>> rank_in_name("rank1/x.rank3.nsys-rep"), rank_in_name("x_rank-07.json.gz"), rank_in_name("Rank_0.json")
    (3, 7, 0)
    >>> rank_in_name("nranks4.json"), rank_in_name("rank0_to_rank3.sqlite"), rank_in_name("rank.json")
    (None, None, None)
    """
    said = {int(digits[:12]) for digits in _RANK_IN_NAME.findall(PurePath(path).name)}
    rank = said.pop() if len(said) == 1 else -1
    return rank if rank in RANKS else None
