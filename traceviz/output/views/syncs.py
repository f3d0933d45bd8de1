"""The answer of `syncs`: as a document and as JSON, whole and in brief."""

from __future__ import annotations

from itertools import islice

from analyzers.common.ids import sync_id
from analyzers.common.wording import ranks_in_words, stream_word
from analyzers.syncs.crossings import Crossing
from analyzers.syncs.groups import SyncGroup, sync_groups
from analyzers.syncs.loops import Chunk
from analyzers.syncs.order_report import OrderReport
from analyzers.syncs.points import SyncPoint
from analyzers.syncs.rests import in_sentences
from analyzers.trace.kernels import function
from traceviz.options.again import CommandLine
from traceviz.output import brief as short
from traceviz.output.document import Block, Bullets, Headline, Table, worded
from traceviz.output.quantities import count_of, duration, instant, size, unshown
from traceviz.output.records import Json, picked, rows, to_json
from traceviz.output.tables import Column, table, without_columns
from traceviz.output.views.caveats import caveats

MAX_SYNCS = 20
MOST_VERBOSE = 500
IDLE_UNKNOWN: Json = {"gpu_idle_ns": None, "after_ns": None}  # where no GPU work is on record


def document(result: OrderReport) -> Json:
    """`traceviz.syncs/2`: host sync points, costliest first, and what else the order of the work tells; whole ns.

    `groups` are sync points alike, in sums. `gpu_idle_ns` is from the drain to the call's return, `after_ns` from there
    to the next launch. Where `unrecorded_ns` is more than 0, a CUDA graph ran what was not recorded for so long, and
    `gpu_idle_ns` is 0 and says nothing. `reason` says where no CUDA calls, or launches alone, were recorded, or calls
    lost their names, so that no sync point could be found. Where GPU work was lost, or none recorded, how long GPUs
    were idle is null.
    """
    unknown = IDLE_UNKNOWN if result.idle_unknown else {}
    points = rows(result.syncs, "process", "device", "waited_op", "call")
    return {
        "schema": "traceviz.syncs/2",
        "reason": result.reason,
        "syncs": [{"id": sync_id(one["rank"], one["start_ns"]), **one, **unknown} for one in points],
        "groups": [{**picked(one, "*"), **unknown} for one in sync_groups(result.syncs)],
        "unwaited_copies": rows(result.copies, "process", "op"),
        "missing_waits": to_json(result.crossings.missing),
        "resting_on_host_syncs": rows(result.resting, "process", "op", "behind", "call"),
        "stream_plan": rows(result.plan, "process"),
        "warnings": to_json(result.warnings),
    }


def brief_document(result: OrderReport, line: CommandLine) -> Json:
    """`traceviz.syncs-brief/1`: host syncs, those from one place together, and what else the order of work tells."""
    syncs, unknown = result.syncs, IDLE_UNKNOWN if result.idle_unknown else {}
    groups = [
        {
            **picked(one, "id api kind hidden"),
            "op": short.name(one.origin),
            "range": short.name(one.range),
            "ranks": short.spans(one.ranks),
            **picked(one, "count duration_ns gpu_idle_ns after_ns"),
            **({"unrecorded_ns": one.unrecorded_ns} if one.unrecorded_ns else {}),
            **unknown,
        }
        for one in sync_groups(result.syncs)
    ]
    answer = {
        "reason": result.reason,
        "lines": short.lines(brief(result)),
        "count": len(syncs),
        "hidden": int(syncs.hidden.sum()),
        **({name: int(syncs.columns[name].sum()) for name in IDLE_UNKNOWN} | unknown),
        "syncs": groups,
        "missing_waits": [picked(one, "rank at_ns message") for one in result.crossings.missing],
        "resting_on_host_syncs": in_sentences(result.resting),
        "unwaited_copies": len(result.copies),
    }
    following = [*(line.again("show", one["id"]) for one in groups[:1]), line.again("check-overlap")]
    most = {"syncs": 6, "missing_waits": 4, "resting_on_host_syncs": 4}
    return short.brief(
        "traceviz.syncs-brief/1", answer, result.warnings, [] if result.without_work else following, most
    )


def blocks(result: OrderReport, *, verbose: bool = False) -> list[Block]:
    """Sync points by cost, copies nobody waits for, missing waits, the plan of chunked loops, warnings.

    Sync points that are alike are one row; verbose, each stands by itself below.
    """
    shown: list[Block] = [_headline(result)]
    if result.exit_code and result.unnamed:  # which may have waited for what is looked for below
        return worded(shown, result.runtime) + caveats(result.warnings, verbose=verbose, rest="--verbose has all")
    if len(result.syncs):
        shown.append(_groups(result))
        shown += [_syncs(result)] if verbose else []
    if len(result.copies):
        shown.append(_copies(result))
    missing = result.crossings.missing
    if missing:
        shown.append(Bullets("Missing waits, each a possible race: the trace can't see the data", _races(missing)))
    if len(result.resting):
        title = "Order that rests on host syncs alone: make the stream wait before you take them out"
        shown.append(Bullets(title, [f"{text}." for text in in_sentences(result.resting)]))
    if len(result.plan):
        shown.append(_plan(result))
    return worded(shown, result.runtime) + caveats(result.warnings, verbose=verbose, rest="--verbose has all")


def brief(result: OrderReport) -> list[Block]:
    """The headline alone."""
    return [_headline(result)]


def _headline(result: OrderReport) -> Headline:
    syncs = result.syncs
    if result.exit_code:
        return Headline("INCONCLUSIVE", f"{result.reason}.", "middle")
    but = f"; {result.reason}" if result.reason else ""
    if not len(syncs):
        text = f"nothing in the capture blocked the host{but}."
        return Headline("NO SYNCS", text, "middle" if but else "good")
    idle, after, hidden = (int(each.sum()) for each in (syncs.gpu_idle_ns, syncs.after_ns, syncs.hidden))
    blocked = duration(int(syncs.duration_ns.sum()))
    text = f"{count_of(len(syncs), 'host sync')} ({hidden} implicit) blocked hosts for {blocked}"
    if result.idle_unknown:
        text = f"{text}; how long GPUs were idle can't be told: {result.idle_unknown}{but}."
        return Headline("SYNCS", text, "middle")
    if not syncs.unrecorded_ns.all():
        text += f" and left GPUs idle {duration(idle)}"
    text += f", and the host left them idle {duration(after)} more before it launched again" if after else ""
    text += f"; {result.untold}" if result.untold else ""
    return Headline("SYNCS", f"{text}{but}.", "bad" if idle else "middle" if result.untold else "good")


def _groups(result: OrderReport) -> Table:
    known = not result.idle_unknown
    columns: dict[str, Column] = {
        "count": "count",
        "ranks": lambda one: ranks_in_words(one.ranks).split(" ", 1)[1],
        "blocked": "duration_ns",
        "longest": "longest_ns",
        "GPU idle": lambda one: _idle(one, known=known),
        "idle after": lambda one: duration(one.after_ns) if known else "–",
        "kind": lambda one: one.kind,
        "call": _call,
        "from": lambda one: _short_origin(_origin(one.origin, one)) + _frame(one),
        "in": "range",
        "waited for": lambda one: _cut(one.waited) or "–",
        "delayed": "delayed",
    }
    note = (
        "Sums over all of a row but for longest. GPU idle: from the device's drain to the call's return, its cost. "
        "Idle after: from there to the next launch, the host's own time."
    )
    groups = sync_groups(result.syncs)
    words = [*columns][6:]
    found = table("Host syncs, costliest first", groups, columns, words=words, most=MAX_SYNCS, note=note)
    empty = [k for k in (8, 9, 10, 11) if all(row[k] == "–" for row in found.rows)]
    return without_columns(found, empty)


def _idle(one: SyncGroup | SyncPoint, *, known: bool) -> str:
    """How long the GPU was idle up to the call's return."""
    if not known:
        return "–"
    return "can't tell" if one.unrecorded_ns else duration(one.gpu_idle_ns)


def _call(one: SyncGroup | SyncPoint) -> str:
    return one.api + (f" ({one.copy}, {size(one.bytes)})" if one.copy and one.bytes >= 0 else "")


def _origin(name: str, one: SyncGroup | SyncPoint) -> str:
    return name or ("implicit" if one.hidden else "–")


def _frame(one: SyncGroup | SyncPoint) -> str:
    return f" ({one.frame})" if one.frame else ""


def _short_origin(origin: str) -> str:
    """What made a call, without what shows it: the column beside it has the call.

    >>> _short_origin(".item() or nonzero(): a DtoH copy of 1 B and cudaStreamSynchronize"), _short_origin("aten::item")
    ('.item() or nonzero()', 'aten::item')
    """
    return origin.partition(": ")[0]


def _cut(name: str) -> str:
    """The name of an op without its namespaces, shortened."""
    name = name.rsplit("::", 1)[-1]
    return name if len(name) < 48 else name[:47] + "…"


def _syncs(result: OrderReport) -> Table:
    word, known = stream_word(result.runtime), not result.idle_unknown

    def waited_for(point: SyncPoint) -> str:
        stream = f"{word} {point.waited_stream}" if point.waited_stream >= 0 else "–"
        return _cut(function(point.waited_name) if point.waited_name else stream)

    columns: dict[str, Column] = {
        "rank": "rank",
        "at": lambda one: instant(one.start_ns),
        "blocked": "duration_ns",
        "GPU idle": lambda one: _idle(one, known=known),
        "idle after": lambda one: duration(one.after_ns) if known else "–",
        "kind": lambda one: one.kind,
        "call": _call,
        "from": lambda one: _origin(one.chain or one.pattern, one) + _frame(one),
        "in": "range",
        "waited for": waited_for,
        "delayed": "delayed",
    }
    note = unshown(len(result.syncs) - MOST_VERBOSE)
    return table("One by one", [*islice(result.syncs, MOST_VERBOSE)], columns, words=[*columns][5:], note=note)


def _copies(result: OrderReport) -> Table:
    columns: dict[str, Column] = {
        "rank": "rank",
        "stream": "stream",
        "size": "bytes",
        "in": "range",
        "launched": lambda one: instant(one.launched_ns),
        "done on the GPU": lambda one: instant(one.end_ns),
        "nobody waits until": lambda one: instant(one.until_ns),
        "then": lambda one: one.reason,
    }
    title = "Copies to pinned memory that nothing waits for before the next like them"
    note = "Whether they share memory can't be known: a trace holds no addresses. Where they do, a read before the "
    note += "copy is done, or behind the next one, finds other data."
    return table(title, [*result.copies], columns, words=["in", "then"], most=MAX_SYNCS, note=note)


def _races(missing: list[Crossing]) -> list[str]:
    """Each missing wait once, with the ranks that it is missing on, and how often."""
    ranks: dict[str, list[int]] = {}
    for one in missing:
        ranks.setdefault(f"{one.what}: {one.message}", []).append(one.rank)
    lines = [
        f"{ranks_in_words(on)}, {text}" + (f" (seen {len(on)} times)" if len(on) > 1 else "")
        for text, on in ranks.items()
    ]
    return lines[:MAX_SYNCS] + ([f"… and {len(lines) - MAX_SYNCS} more"] if len(lines) > MAX_SYNCS else [])


def _plan(result: OrderReport) -> Table:
    chunks = [*result.plan]
    columns: dict[str, Column] = {
        "rank": "rank",
        "loop": lambda one: one.loop,
        "turn": "turn",
        "chunk": lambda one: one.chunk,
        "stream": "stream",
        "main": lambda one: str(one.main) if one.main >= 0 else "–",
        "waits for main": lambda one: _seen(one, one.waits_main),
        "main joins": lambda one: _seen(one, one.joined),
        "main joins its comm": lambda one: _seen(one, one.communication_joined),
    }
    title, note = f"Stream plan: {_how_it_holds(result, chunks)}", "Direct: by an event between the two streams; "
    words = [header for header in columns if header not in ("rank", "turn", "stream", "main")]
    return table(title, chunks, columns, words=words, most=MAX_SYNCS, note=f"{note}indirect: through others.")


def _how_it_holds(result: OrderReport, chunks: list[Chunk]) -> str:
    """Whether every worker waits and is joined; that one doesn't is no race where nothing it needs was in flight."""
    if result.plan.holds:
        return "every worker waits for main and is joined"
    if not any(one.exact for one in chunks if "no" in (one.waits_main, one.joined, one.communication_joined)):
        return "not every wait can be seen in this capture"
    return "a wait is missing" if result.crossings.missing else "not every worker waits or is joined; no race is seen"


def _seen(chunk: Chunk, check: str) -> str:
    return (check if chunk.exact or check != "no" else "not seen") or "–"
