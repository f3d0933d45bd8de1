"""What counted as communication and by which rule, what counts for neither side, and what may be communication, too."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np

from analyzers.arrays.columns import taken
from analyzers.arrays.groups import label, rows_by_key
from analyzers.arrays.types import Ints
from analyzers.common.errors import TraceWarning
from analyzers.common.records import Addable, Record
from analyzers.common.wording import count_of, duration
from analyzers.trace.communication import BOOKKEEPING, COMMUNICATION, COMPUTE, FUSED, function, known
from analyzers.trace.kernels import is_compute, is_declared, is_peer_copy, operation_codes
from analyzers.trace.tables import Trace

BY_NAME, PEER_COPIES = "kernel name", "copy between GPUs"
MOST_SUGGESTED = 5
_SUGGEST_FROM = 0.01  # of the time of kernels that count as compute
# Kernels that are plainly compute need not be asked about.
_PLAIN = re.compile(
    r"^(at|cub|thrust|cutlass|cutlass_\w+|cublas\w*|cudnn\w*|flash\w*|triton_\w*|layer_norm|vectorized\w*)(::|_|$)|gemm|gemv|nvjet"
    r"|cijk_|elementwise|softmax|layer_?norm|rms_?norm|embedding|conv|attention|fmha|flash|rotary|transpose|fbgemm"
    r"|memset|fill|amd_rocclr",
    re.IGNORECASE,
)
Rule = tuple[str, str, str, str]  # rule, library, operation, kind


class Counted(Record, frozen=True):
    """Ops that count as communication by one rule, or as fused or bookkeeping; `ns` is their time, added up.

    rule : "kernel name" (the table of names), "copy between GPUs", or what the user gave, as `kernel:x (--comm)`.
    """

    rule: str
    library: str
    operation: str
    kind: str
    ops: int
    ns: int


class Suggested(Record, frozen=True):
    """A kernel that ran beside the main stream alone, and that no rule knows; `streams` as the capture numbers them."""

    name: str
    streams: tuple[int, ...]
    ops: int
    ns: int

    @property
    def selector(self) -> str:
        """What makes it communication, as a user writes it."""
        return f'kernel:"{self.name}"' if re.search(r'[,+)"]', self.name) else f"kernel:{self.name}"


class CommunicationFacts(Addable, frozen=True):
    """The same of one part of a run; parts add up.

    ops, ns : by rule. names : by function and stream, of kernels that no rule knows, off their device's main stream.
    on_main : functions that ran on a main stream, too. compute_ns : of all kernels that count as compute.
    """

    ops: Counter[Rule] = msgspec.field(default_factory=Counter)
    ns: Counter[Rule] = msgspec.field(default_factory=Counter)
    names: Counter[tuple[str, int]] = msgspec.field(default_factory=Counter)
    names_ns: Counter[tuple[str, int]] = msgspec.field(default_factory=Counter)
    on_main: frozenset[str] = frozenset()
    compute_ns: int = 0

    @property
    def counted(self) -> tuple[Counted, ...]:
        """By rule: communication first, the most time first."""
        rows = [Counted(*rule, self.ops[rule], self.ns[rule]) for rule in self.ops]
        kinds = (COMMUNICATION, FUSED, BOOKKEEPING)
        return tuple(
            sorted(rows, key=lambda one: (kinds.index(one.kind), -one.ns, one.rule, one.library, one.operation))
        )

    @property
    def suggested(self) -> tuple[Suggested, ...]:
        """Kernels of no known kind that only ran beside the main stream, the most time first."""
        total: Counter[str] = Counter()
        ops: Counter[str] = Counter()
        streams: dict[str, set[int]] = {}
        for (name, stream), ns in self.names_ns.items():
            if name not in self.on_main:
                total[name] += ns
                ops[name] += self.names[name, stream]
                streams.setdefault(name, set()).add(stream)
        enough = [name for name in total if total[name] >= _SUGGEST_FROM * self.compute_ns]
        ordered = sorted(enough, key=lambda name: (-total[name], name))[:MOST_SUGGESTED]
        return tuple(Suggested(name, tuple(sorted(streams[name])), ops[name], total[name]) for name in ordered)


def communication_facts(trace: Trace) -> CommunicationFacts:
    """Count a trace's communication by rule, and the unknown kernels beside main streams."""
    took = trace.ops.end_ns - trace.ops.start_ns
    ops, ns = _by_rule(trace, took)
    compute, texts = np.flatnonzero(is_compute(trace)), trace.ops.name.texts
    functions = [function(text) for text in texts]
    device = label(taken(trace.ops.process, compute), taken(trace.ops.device, compute))
    by_lane = {lane: compute[rows] for lane, rows in rows_by_key(device, taken(trace.ops.stream, compute)).items()}
    busy = {lane: int(took[rows].sum()) for lane, rows in by_lane.items()}
    main = {each: max((ns, lane) for lane, ns in busy.items() if lane[0] == each)[1] for each, _ in by_lane}
    names, names_ns, on_main = Counter[tuple[str, int]](), Counter[tuple[str, int]](), set[str]()
    for lane, rows in by_lane.items():
        for (code,), own in rows_by_key(trace.ops.name.codes[rows].astype(np.int64)).items():
            name = functions[code]
            if lane == main[lane[0]]:
                on_main.add(name)
            elif name and not _PLAIN.search(name):
                names[name, lane[1]] += int(own.size)
                names_ns[name, lane[1]] += int(took[rows[own]].sum())
    return CommunicationFacts(ops, ns, names, names_ns, frozenset(on_main), sum(busy.values()))


def _by_rule(trace: Trace, took: Ints) -> tuple[Counter[Rule], Counter[Rule]]:
    name, declared = trace.ops.name, trace.ops.declared
    by_name = [known(text) for text in name.texts]
    has_rule = name.matching(lambda text: known(text).kind != COMPUTE) & trace.ops.kind.is_one_of(("kernel",))
    copies, own = is_peer_copy(trace), is_declared(trace)
    rows = np.flatnonzero(has_rule | copies | own)
    ops, ns = Counter[Rule](), Counter[Rule]()
    if not rows.size:
        return ops, ns
    operation, distinct = operation_codes(trace)
    hip = trace.runtime == "HIP"
    how = np.where(own[rows], 2, np.where(copies[rows], 1, 0))
    keys = (how, name.codes[rows].astype(np.int64), declared.codes[rows].astype(np.int64), operation[rows])
    for (way, text, rule, number), at in rows_by_key(*keys).items():
        one = by_name[text]
        library = "RCCL" if hip and one.library == "NCCL" else one.library  # its kernels keep NCCL's names
        key: Rule = (BY_NAME, library, distinct[number] or one.operation, one.kind)
        if way:
            key = (declared.texts[rule] if way == 2 else PEER_COPIES, "", distinct[number], COMMUNICATION)
        ops[key] += int(at.size)
        ns[key] += int(took[rows[at]].sum())
    return ops, ns


def about_neither(counted: Sequence[Counted]) -> list[TraceWarning]:
    """One line on what is on neither side: fused kernels, whose overlap can't be measured, and bookkeeping."""
    found = []
    for kind, what in (
        (FUSED, "fused kernels, whose overlap can't be measured"),
        (BOOKKEEPING, "bookkeeping of communication, such as barriers and layouts"),
    ):
        rows = [one for one in counted if one.kind == kind]
        if rows:
            ops, ns = sum(one.ops for one in rows), sum(one.ns for one in rows)
            found.append(f"{what} ({count_of(ops, 'op')}, {duration(ns)})")
    if not found:
        return []
    text = f"On neither side: {'; '.join(found)}."
    if {PEER_COPIES} <= {one.rule for one in counted if one.kind == COMMUNICATION} and any(
        one.kind == BOOKKEEPING and one.operation == "barrier" for one in counted
    ):
        text += " At barriers ranks wait for late ones: traceviz collectives says how long."
    return [TraceWarning("on-neither-side", text)]


def about_suggested(suggested: Sequence[Suggested]) -> list[TraceWarning]:
    """Where nothing counts as communication: which unknown kernels ran beside the main stream, and how to add them."""
    if not suggested:
        return []
    named = ", ".join(f"{one.name} ({duration(one.ns)})" for one in suggested)
    text = (
        f"Nothing counts as communication. Beside the main stream ran kernels of no known kind: {named}. If they "
        f"communicate, add --comm '{suggested[0].selector}'."
    )
    return [TraceWarning("perhaps-communication", text)]
