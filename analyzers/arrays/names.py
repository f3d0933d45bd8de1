"""A column of texts: a number a row into the few different texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from analyzers.arrays.groups import is_repeated, slices
from analyzers.arrays.types import Ids, Ints, Mask

if TYPE_CHECKING:
    import pandas as pd

_FEW = 8  # texts that are quicker compared with than looked up


class Names:
    """Texts of the rows of a table, of which most occur many times.

    codes : the number of each row's text, shape (rows,); -1 where there is none.
    texts : the different texts, by their number.

    >>> names = Names(np.array([0, 1, 0, -1]), ("gemm", "copy"))
    >>> names.tolist(), names.is_one_of(["gemm"]).tolist()
    (['gemm', 'copy', 'gemm', None], [True, False, True, False])
    """

    __slots__ = ("codes", "texts")

    def __init__(self, codes: Ids, texts: Iterable[str]) -> None:
        self.codes, self.texts = codes, texts if isinstance(texts, tuple) else tuple(texts)

    @classmethod
    def of(cls, values: Any) -> Names:
        """Number texts, None among them, or take over a categorical of pandas; its texts ascend where it is made."""
        if isinstance(values, Names):
            return values
        values = getattr(values, "array", values)  # of pandas' series
        if hasattr(values, "categories"):
            return cls(values.codes, map(str, values.categories.tolist()))
        listed = values.tolist() if hasattr(values, "tolist") else list(values)
        texts = sorted(text for text in set(listed) if isinstance(text, str))
        number = dict.fromkeys(listed, -1) | {text: code for code, text in enumerate(texts)}
        kind = np.min_scalar_type(-max(len(texts), 1))  # as few bytes as hold them
        return cls(np.fromiter(map(number.__getitem__, listed), kind, len(listed)), texts)

    @classmethod
    def repeated(cls, text: str, length: int, among: Sequence[str] = ()) -> Names:
        """One text throughout, which takes no room; `among` are all texts that it may be."""
        texts = tuple(among) or (text,)
        return cls(np.broadcast_to(np.int8(texts.index(text)), length), texts)

    def __len__(self) -> int:
        return self.codes.size

    def __iter__(self) -> Iterator[str | None]:
        return iter(self.tolist())

    def __getitem__(self, row: int) -> str:
        """The text of a row, "" where it has none."""
        code = int(self.codes[row])
        return self.texts[code] if code >= 0 else ""

    def __repr__(self) -> str:
        return f"Names({self.tolist() if len(self) < 10 else f'{len(self):,} rows'})"

    def tolist(self) -> list[str | None]:
        """The text of each row, None where it has none."""
        return [*map((*self.texts, None).__getitem__, self.codes.tolist())]

    def take(self, rows: Ints | Mask | slice) -> Names:
        """Some rows."""
        if is_repeated(self.codes) and self.codes.size:
            return Names(np.broadcast_to(self.codes[:1], self.codes[rows].size), self.texts)
        return Names(self.codes[rows], self.texts)

    def is_one_of(self, wanted: Sequence[str]) -> Mask:
        """Rows whose text is one of those wanted."""
        return self.matching(wanted.__contains__)

    def matching(self, fits: Callable[[str], object]) -> Mask:
        """Rows whose text fits; each different text is asked once.

        >>> Names(np.array([0, 1, -1]), ("gemm", "copy")).matching(lambda text: "g" in text).tolist()
        [True, False, False]
        """
        return rows_of_codes(self.codes, [bool(fits(text)) for text in self.texts])

    def used(self) -> Names:
        """The same rows without texts that none of them has, the others in their order."""
        occurs = np.zeros(len(self.texts) + 1, dtype=bool)
        occurs[self.codes] = True
        kept = np.flatnonzero(occurs[:-1])
        if kept.size == len(self.texts):
            return self
        number = np.full(occurs.size, -1, self.codes.dtype)
        number[kept] = np.arange(kept.size)
        return self._renumbered(number, tuple(self.texts[each] for each in kept.tolist()))

    def among(self, texts: tuple[str, ...]) -> Names:
        """The same rows numbered by other texts; a row has none where its own is not among them.

        >>> Names(np.array([1, 0, -1]), ("a", "b")).among(("b",)).codes.tolist()
        [0, -1, -1]
        """
        number = {text: code for code, text in enumerate(texts)}
        found = np.array([*(number.get(text, -1) for text in self.texts), -1], np.min_scalar_type(-max(len(texts), 1)))
        return self._renumbered(found, texts)

    def _renumbered(self, number: Ids, texts: tuple[str, ...]) -> Names:
        """With another number for each text, the last one for none."""
        if self.codes.size and is_repeated(self.codes):
            return Names(np.broadcast_to(number[self.codes[:1]], self.codes.size), texts)
        return Names(at_codes(number, self.codes), texts)

    def squeezed(self) -> Names:
        """The same rows; where all have one text they take no room."""
        is_one = self.codes.size > 1 and bool((self.codes == self.codes[0]).all())
        return Names(np.broadcast_to(self.codes[:1], self.codes.size), self.texts) if is_one else self

    def to_pandas(self) -> pd.Categorical:
        """The same as a categorical of pandas."""
        import pandas as pd

        kind = pd.CategoricalDtype(pd.Index(self.texts, dtype="str"))
        return pd.Categorical.from_codes(self.codes, dtype=kind, validate=False)


def stacked(parts: Sequence[Names]) -> Names:
    """One column below another; texts are numbered as they first occur.

    >>> stacked([Names(np.array([1]), ("a", "b")), Names(np.array([0, -1]), ("b",))]).tolist()
    ['b', 'b', None]
    """
    if len({part.texts for part in parts}) == 1:
        return Names(stacked_numbers([part.codes for part in parts]), parts[0].texts)
    number = {text: code for code, text in enumerate(dict.fromkeys(text for part in parts for text in part.texts))}
    moved = [at_codes(np.array([*map(number.get, part.texts), -1], np.int64), part.codes) for part in parts]
    kind = np.min_scalar_type(-max(len(number), 1))  # as few bytes as hold them
    return Names(np.concatenate(moved).astype(kind, copy=False), number)


def stacked_numbers(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """One column of numbers below another; one value throughout takes no room, as in each of them."""
    filled = [part for part in parts if part.size]
    if filled and all(is_repeated(part) and part[0] == filled[0][0] for part in filled):
        return np.broadcast_to(filled[0][:1], sum(part.size for part in parts))
    return np.concatenate(parts)


def rows_of_codes(codes: Ids, wanted: Sequence[bool] | Mask) -> Mask:
    """Rows of the texts that are wanted, a truth each; a missing text (code -1) never is."""
    numbers = np.flatnonzero(wanted).tolist()
    if len(numbers) > _FEW:
        return at_codes(np.array([*wanted, False], dtype=bool), codes)
    found = np.zeros(codes.size, dtype=bool)
    for number in numbers:  # comparing is many times quicker than looking each row up
        found |= codes == number
    return found


def at_codes(values: npt.NDArray[Any], codes: Ids) -> npt.NDArray[Any]:
    """The value of each code, the last one for a missing text."""
    found = np.empty(codes.size, values.dtype)
    for rows in slices(codes.size):  # numpy makes 64 bits of all codes before it looks them up
        values.take(codes[rows], mode="wrap", out=found[rows])  # half the time of an index
    return found
