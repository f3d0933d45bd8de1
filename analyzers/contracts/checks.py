"""Each kind of rule held against a trace: held, broken, or inconclusive where the capture lacks what it needs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.types import Ints
from analyzers.causes.evidence import TraceNames
from analyzers.common.errors import TracevizError, TraceWarning
from analyzers.contracts.blocked import blocked_in
from analyzers.contracts.order import Order, PlacedOps
from analyzers.contracts.result import BROKEN, HELD, INCONCLUSIVE, ContractResult, RuleFinding, RuleResult
from analyzers.contracts.rules import (
    SOME,
    STEP,
    Contract,
    HostWaits,
    MayRunBeside,
    NoHostSync,
    NoRace,
    RealOverlap,
    Rule,
    RunsOnOwnStream,
    WaitEarly,
)
from analyzers.contracts.sides import UNMARKED, RuleSides, instances_of, sides, untied_of
from analyzers.ordering.lanes import MIN_NS
from analyzers.ordering.ordering import Ordering, Step
from analyzers.select.select import select
from analyzers.syncs.copies import REASONS, unwaited_copies
from analyzers.syncs.crossings import missing_crossings
from analyzers.trace.advice import records_waits
from analyzers.trace.columns import ints, is_one_of, stored
from analyzers.trace.narrow import in_whole
from analyzers.trace.run import Run
from analyzers.trace.tables import Trace
from analyzers.trace.unlaunched import launched_before
from analyzers.trace.untrusted import names_lost, untrusted
from analyzers.verdict.check import check_overlap

NEXT_COPY = REASONS[0]
UNRECORDED = "the capture does not record which stream each wait is for"
RECORD = "Record synchronizations: collect with traceviz collect, or set enable_cuda_sync_events in torch.profiler."
MARK = 'Mark the steps: record_function("step 3") around each, or torch.profiler\'s step().'
_ABOUT_ALL = ("lost-work", "skipped-bad", "launched-before", "unclosed-ranges", "nsys-warns")


def check_contract(trace: Trace, contract: Contract) -> ContractResult:
    """Hold each rule of a contract against a trace, or against a part of one.

    Of what lost work or calls' names no rule is held, but for one about a figure, which says itself what that rests on.

    Raises
    ------
    TracevizError : sides of a rule share ops that belong to neither alone.
    """
    checker = Checker(trace)
    rules = tuple(checker.check(rule) for rule in contract.rules)
    return ContractResult(contract, rules, tuple(trace.rank_ids), checker.warnings)


class Checker:
    """Holds rules against one trace; what they look at may lie outside the part that is asked about."""

    def __init__(self, trace: Trace) -> None:
        self.trace, self.whole = trace, trace.whole or trace
        self.order = self.whole.once(Order)
        self.ordering, self.lanes = self.order.ordering, self.order.lanes
        self.words = Words(self.whole)
        self.record = RECORD if records_waits(self.whole) else ""
        self.lost = untrusted(Run.of(trace)) or names_lost(trace)

    @property
    def warnings(self) -> tuple[TraceWarning, ...]:
        """What to mind of all rules."""
        return (*self.ordering.warnings, *(one for one in self.trace.warnings if one.code in _ABOUT_ALL))

    def check(self, rule: Rule) -> RuleResult:
        """What becomes of a rule."""
        kinds: dict[type[Any], Callable[[Any], RuleResult]] = {
            MayRunBeside: self._beside,
            NoHostSync: self._no_host_sync,
            WaitEarly: self._wait_early,
            RunsOnOwnStream: self._own_stream,
            HostWaits: self._host_waits,
            NoRace: self._no_race,
            RealOverlap: self._real_overlap,
        }
        try:
            found = kinds[type(rule)](rule)
        except TracevizError as error:  # sides that share ops, above all
            raise TracevizError(f"rule {rule.name!r}: {error.message}", hint=error.hint) from error
        if self.lost and found.outcome == HELD and not isinstance(rule, RealOverlap):
            return replace(found, outcome=INCONCLUSIVE, reason=self.lost)
        return found

    # May run beside.
    def _beside(self, rule: MayRunBeside) -> RuleResult:
        found = sides(self.trace, self.order, rule.a, rule.b, by_step=rule.within == STEP)
        if found.reason:
            return RuleResult(rule, INCONCLUSIVE, reason=found.reason)
        both, pairs = found.both, self._pairs(found)
        sure, possible = (self._ordered(found, possibly=possibly) for possibly in (False, True))
        if rule.pairs == SOME:
            fails, may_fail = sure >= pairs, possible >= pairs
        else:
            fails, may_fail = sure > 0, possible > 0
        result = self._told(rule, found, both, both[fails], both[may_fail])
        if result.outcome == BROKEN and not found.marked:
            return RuleResult(rule, INCONCLUSIVE, reason=UNMARKED, remedy=MARK)
        # What may be a side's, too, could be the pair that is free, or one that is not.
        if found.untied and result.outcome == (BROKEN if rule.pairs == SOME else HELD):
            return RuleResult(rule, INCONCLUSIVE, both.size, reason=found.untied)
        if result.outcome == BROKEN:
            shown = [self._first_order(found, instance) for instance in self._one_a_rank(found, both[fails])]
            findings = [one for one, _ in shown]
            if rule.pairs == SOME:
                findings = [replace(one, text=f"every pair of ops is ordered: {one.text}") for one in findings]
            return replace(result, findings=tuple(findings), remedy=shown[0][1])
        if result.outcome == HELD and rule.pairs == SOME and not found.marked:
            return RuleResult(rule, INCONCLUSIVE, reason=UNMARKED, remedy=MARK)
        if result.outcome == INCONCLUSIVE:
            why = self._why_open(found, both[may_fail & ~fails])
            reason = (
                f"whether '{rule.a}' and '{rule.b}' are ordered is open in {result.failed} of {both.size} instances"
            )
            return replace(result, reason=f"{reason}: {why}", remedy=self.record if why == UNRECORDED else "")
        return result

    def _told(self, rule: Rule, found: RuleSides, both: Ints, failed: Ints, may_fail: Ints) -> RuleResult:
        outcome = BROKEN if failed.size else INCONCLUSIVE if may_fail.size else HELD
        return RuleResult(rule, outcome, both.size, failed.size or may_fail.size, cut_off=found.cut_off)

    def _pairs(self, found: RuleSides) -> Ints:
        a, b = (np.bincount(side.instance, minlength=len(found.label)) for side in (found.a, found.b))
        return (a * b)[found.both]

    def _ordered(self, found: RuleSides, *, possibly: bool) -> Ints:
        """How many pairs of an op of A and one of B are ordered, of each instance that has both."""
        count = np.zeros(len(found.label), np.int64)
        for first, second in ((found.a, found.b), (found.b, found.a)):
            np.add.at(count, second.instance, self.order.before(first, second, possibly=possibly))
        return np.minimum(count[found.both], self._pairs(found))

    @staticmethod
    def _one_a_rank(found: RuleSides, instances: Ints) -> list[int]:
        """The first of some instances on each rank."""
        first: dict[int, int] = {}
        for instance in instances.tolist():
            first.setdefault(found.rank[instance], instance)
        return [first[rank] for rank in sorted(first)]

    def _first_order(self, found: RuleSides, instance: int) -> tuple[RuleFinding, str]:
        """The op of an instance that first had to wait for one of the other side, and for which; and a remedy."""
        a, b = (side.take(side.instance == instance) for side in (found.a, found.b))
        best: tuple[int, int, int] | None = None
        start = self.whole.ops.start_ns
        for first, second in ((a, b), (b, a)):
            late = np.flatnonzero(self.order.before(first, second) > 0)
            if late.size:
                row = late[[np.argmin(start[second.op[late]])]]
                before = self.order.last_before(first, second.take(row))
                last = int(before[np.argmax(self.whole.ops.end_ns[before])])
                op = int(second.op[row[0]])
                if best is None or start[op] < start[best[1]]:
                    best = last, op, int(start[op])
        assert best is not None
        return self._order_of(found, instance, best[0], best[1])

    def _order_of(self, found: RuleSides, instance: int, first: int, second: int) -> tuple[RuleFinding, str]:
        path, exact, steps = self.words.path(self.ordering, first, second)
        one, other = self.words.op(first), self.words.op(second)
        host = [step for step in steps if step.kind == "synchronize"]
        if len(steps) <= 2:
            text = f"{other} is queued behind {one} on one stream"
            remedy = "Launch one of them on a stream of its own."
        elif host:
            text = f"{other} is launched only after the host has waited for {one}"
            call = self.words.call(host[-1].call) if host[-1].call >= 0 else "the call"
            remedy = f"Take this host sync out, or launch what may run beside it first: {call}."
        else:
            text = f"{other} waits for {one}"
            waits = [step for step in steps if step.kind == "wait" and step.call >= 0]
            where = f": {self.words.call(waits[-1].call)}" if waits else ""
            remedy = f"Issue this wait before the work that it need not wait for, or drop it{where}."
        at = int(self.lanes.enqueue_ns[self.lanes.unit_of_op[second]])
        return RuleFinding(found.rank[instance], found.label[instance], at, text, path, exact), remedy

    def _why_open(self, found: RuleSides, instances: Ints) -> str:
        lanes = np.concatenate([side.lane[np.isin(side.instance, instances)] for side in (found.a, found.b)])
        if not self.ordering.waits_recorded[lanes].all():
            return UNRECORDED
        a, b = (self.lanes.unit_of_op[side.op[np.isin(side.instance, instances)]] for side in (found.a, found.b))
        if np.intersect1d(a, b).size:
            return "both are nodes of one graph, whose order the capture does not show"
        return "nothing tells what some waits before it were for, or what one thread handed to another"

    # No host sync.
    def _no_host_sync(self, rule: NoHostSync) -> RuleResult:
        found = blocked_in(self.trace, rule)
        if found.reason:
            return RuleResult(rule, INCONCLUSIVE, reason=found.reason)
        shown: dict[tuple[int, str], RuleFinding] = {}
        for sync in found.syncs:
            text = f"{self.words.call(sync.call)} blocks the host"
            shown.setdefault((sync.rank, text), RuleFinding(sync.rank, sync.where, sync.at_ns, text))
        if shown:
            remedy = "Take it out, make it asynchronous, or list it under except."
            return RuleResult(rule, BROKEN, found.occurrences, found.broken, tuple(shown.values()), remedy=remedy)
        if found.open:
            return RuleResult(rule, INCONCLUSIVE, found.occurrences, reason=found.open)
        return RuleResult(rule, HELD, found.occurrences)

    # The wait comes early.
    def _wait_early(self, rule: WaitEarly) -> RuleResult:
        found = sides(self.trace, self.order, rule.a, rule.b, by_step=rule.within == STEP)
        if found.reason or not found.marked:
            return RuleResult(rule, INCONCLUSIVE, reason=found.reason or UNMARKED, remedy="" if found.reason else MARK)
        by = instances_of(self.trace, self.order, rule.by, found) if rule.by else found.b
        if isinstance(by, str):
            return RuleResult(rule, INCONCLUSIVE, reason=by)
        both = np.intersect1d(found.both, by.instance)
        if not both.size:
            return RuleResult(
                rule, INCONCLUSIVE, reason=f"no step has work of all of '{rule.a}', '{rule.b}', '{rule.by}'"
            )
        failed, may_fail = np.zeros(both.size, dtype=bool), np.zeros(both.size, dtype=bool)
        bounds: dict[int, tuple[int, Ints]] = {}
        for at, instance in enumerate(both.tolist()):
            target = self._bound(found.b.take(found.b.instance == instance), last=rule.last)
            waiting = by.take(by.instance == instance) if rule.by else found.b.take(found.b.op == target)
            work, instant = found.a.take(found.a.instance == instance), self._enqueued(target)
            told = [self.order.known_by(lane, instant, work) for lane in np.unique(waiting.lane).tolist()]
            failed[at] = any(not possibly.all() for _, possibly in told)
            may_fail[at] = any(not sure.all() for sure, _ in told)
            bounds[instance] = target, np.unique(waiting.lane)
        result = self._told(rule, found, both, both[failed], both[may_fail])
        if found.untied:
            return replace(result, outcome=INCONCLUSIVE, reason=found.untied)
        if result.outcome == INCONCLUSIVE:
            why = self._why_open(found, both[may_fail])
            reason = (
                f"whether a wait on '{rule.a}' comes first is open in {result.failed} of {both.size} instances: {why}"
            )
            return replace(result, reason=reason, remedy=self.record if why == UNRECORDED else "")
        if result.outcome == HELD:
            return result
        shown = tuple(
            self._late_wait(found, instance, *bounds[instance], rule)
            for instance in self._one_a_rank(found, both[failed])
        )
        late = any("too late" in one.text for one in shown)
        remedy = "Issue the wait earlier." if late else "Make the stream wait for it."
        return replace(result, findings=shown, remedy=remedy)

    def _bound(self, work: PlacedOps, *, last: bool) -> int:
        enqueued = self.lanes.enqueue_ns[self.lanes.first[work.lane] + work.position]
        return int(work.op[np.argmax(enqueued) if last else np.argmin(enqueued)])

    def _enqueued(self, op: int) -> int:
        return int(self.lanes.enqueue_ns[self.lanes.unit_of_op[op]])

    def _late_wait(self, found: RuleSides, instance: int, target: int, lanes: Ints, rule: WaitEarly) -> RuleFinding:
        work, instant = found.a.take(found.a.instance == instance), self._enqueued(target)
        for lane in lanes.tolist():
            if not self.order.known_by(lane, instant, work)[1].all():
                since, call = self.order.known_since(lane, work)
                stream = f"stream {int(self.lanes.stream[lane])}"
                bound = (
                    f"the {'last' if rule.last else 'first'} op of '{rule.b}', {self.words.op(target)}, was launched"
                )
                if since == MIN_NS:
                    text = f"{stream} never waits for '{rule.a}': {bound} all the same"
                else:
                    how = self.words.call(call) if call >= 0 else "a later host sync"
                    text = f"{stream} waits for '{rule.a}' too late: by {how}, after {bound}"
                return RuleFinding(found.rank[instance], found.label[instance], instant, text)
        raise AssertionError("a wait that fails has a stream that does not make it")

    # A stream of its own.
    def _own_stream(self, rule: RunsOnOwnStream) -> RuleResult:
        selection = select(self.trace, rule.a)
        if selection.reason:
            return RuleResult(rule, INCONCLUSIVE, reason=f"'{rule.a}': {selection.reason}")
        ops = self.trace.ops
        streams = [ints(ops, column) for column in ("process", "device", "context", "stream")]
        key = np.unique(np.stack(streams), axis=1, return_inverse=True)[1].reshape(-1)
        own, mine = selection.picked | selection.before, np.unique(key[selection.picked])
        if (streams[3][selection.picked] < 0).any():
            return RuleResult(rule, INCONCLUSIVE, reason=f"the capture does not say which stream ran '{rule.a}'")
        shared = np.isin(key, mine) & ~own & ~launched_before(self.trace)
        if not shared.any():
            return RuleResult(rule, HELD, mine.size)
        if untied_of(selection):
            return RuleResult(rule, INCONCLUSIVE, mine.size, reason=untied_of(selection))
        rows = in_whole(self.trace, np.arange(len(ops)))
        place = np.full(len(ops), -1, np.int64)
        place[rows[rows >= 0]] = np.flatnonzero(rows >= 0)
        findings = []
        rank = ints(ops, "rank")
        for one in np.unique(rank[shared]).tolist():
            others = np.flatnonzero(shared & (rank == one))
            first = int(place[others[0]])
            inside = self.words.range_of(first)
            text = f"its stream also runs {self.words.op(first)}" + (f" of '{inside}'" if inside else "")
            text += f" and {others.size - 1} more ops" if others.size > 1 else ""
            findings.append(RuleFinding(one, "", int(ints(ops, "start_ns")[others[0]]), text))
        failed = np.unique(key[shared]).size
        remedy = "Run it asynchronously (async_op=True), or in a process group or stream of its own."
        return RuleResult(rule, BROKEN, mine.size, failed, tuple(findings), remedy=remedy)

    # The host waits for copies.
    def _host_waits(self, rule: HostWaits) -> RuleResult:
        selection = select(self.trace, rule.a)
        if selection.reason:
            return RuleResult(rule, INCONCLUSIVE, reason=f"'{rule.a}': {selection.reason}")
        picked = in_whole(self.trace, selection.picked.astype(np.int64), 0) > 0
        ops = self.whole.ops
        to_host = picked & is_one_of(ops, "copy", ["DtoH"]) & (ints(ops, "launch") >= 0)
        pinned = to_host & is_one_of(ops, "target_memory", ["pinned"])
        by_call = to_host & is_one_of(ops, "target_memory", ["pageable"])  # which waits
        many = int(np.count_nonzero(pinned | by_call))
        if not many:
            return RuleResult(rule, INCONCLUSIVE, reason=f"'{rule.a}' has no copy to host memory of a known kind")
        copies = [one for one in unwaited_copies(self.whole).copies() if pinned[one.op]]
        read = [one for one in copies if one.reason == NEXT_COPY]
        if read:
            shown: dict[int, RuleFinding] = {}
            for one in read:
                text = f"nobody waits for {self.words.op(one.op)} of '{one.range or rule.a}' before the next one"
                shown.setdefault(one.rank, RuleFinding(one.rank, "", one.launched_ns, text, exact=one.exact))
            remedy = "Wait on the host for an event behind the copy before the memory is read."
            return RuleResult(rule, BROKEN, many, len(read), tuple(shown.values()), remedy=remedy)
        if copies:
            reason = f"the capture ends before anybody waits for {len(copies)} of {many} copies of '{rule.a}'"
            return RuleResult(rule, INCONCLUSIVE, many, len(copies), reason=reason)
        return RuleResult(rule, HELD, many)

    # No race.
    def _no_race(self, rule: NoRace) -> RuleResult:
        found = sides(self.trace, self.order, rule.a, rule.b, by_step=rule.within == STEP)
        if found.reason:
            return RuleResult(rule, INCONCLUSIVE, reason=found.reason)
        both, pairs = found.both, self._pairs(found)
        open_pairs = both[self._ordered(found, possibly=False) < pairs]
        result = RuleResult(rule, HELD, both.size, cut_off=found.cut_off)
        if not open_pairs.size and not found.untied:
            return result
        recorded = self.ordering.waits_recorded
        races = [
            (instance, one)
            for one in missing_crossings(self.whole).missing
            for instance in self._races_in(found, one.op, one.behind)
        ]
        if races:
            failed = np.unique([instance for instance, _ in races])
            shown: dict[int, RuleFinding] = {}
            for instance, one in races:
                rank, label = found.rank[instance], found.label[instance]
                shown.setdefault(rank, RuleFinding(rank, label, one.at_ns, one.message, exact=one.exact))
            remedy = "Make the stream wait for the other one before it takes this work."
            return replace(result, outcome=BROKEN, failed=failed.size, findings=tuple(shown.values()), remedy=remedy)
        if found.untied:
            return replace(result, outcome=INCONCLUSIVE, reason=found.untied)
        lanes = np.concatenate([side.lane[np.isin(side.instance, open_pairs)] for side in (found.a, found.b)])
        if not recorded[lanes].all():
            return replace(result, outcome=INCONCLUSIVE, failed=open_pairs.size, reason=UNRECORDED, remedy=self.record)
        return result

    def _races_in(self, found: RuleSides, op: int, behind: int) -> list[int]:
        """Instances in which a missing wait leaves work of one side behind nothing of the other's.

        That is where the stream that lacks the wait runs one side from there on, and the other stream had been given
        work of the other side that is not ordered before it.
        """
        (lane, other), (position, until) = self.ordering.lane_and_position(np.array([op, behind]))
        instances = []
        for first, second in ((found.a, found.b), (found.b, found.a)):
            earlier = second.take((second.lane == other) & (second.position <= until))
            later = first.take((first.lane == lane) & (first.position >= position))
            for instance in np.intersect1d(earlier.instance, later.instance).tolist():
                one, before = later.take(later.instance == instance), earlier.take(earlier.instance == instance)
                if int(self.order.before(before, one.take(np.array([0])))[0]) < before.op.size:
                    instances.append(instance)
        return instances

    # A figure.
    def _real_overlap(self, rule: RealOverlap) -> RuleResult:
        found = check_overlap(self.trace, rule.a, rule.b, min_overlap=rule.bar, explain=False)
        steps = sum(len(one.instances) for one in found.ranks)
        if found.passed is None:
            return RuleResult(rule, INCONCLUSIVE, steps, reason=found.sentence.rstrip("."))
        if found.passed:
            return RuleResult(rule, HELD, steps)
        rank = found.job.rank if found.job.rank is not None else -1
        finding = RuleFinding(rank, "", 0, found.sentence.rstrip("."))
        return RuleResult(rule, BROKEN, steps, 0, (finding,), remedy="See traceviz check-overlap for the cause.")


class Words(TraceNames):
    """Puts a trace's ops and calls into words."""

    def op(self, op: int) -> str:
        """An op's name and its stream."""
        return f"{self.op_name(op)} (stream {int(stored(self.trace.ops, 'stream')[op])})"

    def range_of(self, op: int) -> str:
        """The innermost range that launched an op, "" where there is none."""
        call = int(self.trace.ops.launch[op])
        return str(self.around(call).range[0]) if call >= 0 else ""

    def call(self, call: int) -> str:
        """A call with the operator and the range that it came from."""
        where = self.around(call)
        name = self.call_name(call) + (f" from {where.op[0]}" if where.op[0] else "")
        return name + (f" in '{where.range[0]}'" if where.range[0] else "")

    def path(self, ordering: Ordering, first: int, second: int) -> tuple[tuple[str, ...], bool, tuple[Step, ...]]:
        """The steps from an op to one that has to wait for it, whether all are stated, and the steps themselves."""
        steps = ordering.path(first, second)
        texts = [self.op(first), *(self._step(one) for one in steps[1:-1]), self.op(second)]
        return tuple(text for text, _ in groupby(texts)), all(one.exact for one in steps), steps

    def _step(self, step: Step) -> str:
        made_by = f", {self.call(step.call)}" if step.call >= 0 else ""
        guess = "" if step.exact else " (inferred)"
        if step.kind == "synchronize":
            return f"the host waits{made_by}{guess}"
        if step.kind == "launch":
            return "launched after that"
        if step.kind == "default stream":
            return f"the default stream's order, stream {step.stream}"
        verb = "event recorded on" if step.kind == "record" else "waited for by"
        where = f"stream {step.stream}" if step.stream >= 0 else "a stream that runs nothing here"
        return f"{verb} {where}{made_by}{guess}"
