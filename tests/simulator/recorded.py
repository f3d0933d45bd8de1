"""What profilers record of a run, whatever the format: names, sizes, numbers and clocks."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.simulator.machine import Call, Op, Run
from tests.simulator.program import SMALL, SMS, THREADS_PER_SM, Launch

NAMES = {"a": "alpha_kernel", "b": "beta_kernel", "": "gamma_kernel"}
COLLECTIVE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
ORIGIN = 1_000_000_000  # ns from a capture's origin to the run's beginning


@dataclass(frozen=True)
class Clocks:
    """How far each rank's host and GPU clock runs ahead of true time, ns; 0 where a rank is not named."""

    host_ns: dict[int, int] = field(default_factory=dict)
    device_ns: dict[int, int] = field(default_factory=dict)

    def host(self, rank: int, time: int) -> int:
        return ORIGIN + time + self.host_ns.get(rank, 0)

    def device(self, rank: int, time: int) -> int:
        return ORIGIN + time + self.device_ns.get(rank, 0)


def recorded(run: Run, since: dict[int, int]) -> Run:
    """What of a run a profiler sees that begins on each rank at some instant: calls, ranges and ops from then on.

    Of what was launched before, ops that start later are seen, without their calls. Numbers of calls go on counting.
    """
    calls = [call for call in run.calls if call.start >= since.get(call.where[0], 0)]
    known = {id(call) for call in calls}
    return Run(
        run.program,
        ops=[op for op in run.ops if op.start >= since.get(op.where[0], 0)],
        calls=calls,
        records=[record for record in run.records if id(record.call) in known],
        waits=[wait for wait in run.waits if id(wait[0]) in known],
        syncs=[sync for sync in run.syncs if id(sync[0]) in known],
        ranges=[one for one in run.ranges if one[3] >= since.get(one[0], 0)],
    )


def kernel_name(op: Op) -> str:
    assert isinstance(op.action, Launch)
    return op.action.name or (COLLECTIVE if op.action.collective else NAMES[op.side])


def grid(op: Op) -> int:
    """One that holds as many threads of each SM as the op says; one that fills the GPU has many waves."""
    assert isinstance(op.action, Launch)
    if op.action.threads >= THREADS_PER_SM:
        return SMS * 100
    return SMS if op.action.threads > SMALL else 1


def block(op: Op) -> int:
    return max(SMALL, op.threads)


def event_numbers(run: Run) -> dict[tuple[int, str], int]:
    """An event's number in its process."""
    awaited = [record for *_, record in [*run.waits, *run.syncs] if record is not None]
    named = sorted({(record.where[0], record.event) for record in [*run.records, *awaited]})
    return {key: number for number, key in enumerate(named, start=1)}


def calls_by_number(run: Run) -> dict[tuple[int, int], Call]:
    """A call by its rank and correlation id."""
    return {(call.where[0], call.number): call for call in run.calls}
