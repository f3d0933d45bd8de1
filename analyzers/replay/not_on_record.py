"""What a capture lacks for a replay, in words."""

from __future__ import annotations

import numpy as np

from analyzers.arrays.types import Mask
from analyzers.common.wording import percent
from analyzers.matching.peers import ranks_given, ranks_known, waits_seen
from analyzers.replay.model import Tasks
from analyzers.trace.advice import recording_waits
from analyzers.trace.columns import as_int64
from analyzers.trace.kernels import is_communication
from analyzers.trace.narrow import Narrowing
from analyzers.trace.run import ALL, Run
from analyzers.trace.tables import Trace
from analyzers.trace.untrusted import names_lost, untrusted, without_links

MOST_OFF = 0.05  # of the step, of overlap, of what is not on record: beyond, nothing is predicted


def cant_be_run_again(run: Run, narrowing: Narrowing = ALL) -> str:
    """Why a run, or the part of it that is asked for, is not the program that ran; "" where it is."""
    ranks = run.trace.ranks_asked if narrowing.ranks is None else narrowing.ranks
    asked = [one for one in run.trace.processes if ranks is None or one.rank in ranks]
    return untrusted(run, narrowing) or without_links(asked) or names_lost(run.trace)


def not_on_record(trace: Trace, tasks: Tasks, inside: Mask) -> str:
    """What the capture lacks, so that nothing tells what depends on what; "" where nothing.

    Parameters
    ----------
    inside : the ops of the steps that count.
    """
    communication = is_communication(trace) & inside
    took = (trace.ops.end_ns - trace.ops.start_ns)[communication]
    absent = ~_peers_given(trace)[communication] & (as_int64(trace.ops.wait_seen)[communication] == 0)
    unseen = float(took[absent].sum() / max(int(took.sum()), 1))
    if unseen > MOST_OFF:
        return (
            f"{percent(unseen)} of the communication is with ranks that were not captured: what of it is waiting, "
            "and what it waits for, is not known; capture all ranks"
        )
    calls = tasks.calls
    span = int(calls.end_ns.max() - calls.start_ns.min()) * len(trace.processes)
    blind = tasks.blind_ns / max(span, 1)
    if blind > MOST_OFF:
        remedy = recording_waits(trace)
        return f"for {percent(blind)} of the time hosts were blocked, and nothing says what by: {remedy}"
    return ""


def _peers_given(trace: Trace) -> Mask:
    """Of each op whether all ranks of its collective were given, if perhaps not matched with it."""
    matches = trace.matches
    if matches is None or not len(matches.collectives):
        return np.zeros(len(trace.ops), bool)
    given = ranks_given(matches, ranks_known(trace), trace.rank_ids)
    return np.append(given, False)[as_int64(trace.ops.collective)]


def collectives_lacking_ranks(trace: Trace) -> list[str]:
    """What is taken for granted of collectives of which a rank's call is missing, in words."""
    matches = trace.matches
    if matches is None or not len(matches.collectives):
        return []
    job = ranks_known(trace)
    lacking = ~waits_seen(matches, job, len(trace.rank_ids))
    unmatched = lacking & ranks_given(matches, job, trace.rank_ids)
    reasons = (lacking & ~unmatched, "have ranks that were not captured"), (unmatched, "lack a rank's call")
    return [
        f"{percent(float(which.mean()))} of the collectives {why}: they stay as long as they were, waits included"
        for which, why in reasons
        if which.any()
    ]
