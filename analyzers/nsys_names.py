"""Names in an nsys export: text kept once in StringIds, referred to by number."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analyzers.nsys_file import NsysFile

# cudaStreamSynchronize_v3020, cuMemcpyHtoDAsync_v2_ptsz: which version was called, and which default stream it means
_SUFFIX = re.compile(r"(_v\d+|_ptsz|_ptds)+$")


def call_name(name: str) -> str:
    """A CUDA call's name without its version.

    >>> call_name("cudaStreamSynchronize_v3020"), call_name("cuMemcpyHtoDAsync_v2_ptsz"), call_name("cuLaunchKernelEx")
    ('cudaStreamSynchronize', 'cuMemcpyHtoDAsync', 'cuLaunchKernelEx')
    """
    return _SUFFIX.sub("", name)


def labelled(codes: Any, texts: Sequence[str]) -> Any:
    """A categorical of codes into texts."""
    return pd.Categorical.from_codes(codes, dtype=pd.CategoricalDtype(list(texts)))


def kernel_name(name: str) -> str:
    """A kernel's demangled name as everybody but nsys spells it.

    >>> kernel_name("void at::native::<unnamed>::copy<float>(float *)")
    'void at::native::(anonymous namespace)::copy<float>(float *)'
    """
    return name.replace("<unnamed>", "(anonymous namespace)")


class Names:
    """StringIds as a table from number to text."""

    def __init__(self, file: NsysFile) -> None:
        rows = file.rows("SELECT id, value FROM StringIds") if file.has("StringIds", "id", "value") else []
        self._texts = {int(number): str(text) for number, text in rows}

    def text(self, number: int) -> str:
        """The text of one number, "" where there is none."""
        return self._texts.get(number, "")

    def categorical(
        self, numbers: Any, change: Callable[[str], str] = str, more: Mapping[int, str] | None = None
    ) -> Any:
        """The texts of many numbers, each first put through `change`; a number without text is "".

        Parameters
        ----------
        more : texts of numbers that are in no table.
        """
        codes, distinct = pd.factorize(numbers)
        known = more or {}
        texts = [known[number] if number in known else change(self.text(number)) for number in distinct.tolist()]
        categories = list(dict.fromkeys(texts))
        place = {text: code for code, text in enumerate(categories)}
        merged = np.array([place[text] for text in texts], np.int32)
        return labelled(merged[codes], categories)
