"""What of an answer the first lines tell: `OverlapResult` has it, and its lines are made of nothing else."""

from __future__ import annotations

from collections.abc import Mapping
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
    def verdict(self) -> str: ...  # noqa: D102 (as in OverlapResult, all of them)
    @property
    def passed(self) -> bool | None: ...  # noqa: D102
    @property
    def first_sentence(self) -> str: ...  # noqa: D102
    @property
    def names(self) -> tuple[str, str]: ...  # noqa: D102
    @property
    def device_labels(self) -> DeviceLabels: ...  # noqa: D102
    @property
    def deciding_rank(self) -> RankOverlap | None: ...  # noqa: D102
    @property
    def deciding_window(self) -> RankOverlap | None: ...  # noqa: D102
    @property
    def ranks_given(self) -> int: ...  # noqa: D102
    @property
    def ranks_known(self) -> int | None: ...  # noqa: D102
    @property
    def waited_for(self) -> Mapping[DeviceKey, int]: ...  # noqa: D102
    @property
    def warnings(self) -> tuple[TraceWarning, ...]: ...  # noqa: D102
    @property
    def bound(self) -> Bound | None: ...  # noqa: D102
    @property
    def profiler(self) -> ProfilerWeight | None: ...  # noqa: D102
    @property
    def findings(self) -> list[Finding]: ...  # noqa: D102
    @property
    def stake(self) -> Stake | None: ...  # noqa: D102
    @property
    def host_syncs(self) -> tuple[StepSync, ...]: ...  # noqa: D102
    @property
    def fix(self) -> Fix | None: ...  # noqa: D102
    @property
    def was_replayed(self) -> bool: ...  # noqa: D102
