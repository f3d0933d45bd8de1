"""The classes of results, under the names by which `traceviz` exports them."""

from analyzers.collectives.report import Collectives as Collectives
from analyzers.compare.results import Comparison as Comparison
from analyzers.contention.neighbours import StreamContention as StreamContention
from analyzers.contracts.result import ContractResult as ContractResult
from analyzers.counters.report import CountersResult as CountersResult
from analyzers.info import TraceInfo as TraceInfo
from analyzers.replay.result import Prediction as Prediction
from analyzers.replay.result import WhatIf as WhatIf
from analyzers.show.result import Shown as Shown
from analyzers.streams import StreamsResult as StreamsResult
from analyzers.syncs.report import OrderReport as OrderReport
from analyzers.verdict.result import OverlapResult as OverlapResult
from collectors.capture import Capture as Capture
from traceviz.history.trends import PairTrend as PairTrend
from traceviz.reports.report import Report as Report
