from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from analyzers.arrays.shares import shares

ROWS = st.lists(
    st.tuples(
        st.integers(0, 2**62) | st.integers(0, 9),
        st.lists(st.integers(0, 2**55) | st.integers(0, 3), min_size=3, max_size=3),
    ),
    min_size=1,
    max_size=9,
)


@given(ROWS)
def test_shares_are_whole_proportional_and_sum_exactly(rows: list[tuple[int, list[int]]]) -> None:
    parts = shares(np.array([total for total, _ in rows]), np.array([weights for _, weights in rows]))
    for (total, weights), row in zip(rows, parts.tolist(), strict=True):
        whole = sum(weights)
        assert sum(row) == (total if whole else 0)
        for part, weight in zip(row, weights, strict=True):
            assert not whole or total * weight // whole <= part <= -(-total * weight // whole)


@given(ROWS)
def test_the_largest_remainders_are_rounded_up_the_first_of_equal_ones_first(rows: list[tuple[int, list[int]]]) -> None:
    parts = shares(np.array([total for total, _ in rows]), np.array([weights for _, weights in rows]))
    for (total, weights), row in zip(rows, parts.tolist(), strict=True):
        whole = sum(weights)
        if not whole:
            continue
        rest = [total * weight % whole for weight in weights]
        up = [part - total * weight // whole for part, weight in zip(row, weights, strict=True)]
        best = sorted(range(3), key=lambda k: (-rest[k], k))[: sum(up)]
        assert [k for k in range(3) if up[k]] == sorted(best)
