"""What has to be equal of a trace and of one that was written and read back, or read in another way."""

from __future__ import annotations

from typing import Any

import pandas as pd

import traceviz as tv
from analyzers.trace.schemas import TABLES
from analyzers.trace.tables import Trace
from traceviz.output import contract


def answers(trace: Trace) -> list[dict[str, Any]]:
    """Every analysis as its JSON."""
    return [
        contract.overlap(tv.check_overlap(trace)),
        contract.collectives(tv.collectives(trace)),
        contract.syncs(tv.sync_points(trace)),
        contract.streams(tv.streams(trace)),
        contract.info(tv.info(trace)),
    ]


def alike(found: Trace, expected: Trace, *but: str) -> None:
    """All tables equal to the bit, but for the tables and columns that are named."""
    for name in TABLES:
        if name not in but:
            left, right = (getattr(trace, name).to_frame() for trace in (found, expected))
            skipped = [column for column in but if column in left]
            pd.testing.assert_frame_equal(
                left.drop(columns=skipped), right.drop(columns=skipped), check_categorical=False, obj=name
            )


def same_tables(first: Trace, second: Trace) -> None:
    """Equal row by row, texts by what they say and not by how they are numbered."""
    for name in TABLES:
        pd.testing.assert_frame_equal(
            _plain(getattr(first, name).to_frame()), _plain(getattr(second, name).to_frame()), obj=name
        )
    assert (first.clocks, first.captures, first.processes) == (second.clocks, second.captures, second.processes)
    assert (first.warnings, first.origin_utc_ns) == (second.warnings, second.origin_utc_ns)
    assert (first.matches is None) == (second.matches is None)
    for part in ("members", "calls", "collectives") if first.matches is not None else ():
        before, after = (_plain(getattr(one.matches, part).to_frame()) for one in (first, second))
        pd.testing.assert_frame_equal(before, after, obj=part)


def _plain(frame: pd.DataFrame) -> pd.DataFrame:
    """Texts as objects, and every missing one None: pandas before 3 tells nan from it."""
    texts = [column for column in frame if not pd.api.types.is_numeric_dtype(frame[column].dtype)]
    return frame.assign(**{column: frame[column].astype(object).where(frame[column].notna(), None) for column in texts})
