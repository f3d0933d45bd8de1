"""JAX on GPUs, as XLA's profiler writes it: JSON for viewers, with lines derived from streams, and XSpace.

A module runs on each device: fusions on one stream, a collective in a start and a done on another, copies on a third.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.support.made import wire

HOST_PID, KERNELS, COLLECTIVES, COPIES = 701, 16, 18, 14
PYTHON, EXECUTOR = 9001, 9002
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
DERIVED = {100: "Steps", 101: "XLA Modules", 102: "XLA Ops", 103: "Framework Ops", 104: "Source code"}
Event = dict[str, Any]


@dataclass
class Made:
    """Events with times in ps: of devices by (device, stream), of the host by thread."""

    device: list[tuple[int, int, str, int, int, dict[str, str]]] = field(default_factory=list)
    derived: list[tuple[int, int, str, int, int, dict[str, str]]] = field(default_factory=list)
    host: list[tuple[int, str, int, int, dict[str, str]]] = field(default_factory=list)


def made(seed: int = 0, *, devices: int = 2, steps: int = 3, launches: bool = True) -> Made:
    """A program on some devices."""
    random, found, correlation = Random(seed), Made(), 40
    host_ps = 34_319_000
    free = {(device, stream): 0 for device in range(devices) for stream in (KERNELS, COLLECTIVES, COPIES)}
    for step in range(steps):
        began, spans = host_ps, dict.fromkeys(range(devices), (2**62, 0))
        for place in range(6):
            stream = (KERNELS, KERNELS, COLLECTIVES, KERNELS, COPIES, COLLECTIVES)[place]
            begins = {}
            ids = {}
            for device in range(devices):
                host_ps += random.randrange(500_000, 3_000_000)
                correlation += 1
                ids[device] = correlation
                begins[device] = max(free[device, stream], host_ps + 1_500_000) + random.randrange(0, 2_000_000)
                if launches:
                    call = "cuMemcpyHtoDAsync" if stream == COPIES else "cuLaunchKernel"
                    said_host = {"correlation_id": str(correlation), "device_id": str(device)}
                    found.host.append((EXECUTOR, call, host_ps, host_ps + 400_000, said_host))
            ended = max(begins.values()) + random.randrange(900, 40_000_000)  # of a collective, everywhere
            for device, start in begins.items():
                name, said = _op(place, random)
                end = ended if stream == COLLECTIVES else start + random.randrange(900, 80_000_000)
                free[device, stream] = end
                found.device.append((device, stream, name, start, end, {**said, "correlation_id": str(ids[device])}))
                if "hlo_module" in said:
                    spans[device] = min(spans[device][0], start), max(spans[device][1], end)
                found.derived.append((device, 102, said.get("hlo_op", name), start, end, {"group_id": str(step)}))
                found.derived.append((device, 103, "jit(f)/mul", start, end, {}))
        for device, span in spans.items():
            found.derived.append((device, 101, "jit_train_step(8172635)", *span, {"group_id": str(step)}))
            found.derived.append((device, 100, str(step), *span, {"group_id": str(step)}))
            for stream in (KERNELS, COLLECTIVES, COPIES):  # a step begins when all streams are done with the last
                free[device, stream] = max(free[device, stream], span[1])
        found.host.append((PYTHON, "$train.py:12 train_step", began + 1_000, host_ps, {}))
        found.host.append((PYTHON, "PjitFunction(train_step)", began + 2_000, host_ps, {}))
        found.host.append((PYTHON, "train", began, host_ps + 1_000, {"step_num": str(step)}))
        found.host.append((PYTHON, "my block", began + 3_000, host_ps, {}))
        host_ps += 1_000_000
    return found


def _op(place: int, random: Random) -> tuple[str, dict[str, str]]:
    module = {"hlo_module": "jit_train_step", "program_id": "7"}
    if place == 4:
        size = random.randrange(1, 1 << 20)
        return "MemcpyH2D", {"memcpy_details": f"kind_src:pinned kind_dst:device size:{size} dest:0 async:1"}
    if place in (2, 5):
        kernel = "regs:96 static_shared:27632 dynamic_shared:0 grid:24,1,1 block:512,1,1 occ_pct:25"
        return NCCL, {**module, "hlo_op": f"all-reduce-start.{place}", "kernel_details": kernel}
    grid, block = random.randrange(1, 400), random.choice((128, 256, 1024))
    kernel = f"regs:32 static_shared:0 dynamic_shared:1024 grid:{grid},2,1 block:{block},1,1 occ_pct:100"
    return f"loop_multiply_fusion_{place}", {**module, "hlo_op": f"fusion.{place}", "kernel_details": kernel}


def viewer_json(program: Made, *, perfetto: bool = False, nameless: bool = False) -> str:
    """`HOST.trace.json.gz`, unpacked; `perfetto` what JAX makes of it. `nameless`: some metadata lack their name."""
    events: list[Event] = []
    devices = sorted({one[0] for one in program.device})
    for device in devices:
        events.append(_named(device + 1, None, f"/device:GPU:{device}"))
        for stream in (KERNELS, COLLECTIVES, COPIES):
            what = {KERNELS: "Kernel", COLLECTIVES: "Kernel", COPIES: "MemcpyH2D"}[stream]
            events.append(_named(device + 1, stream, f"Stream #{stream}({what})"))
            if nameless and stream == COLLECTIVES:
                events[-1]["args"] = {}
        events += [_named(device + 1, line, name) for line, name in DERIVED.items()]
    events.append(_named(HOST_PID, None, "/host:CPU"))
    events += [_named(HOST_PID, PYTHON, "python"), _named(HOST_PID, EXECUTOR, "tf_xla_executor")]
    for device, line, name, start, end, said in (*program.device, *program.derived):
        events.append(_lasting(device + 1, line, name, start, end, said))
    events += [_lasting(HOST_PID, thread, *rest) for thread, *rest in program.host]
    events.append({})
    if perfetto:
        return json.dumps({"displayTimeUnit": "ns", "traceEvents": events})
    head = {"displayTimeUnit": "ns", "metadata": {"highres-ticks": True}}
    return json.dumps({**head, "traceEvents": events}, separators=(",", ":"))


def _named(pid: int, tid: int | None, name: str) -> Event:
    where = {"pid": pid} if tid is None else {"pid": pid, "tid": tid}
    return {"ph": "M", **where, "name": "process_name" if tid is None else "thread_name", "args": {"name": name}}


def _lasting(pid: int, tid: int, name: str, start: int, end: int, said: dict[str, str]) -> Event:
    times = {"ts": start / 10**6, "dur": (end - start) / 10**6}
    return {"ph": "X", "pid": pid, "tid": tid, **times, "name": name, **({"args": said} if said else {})}


def xspace(program: Made) -> bytes:
    """`HOST.xplane.pb`: written byte by byte, as protocol buffers are; numbers are integers there, not texts."""
    devices = sorted({one[0] for one in program.device})
    planes = [
        _plane(
            f"/device:GPU:{device}",
            [(f"Stream #{one[1]}(Kernel)", *one[1:]) for one in program.device if one[0] == device],
        )
        for device in devices
    ]
    planes.append(_plane("/host:CPU", [("python", *one) for one in program.host]))
    return b"".join(wire.block(1, plane) for plane in planes) + wire.block(4, b"vm")


def _plane(name: str, events: list[tuple[Any, ...]]) -> bytes:
    names = {text: number for number, text in enumerate(dict.fromkeys(one[2] for one in events), start=1)}
    stats = {text: number for number, text in enumerate(dict.fromkeys(k for one in events for k in one[5]), start=1)}
    texts = dict.fromkeys(v for one in events for k, v in one[5].items() if k == "hlo_op")
    refers = {text: number for number, text in enumerate(texts, start=len(stats) + 1)}
    out = wire.block(2, name.encode())
    for line in dict.fromkeys((one[0], one[1]) for one in events):
        content = wire.number(1, line[1]) + wire.block(2, line[0].encode()) + wire.number(3, 7_000)
        for _, number, text, start, end, said in events:
            if number == line[1]:
                content += wire.block(4, _event(names[text], start - 7_000_000, end - start, said, stats, refers))
        out += wire.block(3, content)
    for field_number, entries in ((4, names), (5, {**stats, **refers})):
        for text, number in entries.items():
            out += wire.block(
                field_number,
                wire.number(1, number) + wire.block(2, wire.number(1, number) + wire.block(2, text.encode())),
            )
    return out


def _event(
    name: int, offset: int, duration: int, said: dict[str, str], stats: dict[str, int], refers: dict[str, int]
) -> bytes:
    content = wire.number(1, name) + wire.number(2, offset) + wire.number(3, duration)
    for key, value in said.items():
        stat = wire.number(1, stats[key])
        if key == "hlo_op":
            stat += wire.number(7, refers[value])
        elif value.isdecimal():
            stat += wire.number(3, int(value))
        else:
            stat += wire.block(5, value.encode())
        content += wire.block(4, stat)
    return content
