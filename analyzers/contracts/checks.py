"""Each kind of rule held against a trace: held, broken, or inconclusive where the capture lacks what it needs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.types import Ints
from analyzers.causes.evidence import TraceNames
from analyzers.common.errors import TracevizError, TraceWarning
from analyzers.contracts.blocked import blocked_in
from analyzers.contracts.order import Order
from analyzers.contracts.result import BROKEN, HELD, INCONCLUSIVE, ContractResult, RuleFinding, RuleResult
from analyzers.contracts.rules import (
    HOST_WAITS,
    MAY_RUN_BESIDE,
    NO_HOST_SYNC,
    NO_RACE,
    OWN_STREAM,
    REAL_OVERLAP,
    SOME,
    STEP,
    WAIT_EARLY,
    Contract,
    Rule,
)
from analyzers.contracts.sides import NO_MARKED_STEPS, RuleSides, instances_of, sides, untied_of
from analyzers.ordering.lanes import MIN_NS
from analyzers.ordering.ordering import Step
from analyzers.select.select import Selection, select
from analyzers.syncs.copies import REASONS, unwaited_copies
from analyzers.syncs.crossings import missing_crossings
from analyzers.trace.advice import records_waits
from analyzers.trace.columns import lanes as lane_numbers
from analyzers.trace.narrow import in_whole
from analyzers.trace.run import Run
from analyzers.trace.tables import Trace
from analyzers.trace.unlaunched import launched_before
from analyzers.trace.untrusted import names_lost, untrusted
from analyzers.verdict.check import check_overlap

WAITS_NOT_RECORDED = "the capture does not record which stream each wait is for"
RECORD_SYNCS_HINT = (
    "Record synchronizations: collect with traceviz collect, or set enable_cuda_sync_events in torch.profiler."
)
MARK = 'Mark the steps: record_function("step 3") around each, or torch.profiler\'s step().'
_ABOUT_ALL = ("lost-work", "skipped-bad", "launched-before", "unclosed-ranges", "nsys-warns")


def check_contract(trace: Trace, contract: Contract) -> ContractResult:
    """Hold each rule of a contract against a trace, or against a part of one.

    Of what lost work or calls' names no rule is held, but for one about a figure, which says itself what that rests on.

    Raises
    ------
    TracevizError : sides of a rule share ops that belong to neither alone.
    """
    checker = _Checker(trace)
    rules = tuple(checker.check(rule) for rule in contract.rules)
    about_all = [one for one in trace.warnings if one.code in _ABOUT_ALL]
    warnings: tuple[TraceWarning, ...] = (*checker.ordering.warnings, *about_all)
    return ContractResult(contract, rules, tuple(trace.rank_ids), warnings)


class _Checker:
    """Holds rules against one trace; what they look at may lie outside the part that is asked about."""

    def __init__(self, trace: Trace) -> None:
        self.trace, self.whole = trace, trace.whole or trace
        self.order = self.whole.once(Order)
        self.ordering, self.lanes = self.order.ordering, self.order.lanes
        self.words = _Words(self.whole)
        self.record = RECORD_SYNCS_HINT if records_waits(self.whole) else ""
        self.lost = untrusted(Run.of(trace)) or names_lost(trace)

    def check(self, rule: Rule) -> RuleResult:
        """What becomes of a rule."""
        try:
            found = self._held(rule)
        except TracevizError as error:  # sides that share ops, above all
            raise TracevizError(f"rule {rule.name!r}: {error.message}", hint=error.hint) from error
        if self.lost and found.outcome == HELD and rule.kind != REAL_OVERLAP:
            return replace(found, outcome=INCONCLUSIVE, reason=self.lost)
        return found

    def _held(self, rule: Rule) -> RuleResult:
        if rule.kind == NO_HOST_SYNC:
            return self._no_host_sync(rule)
        if rule.kind == REAL_OVERLAP:
            return self._real_overlap(rule)
        of_selection = {OWN_STREAM.key: self._own_stream, HOST_WAITS.key: self._host_waits}
        if rule.kind.key in of_selection:
            selection = select(self.trace, rule.a)
            if selection.reason:
                return RuleResult(rule, INCONCLUSIVE, reason=f"'{rule.a}': {selection.reason}")
            return of_selection[rule.kind.key](rule, selection)
        of_sides: dict[str, Callable[[Rule, RuleSides], RuleResult]] = {
            MAY_RUN_BESIDE.key: self._beside,
            WAIT_EARLY.key: self._wait_early,
            NO_RACE.key: self._no_race,
        }
        found = sides(self.trace, self.order, rule.a, rule.b, by_step=rule.within == STEP)
        if found.reason:
            return RuleResult(rule, INCONCLUSIVE, reason=found.reason)
        return of_sides[rule.kind.key](rule, found)

    # May run beside.
    def _beside(self, rule: Rule, found: RuleSides) -> RuleResult:
        both, pairs, is_some = found.both, found.pairs, rule.pairs == SOME
        sure, possible = (self._ordered(found, possibly=possibly) for possibly in (False, True))
        fails, may_fail = (count >= pairs if is_some else count > 0 for count in (sure, possible))
        result = self._told(rule, found, both.size, np.count_nonzero(fails), np.count_nonzero(may_fail))
        if not found.marked and (result.outcome == BROKEN or (result.outcome == HELD and is_some)):
            return RuleResult(rule, INCONCLUSIVE, reason=NO_MARKED_STEPS, remedy=MARK)
        # What may be a side's, too, could be the pair that is free, or one that is not.
        if found.untied and result.outcome == (BROKEN if is_some else HELD):
            return RuleResult(rule, INCONCLUSIVE, both.size, reason=found.untied)
        if result.outcome == BROKEN:
            shown = [self._first_order(found, instance) for instance in self._one_a_rank(found, both[fails])]
            every = "every pair of ops is ordered: " if is_some else ""
            findings = tuple(replace(one, text=f"{every}{one.text}") for one, _ in shown)
            return replace(result, findings=findings, remedy=shown[0][1])
        if result.outcome == INCONCLUSIVE:
            what = f"whether '{rule.a}' and '{rule.b}' are ordered"
            return self._left_open(result, found, both[may_fail & ~fails], what)
        return result

    def _told(self, rule: Rule, found: RuleSides, checked: int, failed: Any, may_fail: Any) -> RuleResult:
        outcome = BROKEN if failed else INCONCLUSIVE if may_fail else HELD
        return RuleResult(rule, outcome, checked, int(failed or may_fail), cut_off=found.cut_off)

    def _ordered(self, found: RuleSides, *, possibly: bool) -> Ints:
        """How many pairs of an op of A and one of B are ordered, of each instance that has both."""
        count = np.zeros(len(found.label), np.int64)
        for first, second in ((found.a, found.b), (found.b, found.a)):
            np.add.at(count, second.instance, self.order.before(first, second, possibly=possibly))
        return np.minimum(count[found.both], found.pairs)

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
        start, end, ordered = self.whole.ops.start_ns, self.whole.ops.end_ns, []
        for first, second in ((a, b), (b, a)):
            late = np.flatnonzero(self.order.before(first, second) > 0)
            if late.size:
                row = late[[np.argmin(start[second.op[late]])]]
                before = self.order.last_before(first, second.take(row))
                ordered.append((int(before[np.argmax(end[before])]), int(second.op[row[0]])))
        last, op = min(ordered, key=lambda each: start[each[1]])
        steps = self.ordering.path(last, op)
        one, other = self.words.op(last), self.words.op(op)
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
        path, exact = self.words.path(last, op, steps), all(step.exact for step in steps)
        at_ns = int(self.order.enqueued(op))
        return RuleFinding(found.rank[instance], found.label[instance], at_ns, text, path, exact), remedy

    def _left_open(self, result: RuleResult, found: RuleSides, instances: Ints, what: str) -> RuleResult:
        """What is open in some instances, and why."""
        a, b = (side.take(np.isin(side.instance, instances)) for side in (found.a, found.b))
        unrecorded = not self.ordering.waits_recorded[np.append(a.lane, b.lane)].all()
        if unrecorded:
            why = WAITS_NOT_RECORDED
        elif np.intersect1d(self.lanes.unit_of_op[a.op], self.lanes.unit_of_op[b.op]).size:
            why = "both are nodes of one graph, whose order the capture does not show"
        else:
            why = "nothing tells what some waits before it were for, or what one thread handed to another"
        reason = f"{what} is open in {result.failed} of {result.checked} instances: {why}"
        return replace(result, reason=reason, remedy=self.record if unrecorded else "")

    # No host sync.
    def _no_host_sync(self, rule: Rule) -> RuleResult:
        found = blocked_in(self.trace, rule)
        shown: dict[tuple[int, str], RuleFinding] = {}
        for sync in found.syncs:
            text = f"{self.words.call(sync.call)} blocks the host"
            shown.setdefault((sync.rank, text), RuleFinding(sync.rank, sync.where, sync.at_ns, text))
        if shown:
            remedy = "Take it out, make it asynchronous, or list it under except."
            return RuleResult(rule, BROKEN, found.occurrences, found.broken, tuple(shown.values()), remedy=remedy)
        return RuleResult(rule, INCONCLUSIVE if found.open else HELD, found.occurrences, reason=found.open)

    # The wait comes early.
    def _wait_early(self, rule: Rule, found: RuleSides) -> RuleResult:
        unknown = partial(RuleResult, rule, INCONCLUSIVE)
        if not found.marked:
            return unknown(reason=NO_MARKED_STEPS, remedy=MARK)
        by = instances_of(self.trace, self.order, rule.by, found) if rule.by else found.b
        if isinstance(by, str):
            return unknown(reason=by)
        both = np.intersect1d(found.both, by.instance)
        if not both.size:
            return unknown(reason=f"no step has work of all of '{rule.a}', '{rule.b}', '{rule.by}'")
        unsure: list[int] = []
        late: dict[int, tuple[int, int]] = {}  # of an instance the op that comes too soon, and the stream
        for instance in both.tolist():
            work, bounds = (side.take(side.instance == instance) for side in (found.a, found.b))
            queued_ns = self.order.enqueued(bounds.op)
            target = int(bounds.op[np.argmax(queued_ns) if rule.last else np.argmin(queued_ns)])
            waiting = by.take(by.instance == instance if rule.by else by.op == target)
            for lane in np.unique(waiting.lane).tolist():
                sure, possible = self.order.known_by(lane, int(self.order.enqueued(target)), work)
                if not possible.all():
                    late.setdefault(instance, (target, lane))
                if not sure.all() and unsure[-1:] != [instance]:
                    unsure.append(instance)
        result = self._told(rule, found, both.size, len(late), len(unsure))
        if found.untied:
            return replace(result, outcome=INCONCLUSIVE, reason=found.untied)
        if result.outcome == INCONCLUSIVE:
            return self._left_open(result, found, np.array(unsure), f"whether a wait on '{rule.a}' comes first")
        if result.outcome == HELD:
            return result
        instances = self._one_a_rank(found, np.array([*late]))
        shown = tuple(self._late_wait(found, instance, *late[instance], rule) for instance in instances)
        too_late = any("too late" in one.text for one in shown)
        remedy = "Issue the wait earlier." if too_late else "Make the stream wait for it."
        return replace(result, findings=shown, remedy=remedy)

    def _late_wait(self, found: RuleSides, instance: int, target: int, lane: int, rule: Rule) -> RuleFinding:
        since, call = self.order.known_since(lane, found.a.take(found.a.instance == instance))
        stream, which = f"stream {int(self.lanes.stream[lane])}", "last" if rule.last else "first"
        bound = f"the {which} op of '{rule.b}', {self.words.op(target)}, was launched"
        if since == MIN_NS:
            text = f"{stream} never waits for '{rule.a}': {bound} all the same"
        else:
            how = self.words.call(call) if call >= 0 else "a later host sync"
            text = f"{stream} waits for '{rule.a}' too late: by {how}, after {bound}"
        return RuleFinding(found.rank[instance], found.label[instance], int(self.order.enqueued(target)), text)

    # A stream of its own.
    def _own_stream(self, rule: Rule, selection: Selection) -> RuleResult:
        ops, picked = self.trace.ops, selection.picked
        if (ops.stream[picked] < 0).any():
            return RuleResult(rule, INCONCLUSIVE, reason=f"the capture does not say which stream ran '{rule.a}'")
        stream = lane_numbers(ops)
        own, mine = picked | selection.before, np.unique(stream[picked])
        shared = np.flatnonzero(np.isin(stream, mine) & ~own & ~launched_before(self.trace))
        if not shared.size:
            return RuleResult(rule, HELD, mine.size)
        if untied_of(selection):
            return RuleResult(rule, INCONCLUSIVE, mine.size, reason=untied_of(selection))
        findings = []
        for rank in np.unique(ops.rank[shared]).tolist():
            others = shared[ops.rank[shared] == rank]
            first = int(others[0] if self.trace.rows is None else self.trace.rows[others[0]])
            call = int(self.whole.ops.launch[first])
            inside = self.words.around(call).range[0] if call >= 0 else ""
            text = f"its stream also runs {self.words.op(first)}" + (f" of '{inside}'" if inside else "")
            text += f" and {others.size - 1} more ops" if others.size > 1 else ""
            findings.append(RuleFinding(rank, "", int(ops.start_ns[others[0]]), text))
        remedy = "Run it asynchronously (async_op=True), or in a process group or stream of its own."
        return RuleResult(rule, BROKEN, mine.size, np.unique(stream[shared]).size, tuple(findings), remedy=remedy)

    # The host waits for copies.
    def _host_waits(self, rule: Rule, selection: Selection) -> RuleResult:
        picked = in_whole(self.trace, selection.picked.astype(np.int64), 0) > 0
        ops = self.whole.ops
        to_host = picked & ops.copy.is_one_of(["DtoH"]) & (ops.launch >= 0)
        pinned = to_host & ops.target_memory.is_one_of(["pinned"])
        by_call = to_host & ops.target_memory.is_one_of(["pageable"])  # which waits
        many = int(np.count_nonzero(pinned | by_call))
        if not many:
            return RuleResult(rule, INCONCLUSIVE, reason=f"'{rule.a}' has no copy to host memory of a known kind")
        copies = [one for one in unwaited_copies(self.whole) if pinned[one.op]]
        read = [one for one in copies if one.reason == REASONS[0]]
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
    def _no_race(self, rule: Rule, found: RuleSides) -> RuleResult:
        both = found.both
        open_pairs = both[self._ordered(found, possibly=False) < found.pairs]
        result = RuleResult(rule, HELD, both.size, cut_off=found.cut_off)
        if not open_pairs.size and not found.untied:
            return result
        failed: set[int] = set()
        shown: dict[int, RuleFinding] = {}
        for one in missing_crossings(self.whole).missing:
            for instance in self._races_in(found, one.op, one.behind):
                failed.add(instance)
                rank, label = found.rank[instance], found.label[instance]
                shown.setdefault(rank, RuleFinding(rank, label, one.at_ns, one.message, exact=one.exact))
        if failed:
            remedy = "Make the stream wait for the other one before it takes this work."
            return replace(result, outcome=BROKEN, failed=len(failed), findings=tuple(shown.values()), remedy=remedy)
        if found.untied:
            return replace(result, outcome=INCONCLUSIVE, reason=found.untied)
        lanes = np.concatenate([side.lane[np.isin(side.instance, open_pairs)] for side in (found.a, found.b)])
        if not self.ordering.waits_recorded[lanes].all():
            return replace(
                result, outcome=INCONCLUSIVE, failed=open_pairs.size, reason=WAITS_NOT_RECORDED, remedy=self.record
            )
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
    def _real_overlap(self, rule: Rule) -> RuleResult:
        found = check_overlap(self.trace, rule.a, rule.b, min_overlap=rule.bar, explain=False)
        steps, sentence = sum(len(one.instances) for one in found.ranks), found.sentence.rstrip(".")
        if found.passed is None:
            return RuleResult(rule, INCONCLUSIVE, steps, reason=sentence)
        if found.passed:
            return RuleResult(rule, HELD, steps)
        rank = found.job.rank if found.job.rank is not None else -1
        finding = RuleFinding(rank, "", 0, sentence)
        return RuleResult(rule, BROKEN, steps, 0, (finding,), remedy="See traceviz check-overlap for the cause.")


class _Words(TraceNames):
    """Puts a trace's ops and calls into words."""

    def op(self, op: int) -> str:
        """An op's name and its stream."""
        return f"{self.op_name(op)} (stream {int(self.trace.ops.stream[op])})"

    def call(self, call: int) -> str:
        """A call with the operator and the range that it came from."""
        where = self.around(call)
        name = self.call_name(call) + (f" from {where.op[0]}" if where.op[0] else "")
        return name + (f" in '{where.range[0]}'" if where.range[0] else "")

    def path(self, first: int, second: int, steps: tuple[Step, ...]) -> tuple[str, ...]:
        """The steps from an op to one that has to wait for it."""
        texts = [self.op(first), *(self._step(one) for one in steps[1:-1]), self.op(second)]
        return tuple(text for text, _ in groupby(texts))

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
