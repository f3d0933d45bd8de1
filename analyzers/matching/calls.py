"""The communication calls of a trace: each kernel that communicates, with what the trace says about its call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from analyzers.arrays.columns import narrowed, repeated
from analyzers.arrays.groups import alike, first_of_each, first_row_of, label, rows_by_key
from analyzers.arrays.names import Names, at_codes
from analyzers.arrays.types import Ids, Ints, Mask
from analyzers.trace.alignment import Members
from analyzers.trace.communication import function, known, operation_of
from analyzers.trace.groups import listed
from analyzers.trace.kernels import is_communication, is_declared
from analyzers.trace.schemas import CommunicationCalls
from analyzers.trace.table import Table, flag, id_, key, number, text
from analyzers.trace.tables import Trace

PAIRWISE = ("send", "recv", "send_recv")
# NCCL's annotation states these by what one rank gives or takes per peer; nccl-tests by all ranks' together.
_PER_RANK = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
_GROUP = ("group", "group_description", "group_ranks", "group_size", "communicator")
_DTYPE_BYTES = {
    **dict.fromkeys(("char", "int8", "byte", "uint8", "bool", "float8e4m3fn", "float8e5m2", "f8e4m3", "f8e5m2"), 1),
    **dict.fromkeys(("half", "float16", "bfloat16", "short", "int16", "f16", "bf16"), 2),
    **dict.fromkeys(("float", "float32", "int", "int32", "uint32", "f32"), 4),
    **dict.fromkeys(("double", "float64", "long", "int64", "uint64", "f64", "complexfloat"), 8),
}


class CallTable(Table):
    """A row a kernel that communicates. What the trace does not say is -1, or no text."""

    op: Ids = id_(-1)  # row in `Trace.ops`
    member: Ids = key(-1)
    rank: Ids = key(-1)
    stream: Ids = id_(-1)
    start_ns: Ints = number("int64", 0)  # as captured
    end_ns: Ints = number("int64", 0)
    operation: Names = text()
    kernel: Ids = id_(-1)  # a number for each function and grid; one for each function where ranks' grids may differ
    window: Ids = key(0)  # no call of one is the same as a call of another
    bytes: Ints = number("int64", -1)  # message size as nccl-tests counts it, or one rank's share of it
    per_rank: Mask = flag(default=False)  # whether it is such a share
    dtype: Names = text()
    group: Names = text()
    group_description: Names = text()
    group_ranks: Names = text()
    group_size: Ids = key(-1)
    sequence: Ints = number("int64", -1)
    communicator: Ints = number("int64", -1)
    peer: Ids = key(-1)  # global rank
    # False of a call that was launched before the capture began, of which nothing is stated, though it is of others.
    stated: Mask = flag(default=True)


class Transfers(Table):
    """A row for each send or receive that a kernel holds, of those whose peer is known by its rank."""

    call: Ints = number("int64", -1)  # row of `CallTable`
    sends: Mask = flag(default=False)  # else it receives
    peer: Ints = number("int64", -1)  # global rank
    bytes: Ints = number("int64", -1)


class CallsToMatch(msgspec.Struct, frozen=True):
    """Communication kernels and who ran them."""

    members: Members
    table: CallTable
    transfers: Transfers


def calls(trace: Trace) -> CallsToMatch:
    """Find the communication kernels and join what the trace says about each.

    What the user alone calls communication is no call of a collective where nothing tells its operation: in the same
    order on every rank runs all that they compute, too, and waits would be claimed of it.
    """
    is_call = is_communication(trace) & trace.ops.kind.is_one_of(("kernel",))
    rows = np.flatnonzero(is_call)
    about = _about_calls(trace, rows)
    names = trace.ops.name.take(rows)
    by_name = _changed(names, lambda name: known(name).operation or operation_of(name))
    by_call = _changed(about["operation"], operation_of)
    texts = tuple(sorted({*by_name.texts, *by_call.texts}))
    operation_code = by_call.among(texts).codes
    operation = Names(np.where(operation_code >= 0, operation_code, by_name.among(texts).codes), texts)
    ops = trace.ops.take(rows)
    member, members = _members(trace, rows)
    window = np.array([one.window for one in trace.processes] or [0], np.int32)[members.process]
    size, per_rank = _message_bytes(operation, about)
    columns = {
        "op": narrowed(rows, "id"),
        "member": member,
        **{name: getattr(ops, name) for name in ("rank", "stream", "start_ns", "end_ns")},
        "operation": operation,
        "kernel": _kernel(names, ops.grid),
        "window": window[member] if window.any() else repeated(0, np.int32, rows.size),
        **{name: about[name] for name in (*_GROUP, "dtype", "sequence")},
        "bytes": size,
        "per_rank": per_rank,
        "peer": _global_peers(about["group_ranks"], ops.rank, about["peer"]),
    }
    is_one_host = np.unique(members.device).size == len(members)  # as far as no two processes have a GPU of one number
    columns["stated"] = _adopt_groups(columns, ops.launch >= 0, one_host=is_one_host)
    table = CallTable({name: columns[name] for name in CallTable.schema}, rows.size)
    is_unknown = is_declared(trace)[rows] & (operation.codes < 0)
    table = table.take(~is_unknown) if is_unknown.any() else table
    return CallsToMatch(members, table, _transfers(table, trace))


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
    group, lane = label(*(columns[name] for name in _GROUP)), label(columns["member"], columns["stream"])
    row_of_lane = np.full(int(lane.max()) + 1, -1, np.int64)
    row_of_lane[lane[rows]] = rows
    differs = rows[group[rows] != group[row_of_lane[lane[rows]]]]
    row_of_lane[lane[differs]] = -1
    source = np.arange(named.size)
    source[lost] = row_of_lane[lane[lost]]
    adopted = lost[source[lost] >= 0]
    source[source < 0] = np.flatnonzero(source < 0)
    for name in _GROUP:
        columns[name] = columns[name].take(source)
    states_others = np.isin(columns["member"], columns["member"][rows])
    stated = named | launched | ~states_others
    if one_host:
        stated[adopted] |= columns["group"].codes[adopted] >= 0  # NCCL's ranges name no groups, and split communicators
    return stated


def _transfers(table: CallTable, trace: Trace) -> Transfers:
    """`CallsToMatch.transfers`. A communicator counts its ranks by itself: whom it means by a peer is not known."""
    sends, receives = (_changed(trace.comms.operation, operation_of).is_one_of((one,)) for one in ("send", "recv"))
    with_peer = (trace.comms.correlation >= 0) & (trace.comms.peer >= 0) & (trace.comms.communicator == -1)
    comms, sends = trace.comms.take(rows := np.flatnonzero((sends | receives) & with_peer)), sends[rows]
    process, correlation = (getattr(trace.ops, name)[table.op] for name in ("process", "correlation"))
    call = first_row_of(process, correlation, comms.process, comms.correlation)
    comms, sends, call = comms.take(call >= 0), sends[call >= 0], call[call >= 0]
    width, elements = _element_bytes(comms.dtype), np.maximum(comms.in_elements, comms.out_elements)
    peer = _global_peers(table.group_ranks.take(call), table.rank[call], comms.peer)
    size = np.where((elements >= 0) & (width > 0), elements * width, comms.bytes)
    return Transfers({"call": call, "sends": sends, "peer": peer.astype(np.int64), "bytes": size}, call.size)


def _members(trace: Trace, rows: Ints) -> tuple[Ids, Members]:
    """The number of each op's clock, by rank, and one row a clock."""
    columns = [getattr(trace.ops, name)[rows] for name in ("rank", "process", "device")]
    first, count = alike(*columns)  # mostly those of a rank stand together
    found = rows_by_key(*(column[first] for column in columns))
    member = np.empty(first.size, np.int32)
    for number_, mine in enumerate(found.values()):
        member[mine] = number_
    rank, process, device = np.array(list(found), np.int64).reshape(-1, 3).T
    capture = np.array([one.capture for one in trace.processes] or [0], np.int64)[process]
    members = Members.of({"process": process, "device": device, "rank": rank, "capture": capture})
    return np.repeat(member, count), members


def _kernel(names: Names, grid: Ids) -> Ids:
    functions = _changed(names, function)
    is_pairwise = functions.matching(lambda name: "sendrecv" in name.lower())
    return label(functions, np.where(is_pairwise, -1, grid)).astype(np.int32)


def _changed(names: Names, change: Callable[[str], str] = str) -> Names:
    """The same rows with changed texts; an empty one becomes missing (code -1)."""
    changed = [*map(change, names.texts)]
    return Names(names.codes, changed).among(tuple(sorted({*changed} - {""})))


def _about_calls(trace: Trace, ops: Ints) -> dict[str, Any]:
    """For each op what the trace's comms say of its call, -1 or a missing text where they say nothing."""
    comms = _one_per_launch(trace.comms)
    own = [getattr(trace.ops, name)[ops] for name in ("process", "correlation")]
    row = first_row_of(comms.process, comms.correlation, *own)
    return {
        name: _changed(Names(np.append(values.codes, -1)[row], values.texts))
        if isinstance(values, Names)
        else np.append(values, -1)[row]
        for name, values in comms.columns.items()
    }


def _one_per_launch(comms: CommunicationCalls) -> CommunicationCalls:
    """One row a launch: calls coalesced into one kernel add up their sizes, and unlike ones are send_recv."""
    comms = comms.take(comms.correlation >= 0)
    launch = label(comms.process, comms.correlation)
    first = first_of_each(launch)
    if first.size == len(comms):
        return comms
    operation = label(launch, comms.operation)
    launch_of_operation = launch[first_of_each(operation)]
    changed: dict[str, Any] = {}
    for name in ("bytes", "in_elements", "out_elements"):
        # What is sent and what is received at once do not add up: the larger counts.
        values = getattr(comms, name)
        total, largest = np.zeros(launch_of_operation.size, np.int64), np.full(first.size, -1, np.int64)
        np.add.at(total, operation, values)
        np.maximum.at(largest, launch_of_operation, total)
        least = values[first].copy()
        np.minimum.at(least, launch, values)
        changed[name] = np.where(least >= 0, largest, -1)
    peers = launch[first_of_each(label(launch, comms.peer))]
    merged = comms.take(first)
    operations = np.array(merged.operation.tolist(), object)
    operations[np.bincount(launch_of_operation) > 1] = "send_recv"
    changed["operation"] = Names.of(operations)
    return merged.having(peer=np.where(np.bincount(peers) > 1, -1, merged.peer), **changed)


def _element_bytes(dtype: Names) -> Ints:
    """How wide elements of a type are, -1 where that is not known."""
    return at_codes(
        np.array([*(_DTYPE_BYTES.get(name.lower(), -1) for name in dtype.texts), -1], np.int64), dtype.codes
    )


def _message_bytes(operation: Names, about: dict[str, Any]) -> tuple[Ints, Mask]:
    """Message size as nccl-tests counts it, the larger of what a rank gives and takes; or one rank's share of it.

    nccl-tests' "size" is, for all-gather, the gathered result; for reduce-scatter, the input; for all-to-all, a rank's
    whole buffer. NCCL's own annotation states a share of those: the second result says where it is still a share.
    """
    stated, width = about["bytes"], _element_bytes(about["dtype"])
    elements = np.maximum(about["in_elements"], about["out_elements"])
    by_elements = (elements >= 0) & (width > 0)
    share = operation.is_one_of(_PER_RANK) & (stated >= 0) & ~by_elements
    return np.where(by_elements, elements * width, stated), share


def _global_peers(group_ranks: Names, rank: Ids, peer: Ids) -> Ids:
    """A peer is printed as a global rank or as a place in its group: the latter where it must be."""
    with_peer = np.flatnonzero(peer >= 0)
    result = peer.copy()
    group_members = [listed(name) for name in group_ranks.texts]
    keys = (group_ranks.codes[with_peer], rank[with_peer], peer[with_peer])
    for (code, own, other), rows in rows_by_key(*keys).items():
        ranks = group_members[code] if code >= 0 else []
        if other < len(ranks) and (other not in ranks or other == own):
            result[with_peer[rows]] = ranks[other]
    return result
