"""What a change, as `traceviz what-if` writes it, makes of a program, and whether the program's data allow that.

- *harmless*: all that the data need is still ordered.
- *needs care*: an order is lost, which can be kept where it is needed and not before, and the change still sets
  work free: the wait belongs further down, the value is only written to a log.
- *unsafe*: the order is needed at once, or by what can't be told to wait for it; nothing is left of the change.

Changes are made of the program's own actions, not of a capture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tests.simulator.flow_selectors import Picks, operation, selector
from tests.simulator.order import Item, Pair, is_op, items_of, lost, needed, orders
from tests.simulator.program import Action, Busy, Copy, Launch, Program, Record, Synchronize, Wait

HARMLESS, CARE, UNSAFE, NOTHING = "harmless", "needs care", "unsafe", "changes nothing"
KEEPS_ORDER = ("on-time", "level", "graph", "more-room", "scale")  # who is faster, or launched at once, waits as before
WORK_NS = 16_000  # what is shorter is not worth to be set free
FRESH = 1_000  # the first of the streams that changes make
SYNCS = {int: "cudaStreamSynchronize", str: "cudaEventSynchronize", type(None): "cudaDeviceSynchronize"}


@dataclass(frozen=True)
class Verdict:
    """What was found.

    word : one of the above. lost : needed orders that are gone, in words. shown : whether a capture shows that data
    surely flow in one of these; of others only the program's author knows.
    """

    word: str
    lost: tuple[str, ...] = ()
    shown: bool = False


def judge(program: Program, changes: Sequence[str], whole: frozenset[str] = frozenset()) -> Verdict:
    """What the data of a program say of changes made together: no better than of each alone.

    whole : buffers of which no piece is done before the op that writes them is.
    """
    alone = [judge(program, [change], whole) for change in changes] if len(changes) > 1 else []
    found = [_together(program, changes, whole), *alone]
    return max(found, key=lambda one: (NOTHING, HARMLESS, CARE, UNSAFE).index(one.word))


def changed(items: list[Item], changes: Sequence[str]) -> list[Item]:
    """The actions of a rank with changes made; whose pieces are split, or who is merely faster, is what it was."""
    for change in changes:
        verb, _, rest = change.partition(" ")
        if verb not in (*KEEPS_ORDER, "split"):
            items = MAKE[verb](items, rest)
    return items


def _together(program: Program, changes: Sequence[str], whole: frozenset[str]) -> Verdict:
    lost_of: list[str] = []
    words: list[str] = []
    cuts = [change.partition(" ")[2] for change in changes if change.startswith("split ")]
    shown, does = False, all(change.partition(" ")[0] in KEEPS_ORDER for change in changes)
    for rank, threads in enumerate(program.ranks):
        items = items_of(threads)
        after = changed(items, changes)
        broken = [pair for cut in cuts for pair in cut_too_small(after, cut, whole)]
        does |= after != items or any(fed(after, cut) for cut in cuts)
        word, pairs = _of_rank(items, after, broken)
        words.append(word)
        names = {item.number: item for item in items}
        shown |= any(surely_flows(names[one], names[other]) for one, other in pairs)
        lost_of += [f"rank {rank}: {named(names[one])} → {named(names[other])}" for one, other in pairs]
    word = max(words, key=(HARMLESS, CARE, UNSAFE).index) if does else NOTHING
    return Verdict(word, tuple(lost_of), shown)


def surely_flows(one: Item, other: Item) -> bool:
    """Whether a capture shows that the second needs the first.

    It receives, copies to the device, makes what is sent, or was forked by the program, which then joins it.
    """
    first, second = one.action, other.action
    if not (
        isinstance(first, Launch | Copy) and isinstance(second, Launch | Copy) and set(first.writes) & set(second.reads)
    ):
        return False
    forked = not operation(one) and not operation(other) and first.stream != second.stream
    arrives = operation(one) == "recv" or (isinstance(first, Copy) and first.to_device)
    return bool(arrives or operation(other) or forked)


def _of_rank(items: list[Item], after: list[Item], broken: list[Pair]) -> tuple[str, list[Pair]]:
    """What becomes of one rank: the word, and what is lost."""
    gone = [*lost(needed(items), orders(after)), *broken]
    if not gone:
        return HARMLESS, []
    place = {item.number: at for at, item in enumerate(after)}
    of = {item.number: item.action for item in after}
    also: dict[int, list[int]] = {}
    for one, other in gone:
        if place[one] > place[other] or (one, other) in broken:
            return UNSAFE, gone  # it comes first, and can't wait for what is not yet there
        action = of[other]
        if not (isinstance(action, Busy) and action.later):
            also.setdefault(other, []).append(one)
    return (CARE if sets_free(orders(items), orders(after, also), of) else UNSAFE), gone


def sets_free(before: Mapping[int, int], after: Mapping[int, int], actions: Mapping[int, Action]) -> bool:
    """Whether some work worth to speak of no longer comes behind other work that it came behind."""
    work = {number for number, action in actions.items() if ns_of(action) >= WORK_NS}
    worth = sum(1 << number for number in work)
    return any(before[number] & ~after[number] & worth for number in work)


def ns_of(action: Action) -> int:
    return action.ns if isinstance(action, Launch | Copy | Busy) else 0


def named(item: Item) -> str:
    action = item.action
    what = action.name or action.collective if isinstance(action, Launch) else type(action).__name__.lower()
    where = "/".join(name for name, _ in item.ranges[1:])
    return f"{what or 'kernel'} [{item.number}{' in ' + where if where else ''}]"


# What each change makes of a rank's actions


def drop_sync(items: list[Item], rest: str) -> list[Item]:
    """Calls that block return at once."""
    picks: Picks = _called(rest.removeprefix("call:")) if rest.startswith("call:") else selector(rest)
    kept = [item for item in items if not (isinstance(item.action, Synchronize) and picks(item))]
    return [_not_blocking(item) if picks(item) else item for item in kept]


def pin(items: list[Item], rest: str) -> list[Item]:
    """Copies from and to pageable memory become pinned ones, whose calls return at once."""
    picks = selector(rest)
    return [_not_blocking(item) if picks(item) else item for item in items]


def _not_blocking(item: Item) -> Item:
    blocks = isinstance(item.action, Copy) and item.action.blocking
    return replace(item, action=replace(item.action, blocking=False)) if blocks else item  # type: ignore[arg-type]


def _called(name: str) -> Picks:
    def picks(item: Item) -> bool:
        if isinstance(item.action, Synchronize):
            return SYNCS[type(item.action.what)] == name
        return isinstance(item.action, Copy) and name == "cudaMemcpyAsync"

    return picks


def drop_wait(items: list[Item], rest: str) -> list[Item]:
    """Streams that ops of A come on no longer wait for the last op that an event stands for, where that is of B."""
    a, b = map(selector, _two(rest, "on"))
    last: dict[int, frozenset[int]] = {}  # of a stream: its last op, and what it was told to wait for since
    stands: dict[str, frozenset[int]] = {}  # of an event
    of_b = {item.number for item in items if b(item)}
    found = []
    for at, item in enumerate(items):
        action = item.action
        if isinstance(action, Launch | Copy):
            last[action.stream] = frozenset({item.number})
        elif isinstance(action, Record):
            stands[action.event] = last.get(action.stream, frozenset())
        elif isinstance(action, Wait):
            if stands.get(action.event, frozenset()) & of_b and a_next(items, at, action.stream, a):
                continue
            last[action.stream] = last.get(action.stream, frozenset()) | stands.get(action.event, frozenset())
        found.append(item)
    return found


def a_next(items: list[Item], at: int, stream: int, picks: Picks) -> bool:
    """Whether the next op of a stream is picked; a copy lets the one behind it speak."""
    behind = [item for item in items[at:] if _stream(item) == stream][:2]
    return any(picks(item) for item in behind[: 2 if behind and isinstance(behind[0].action, Copy) else 1])


def _next_on_stream(items: list[Item], at: int) -> int:
    """The op that a stream's wait is made for, -1 where there is none, or where this is no wait."""
    action = items[at].action
    if not isinstance(action, Wait):
        return -1
    return next((item.number for item in items[at:] if _stream(item) == action.stream), -1)


def _stream(item: Item) -> int:
    return item.action.stream if isinstance(item.action, Launch | Copy) else -1


def move_wait(items: list[Item], rest: str) -> list[Item]:
    """What is done in A comes, with the waits that were made for it, before what is done in B before it in its step."""
    a, b = (_blocks(items, selector(text)) for text in _two(rest, "before"))
    found = list(items)
    for block in a:
        first = block[0]
        before = [one[0] for one in b if one[0].step == first.step and one[0].number < first.number]
        if not before:
            continue
        target = before[-1]
        moved = [*_waits_for(items, block, target.number), *block]
        numbers = {item.number for item in moved}
        found = [item for item in found if item.number not in numbers]
        at = found.index(target)
        found[at:at] = moved
    return found


def _blocks(items: list[Item], picks: Picks) -> list[list[Item]]:
    """What a selector names: each occurrence of its range whole, else op by op."""
    found: dict[int, list[Item]] = {}
    for item in items:
        if picks(item):
            outer = [began for name, began in item.ranges if picks(Item(item.number, Busy(0), ((name, began),)))]
            if outer or is_op(item.action):
                found.setdefault(outer[0] if outer else item.number, []).append(item)
    return list(found.values())


def _waits_for(items: list[Item], block: list[Item], since: int) -> list[Item]:
    """Waits outside of a block for its first op on each stream, and their records right before."""
    inside = {item.number for item in block}
    found: list[Item] = []
    for at, item in enumerate(items):
        outside = item.number not in inside and since < item.number < block[0].number
        if outside and isinstance(item.action, Wait) and _next_on_stream(items, at) in inside:
            record = items[at - 1].action
            paired = isinstance(record, Record) and record.event == item.action.event
            found += [*([items[at - 1]] if paired else []), item]
    return found


def own_stream(items: list[Item], rest: str) -> list[Item]:
    """Ops get a stream of their own, forked where they are launched.

    It is joined before ops that are named, else before the last op on their old stream in the range around them, or in
    their step; before the next one where they are the last themselves.
    """
    where, join = _two(rest, "join-before") if " join-before " in rest else (rest, "")
    picks = selector(where)
    moved = {item.number for item in items if is_op(item.action) and picks(item)}
    waits = {item.number for at, item in enumerate(items) if _next_on_stream(items, at) in moved}
    joins = _named_joins(items, moved, selector(join)) if join else _last_joins(items, moved, picks)
    found: list[Item] = []
    on_own: dict[int, bool] = {}  # whether the last op of each stream moved
    for item in items:
        action, stream = item.action, _stream(item)
        for old in sorted(joins.get(item.number, ())):
            found += _ordered(FRESH + old, stream, f"joined {old} {item.number}")
        if isinstance(action, Launch | Copy):
            if item.number in moved:
                if not on_own.get(stream):
                    found += _ordered(stream, FRESH + stream, f"forked {item.number}")
                item = replace(item, action=replace(action, stream=FRESH + stream))
            on_own[stream] = item.number in moved
        elif isinstance(action, Record | Wait) and (item.number in waits or _records(action, on_own)):
            item = replace(item, action=replace(action, stream=FRESH + action.stream))
        found.append(item)
    return found


def _records(action: Record | Wait, on_own: Mapping[int, bool]) -> bool:
    """Whether an event stands for an op that moved: it does so still."""
    return isinstance(action, Record) and on_own.get(action.stream, False)


def _ordered(before: int, after: int, event: str) -> list[Item]:
    return [Item(-1, Record(event, before)), Item(-1, Wait(event, after))]


def _named_joins(items: list[Item], moved: set[int], picks: Picks) -> dict[int, set[int]]:
    """Ops that wait for moved ones, of which streams: those that are named, where something was moved since."""
    found: dict[int, set[int]] = {}
    pending: set[int] = set()
    for item in items:
        if item.number in moved:
            pending.add(_stream(item))
        elif is_op(item.action) and picks(item) and pending:
            found[item.number] = set(pending)
            pending.clear()
    return found


def _last_joins(items: list[Item], moved: set[int], picks: Picks) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    kept = [item for item in items if is_op(item.action) and item.number not in moved]
    for item in items:
        if item.number not in moved:
            continue
        scope = _around(item, picks)
        behind = [one for one in kept if one.number > item.number and _stream(one) == _stream(item)]
        inside = [one for one in behind if scope in one.ranges]
        if behind:
            found.setdefault((inside[-1] if inside else behind[0]).number, set()).add(_stream(item))
    return found


def _around(item: Item, picks: Picks) -> tuple[str, int]:
    """The range around what is named, or the step."""
    outer = [one for one in item.ranges if "::" not in one[0]]
    named_at = next((at for at, one in enumerate(outer) if picks(Item(0, Busy(0), (one,)))), 1)
    return outer[max(named_at - 1, 0)]


def fed(items: list[Item], rest: str) -> list[Item]:
    """Collectives that a change cuts into pieces."""
    picks = selector(rest.rpartition(" ")[0])
    return [item for item in items if operation(item) and picks(item)]


def cut_too_small(items: list[Item], rest: str, whole: frozenset[str]) -> list[Pair]:
    """Orders that are lost where a piece starts behind a piece of what is only there as a whole."""
    cut = {item.number for item in fed(items, rest)}
    reads = {item.number: set(item.action.reads) for item in items if isinstance(item.action, Launch)}
    writes = {item.number: set(item.action.writes) for item in items if isinstance(item.action, Launch)}
    return [
        (one, other) for one, other in needed(items) if other in cut and writes.get(one, set()) & reads[other] & whole
    ]


def _two(rest: str, word: str) -> tuple[str, str]:
    first, _, second = rest.rpartition(f" {word} ")
    return first, second


MAKE: dict[str, Callable[[list[Item], str], list[Item]]] = {
    "drop-sync": drop_sync,
    "pin": pin,
    "drop-wait": drop_wait,
    "move-wait": move_wait,
    "own-stream": own_stream,
}
