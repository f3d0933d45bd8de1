"""What HTA, TraceLens and traceviz say of the same traces of torch.profiler, side by side, and who is right.

    python -m tests.benchmarks.peers FOLDER... [--hta VENV/bin/python] [--tracelens VENV/bin/python TREE]

It fetches nothing: give folders of traces, such as tests/data of HTA and tests/traces of TraceLens, and Pythons in
which the tools can be imported (HTA: pip install traceinsight 'pandas<3' psutil pyyaml; TraceLens: its source, with
pandas, tqdm, orjson, openpyxl, tabulate, pyyaml). A tool that is not given has no column.

What is right is decided by a sweep over the edges of the JSON's events, which shares no code with any of them: how long
communication kernels ran, how long all other kernels did, and both, on each GPU. Where a tool says otherwise, its rules
are put into the sweep one after the other; the fewest that bring its very number are the reason.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import combinations
from pathlib import Path
from typing import Any

Span = tuple[Decimal, Decimal]
PATIENCE = 600  # seconds
KINDS = {"Kernel": "kernel", "Memcpy": "gpu_memcpy", "Memset": "gpu_memset"}  # as Kineto wrote them before 2022
# Kernels that move data between ranks; a barrier or a fused kernel is neither side's.
COMMUNICATES = re.compile(
    r"ncclDevKernel|ncclKernel|ncclSymk|ncclLocalOpKernel|rccl|msccl|cross_device_reduce|quickreduce|allreduce_prototype|"
    r"\bep::\w+::(notify_dispatch|dispatch|combine)\b|multimem_(?!all_gather_matmul)|(one|two)_shot_all_reduce|deep_ep|nvshmem|allreduce_\w*(fusion)?_kernel|"
    r"reduce_scatter_cross_device|all_?gather_(kernel|lamport)",
    re.IGNORECASE,
)
KEEPS_BOOKS = re.compile(r"\bep::")
FUSES = re.compile(r"allreduce_fusion|fused_?allreduce|local_device_load_rmsnorm", re.IGNORECASE)
HTA_COMM = re.compile(r"(^nccl.*)|(^hip)|(^hccl)|(.*ncclKernel.*)")
HTA_MEMORY = re.compile(r"(^(hip)?Memcpy)|(^(hip)?Memset)|(^dma)")
HTA_OTHER = re.compile(r"(.*Memcpy)|(.*Memset)|(.*dma)|(^.*Sync)|(^Stream Wait Event)|(cuda.*LaunchKernel)")
ROCM_COPIES = re.compile(r"^__amd_rocclr_copyBuffer")


@dataclass(frozen=True)
class Op:
    """A GPU op of the JSON; times are µs, as they are printed."""

    kind: str
    name: str
    device: Any
    start: Decimal
    end: Decimal
    correlation: Any
    side: str = ""

    @property
    def span(self) -> Span:
        return self.start, self.end


@dataclass(frozen=True)
class File:
    """The ops of one trace.

    calls : when each correlation id was called. last_step : when the last one began.
    on_host : operators of the host that state a stream, as those of compiled Triton kernels do.
    """

    ops: tuple[Op, ...]
    calls: dict[int, Decimal]
    last_step: Decimal | None
    on_host: tuple[Op, ...] = ()
    negative: bool = False  # whether an op that ends before it begins counts, where nothing else runs


@dataclass(frozen=True)
class Figures:
    """µs; None where a tool does not say it. `share` is of communication beside computation."""

    compute: Decimal | None
    comm: Decimal | None
    share: Decimal | None

    def agrees(self, other: Figures) -> bool:
        """Whether they are the same as far as both say: to 0.01 µs for each number added, to 0.01 of a percent."""
        pairs = [(self.compute, other.compute, 1), (self.comm, other.comm, 1), (self.share, other.share, 0)]
        return all(
            one is None or two is None or abs(one - two) <= (Decimal("0.01") + abs(two) / 10**7 if times else _HALF)
            for one, two, times in pairs
        )


_HALF = Decimal("0.00011")  # HTA prints percents with two decimals


def main() -> None:
    """Compare all traces of the folders, and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--hta")
    parser.add_argument("--tracelens", nargs=2, metavar=("PYTHON", "TREE"))
    options = parser.parse_args()
    os.environ["TRACEVIZ_CACHE"] = "off"
    tools: dict[str, Callable[[Path], Figures | str]] = {}
    if options.hta:
        tools["HTA"] = lambda path: hta(options.hta, path)
    if options.tracelens:
        tools["TraceLens"] = lambda path: tracelens(*options.tracelens, path)
    tools["traceviz"] = ours
    names = [*tools, "right"]
    print("| trace |", " | ".join(f"compute µs, {name}" for name in names), end=" | ")
    print(" | ".join(f"overlap of comm, {name}" for name in names), "| why |")
    print("|---|" + "---:|" * (2 * len(names)) + "---|", flush=True)
    count, reasons = 0, Counter[tuple[str, str]]()
    for path in traces(options.folders):
        line, why = row(path, tools)
        print(line, flush=True)
        count += 1
        reasons.update((name, letter) for name, text in why.items() for letter in RULES[name] if letter in text.split())
    print(f"\nOf {count} traces:\n\n| | tool | why it differs from the sweep | traces |\n|---|---|---|---:|")
    for (name, letter), often in reasons.most_common():
        print(f"| {letter} | {name} | {RULES[name][letter][0]} | {often} |")


def traces(folders: Iterable[Path]) -> Iterator[Path]:
    """Traces that hold GPU ops, each content once."""
    seen = set()
    for folder in folders:
        for path in sorted({*folder.rglob("*.json"), *folder.rglob("*.json.gz")}):
            content = path.read_bytes()
            if content not in seen and (b'"kernel"' in _plain(path) or b'"Kernel"' in _plain(path)):
                seen.add(content)
                yield path


def row(path: Path, tools: dict[str, Callable[[Path], Figures | str]]) -> tuple[str, dict[str, str]]:
    """One line of the table, and why which tools differ."""
    file = opened(path)
    right = sweep(file)
    said = {name: tool(path) for name, tool in tools.items()}
    figures = {**said, "right": right}
    why = {name: reason(name, one, file) for name, one in said.items() if _differs(one, right)}
    cells = [_compute(one) for one in figures.values()] + [_share(one) for one in figures.values()]
    name = f"{path.parent.name}/{path.name.removesuffix('.gz').removesuffix('.json')}"
    reasons = "; ".join(f"{tool}: {text}" for tool, text in why.items())
    return f"| {name} | {' | '.join(cells)} | {reasons} |", why


def _differs(one: Figures | str, right: Figures) -> bool:
    return isinstance(one, str) or not one.agrees(right)


def _compute(one: Figures | str) -> str:
    return "–" if isinstance(one, str) or one.compute is None else f"{one.compute:,.2f}"


def _share(one: Figures | str) -> str:
    return "–" if isinstance(one, str) or one.share is None else f"{one.share * 100:.2f} %"


def _plain(path: Path) -> bytes:
    content = path.read_bytes()
    return gzip.decompress(content) if path.suffix == ".gz" else content


def opened(path: Path) -> File:
    """Read a trace with the standard library alone."""
    content = json.loads(_plain(path), parse_float=Decimal)
    events = content["traceEvents"] if isinstance(content, dict) else content
    ops, on_host, calls, steps = [], [], {}, []
    for one in events:
        if not isinstance(one, dict) or one.get("ph") != "X":
            continue
        kind, args = KINDS.get(one.get("cat"), one.get("cat")), one.get("args") or {}
        start = Decimal(one["ts"])
        end = start + Decimal(one.get("dur", 0))
        if kind in KINDS.values():
            device = args.get("device", args.get("inDevice", one["pid"]))
            ops.append(Op(kind, one.get("name") or "", device, start, end, args.get("correlation")))
        elif str(kind).lower().endswith(("runtime", "driver")) and isinstance(args.get("correlation"), int):
            calls[args["correlation"]] = start
        elif kind == "cpu_op" and "stream" in args:
            on_host.append(Op("kernel", one.get("name") or "", None, start, end, None))
        if str(one.get("name", "")).startswith("ProfilerStep") and "stream" not in args:
            steps.append(start)
    return File(tuple(ops), calls, max(steps, default=None), tuple(on_host))


def sweep(file: File, *, as_one: bool = False) -> Figures:
    """How long each side ran and both did, summed over GPUs, edge by edge; HTA and TraceLens take all for one GPU."""
    spans: dict[tuple[Any, str], list[Span]] = defaultdict(list)
    for one in file.ops:
        spans[None if as_one else one.device, one.side or side_of(one)].append(one.span)
    compute = comm = both = Decimal(0)
    for device in {device for device, _ in spans}:
        edges = [(at, step, kind) for kind in ("compute", "comm") for one in spans[device, kind]
                 for at, step in ((one[0], 1), (one[1], -1)) if one[1] > one[0]]  # fmt: skip
        running, before = {"compute": 0, "comm": 0}, Decimal(0)
        for at, step, kind in sorted(edges):
            compute += (at - before) * (running["compute"] > 0)
            comm += (at - before) * (running["comm"] > 0)
            both += (at - before) * (running["compute"] > 0 and running["comm"] > 0)
            running[kind] += step
            before = at
    if file.negative:
        compute = _sum_of_groups(spans[None, "compute"])
    return Figures(compute, comm, both / comm if comm else None)


def _sum_of_groups(spans: list[Span]) -> Decimal:
    """HTA's sum: from the begin of each group of spans that touch to its end."""
    groups: list[Span] = []
    for start, end in sorted(spans):
        if groups and start <= groups[-1][1]:
            groups[-1] = groups[-1][0], max(groups[-1][1], end)
        else:
            groups.append((start, end))
    return sum((end - start for start, end in groups), Decimal(0))


def side_of(one: Op) -> str:
    """What an op is: kernels communicate or compute; copies and fills do neither, whatever runs them."""
    if one.kind != "kernel" or ROCM_COPIES.match(one.name) or one.name.startswith("__amd_rocclr_fillBuffer"):
        return "other"
    if FUSES.search(one.name):
        return "neither"
    return "comm" if COMMUNICATES.search(one.name) else "neither" if KEEPS_BOOKS.search(one.name) else "compute"


# Rules of the tools, each changing what is swept.
Rule = Callable[[File], File]


def by(side: Callable[[Op], str]) -> Rule:
    """Sides by another rule."""
    return lambda file: replace(file, ops=tuple(replace(one, side=side(one)) for one in file.ops))


def hta_side(one: Op) -> str:
    """HTA's patterns of names, whatever the op is."""
    if HTA_COMM.match(one.name):
        return "comm"
    return "other" if HTA_MEMORY.match(one.name) or HTA_OTHER.match(one.name) else "compute"


def without_last_step(file: File) -> File:
    """HTA keeps what was called before the last step began, a mirrored one of a GPU that states no stream included."""
    if file.last_step is None:
        return file
    last = file.last_step
    return replace(file, ops=tuple(one for one in file.ops if file.calls.get(one.correlation, last) < last))


def host_too(file: File) -> File:
    """HTA takes for GPU work whatever states a stream."""
    return replace(file, ops=(*file.ops, *file.on_host))


def as_floats(file: File) -> File:
    """Ends as sums of 64-bit floats: of µs since 1970 they are multiples of 0.25."""
    ends = ((Decimal(float(one.start)), Decimal(float(one.start) + float(one.end - one.start))) for one in file.ops)
    return replace(file, ops=tuple(replace(one, start=a, end=b) for one, (a, b) in zip(file.ops, ends, strict=True)))


def launched_within(file: File) -> File:
    """We leave out what was launched before the capture began: CUPTI numbers calls upwards."""
    first = min(file.calls, default=0)
    return replace(file, ops=tuple(one for one in file.ops if one.correlation is None or one.correlation >= first))


def negative(file: File) -> File:
    """HTA adds up lengths of ops that its rounding has turned around."""
    return replace(file, negative=True)


def inward(file: File) -> File:
    """HTA rounds the begin up and the end down to whole µs."""
    ops = (replace(one, start=Decimal(math.ceil(one.start)), end=Decimal(math.floor(one.end))) for one in file.ops)
    return replace(file, ops=tuple(ops))


def tracelens_side(one: Op) -> str:
    """TraceLens: nccl, rccl or cross_device_reduce within the name, of kernels and memsets."""
    if one.kind == "gpu_memcpy" or ROCM_COPIES.match(one.name):
        return "other"
    return "comm" if re.search("nccl|rccl|cross_device_reduce", one.name) else "compute"


def memsets_compute(one: Op) -> str:
    """As it is, but that fills are computation."""
    fills = one.kind == "gpu_memset" or one.name.startswith("__amd_rocclr_fillBuffer")
    return "compute" if fills else side_of(one)


RULES: dict[str, dict[str, tuple[str, Rule]]] = {
    "HTA": {
        "T": ("takes host operators of Triton kernels, which state a stream, for GPU work", host_too),
        "F": ("adds times as floats: of µs since 1970 they are multiples of 0.25", as_floats),
        "S": ("leaves out the last ProfilerStep", without_last_step),
        "R": ("rounds each op inward to whole µs", inward),
        "V": ("adds ops that lie within one µs as -1 µs", negative),
        "N": ("tells kinds by patterns of names", by(hta_side)),
    },
    "TraceLens": {
        "F": ("adds times as floats: of µs since 1970 they are multiples of 0.25", as_floats),
        "M": ("counts fills (memsets) as computation", by(memsets_compute)),
        "C": ("M, and knows communication by nccl, rccl and cross_device_reduce alone", by(tracelens_side)),
    },
    "traceviz": {"B": ("leaves out what was launched before the capture began, and says so", launched_within)},
}


def reason(name: str, said: Figures | str, file: File) -> str:
    """The fewest of a tool's rules that bring its number."""
    if isinstance(said, str):
        return said
    rules = RULES[name]
    for count in range(1, len(rules) + 1):
        for some in combinations(rules, count):
            changed = file
            for each in some:
                changed = rules[each][1](changed)
            if said.agrees(sweep(changed, as_one=name != "traceviz")):
                return " ".join(some)
    return "not explained by its rules"


# The tools.
HTA = """
import json, sys, logging
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
one = TraceAnalysis(trace_files={0: sys.argv[1]})
said = one.get_temporal_breakdown(visualize=False).iloc[0]
try:
    share = float(one.get_comm_comp_overlap(visualize=False).iloc[0]["comp_comm_overlap_pctg"])
except Exception:
    share = float("nan")
print("\\n" + json.dumps({"compute": float(said["compute_time(us)"]), "share": None if share != share else share}))
"""
TRACELENS = """
import gzip, json, sys
sys.path.insert(0, sys.argv[2])
from TraceLens.TreePerf.gpu_event_analyser import GPUEventAnalyser
opener = gzip.open if sys.argv[1].endswith(".gz") else open
content = json.load(opener(sys.argv[1], "rb"))
events = [one for one in (content["traceEvents"] if isinstance(content, dict) else content) if one.get("ph") == "X"]
for number, one in enumerate(events):
    one["UID"] = number
said = GPUEventAnalyser(events).compute_metrics()
keys = ("computation_time", "exposed_comm_time", "total_comm_time")
print("\\n" + json.dumps({key: float(said[key]) for key in keys}))
"""


def _asked(python: str, code: str, *arguments: str) -> dict[str, Any] | str:
    try:
        run = subprocess.run(
            [python, "-c", code, *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        return f"not done after {PATIENCE} s"
    if run.returncode:
        return f"fails ({(run.stderr.strip().splitlines() or ['?'])[-1][:100]})"
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1], parse_float=Decimal)
    return found


def hta(python: str, path: Path) -> Figures | str:
    """HTA's temporal breakdown and overlap."""
    found = _asked(python, HTA, str(path))
    if isinstance(found, str):
        return found
    share = None if found["share"] is None else Decimal(found["share"]) / 100
    return Figures(Decimal(found["compute"]), None, share)


def tracelens(python: str, tree: str, path: Path) -> Figures | str:
    """TraceLens' times of the GPU; it says what is exposed, in place of what overlaps."""
    found = _asked(python, TRACELENS, str(path), tree)
    if isinstance(found, str):
        return found
    comm = Decimal(found["total_comm_time"])
    share = 1 - Decimal(found["exposed_comm_time"]) / comm if comm else None
    return Figures(Decimal(found["computation_time"]), comm, share)


def ours(path: Path) -> Figures | str:
    """What check-overlap says, waits included as the other tools include them."""
    import traceviz as tv

    try:
        ranks = tv.check_overlap(path, "comm", "compute").ranks
    except tv.TracevizError as error:
        return f"refuses ({error.message})"
    compute, comm, both = (
        Decimal(sum(values)) / 1000
        for values in (
            [one.b.busy_ns for one in ranks],
            [one.a.busy_ns for one in ranks],
            [one.overlap_ns for one in ranks],
        )
    )
    return Figures(compute, comm, both / comm if comm else None)


if __name__ == "__main__":
    sys.exit(main())
