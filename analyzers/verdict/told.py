"""What of an answer the first lines tell: `OverlapResult` has it, and its lines are made of nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from analyzers.common.errors import TraceWarning
from analyzers.overlap.measure import RankOverlap
from analyzers.syncs.of_steps import StepSync
from analyzers.trace.devices import DeviceKey, DeviceLabels
from analyzers.verdict.bound import Bound
from analyzers.verdict.findings import Finding
from analyzers.verdict.fix import Fix
from analyzers.verdict.profiler import ProfilerWeight
from analyzers.verdict.stake import Stake


class Told(Protocol):
    """The attributes of `OverlapResult` that the first lines read; a class of its own keeps the two out of a circle."""

    @property
    def verdict(self) -> str:
        """In a word."""

    @property
    def passed(self) -> bool | None:
        """Whether the threshold is met; None where that can't be told."""

    @property
    def first_sentence(self) -> str:
        """The verdict in a sentence, and the step against a baseline's."""

    @property
    def names(self) -> tuple[str, str]:
        """Of A and B."""

    @property
    def device_labels(self) -> DeviceLabels:
        """What devices are called."""

    @property
    def deciding_rank(self) -> RankOverlap | None:
        """The rank whose figures decide."""

    @property
    def deciding_window(self) -> RankOverlap | None:
        """Of its windows the one that decides."""

    @property
    def ranks(self) -> Sequence[RankOverlap]:
        """Of every rank and device."""

    @property
    def worth_unknown(self) -> str:
        """Why nothing is predicted, "" where something is."""

    @property
    def ranks_given(self) -> int:
        """How many there are."""

    @property
    def ranks_known(self) -> int | None:
        """How many the job had; None where nothing says."""

    @property
    def waited_for(self) -> Mapping[DeviceKey, int]:
        """How long collectives waited for each device, ns."""

    @property
    def warnings(self) -> tuple[TraceWarning, ...]:
        """All of them."""

    @property
    def bound(self) -> Bound | None:
        """Where the time of a step goes."""

    @property
    def profiler(self) -> ProfilerWeight | None:
        """How much longer steps take as captured."""

    @property
    def findings(self) -> list[Finding]:
        """What stopped overlap, worst first."""

    @property
    def stake(self) -> Stake | None:
        """What a step has at stake."""

    @property
    def host_syncs(self) -> tuple[StepSync, ...]:
        """Those that cost a share of a step that matters."""

    @property
    def fix(self) -> Fix | None:
        """The change named first."""

    @property
    def was_replayed(self) -> bool:
        """Whether fixes were looked for."""
