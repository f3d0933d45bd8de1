"""The answer of `syncs` as a document."""

from __future__ import annotations

from itertools import islice

from analyzers.common.wording import ranks_in_words, stream_word
from analyzers.syncs.crossings import Crossing
from analyzers.syncs.groups import SyncGroup, sync_groups
from analyzers.syncs.loops import Chunk
from analyzers.syncs.points import SyncPoint
from analyzers.syncs.report import OrderReport
from analyzers.syncs.rests import in_sentences
from analyzers.trace.kernels import function
from traceviz.output.document import Block, Bullets, Headline, Table, worded
from traceviz.output.quantities import count_of, duration, instant, size, unshown
from traceviz.output.views.caveats import caveats

MOST = 20
MOST_VERBOSE = 500


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


def _headline(result: OrderReport) -> Headline:
    table = result.syncs.table
    if result.exit_code:
        return Headline("INCONCLUSIVE", f"{result.reason}.", "middle")
    but = f"; {result.reason}" if result.reason else ""
    if not len(table):
        text = f"nothing in the capture blocked the host{but}."
        return Headline("NO SYNCS", text, "middle" if but else "good")
    idle, after, hidden = (int(table[column].sum()) for column in ("gpu_idle_ns", "after_ns", "hidden"))
    blocked = duration(int(table["duration_ns"].sum()))
    text = f"{count_of(len(table), 'host sync')} ({hidden} implicit) blocked hosts for {blocked}"
    if result.idle_unknown:
        text = f"{text}; how long GPUs were idle can't be told: {result.idle_unknown}{but}."
        return Headline("SYNCS", text, "middle")
    if not table["unrecorded_ns"].all():
        text += f" and left GPUs idle {duration(idle)}"
    text += f", and the host left them idle {duration(after)} more before it launched again" if after else ""
    text += f"; {result.untold}" if result.untold else ""
    return Headline("SYNCS", f"{text}{but}.", "bad" if idle else "middle" if result.untold else "good")


def _groups(result: OrderReport) -> Table:
    headers = ["count", "ranks", "blocked", "longest", "GPU idle", "idle after", "kind", "call", "from", "in",
               "waited for", "delayed"]  # fmt: skip
    groups = sync_groups(result.syncs)
    note = (
        "Sums over all of a row but for longest. GPU idle: from the device's drain to the call's return, its cost. "
        f"Idle after: from there to the next launch, the host's own time.\n{unshown(len(groups) - MOST)}"
    )
    rows = [_group(one, idle_known=not result.idle_unknown) for one in groups[:MOST]]
    shown = [k for k in range(len(headers)) if k < 8 or any(row[k] != "–" for row in rows)]
    cells = [[row[k] for k in shown] for row in rows]
    title = "Host syncs, costliest first"
    return Table([headers[k] for k in shown], cells, title, frozenset(headers[:6]), note)


def _group(one: SyncGroup, *, idle_known: bool) -> tuple[str, ...]:
    copy = f" ({one.copy}, {size(one.bytes)})" if one.copy and one.bytes >= 0 else ""
    origin = one.origin or ("–" if not one.hidden else "implicit")
    return (
        f"{one.count:,}",
        ranks_in_words(one.ranks).split(" ", 1)[1],
        duration(one.duration_ns),
        duration(one.longest_ns),
        *_idle(one, known=idle_known),
        one.kind,
        one.api + copy,
        _short_origin(origin) + (f" ({one.frame})" if one.frame else ""),
        one.range or "–",
        _cut(one.waited) or "–",
        one.delayed or "–",
    )


def _idle(one: SyncGroup | SyncPoint, *, known: bool) -> tuple[str, str]:
    """How long the GPU was idle up to the call's return, and then until the next launch."""
    if not known:
        return "–", "–"
    return "can't tell" if one.unrecorded_ns else duration(one.gpu_idle_ns), duration(one.after_ns)


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
    headers = ("rank", "at", "blocked", "GPU idle", "idle after", "kind", "call", "from", "in", "waited for", "delayed")
    word, known = stream_word(result.runtime), not result.idle_unknown
    rows = [_sync(point, word, idle_known=known) for point in islice(result.syncs, MOST_VERBOSE)]
    note = unshown(len(result.syncs) - MOST_VERBOSE)
    return Table(headers, rows, "One by one", frozenset(headers[:5]), note)


def _sync(point: SyncPoint, stream: str, *, idle_known: bool) -> tuple[str, ...]:
    origin = point.chain or point.pattern or ("–" if not point.hidden else "implicit")
    waited = function(point.waited_name) or (f"{stream} {point.waited_stream}" if point.waited_stream >= 0 else "–")
    copy = f" ({point.copy}, {size(point.bytes)})" if point.copy and point.bytes >= 0 else ""
    return (
        str(point.rank),
        instant(point.start_ns),
        duration(point.duration_ns),
        *_idle(point, known=idle_known),
        point.kind,
        point.api + copy,
        origin + (f" ({point.frame})" if point.frame else ""),
        point.range or "–",
        _cut(waited),
        point.delayed or "–",
    )


def _copies(result: OrderReport) -> Table:
    headers = ("rank", "stream", "size", "in", "launched", "done on the GPU", "nobody waits until", "then")
    rows = [
        (
            str(one.rank),
            str(one.stream),
            size(one.bytes),
            one.range or "–",
            instant(one.launched_ns),
            instant(one.end_ns),
            instant(one.until_ns),
            one.reason,
        )
        for one in result.copies.copies()[:MOST]
    ]
    note = "Whether they share memory can't be known: a trace holds no addresses. Where they do, a read before the "
    note += f"copy is done, or behind the next one, finds other data.\n{unshown(len(result.copies) - MOST)}"
    return Table(
        headers,
        rows,
        "Copies to pinned memory that nothing waits for before the next like them",
        frozenset(headers) - {"in", "then"},
        note,
    )


def _races(missing: list[Crossing]) -> list[str]:
    """Each missing wait once, with the ranks that it is missing on, and how often."""
    ranks: dict[str, list[int]] = {}
    for one in missing:
        ranks.setdefault(f"{one.what}: {one.message}", []).append(one.rank)
    lines = [
        f"{ranks_in_words(on)}, {text}" + (f" (seen {len(on)} times)" if len(on) > 1 else "")
        for text, on in ranks.items()
    ]
    return lines[:MOST] + ([f"… and {len(lines) - MOST} more"] if len(lines) > MOST else [])


def _plan(result: OrderReport) -> Table:
    headers = ("rank", "loop", "turn", "chunk", "stream", "main", "waits for main", "main joins", "main joins its comm")
    chunks = result.plan.chunks()
    rows = [_chunk(one) for one in chunks[:MOST]]
    note = f"Direct: by an event between the two streams; indirect: through others.\n{unshown(len(chunks) - MOST)}"
    title = f"Stream plan: {_how_it_holds(result, chunks)}"
    return Table(headers, rows, title, frozenset({"rank", "turn", "stream", "main"}), note)


def _how_it_holds(result: OrderReport, chunks: list[Chunk]) -> str:
    """Whether every worker waits and is joined; that one doesn't is no race where nothing it needs was in flight."""
    if result.plan.holds:
        return "every worker waits for main and is joined"
    if not any(one.exact for one in chunks if "no" in _checks(one)):
        return "not every wait can be seen in this capture"
    return "a wait is missing" if result.crossings.missing else "not every worker waits or is joined; no race is seen"


def _chunk(one: Chunk) -> tuple[str, ...]:
    main = str(one.main) if one.main >= 0 else "–"
    seen = [check if one.exact or check != "no" else "not seen" for check in _checks(one)]
    return (
        str(one.rank),
        one.loop,
        str(one.turn),
        one.chunk,
        str(one.stream),
        main,
        *(check or "–" for check in seen),
    )


def _checks(one: Chunk) -> tuple[str, str, str]:
    return one.waits_main, one.joined, one.communication_joined
