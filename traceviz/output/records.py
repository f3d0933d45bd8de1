"""Records of results as JSON: a key for each field, except of those that `KEYS_OF_RECORDS` names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from math import isfinite
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import pandas as pd

    from analyzers.trace.table import Table

Json = dict[str, Any]

# A record's keys by its class, where they are not its fields: `key` or `key=attribute`, `*` for all fields, `-field`
# for one that they lack, `key?` for one that is null where its text is empty, `key=a+b` for an object of some fields.
# `tests/traceviz/test_records.py` holds these names against the classes.
KEYS_OF_RECORDS = {
    "Bound": "kind *",
    "Capture": "path format producer schema_version=schema host start_utc_ns first_ns last_ns world_size metadata"
    " unused",
    "FigureChange": "* delta_ns ratio",
    "Clock": "rank device offset_ns residual_ns drift collectives",
    "Clocks": "method hosts_agree_ns offsets=clocks",
    "Contended": "sentence unknown likely",
    "Contention": "rank device a b real_overlap_ns net_overlap_ns low_ns high_ns of_ideal=ideal",
    "Crossing": "* -process -op -behind message",
    "DeviceTime": "rank device span_ns a_only_ns b_only_ns both_ns other_ns idle_ns steps hta tracelens",
    "Entry": "path kind bytes=size used",
    "Fix": "change class=safety now_step_ns step_ns step_low_ns step_high_ns assumes where advice tells",
    "Gain": "* effective_gain speedup speedup_bound",
    "HtaOverlap": "* comm_comp_overlap",
    "Job": "rule rank device real_overlap_ns achievable_ns real_overlap_ratio step steps window apparent"
    " real_overlap_ratio_low=ratio_low real_overlap_ratio_high=ratio_high",
    "LastArrival": "rank device real_overlap_ns achievable_ns real_overlap_ratio"
    " real_overlap_ratio_low=ratio_low real_overlap_ratio_high=ratio_high",
    "LostWork": "ops most_ns",
    "OwnWork": "* change words",
    "PairGain": "* effective_gain speedup speedup_bound lost_ns",
    "PairTrend": "a b gpus rule apparent call verdict_before other_rules others_apparent"
    " real_overlap_ratio=overlap step_ns=step runs",
    "Prediction": "change together=changes class=safety now_ns step_ns step_low_ns step_high_ns gain_ns tells suggested"
    " likely where ranks next_cause next_share assumptions",
    "ProfilerWeight": "weight from=source captured_step_ns real_step_ns",
    "RankBound": "kind *",
    "RankStreams": "rank device span_ns busy_ns concurrent_ns busy_streams_ns streams overlap_ns",
    "RuleResult": "name outcome sentence asked=rule.asked needs=rule.kind.needs counted=rule.kind.counted"
    " kind=rule.kind.key checked failed cut_off reason remedy findings",
    "Segment": "* blocks",
    "Side": "busy_ns wait_ns ops streams",
    "Stake": "* dominates",
    "StepSync": "* words",
    # `numbers` are the steps that figures are of; null where they are of everything, or of a window of time.
    "StepsUsed": "count whole source? by? first last left_out unknown numbers",
    "StreamContention": "kernels pairs",
    "Suggested": "* selector",
}
# Keys at which -1 stands for what the capture does not say.
UNKNOWN_AT = frozenset(
    ("bytes", "pid", "waited_stream", "waited_event", "barrier_ns", "barrier_wait_ns", "communication")
)


def to_json(value: Any) -> Any:
    """A value of a result as JSON has it: records as objects, tables as lists of objects, what no number is as null."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, msgspec.Struct):
        return picked(value, KEYS_OF_RECORDS.get(type(value).__name__, "*"))
    if isinstance(value, Mapping):
        return {key: to_json(inner) for key, inner in value.items()}
    if hasattr(value, "columns"):
        return rows(value)
    if hasattr(value, "tolist"):  # a vector or matrix of numpy's
        return value.tolist()
    if hasattr(value, "__iter__"):
        return [to_json(inner) for inner in value]
    return str(value)  # a path


def picked(record: Any, keys: str) -> Json:
    """Some of a record's fields and properties, by keys as in `KEYS_OF_RECORDS`; or some keys of an object of JSON."""
    if isinstance(record, dict):
        return {key: record[key] for key in keys.split()}
    found: Json = {}
    kind: Any = type(record)
    for key, attribute in _attributes(kind, keys):
        value = to_json(attribute(record))
        found[key] = None if key in UNKNOWN_AT and value == -1 else value
    return found


@cache
def _attributes(record: Any, keys: str) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    """Each key with what reads its value."""
    words = keys.split()
    left_out = {word[1:] for word in words if word[0] == "-"}
    named: dict[str, Callable[[Any], Any]] = {}
    for word in words:
        key, _, attribute = word.partition("=")
        if word == "*":
            named |= {field: attrgetter(field) for field in record.__struct_fields__ if field not in left_out}
        elif word[0] != "-":
            named[key.rstrip("?")] = _reader(key, attribute)
    return tuple(named.items())


def _reader(key: str, attribute: str) -> Callable[[Any], Any]:
    if "+" in attribute:
        return lambda one: picked(one, attribute.replace("+", " "))
    if key.endswith("?"):
        return lambda one: getattr(one, key[:-1]) or None
    return attrgetter(attribute or key)


def rows(table: Table | pd.DataFrame, *without: str) -> list[Json]:
    """A table's rows, without some of its columns."""
    given: Any = table.columns if isinstance(table.columns, Mapping) else table
    columns: dict[str, list[Any]] = {str(name): given[name].tolist() for name in given if name not in without}
    for name in UNKNOWN_AT & set(columns):
        columns[name] = [None if value == -1 else value for value in columns[name]]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
