"""The communication calls of a trace: each kernel that communicates, with what the trace says about its call."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api.types import union_categoricals

from analyzers.arrays.columns import narrowed, repeated
from analyzers.arrays.groups import WIDEST, alike, first_row, first_row_of, is_repeated, label, rows_by_key
from analyzers.arrays.names import Names, at_codes, rows_of_codes
from analyzers.arrays.types import Ids, Ints, Mask
from analyzers.trace.columns import codes, framed, ints, ints_at, stored
from analyzers.trace.communication import function, known, operation_of
from analyzers.trace.kernels import is_communication, is_declared
from analyzers.trace.merge import concat
from analyzers.trace.tables import Trace

PAIRWISE = ("send", "recv", "send_recv")
# NCCL's annotation states these by what one rank gives or takes per peer; nccl-tests by all ranks' together.
_PER_RANK = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
_KEYS = ["process", "correlation"]
_OP_COLUMNS = [*_KEYS, "device", "rank", "stream", "start_ns", "end_ns", "grid", "launch"]
_CALL_COLUMNS = (
    "operation",
    "bytes",
    "dtype",
    "group",
    "group_description",
    "group_ranks",
    "group_size",
    "sequence",
    "communicator",
    "peer",
)
_GROUP = ("group", "group_description", "group_ranks", "group_size", "communicator")
_DTYPE_BYTES = {
    **dict.fromkeys(("char", "int8", "byte", "uint8", "bool", "float8e4m3fn", "float8e5m2", "f8e4m3", "f8e5m2"), 1),
    **dict.fromkeys(("half", "float16", "bfloat16", "short", "int16", "f16", "bf16"), 2),
    **dict.fromkeys(("float", "float32", "int", "int32", "uint32", "f32"), 4),
    **dict.fromkeys(("double", "float64", "long", "int64", "uint64", "f64", "complexfloat"), 8),
}


class Calls(msgspec.Struct, frozen=True):
    """Communication kernels and who ran them.

    members : one row a clock, that is a (process, device): process, device, rank, capture.
    table : one row a kernel: op (row in `Trace.ops`), member, rank, stream, start_ns, end_ns (as captured), operation,
        kernel (function name and grid as a code; without grid for a point-to-point kernel, where ranks may differ),
        window (no call of one is the same as a call of another),
        and from the trace's comms where they say: bytes (message size as nccl-tests counts it, or its share of one
        rank where `per_rank`), dtype, group, group_description, group_ranks, group_size, sequence,
        communicator, peer (global rank); -1 or missing (categorical code -1) where not. stated: False of a call that
        was launched before the capture began, of which nothing is stated, though it is of others of its rank.
    transfers : one row for each send or receive that a kernel holds, of those whose peer is known by its rank: call
        (row in `table`), sends (else it receives), peer (global rank), bytes.
    """

    members: pd.DataFrame
    table: pd.DataFrame
    transfers: pd.DataFrame


def calls(trace: Trace) -> Calls:
    """Find the communication kernels and join what the trace says about each.

    What the user alone calls communication is no call of a collective where nothing tells its operation: in the same
    order on every rank runs all that they compute, too, and waits would be claimed of it.
    """
    code, names = trace.ops.name.codes, trace.ops.name.texts
    is_call = is_communication(trace) & trace.ops.kind.is_one_of(("kernel",))
    # Where all ops are calls, as of summaries, their columns are taken as they are: of many ranks they are large.
    rows = slice(None) if is_call.all() else np.flatnonzero(is_call)
    ops, comms = trace.ops.to_frame(_OP_COLUMNS), trace.comms.to_frame()
    ops = ops if isinstance(rows, slice) else ops.take(rows)
    code = code[rows]
    member, members = _members(trace, ops)
    id_type = np.promote_types(np.int32, np.min_scalar_type(-is_call.size))  # of 64 bits a copy would be made
    columns: dict[str, Any] = {
        "op": np.arange(is_call.size, dtype=id_type)[rows],
        "member": member,
        "rank": stored(ops, "rank"),
        "stream": stored(ops, "stream"),
        "start_ns": ints(ops, "start_ns"),
        "end_ns": ints(ops, "end_ns"),
        "kernel": _kernel(code, names, ints(ops, "grid")),
        "window": _windows(trace, members, member),
    }
    about_calls = _about_calls(ops, comms)
    by_name = _texts(code, [known(name).operation or operation_of(name) for name in names])
    by_call = _texts(*_codes(about_calls["operation"]), operation_of)
    operation_known = by_call.codes >= 0
    merged = union_categoricals([by_name, by_call])
    operations = np.where(operation_known, merged.codes[code.size :], merged.codes[: code.size])
    columns["operation"] = pd.Categorical.from_codes(operations, dtype=merged.dtype)
    columns |= {column: about_calls[column] for column in _CALL_COLUMNS if column not in ("operation", "bytes")}
    columns["stated"] = _adopt_groups(columns, stored(ops, "launch") >= 0, one_host=_may_be_one_host(members))
    columns["bytes"], columns["per_rank"] = _message_bytes(columns["operation"], about_calls)
    columns["peer"] = _global_peers(about_calls["group_ranks"], columns["rank"], about_calls["peer"])
    table = framed(columns)
    unknown = is_declared(trace)[rows] & (columns["operation"].codes < 0)
    if unknown.any():
        table, ops = table[~unknown].reset_index(drop=True), ops[~unknown]
    return Calls(members, table, _transfers(table, ops, comms))  # many ranks have many calls: a copy takes time


def _may_be_one_host(members: pd.DataFrame) -> bool:
    """Whether no two processes have a GPU of one number."""
    return len(np.unique(ints(members, "device"))) == len(members)


def _adopt_groups(columns: dict[str, Any], launched: Mask, *, one_host: bool) -> Mask:
    """Give calls that name no group or communicator the only one of their stream; says which were launched before.

    Parameters
    ----------
    launched : whether a call's launch is captured.
    one_host : whether all ranks may be of one host. Over several, clocks are known too little to tell which of the
        others' calls one was that was launched before the capture.

    Returns
    -------
    stated : False of calls that say nothing of themselves as they were launched before the capture began.
    """
    named = (columns["group"].codes >= 0) | (columns["communicator"] != -1)
    if named.all() or not named.any():
        return repeated(True, bool, named.size)
    lost, rows = np.flatnonzero(~named), np.flatnonzero(named)
    group = label(*(columns[name] for name in _GROUP))
    lane = label(columns["member"], columns["stream"])
    row_of_lane = np.full(int(lane.max()) + 1, -1, np.int64)
    row_of_lane[lane[rows]] = rows
    differs = rows[group[rows] != group[row_of_lane[lane[rows]]]]
    row_of_lane[lane[differs]] = -1
    source = row_of_lane[lane[lost]]
    adopted, source = lost[source >= 0], source[source >= 0]
    for name in _GROUP if adopted.size else ():
        values = columns[name]
        is_text = isinstance(values, pd.Categorical)
        changed = np.array(values.codes if is_text else values)
        changed[adopted] = changed[source]
        columns[name] = pd.Categorical.from_codes(changed, dtype=values.dtype) if is_text else changed
    states_others = np.isin(columns["member"], columns["member"][rows])
    stated = named | launched | ~states_others
    if one_host:
        stated[adopted] |= columns["group"].codes[adopted] >= 0  # NCCL's ranges name no groups, and split communicators
    return stated


def _transfers(table: pd.DataFrame, ops: pd.DataFrame, comms: pd.DataFrame) -> pd.DataFrame:
    """`Calls.transfers`. A communicator counts its ranks by itself: whom it means by a peer is not known."""
    operations = Names.of(comms["operation"])
    sends = operations.matching(lambda name: operation_of(name) == "send")
    receives = operations.matching(lambda name: operation_of(name) == "recv")
    has_peer = (ints(comms, "correlation") >= 0) & (ints(comms, "peer") >= 0) & (ints(comms, "communicator") == -1)
    stated = np.flatnonzero((sends | receives) & has_peer)
    if not stated.size or not len(ops):
        return framed({name: np.empty(0, np.int64) for name in ("call", "sends", "peer", "bytes")})
    own = [ints(ops, key) for key in _KEYS]
    call = first_row_of(*own, *(ints_at(comms, key, stated) for key in _KEYS))
    stated, call = stated[call >= 0], call[call >= 0]
    dtype, dtypes = codes(comms, "dtype")
    of_dtype = np.array([_DTYPE_BYTES.get(name.lower(), -1) for name in dtypes] + [-1], np.int64)[dtype[stated]]
    elements = np.maximum(ints_at(comms, "in_elements", stated), ints_at(comms, "out_elements", stated))
    peer = _global_peers(
        table["group_ranks"].array.take(call), stored(table, "rank")[call], ints_at(comms, "peer", stated)
    )
    size = np.where((elements >= 0) & (of_dtype > 0), elements * of_dtype, ints_at(comms, "bytes", stated))
    return framed({"call": call, "sends": sends[stated].astype(np.int64), "peer": peer, "bytes": size})


def _members(trace: Trace, ops: pd.DataFrame) -> tuple[Ids, pd.DataFrame]:
    """The number of each op's clock, by rank, and one row a clock."""
    columns = [stored(ops, column) for column in ("rank", "process", "device")]
    first, count = alike(*columns)  # mostly those of a rank stand together
    rows = rows_by_key(*(np.asarray(column[first], np.int64) for column in columns))
    member = np.empty(first.size, np.int32)
    for number, mine in enumerate(rows.values()):
        member[mine] = number
    keys = np.array(list(rows), np.int64).reshape(-1, 3)
    capture = np.array([one.capture for one in trace.processes] or [0], np.int64)[keys[:, 1]]
    members = pd.DataFrame({"process": keys[:, 1], "device": keys[:, 2], "rank": keys[:, 0], "capture": capture})
    return np.repeat(member, count), members


def _windows(trace: Trace, members: pd.DataFrame, member: Ids) -> Ids:
    """The window of the run that each call's capture is; where there is one, that takes no room."""
    window = np.array([one.window for one in trace.processes] or [0], np.int32)
    if not window.any():
        return repeated(0, np.int32, member.size)
    return window[ints(members, "process")][member]


def _kernel(code: npt.NDArray[np.signedinteger[Any]], names: Sequence[str], grid: Ints) -> Ids:
    functions = [function(name) for name in names]
    pairwise = rows_of_codes(code, ["sendrecv" in name.lower() for name in functions])
    return narrowed(label(_texts(code, functions), np.where(pairwise, -1, grid) if pairwise.any() else grid), "id")


def _texts(
    code: npt.NDArray[np.signedinteger[Any]], texts: list[str], change: Callable[[str], str] = str
) -> pd.Categorical:
    """Categorical of changed texts; an empty one becomes missing (code -1)."""
    changed = [change(text) for text in texts]
    known = sorted(set(changed) - {""})
    new = np.array([known.index(text) if text else -1 for text in changed] + [-1], np.min_scalar_type(-len(known) - 1))
    return pd.Categorical.from_codes(_at_codes(new, code), categories=pd.Index(known, dtype="str"))


def _at_codes(values: npt.NDArray[Any], code: npt.NDArray[np.signedinteger[Any]]) -> npt.NDArray[Any]:
    """The value of each code; of a column of one code that takes no room neither does the result."""
    one = code.size and is_repeated(code)
    return repeated(values[code[0]], values.dtype, code.size) if one else at_codes(values, code)


def _codes(values: pd.Categorical) -> tuple[npt.NDArray[np.signedinteger[Any]], list[str]]:
    return values.codes, [str(text) for text in values.categories]


def _about_calls(ops: pd.DataFrame, comms: pd.DataFrame) -> dict[str, Any]:
    """For each op what the trace says of its call, -1 or a missing text where it says nothing."""
    stated = comms[[*_KEYS, *_CALL_COLUMNS, "in_elements", "out_elements"]]
    stated = _one_per_call(stated)
    row = first_row(*_launches(stated, ops))

    def of_ops(values: Any) -> Any:
        return np.append(values, -1)[row]

    columns: dict[str, Any] = {}
    for column in (*_CALL_COLUMNS, "in_elements", "out_elements"):
        values = stated[column].array
        if isinstance(values, pd.Categorical):
            columns[column] = _texts(of_ops(values.codes), [str(text) for text in values.categories])
        else:
            columns[column] = of_ops(ints(stated, column))
    return columns


def _launches(*frames: pd.DataFrame) -> list[Ints]:
    """A number for each row's launch, the same in all frames; ascending as (process, correlation) do, if possible."""
    process, correlation = ([ints(frame, key) for frame in frames] for key in _KEYS)
    low, high = (int(end([end(one, initial=0) for one in correlation])) for end in (np.min, np.max))
    width = high - low + 1
    if width * (max(int(one.max(initial=0)) for one in process) + 1) <= WIDEST:
        return [one * width + (launched - low) for one, launched in zip(process, correlation, strict=True)]
    numbers = label(np.concatenate(process), np.concatenate(correlation))
    return np.split(numbers, np.cumsum([len(frame) for frame in frames])[:-1])


def _one_per_call(comms: pd.DataFrame) -> pd.DataFrame:
    """One row a launch: calls coalesced into one kernel add up their sizes, and unlike ones are send_recv."""
    known = ints(comms, "correlation") >= 0
    with_launch = comms if known.all() else comms[known]
    [launch] = _launches(with_launch)
    if (np.diff(launch) > 0).all():  # as they mostly stand, each once; to number them takes longer than all else
        return with_launch
    number = label(launch)
    coalesced = np.bincount(number)[number] > 1
    if not coalesced.any():
        return with_launch
    parts = [with_launch[~coalesced]]
    groups = with_launch[coalesced].groupby(_KEYS, sort=False)
    merged = with_launch[coalesced].drop_duplicates(_KEYS).copy()
    by_operation = with_launch[coalesced].groupby([*_KEYS, "operation"], sort=False, observed=True)
    for column in ("bytes", "in_elements", "out_elements"):
        # What is sent and what is received at once do not add up: the larger counts.
        largest = by_operation[column].sum().groupby(_KEYS, sort=False).max()
        merged[column] = largest.where(groups[column].min() >= 0, -1).to_numpy()
    merged["peer"] = merged["peer"].where(groups["peer"].nunique().to_numpy() == 1, -1)
    mixed_operations = groups["operation"].nunique().to_numpy() > 1
    merged["operation"] = pd.Categorical(np.where(mixed_operations, "send_recv", merged["operation"].to_numpy(object)))
    parts.append(merged)
    return concat(parts)


def _message_bytes(operations: pd.Categorical, about_calls: dict[str, Any]) -> tuple[Ints, Mask]:
    """Message size as nccl-tests counts it, the larger of what a rank gives and takes; or one rank's share of it.

    nccl-tests' "size" is, for all-gather, the gathered result; for reduce-scatter, the input; for all-to-all, a rank's
    whole buffer. NCCL's own annotation states a share of those: the second result says where it is still a share.
    """
    stated = about_calls["bytes"]
    is_per_rank = rows_of_codes(operations.codes, [text in _PER_RANK for text in operations.categories])
    share = is_per_rank & (stated >= 0) if is_per_rank.any() else is_per_rank
    if (about_calls["in_elements"].max(initial=-1), about_calls["out_elements"].max(initial=-1)) == (-1, -1):
        return stated, share
    code, names = _codes(about_calls["dtype"])
    width = _at_codes(np.array([_DTYPE_BYTES.get(name.lower(), -1) for name in names] + [-1], np.int64), code)
    elements = np.maximum(about_calls["in_elements"], about_calls["out_elements"])
    by_elements = (elements >= 0) & (width > 0)
    return np.where(by_elements, elements * width, stated), share & ~by_elements


def _global_peers(group_ranks: pd.Categorical, rank: Ids, peer: Ints) -> Ints:
    """A peer is printed as a global rank or as a place in its group: the latter where it must be."""
    with_peer = np.flatnonzero(peer >= 0)
    if not with_peer.size:
        return peer
    result = peer.copy()
    group_members = [listed(str(text)) for text in group_ranks.categories]
    for (code, own, other), rows in rows_by_key(
        group_ranks.codes[with_peer].astype(np.int64), rank[with_peer].astype(np.int64), peer[with_peer]
    ).items():
        ranks = group_members[code] if code >= 0 else []
        if other < len(ranks) and (other not in ranks or other == own):
            result[with_peer[rows]] = ranks[other]
    return result


def listed(text: str) -> list[int]:
    """Ranks of a group as printed; none where the text is cut short.

    >>> listed("[0, 2]"), listed("[0, 1, ...]")
    ([0, 2], [])
    """
    return [int(one) for one in re.findall(r"\d+", text)] if re.fullmatch(r"[\[({]?[\d,\s]*[\])}]?", text) else []
