"""The answer of `compare`: as a document and as JSON, whole and in brief."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from analyzers.common.wording import Times, ranks_in_words
from analyzers.compare.against import DIFFERENT_PROFILERS
from analyzers.compare.noise import EQUAL, LESS, MORE, NOISE, RUNS_APART, TOO_FEW, FigureChange
from analyzers.compare.results import ComparedRun, Comparison, LaneFigures, PairGain, Region
from analyzers.compare.steps import FIGURES
from analyzers.contention.growth import Growth
from analyzers.counters.states import DeviceStates, pooled
from analyzers.counters.vocabulary import COUNTERS
from analyzers.trace.memory import MemoryPeak
from analyzers.trace.step_table import in_spans
from analyzers.verdict.against import CHANGED, SAME
from traceviz.options.again import CommandLine
from traceviz.output import brief as short
from traceviz.output.document import Block, Headline, Paragraph, Table
from traceviz.output.quantities import count_of, duration, from_to, gained_share, listing, percent, size, span, unshown
from traceviz.output.records import Json, picked, to_json
from traceviz.output.tables import Column, table
from traceviz.output.views import claim
from traceviz.output.views.caveats import caveats, unsure
from traceviz.output.views.counters import contended, in_states, mean

MOST_RANKS = 32
MOST_REGIONS = 12
LEAST_TOLD = 0.02  # of a side's growth
COMPARED_NOTE = (
    "Medians per step: step time on its slowest rank, others a mean over the ranks' devices; and (change against "
    "{first}). = is the same in every step, ~ lies within noise, ? differs on too few steps."
)


MEMORY_NOTES = {
    "allocator": "Memory peak: the most that the allocator had handed out on any one device.",
    "driver": "Memory peak: the most that had been taken from the driver on any one device.",
    "driver-change": "Memory peak with +: the most taken from the driver since the capture began, on any one device; "
    "what may have been taken before is not in it.",
}


def document(result: Comparison) -> Json:
    """`traceviz.compare/3`: figures per step in whole ns; changes are against the first run.

    `verdict` is the step's word, as in `against`. `effective_gain` and `speedup` count what overlaps in the first run
    already. A claim without a pair is `about` the step.
    """
    return {
        "schema": "traceviz.compare/3",
        **picked(result, "reason pair=a+b steps ranks"),
        "runs": [_run(run) for run in result.runs],
        "claim": claim.document(result.claim, result.claim_reason),
        **picked(result, "claim_reason warnings"),
    }


def _run(run: ComparedRun) -> Json:
    job = run.overlap.job if run.overlap else None
    return {
        **picked(run, "label captures"),
        "verdict": run.verdict if run.changes else None,
        "against": claim.against(run.against),
        "speedup": run.speedup,
        "counters": in_states(pooled(run.counters)) if run.counters else None,
        **picked(run, "contended figures changes"),
        "real_overlap_ratio": job.real_overlap_ratio if job else None,
        "apparent": job.apparent if job else False,
        **picked(run, "calls_recorded late_start steps"),
        "memory": "recorded" if run.memory_peaks else "not recorded",
        **picked(run, "memory_peaks ranks=lanes regions"),
        "growth": dict(zip("ab", to_json(run.growth), strict=True)) if run.growth else None,
        **picked(run, "gain"),
    }


def brief_document(result: Comparison, line: CommandLine) -> Json:
    """`traceviz.compare-brief/1`: each run against the first: step time, overlap, gain, and regions that changed."""
    paths = {run.label: path for run, path in zip(result.runs, line.given["traces"], strict=True)}
    full = short.rounded(document(result))
    answer = {
        "reason": result.reason,
        "lines": short.lines(brief(result)),
        "pair": full["pair"],
        "steps": short.spans(result.steps),
        "ranks": short.spans(result.ranks),
        "runs": [_run_in_brief(run, each) for run, each in zip(result.runs, full["runs"], strict=True)],
        "claim": claim.in_brief(full["claim"]),
        "claim_reason": result.claim_reason,
    }
    following = [line.again("check-overlap", traces=[path]) for path in reversed(paths.values())]
    return short.brief("traceviz.compare-brief/1", answer, result.warnings, following, {"runs": 6})


def _run_in_brief(run: ComparedRun, full: Json) -> Json:
    gain, step = full["gain"] or {}, full["figures"].get("step_ns") or {}
    regions = run.regions_that_differ[:3] if run.changes else []
    return {
        "label": short.name(run.label),
        **picked(full, "verdict speedup real_overlap_ratio apparent"),
        "step_ns": step.get("median_ns"),
        "changes": {
            name: picked(one, "before_ns after_ns low_ns high_ns call") for name, one in full["changes"].items()
        },
        "effective_gain": gain.get("effective_gain"),
        "pair_speedup": gain.get("speedup"),
        "pair_speedup_bound": gain.get("speedup_bound"),
        "regions": [{"name": short.name(one.name), **picked(one, "rank delta_ns")} for one in regions],
    }


def blocks(result: Comparison) -> list[Block]:
    """Verdicts, how alike the captures are, all runs in one table, per rank, regions that differ, claim, warnings."""
    said_first = [Paragraph(one.message) for one in result.warnings if one.code == DIFFERENT_PROFILERS]
    rest = caveats([one for one in result.warnings if one.code != DIFFERENT_PROFILERS])
    if result.reason and _has_no_figures(result):
        return [*_first(result), *said_first, *rest]
    shown = [*_first(result), *said_first]
    shown += [block for run in result.runs[1:] for block in _gained(result, run)]
    shown += _steps(result)
    shown.append(_figures(result))
    shown += [_pair_time(result.runs[0], run, run.gain) for run in result.runs[1:] if run.gain]
    shown += [block for run in result.runs[1:] for block in _growth(result.runs[0], run)]
    for run in result.runs[1:]:
        shown += _side_by_side(result.runs[0].label, run.label, result.runs[0].counters, run.counters)
        shown += contended(run.contended)
    differing = [block for run in result.runs[1:] for block in _regions(result.runs[0], run)]
    return [*shown, *differing, _lanes(result), *rest]


def brief(result: Comparison) -> list[Block]:
    """What can't be told, the claim, and how each run's step stands against the first's."""
    return [one for one in _first(result) if isinstance(one, Headline)]


def _first(result: Comparison) -> list[Block]:
    if result.reason and _has_no_figures(result):
        return unsure(result.reason)
    steps: list[Block] = []
    for run in result.runs[1:]:
        if run.untrusted:  # what is on record of its step time can't be trusted
            text = f"{_moved('step time', run.changes['step_ns'])} by what is on record, over {_over(result)}."
            steps.append(Paragraph(text, f"{run.label} against {result.runs[0].label}"))
        else:
            steps.append(_verdict(result, run))
    return [*unsure(result.reason), *claim.blocks(result.claim, result.claim_reason), *steps]


def _has_no_figures(result: Comparison) -> bool:
    return not result.steps and not result.runs[0].figures


def headline(result: Comparison) -> str:
    """All verdicts in one line."""
    verdicts = [_verdict(result, run) for run in result.runs[1:] if run.changes and not run.untrusted]
    return " ".join(f"{one.word}: {one.text}" for one in verdicts) or f"INCONCLUSIVE: {result.reason}."


def _verdict(result: Comparison, run: ComparedRun) -> Headline:
    """How the step stands against the first run's."""
    step, changes = run.against, _all_changes(run)
    if step is None:  # a run without figures
        return Headline("INCONCLUSIVE", f"{result.reason}.", "middle")
    moved = f"{step.moved}, {step.sure}"
    if all(one.call == EQUAL for one in changes):
        moved = "every figure of every step is the same"
    text = f"{run.label} against {result.runs[0].label}: {moved}, over {_over(result)}."
    if step.word == CHANGED:
        text += f" Captures of one program differ by {percent(RUNS_APART)} as well: repeat both."
    return Headline(step.word, text, step.mood)


def _gained(result: Comparison, run: ComparedRun) -> list[Block]:
    """Step time gained, of what the pair could have gained; where the step did not change, what did."""
    step = run.against
    if step is None or run.untrusted:
        return []
    found: list[Block] = []
    if step.gained:
        pair = " and ".join(run.overlap.names) if run.overlap else _pair(result)
        text = step.gained.replace("perfect overlap", f"perfect overlap of {pair}", 1)
        whose = run.label if len(result.runs) > 2 else ""
        found.append(Paragraph(f"{text[0].upper()}{text[1:]}.", whose))
    most = _most_changed(result, run) if step.word == SAME else ""
    return [*found, Paragraph(f"{most}.", f"Most changed in {run.label}")] if most else found


def _moved(name: str, change: FigureChange) -> str:
    by = percent(change.ratio, signed=True) if change.ratio is not None else _signed(change)
    return f"{name} {from_to(change.before_ns, change.after_ns)} ({by})"


def _most_changed(result: Comparison, run: ComparedRun) -> str:
    """What changed most of that which differs beyond noise: a mean figure, else a rank's, else a region's, else ""."""
    named = [(_named(result, name), one) for name, one in run.changes.items()]
    named += [
        (f"rank {lane.rank}'s {_named(result, name)}", one) for lane in run.lanes for name, one in lane.changes.items()
    ]
    most = max(named, key=lambda each: _size(each[1])) if any(_size(one) for _, one in named) else None
    if most is not None:
        return _moved(*most)
    beyond = (one for one in run.regions_that_differ if one.change is None or one.change.call in (MORE, LESS))
    region = next(beyond, None)
    if region is None:
        return ""
    name = f"'{region.name}' of rank {region.rank}" if region.name else f"work of rank {region.rank} in no range"
    if region.change is not None:
        return _moved(name, region.change)
    return f"{name} is {'gone' if region.after is None else 'new'}"


def _size(change: FigureChange) -> float:
    """How large a change beyond noise is against what it was before; 0 of another."""
    return max(abs(change.delta_ns), 1) / max(change.before_ns, 1) if change.call in (MORE, LESS) else 0.0


def _all_changes(run: ComparedRun) -> list[FigureChange]:
    found = [*run.changes.values(), *(one for lane in run.lanes for one in lane.changes.values())]
    return found + [region.change for region in run.regions if region.change]


def _over(result: Comparison) -> str:
    count = len(result.steps)
    steps = count_of(count, "common step") if count else "whole captures, which have no step marks,"
    which = f" ({in_spans(result.steps)})" if count else ""
    return f"{steps}{which} of {ranks_in_words(result.ranks)}"


def _steps(result: Comparison) -> list[Block]:
    """How each run's steps were found, and which of them count nowhere: once, where that is the same of all."""
    said = {run.label: run.steps.in_words for run in result.runs if run.steps is not None and run.steps.count}
    if len(said) == len(result.runs) and len(set(said.values())) == 1:
        return [Paragraph(next(iter(said.values())), "Each run")]
    return [Paragraph(text, label) for label, text in said.items()]


def _figures(result: Comparison) -> Table:
    runs, first = result.runs, result.runs[0]
    rows = [
        ["step time, median", *(_figure(run, "step_ns") for run in runs)],
        ["step time, P90", *(duration(run.figures["step_ns"].p90_ns) for run in runs)],
        [
            "step time, 95 % interval",
            *(span(run.figures["step_ns"].low_ns, run.figures["step_ns"].high_ns) for run in runs),
        ],
    ]
    rows += [[_named(result, name), *(_figure(run, name) for run in runs)] for name in FIGURES if name != "step_ns"]
    rows += [
        ["real overlap / min(A, B)", *(run.overlap_ratio_text for run in runs)],
        ["memory peak", *(_memory(run.highest_memory, run is not first and first.highest_memory) for run in runs)],
        [f"effective gain over {first.label}", *(_effective_gain(run.gain) for run in runs)],
    ]
    headers = ("per step", *(run.label for run in runs))
    sources = sorted({one.source for run in runs for one in run.memory_peaks})
    about_memory = [MEMORY_NOTES[source] for source in sources]
    note = "\n".join([COMPARED_NOTE.format(first=first.label), *_about_apparent(runs), *about_memory])
    return Table(headers, rows, _pair(result), frozenset(headers[1:]), note)


def _figure(run: ComparedRun, name: str, lane: LaneFigures | None = None) -> str:
    """A figure of a run, or of one of its devices, with its change against the first run."""
    if name == "sync_ns" and not run.calls_recorded:
        return "not recorded"
    of = lane or run
    change = of.changes.get(name)
    return Times("{} {unit}" + (f" ({_signed(change)})" if change else ""), of.figures[name].median_ns)


def _effective_gain(gain: PairGain | None) -> str:
    """What the pair gained of what it could; nothing is said of a time that lies within noise."""
    if gain is None:
        return "–"
    if gain.together.call == NOISE:
        return "within noise"
    return gained_share(gain.effective_gain) + (" ?" if gain.together.call == TOO_FEW else "")


def _memory(peak: MemoryPeak | None, before: MemoryPeak | Literal[False] | None) -> str:
    """A peak, and how it compares with one before it, if there is one."""
    if peak is None:
        return "not recorded"
    text = ("+" if peak.source == "driver-change" else "") + size(peak.peak_bytes)
    if not before or before.source != peak.source:
        return text
    if before.peak_bytes == peak.peak_bytes:
        return f"{text} (=)"
    change = peak.peak_bytes / before.peak_bytes - 1 if before.peak_bytes else None
    return f"{text} ({percent(change, signed=True)})" if change is not None else text


def _about_apparent(runs: Sequence[ComparedRun]) -> list[str]:
    apparent = [run.label for run in runs if run.overlap and run.overlap.job.apparent]
    if not apparent:
        return []
    absent = any(
        run.overlap.ranks_given < (run.overlap.ranks_known or 1 + run.overlap.ranks_given)
        for run in runs
        if run.overlap and run.overlap.job.apparent
    )
    why = "ranks were not captured" if absent else "some communication matches no other rank's"
    return [f"Of {listing(apparent)} overlap is apparent: {why}, and waiting for them counts in it."]


def _pair(result: Comparison) -> str:
    return f"A is {result.a}, B is {result.b}"


def _named(result: Comparison, name: str) -> str:
    more = {"exposed_ns": " (not behind compute)", "sync_ns": " (GPU idle)", "overlap_ns": " of A and B"}
    return FIGURES[name] + more.get(name, "")


def _signed(change: FigureChange) -> str:
    if change.call == EQUAL:
        return "="
    ratio = change.ratio
    moved = (
        percent(ratio, signed=True)
        if ratio is not None
        else ("+" if change.delta_ns >= 0 else "") + duration(change.delta_ns)
    )
    return moved + {"noise": " ~", TOO_FEW: " ?"}.get(change.call, "")


def _pair_time(first: ComparedRun, run: ComparedRun, gain: PairGain) -> Paragraph:
    """How long the pair takes, and how much less it could have."""
    together, names = gain.together, " or ".join(run.overlap.names if run.overlap else "AB")
    text = (
        f"{names} runs for {from_to(gain.before_ns, together.after_ns)} per instance on rank {gain.rank} (medians of "
        f"{gain.first_instances} and {gain.instances}): {_times(gain.speedup)} of at most "
        f"{_times(gain.speedup_bound)}, (A + B) / max(A, B) of {first.label}"
    )
    if gain.speedup and gain.speedup_bound and gain.speedup > gain.speedup_bound:
        text += ". That is more than overlap can give: A and B themselves take less"
    return Paragraph(f"{text}.", f"The pair in {run.label}")


def _growth(first: ComparedRun, run: ComparedRun) -> list[Block]:
    """Why each side's ops take longer, or less, than in the first run; each slowdown once."""
    names = run.overlap.names if run.overlap else ("A", "B")
    told = [_grown(name, one) for name, one in zip(names, run.growth or (), strict=False)]
    if not told:
        return []
    return [Paragraph(f"{'. '.join(told)}.", f"Kernel time a rank and step against {first.label}, in {run.label}")]


def _grown(name: str, one: Growth) -> str:
    """Of one side: contention is kernels that run slower while overlapped with the other side."""
    parts = (
        (one.contention_ns, "contention: slower while overlapped"),
        (one.clocks_ns, "clocks: matching kernels alone"),
        (one.work_ns, "other work"),
        (one.unknown_ns, "not known: never alone, or waits unknown"),
    )
    told = "; ".join(f"{_more(ns)} {what}" for ns, what in parts if abs(ns) > LEAST_TOLD * abs(one.growth_ns))
    waiting = f"; waiting for late ranks besides: {_more(one.wait_ns)}" if one.wait_ns else ""
    return f"{name} {_more(one.growth_ns)} ({told}){waiting}" if told else f"{name} as long{waiting}"


def _more(ns: int) -> str:
    return ("+" if ns > 0 else "") + duration(ns)


def _times(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.2f}x"


def _side_by_side(first: str, run: str, before: Sequence[DeviceStates], after: Sequence[DeviceStates]) -> list[Block]:
    """Counters of A alone and B alone in one run, and of both in another, of ranks that have all of their ops."""
    whole = [[one for one in some if not one.lacks_ops] for some in (before, after)]
    if not all(whole):
        return []
    alone, both = (pooled(some) for some in whole)
    states = (alone["a"], alone["b"], both["both"])
    headers = ("counter", "unit", f"{first}: A alone", f"{first}: B alone", f"{run}: both")
    rows = [
        (named.label, named.unit, *(mean(one, counter) for one in states))
        for counter, named in COUNTERS.items()
        if any(counter in one.weights for one in states)
    ]
    return [Table(headers, rows, "What the hardware did (mean)", frozenset(headers[2:]))]


def _regions(first: ComparedRun, run: ComparedRun) -> list[Block]:
    found = run.regions_that_differ
    if not found:
        text = f"none of {len({one.name for one in run.regions})} differs beyond noise from {first.label}."
        return [Paragraph(text, f"Regions of {run.label}")] if run.regions else []
    headers = ("region", "rank", first.label, run.label, "change", "interval of the change")
    rows = [_region(one) for one in found[:MOST_REGIONS]]
    note = "Real busy time per step of the work launched in a region and in no region inside it.\n"
    note += unshown(len(found) - MOST_REGIONS)
    return [Table(headers, rows, f"Regions of {run.label} that differ", frozenset(headers[1:]), note)]


def _region(one: Region) -> tuple[str, ...]:
    change = one.change
    return (
        one.name or "(in no range)",
        str(one.rank),
        duration(one.before.median_ns) if one.before else "–",
        duration(one.after.median_ns) if one.after else "–",
        _signed(change) if change else ("gone" if one.after is None else "new"),
        span(change.low_ns, change.high_ns) if change and change.call != TOO_FEW else "–",
    )


def _lanes(result: Comparison) -> Table:
    """Every rank's device in every run."""
    first, count = result.runs[0], len(result.runs[0].lanes)
    shown = [(run, run.lanes[i]) for i in range(min(count, MOST_RANKS)) for run in result.runs]
    columns: dict[str, Column] = {
        "rank": lambda row: str(row[1].rank),
        "device": lambda row: str(row[1].device),
        "run": lambda row: row[0].label,
        "step time": _of_lane("step_ns"),
        "P90": lambda row: duration(row[1].figures["step_ns"].p90_ns),
        "GPU busy": _of_lane("busy_ns"),
        "real overlap": _of_lane("real_overlap_ns"),
        "exposed comm": _of_lane("exposed_ns"),
        "sync cost": _of_lane("sync_ns"),
    }
    if any(run.memory_peaks for run in result.runs):

        def reserved(row: tuple[ComparedRun, LaneFigures]) -> str:
            peak = _peak_of(*row)
            return "–" if peak is None or peak.reserved_peak_bytes is None else size(peak.reserved_peak_bytes)

        columns["memory peak"] = lambda row: _memory(_peak_of(*row), row[0] is not first and _peak_of(first, row[1]))
        columns["reserved"] = reserved
    note = unshown(count - MOST_RANKS, "more devices")
    return table("Per rank, medians per step", shown, columns, words=["run"], note=note)


def _of_lane(name: str) -> Column:
    """A figure of one rank's device in one run."""
    return lambda row: _figure(row[0], name, row[1])


def _peak_of(run: ComparedRun, lane: LaneFigures) -> MemoryPeak | None:
    return next((one for one in run.memory_peaks if (one.rank, one.device) == (lane.rank, lane.device)), None)
