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


def kernel_name(op: Op) -> str:
    assert isinstance(op.action, Launch)
    return COLLECTIVE if op.action.collective else NAMES[op.side]


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
    named = sorted({(record.where[0], record.event) for record in run.records})
    return {key: number for number, key in enumerate(named, start=1)}


def calls_by_number(run: Run) -> dict[tuple[int, int], Call]:
    """A call by its rank and correlation id."""
    return {(call.where[0], call.number): call for call in run.calls}
