"""Names of host calls, as people and changes write them."""

from __future__ import annotations

import re

CALL = "call:"  # before a host call's name, which is no selector: those pick ops
_VERSION = re.compile(r"_v\d+$")  # of CUDA's, which nsys writes behind a call's name


def plain_call(name: str) -> str:
    """A host call's name as people write it.

    >>> plain_call("cudaHostAlloc_v3020")
    'cudaHostAlloc'
    """
    return _VERSION.sub("", name)
