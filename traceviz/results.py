"""The classes of results, under the names by which `traceviz` exports them."""

from analyzers.collectives.report import Collectives
from analyzers.compare.results import Comparison
from analyzers.info import TraceInfo
from analyzers.streams import StreamsResult
from analyzers.syncs.report import OrderReport
from analyzers.verdict.result import OverlapResult
from collectors.capture import Capture
from traceviz.history.trends import PairTrend
from traceviz.reports.report import Report

__all__ = [
    "Capture",
    "Collectives",
    "Comparison",
    "OrderReport",
    "OverlapResult",
    "PairTrend",
    "Report",
    "StreamsResult",
    "TraceInfo",
]
