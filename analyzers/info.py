"""What is in a trace, and what can't be answered from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Ints, Mask
from analyzers.common.errors import TracevizError, TraceWarning
from analyzers.common.frames import DataFrame, framed
from analyzers.common.notebook import card
from analyzers.common.records import Addable, Record, values
from analyzers.common.wording import duration
from analyzers.trace.advice import but_rows, is_migration
from analyzers.trace.counted import CommunicationFacts, Counted, Suggested, communication_facts
from analyzers.trace.kernels import is_communication
from analyzers.trace.narrow import Narrowing, only_ops
from analyzers.trace.numbered import between_numbers, families
from analyzers.trace.op_rows import of_nics
from analyzers.trace.ranges import launched_in_all
from analyzers.trace.ranks import RANK_RULES
from analyzers.trace.schemas import Counters
from analyzers.trace.step_table import MARKED, NO_STEP_MARKS, NO_STEPS, Steps, StepsUsed
from analyzers.trace.steps import find_steps
from analyzers.trace.tables import Capture, Trace
from analyzers.trace.unlaunched import lacks_launch

_OF_SAMPLE = ("process", "device", "start_ns", "end_ns")
MOST_RANGES = 40
RANGE_KINDS = {"nvtx": ("nvtx", "annotation"), "hlo": ("hlo",)}  # of selectors, and the kinds of ranges that they name
Group = TypeVar("Group", bound=Hashable)
MIN_MEDIAN_STEPS = 3  # steps below which a median is not one


class RankInfo(Record, frozen=True):
    """One rank's GPU work in one capture: op counts, streams, and the span from first start to last end, ns.

    samples, sample_period_ns : of GPU counters; counters : which, by their columns in `Trace.counters`.
    """

    rank: int
    rule: str
    capture: str
    pid: int
    devices: tuple[int, ...]
    gpu: str
    kernels: int
    communication: int
    copies: int
    memsets: int
    graphs: int
    streams: int
    first_ns: int
    last_ns: int
    samples: int = 0
    sample_period_ns: int = 0
    counters: tuple[str, ...] = ()
    migrations: int = 0


class RangeInfo(Record, frozen=True):
    """One range name: how often it occurs over all ranks, and how many GPU ops it launched.

    word : by which selectors name it: "nvtx", or "hlo" of XLA's ops and modules.
    numbers : for how many names of a family (`step 3` is number 3 of `step #`) it stands; 0 of a name by itself.
    first, last : the least and greatest number; None where the names differ in more than one.
    """

    name: str
    occurrences: int
    launches: int
    word: str = "nvtx"
    numbers: int = 0
    first: int | None = None
    last: int | None = None


class TraceInfo(Record, frozen=True):
    """What is in a trace; `cannot` says in words what it can't answer.

    steps : those it has, how they were found, and which of them figures are of. step_numbers : all that there are.
    communication : what counts as communication and by which rule, and what is on neither side.
    suggested : kernels of no known kind that only ran beside the main stream: they may be communication, too.
    """

    captures: tuple[Capture, ...]
    ranks: tuple[RankInfo, ...]
    ranges: tuple[RangeInfo, ...]
    more_ranges: int
    steps: StepsUsed
    step_numbers: tuple[int, ...]
    cannot: tuple[str, ...]
    warnings: tuple[TraceWarning, ...]
    communication: tuple[Counted, ...] = ()
    suggested: tuple[Suggested, ...] = ()

    @property
    def unused(self) -> dict[str, int]:
        """How many rows or events of each kind are in the captures and in no answer."""
        found = Counter[str]()
        for capture in self.captures:
            found.update(capture.unused)
        return dict(found.most_common())

    def to_frame(self) -> DataFrame:
        """One row per rank: the fields of `RankInfo`."""
        return framed(map(values, self.ranks), index=["rank"])

    def ranges_frame(self) -> DataFrame:
        """One row per range name that can be selected, most launches first: occurrences, launches."""
        return framed(map(values, self.ranges), ["name", "occurrences", "launches"], ["name"])

    def _repr_html_(self) -> str:
        headers = ("rank", "known by", "GPU", "kernels", "comm", "copies", "streams", "span")
        rows = [
            (
                one.rank,
                one.rule,
                one.gpu or "–",
                f"{one.kernels:,}",
                f"{one.communication:,}",
                f"{one.copies:,}",
                one.streams,
                duration(one.last_ns - one.first_ns),
            )
            for one in self.ranks
        ]
        steps = f" {self.steps.in_words}"
        notes = [f"it can't tell {text}" for text in self.cannot]
        text = f"{len(self.captures)} capture(s) of {len(self.ranks)} rank(s), {len(self.ranges)} range names.{steps}"
        return card("trace", text, headers, rows, texts=("known by", "GPU"), notes=notes, warnings=self.warnings)

    def __repr__(self) -> str:
        return f"<info: {len(self.captures)} capture(s), {len(self.ranks)} rank(s), {self.steps.count} step(s)>"


class Facts(Addable, frozen=True):
    """What is counted of a trace, or of one capture of a run.

    ops : but for page migrations, which nobody launches. unknown : of them, those whose launch is not on record.
    occurrences, launches : by word and name of ranges. family_launches : of ranges with numbers in their names, by what
        stands between these (`between_numbers`).
    """

    ranks: tuple[RankInfo, ...]
    steps: frozenset[int]
    ops: int
    unknown: int
    graphs: int
    ranges: int
    operators: int
    syncs: int
    occurrences: Counter[tuple[str, str]]
    launches: Counter[tuple[str, str]]
    family_launches: Counter[tuple[str, ...]]
    communication: CommunicationFacts


def info(trace: Trace) -> TraceInfo:
    """Look into a trace."""
    return info_of(trace, facts_of(trace))


def facts_of(trace: Trace) -> Facts:
    """Count what is in a trace, or in one capture of a run."""
    occurrences, launches = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    family_launches = Counter[tuple[str, ...]]()
    for word, kinds in RANGE_KINDS.items():
        rows = trace.ranges.kind.is_one_of(kinds)
        code, inside = trace.ranges.name.codes, launched_in_all(trace, rows)
        names, times_of = np.unique(code[rows & (code >= 0)], return_counts=True)
        of_word = {trace.ranges.name.texts[name]: int(times) for name, times in zip(names, times_of, strict=True)}
        launched = _launched(trace, inside, {name: name for name in of_word})
        for name, times in of_word.items():
            occurrences[word, name], launches[word, name] = times, launched[name]
        if word == "nvtx":
            common = {name: between_numbers(name) for name in of_word}
            family_launches = _launched(trace, inside, {name: one for name, one in common.items() if len(one) > 1})
    return Facts(
        ranks=_ranks(trace),
        steps=frozenset(find_steps(trace).present),
        ops=len(trace.ops) - int(np.count_nonzero(is_migration(trace))),
        unknown=int(np.count_nonzero(lacks_launch(trace))),
        graphs=int(np.count_nonzero(trace.ops.kind.is_one_of(("graph",)))),
        ranges=len(trace.ranges),
        operators=int(np.count_nonzero(trace.ranges.kind.is_one_of(("op",)))),
        syncs=len(trace.syncs),
        occurrences=occurrences,
        launches=launches,
        family_launches=family_launches,
        communication=communication_facts(trace),
    )


def _launched(trace: Trace, inside: Sequence[Ints], group_of: Mapping[str, Group]) -> Counter[Group]:
    """How many ops the ranges of each group of names launched.

    inside : what `launched_in_all` gives: for every op a range around its launch, in each.
    """
    number = {group: at for at, group in enumerate(dict.fromkeys(group_of.values()))}
    code, texts = trace.ranges.name.codes, trace.ranges.name.texts
    group_of_code = np.array([number[group_of[text]] if text in group_of else -1 for text in texts] + [-1], np.int64)
    launched = np.zeros(len(number), np.int64)
    seen: list[Ints] = []
    for found in inside:
        group = np.where(found >= 0, group_of_code[code[found]], -1)
        for before in seen:  # nested ranges of one group hold an op once
            group = np.where(group == before, -1, group)
        launched += np.bincount(group[group >= 0], minlength=len(number))
        seen.append(group)
    return Counter(dict(zip(number, launched.tolist(), strict=True)))


def facts_within(trace: Trace, narrowing: Narrowing) -> Facts:
    """The same of the part of a capture that is asked for; ranges are those of all of it."""
    try:
        return facts_of(narrowing.of_capture(trace))
    except TracevizError:  # it has no ops of that part
        return facts_of(only_ops(trace, np.empty(0, np.int64)))


def info_of(run: Trace, facts: Facts) -> TraceInfo:
    """Make the answer of what was counted, and of the run's captures, ranks and warnings.

    Range names stand by launches; an op counts for the name of every range around its launch.
    """
    by_launches = sorted(_ranges(facts), key=lambda one: (one.word == "hlo", -one.launches, one.name))
    captures = {(one.rank, one.pid): run.captures[one.capture].path for one in run.processes}  # as the run names them
    ranks = sorted(facts.ranks, key=lambda one: one.rank)
    return TraceInfo(
        captures=run.captures,
        ranks=tuple(replace(one, capture=captures.get((one.rank, one.pid), one.capture)) for one in ranks),
        ranges=tuple(by_launches[:MOST_RANGES]),
        more_ranges=max(len(by_launches) - MOST_RANGES, 0),
        steps=_steps(run, facts).used(None),
        step_numbers=tuple(sorted(facts.steps)),
        cannot=_cannot_answer(run, facts),
        warnings=but_rows(run.warnings),  # `cannot` says it
        communication=facts.communication.counted,
        suggested=facts.communication.suggested,
    )


def _steps(run: Trace, facts: Facts) -> Steps:
    """The run's steps; of tables that nobody looked for steps in, those that are marked."""
    if run.steps is not None:
        return run.steps
    numbers = np.array(sorted(facts.steps), np.int64)
    return replace(NO_STEPS, numbers=numbers, whole=tuple(numbers.tolist()), source=MARKED if numbers.size else "")


def _ranges(facts: Facts) -> list[RangeInfo]:
    """A row for each name, and one for all names of a family; XLA's numbered ops are different ones."""
    numbered = families(name for word, name in facts.occurrences if word == "nvtx")
    found = [
        RangeInfo(
            one.name,
            sum(facts.occurrences["nvtx", name] for name in one.members),
            facts.family_launches[common],
            numbers=len(one.members),
            first=one.first,
            last=one.last,
        )
        for common, one in numbered.items()
    ]
    inside = {("nvtx", name) for one in numbered.values() for name in one.members}
    return found + [
        RangeInfo(name, times, facts.launches[word, name], word)
        for (word, name), times in facts.occurrences.items()
        if (word, name) not in inside
    ]


def _cannot_answer(run: Trace, facts: Facts) -> tuple[str, ...]:
    devices = sum(len(one.devices) for one in facts.ranks)
    ranks, known, steps = len({one.rank for one in facts.ranks}), run.captures[0].world_size, len(facts.steps)
    candidates = [
        (
            facts.graphs,
            f"what ran inside {facts.graphs} CUDA graph launches: each is one row (nsys: --cuda-graph-trace=node)",
        ),
        (ranks == 1 and devices < 2, "how long collectives waited for other ranks: only one rank was captured"),
        (known is not None and ranks not in (1, known), f"what the other ranks did: {ranks} of {known} were captured"),
        (not facts.ranges, "regions by name: there are no NVTX ranges or record_function annotations"),
        (facts.unknown == facts.ops, "who launched what: no launch calls were recorded, so ranges pick nothing"),
        (
            0 < facts.unknown < facts.ops,
            f"who launched {facts.unknown:,} of {facts.ops:,} GPU ops: their launch calls are missing",
        ),
        (not facts.operators, "which operator launched an op: the capture has no operator events"),
        (not facts.syncs, "which stream waited for what: there are no synchronization events"),
        (0 < steps < MIN_MEDIAN_STEPS, f"how much steps vary: {steps} are too few for a median"),
        (not steps, f"steps: {(run.steps.unknown if run.steps else '') or NO_STEP_MARKS}"),
    ]
    applying = [text for applies, text in candidates if applies]
    return tuple(dict.fromkeys([*applying, *_lacks(run.captures)]))


def _lacks(captures: Sequence[Capture]) -> list[str]:
    """What captures lack; of some only, with their names."""
    found: dict[str, list[str]] = {}
    for capture in captures:
        for text in dict.fromkeys(capture.lacks):
            found.setdefault(text, []).append(Path(capture.path).name)
    lines = []
    for text, names in found.items():
        more = [f"{len(names) - 3} more"] if len(names) > 3 else []
        lines.append(text if len(names) == len(captures) else f"{text}: in {', '.join([*names[:3], *more])}")
    return lines


def _ranks(trace: Trace) -> tuple[RankInfo, ...]:
    ops = trace.ops
    comm = is_communication(trace)
    kinds = {kind: ops.kind.is_one_of((kind,)) for kind in ("kernel", "memcpy", "memset", "graph")}
    migrations, found = is_migration(trace), []
    for (rank, process), rows in rows_by_key(ops.rank, ops.process).items():
        owner, devices = trace.processes[process], np.unique(ops.device[rows])
        used = (trace.devices.process == process) & np.isin(trace.devices.device, devices)

        def count(mask: Mask, rows: Ints = rows) -> int:
            return int(np.count_nonzero(mask[rows]))

        found.append(
            RankInfo(
                rank,
                RANK_RULES.get(owner.rule, owner.rule),
                trace.captures[owner.capture].path,
                owner.pid,
                tuple(devices.tolist()),
                ", ".join(dict.fromkeys(map(str, trace.devices.name.take(used)))),
                count(kinds["kernel"] & ~comm),
                count(comm),
                count(kinds["memcpy"] & ~comm),
                count(kinds["memset"]),
                count(kinds["graph"]),
                len(rows_by_key(*(lane[rows[~migrations[rows]]] for lane in (ops.device, ops.context, ops.stream)))),
                int(ops.start_ns[rows].min()),
                int(ops.end_ns[rows].max()),
                *_sampled(trace, process),
                migrations=count(migrations),
            )
        )
    return tuple(found)


def _sampled(trace: Trace, process: int) -> tuple[int, int, tuple[str, ...]]:
    """How many samples of GPU counters a process has, the time from one to the next, and of which counters."""
    own = trace.counters.take(trace.counters.process == process)
    if not len(own):
        return 0, 0, ()
    known = [name for name in Counters.schema if name not in _OF_SAMPLE and (getattr(own, name) >= 0).any()]
    of_gpu = own.take(~of_nics(own))
    counted = of_gpu if len(of_gpu) else own
    return len(counted), int(np.median(counted.end_ns - counted.start_ns)), tuple(known)
