"""Capture the same programs again and again: what `compare` says of them is what it says of no change at all.

    for run in 0 1 2 3; do torchrun --nproc-per-node 2 tools/capture-repeats.py FOLDER $run [CAPTURES]; done
    python tools/capture-repeats.py --figures FOLDER > tests/data/repeats.json

Each run is a process of its own, as a second run of a benchmark is; it captures each program so often (13 times unless
told), ten steps each, the programs in turns, with torch.profiler. The last line keeps of each capture what its steps
took: all that `python -m tests.benchmarks.false_alarms` asks for.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

CAPTURES, STEPS, WARM = 13, 10, 5
PROGRAMS = (("dpmp", "overlapped"), ("pipelines", "overlap"), ("rowpar", "s2"), ("a2a", "event"))


def capture(folder: Path, run: str, captures: int) -> None:
    import torch
    import torch.distributed as dist
    from torch.profiler import ProfilerActivity, profile, record_function

    from collectors.workloads.catalog import WORKLOADS
    from collectors.workloads.rank import Rank

    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    rank = Rank(device, dist.get_rank(), dist.get_world_size())
    torch.manual_seed(rank.number)
    programs = {}
    for name, variant in PROGRAMS:
        workload = WORKLOADS[name]
        programs[name] = workload.load()(rank, workload.sizes, variant)
    for number in range(captures):
        for name, program in programs.items():
            for _ in range(WARM):
                program.step()
            torch.cuda.synchronize()
            dist.barrier()
            torch.cuda.synchronize()
            with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
                for step in range(STEPS):
                    with record_function(f"ProfilerStep#{step}"):
                        program.step()
                torch.cuda.synchronize()
            to = folder / f"{name}.run{run}.{number:02}"
            to.mkdir(parents=True, exist_ok=True)
            profiler.export_chrome_trace(str(to / f"rank{rank.number}.json.gz"))
    dist.barrier()
    dist.destroy_process_group()


def figures(folder: Path) -> dict[str, dict[str, list[int]]]:
    """Of each capture, step time and real overlap of each step, ns."""
    from tests.benchmarks.false_alarms import figures_of

    found = {}
    for one in sorted(folder.iterdir()):
        values = figures_of(sorted(str(path) for path in one.glob("rank*.json.gz")))
        found[one.name] = {name: steps.tolist() for name, steps in values.items()}
    return found


if __name__ == "__main__":
    if sys.argv[1] == "--figures":
        print(json.dumps(figures(Path(sys.argv[2]))))
    else:
        capture(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else CAPTURES)
