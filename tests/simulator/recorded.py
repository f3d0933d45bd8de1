"""What profilers record of a run, whatever the format: names, sizes, numbers and clocks."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.simulator.machine import Op, Run
from tests.simulator.program import SMALL, SMS, THREADS_PER_SM, Launch, Message

NAMES = {"a": "alpha_kernel", "b": "beta_kernel", "": "gamma_kernel"}
COLLECTIVE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
RING = "ncclDevKernel_{}_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
KERNELS = {  # NCCL's, by torch's operation
    "allreduce": COLLECTIVE,
    "_allgather_base": RING.format("AllGather"),
    "_reduce_scatter_base": RING.format("ReduceScatter_Sum_f32"),
    "broadcast": RING.format("Broadcast"),
    **dict.fromkeys(("all_to_allv", "send", "recv"), "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"),
}
ORIGIN = 1_000_000_000  # ns from a capture's origin to the run's beginning


@dataclass(frozen=True)
class Clocks:
    """How far each rank's host and GPU clock runs ahead of true time, ns; 0 where a rank is not named.

    drift : by how much both run faster, a ratio.
    """

    host_ns: dict[int, int] = field(default_factory=dict)
    device_ns: dict[int, int] = field(default_factory=dict)
    drift: dict[int, float] = field(default_factory=dict)

    def host(self, rank: int, time: int) -> int:
        return ORIGIN + time + self.host_ns.get(rank, 0) + round(self.drift.get(rank, 0.0) * time)

    def device(self, rank: int, time: int) -> int:
        return ORIGIN + time + self.device_ns.get(rank, 0) + round(self.drift.get(rank, 0.0) * time)


@dataclass(frozen=True)
class Places:
    """Where ranks run: the GPU of each, how many a host has, and the host's name, "" where captures don't name it."""

    devices: tuple[int, ...] = ()
    gpus: int = 1
    hosts: tuple[str, ...] = ()

    def device(self, rank: int) -> int:
        return self.devices[rank] if self.devices else 0

    def host(self, rank: int) -> str:
        return self.hosts[rank] if self.hosts else ""


def recorded(run: Run, since: dict[int, int], until: dict[int, int] | None = None) -> Run:
    """What of a run a profiler sees between two instants of each rank: calls, ranges, and ops.

    Of what was launched before, ops that start later are seen, without their calls. Numbers of calls go on counting.
    What was launched before the end is seen whenever it ran: profilers wait for it. Open calls and ranges are not.
    """

    def seen(rank: int, start: int, end: int) -> bool:
        return since.get(rank, 0) <= start and (until is None or rank not in until or end <= until[rank])

    calls = [call for call in run.calls if seen(call.where[0], call.start, call.end)]
    known = {id(call) for call in calls}
    return Run(
        run.program,
        ops=[op for op in run.ops if seen(op.where[0], op.start, op.call.end)],
        calls=calls,
        records=[record for record in run.records if id(record.call) in known],
        waits=[wait for wait in run.waits if id(wait[0]) in known],
        syncs=[sync for sync in run.syncs if id(sync[0]) in known],
        ranges=[one for one in run.ranges if seen(one[0], one[3], one[4])],
    )


def kernel_name(op: Op) -> str:
    assert isinstance(op.action, Launch)
    if op.action.message is not None:
        return KERNELS[op.action.message.operation]
    return op.action.name or (COLLECTIVE if op.action.collective else NAMES[op.side])


def message_of(run: Run, op: Op) -> Message | None:
    """What a call of a collective says of itself."""
    if not isinstance(op.action, Launch) or not op.action.collective or op.action.name:
        return None
    ranks = tuple(range(len(run.program.ranks)))
    return op.action.message or Message("allreduce", "0", "default_pg", ranks, 1024)


def groups_of(run: Run, rank: int) -> list[Message]:
    """A message of each process group that a rank is in, by the group's name."""
    found = [message for op in run.of_rank(rank) if (message := message_of(run, op)) is not None]
    return sorted({one.group: one for one in found}.values(), key=lambda one: one.group)


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
