"""Real captures of tests/data, read as they are: clocks unaligned, ranks named."""

from __future__ import annotations

from pathlib import Path

from analyzers.readers.kineto import kineto_trace as kineto
from analyzers.readers.nsys import nsys_export as nsys
from analyzers.trace.merge import merge
from analyzers.trace.ranks import assign_ranks
from analyzers.trace.tables import Trace

DATA = Path(__file__).parents[1] / "data"
WORKLOADS = sorted(path.name for path in DATA.glob("workloads/*.*.*"))
# Of each variant of a workload one capture: among them are all kinds, of two ranks and of four.
A_WORKLOAD_OF_EACH = set({".".join(name.split(".")[:2]): name for name in reversed(WORKLOADS)}.values())


def one_capture(name: str) -> Trace:
    """A file of tests/data, such as "nsys/ddp_log.2gpu.sqlite" or "torch/ddp.rank0.json.gz"."""
    path = DATA / name
    return assign_ranks(nsys.read_sqlite(path) if path.suffix == ".sqlite" else kineto.read(path))


def whole_run(name: str) -> Trace:
    """An nsys report by its file's name, or both ranks of a torch.profiler run by its scenario's."""
    if name.endswith(".sqlite"):
        return one_capture(f"nsys/{name}")
    return assign_ranks(merge([kineto.read(DATA / "torch" / f"{name}.rank{rank}.json.gz") for rank in (0, 1)]))
