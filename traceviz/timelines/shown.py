"""Which instance a picture opens on: the typical one, not the one that flatters."""

from __future__ import annotations

from analyzers.common.records import Record
from analyzers.overlap.instances import Instance
from analyzers.overlap.measure import RankOverlap
from analyzers.verdict.check import OverlapResult
from traceviz.output.quantities import part_of, percent


class Shown(Record, frozen=True):
    """The instance shown: its span over all ranks, ns, and in words which it is and why.

    `rank`, `device` and `label` are None and "" where there is no instance, and the whole trace is shown.
    """

    start_ns: int
    end_ns: int
    text: str
    rank: int | None = None
    label: str = ""
    device: int | None = None
    title: str = ""  # what is seen of it, for a picture's title


def deciding_rank(result: OverlapResult) -> RankOverlap | None:
    """The rank that decides the verdict, else the first that has instances."""
    with_instances = [rank for rank in result.ranks if rank.instances]
    where = result.job.deciding
    critical = [rank for rank in with_instances if (rank.rank, rank.device) == where]
    return next(iter(critical + with_instances), None)


def typical(result: OverlapResult, span: tuple[int, int]) -> Shown:
    """The median instance by real overlap / achievable (the lower one of two; by length where they are equal).

    Parameters
    ----------
    span : of the whole trace, ns, shown where no instance has both sides.
    """
    rank = deciding_rank(result)
    ranked = sorted(rank.instances, key=lambda one: (_ratio(one), one.end_ns - one.start_ns)) if rank else []
    if rank is None or not ranked:
        return Shown(*span, "the whole capture: no instance has both sides", title="the whole capture")
    chosen = ranked[(len(ranked) - 1) // 2]
    together = [_nearest(other, chosen) for other in result.ranks]
    spans = [(one.start_ns, one.end_ns) for one in together if one is not None]
    text = f"{chosen.label} on {result.device_labels.name(rank.rank, rank.device)}"
    if len(ranked) > 1:
        least, most = (percent(_ratio(one)) for one in (ranked[0], ranked[-1]))
        text += f", the median of {len(ranked)} by real overlap: {percent(_ratio(chosen))} ({least} to {most})"
    else:
        text += f", the only instance: real overlap {percent(_ratio(chosen))}"
    title = f"{chosen.label} on {result.device_labels.name(rank.rank, rank.device)}: "
    title += f"{part_of(chosen.real_overlap_ns, chosen.achievable_ns, 'of')} achievable overlapped"
    return Shown(
        min(low for low, _ in spans), max(high for _, high in spans), text, rank.rank, chosen.label, rank.device, title
    )


def _ratio(instance: Instance) -> float:
    return instance.real_overlap_ns / instance.achievable_ns if instance.achievable_ns else 0.0


def _nearest(rank: RankOverlap, chosen: Instance) -> Instance | None:
    """The same instance on another rank: of those with its label the one nearest in time."""
    same = [one for one in rank.instances if one.label == chosen.label]
    return min(same, key=lambda one: abs(one.start_ns - chosen.start_ns), default=None)
