"""Results as JSON: a contract. Keys stay, new ones may come; the schema's number changes when a meaning does."""

from __future__ import annotations

from collections.abc import Mapping

from traceviz.output.records import Json
from traceviz.output.views.collectives import document as collectives
from traceviz.output.views.compare import document as comparison
from traceviz.output.views.info import document as info
from traceviz.output.views.overlap import document as overlap
from traceviz.output.views.streams import document as streams
from traceviz.output.views.syncs import document as syncs
from traceviz.output.views.what_if import document as what_if

__all__ = [
    "collectives",
    "comparison",
    "info",
    "overlap",
    "report",
    "streams",
    "syncs",
    "what_if",
]


def report(command: str, shown: Json, answers: Mapping[str, Json]) -> Json:
    """`traceviz.report/1`: all of a report.

    Parameters
    ----------
    shown : the instance that its timeline opens on: rank, instance, start_ns, end_ns.
    answers : what `overlap`, `collectives`, `syncs`, `streams`, `info` and `what_if` make of its results, by these
        names.
    """
    return {"schema": "traceviz.report/1", "command": command, "shown": shown, **answers}
