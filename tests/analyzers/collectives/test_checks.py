"""What is said of ranks nobody captured, of captures cut off, and of unsure matches, with every number in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from analyzers.clocks.align import Aligned
from analyzers.clocks.solve import unaligned
from analyzers.collectives.checks import capture_warnings
from analyzers.collectives.tables import CollectiveTable, RankCalls
from analyzers.trace.alignment import MatchedCalls, MatchedCollectives, Matches, Members
from analyzers.trace.tables import Capture
from tests.support.builder import Builder


@dataclass(frozen=True)
class Made:
    """One collective: who took part in it from when to when, and of which kind it is."""

    at: int
    ranks: Iterable[int]
    kind: tuple[str, str, str] = ("all_reduce", "0", "")
    lasts: int = 50
    group_size: int = -1
    matched_by: str = "order"
    sure: bool = True
    given: int = 1


def warnings_of(*made: Made, worlds: Iterable[int | None] = (None,), devices: int = 1) -> dict[str, str]:
    """Warnings by code; ranks are on so many devices each, and take turns on them."""
    rows = [(number, rank, one) for number, one in enumerate(made) for rank in sorted(one.ranks)]
    ranks = sorted({rank for _, rank, _ in rows})
    members = [(rank, device) for rank in ranks for device in range(devices)]
    collective, rank = np.array([(number, rank) for number, rank, _ in rows], np.int64).reshape(-1, 2).T
    start = np.array([one.at for _, _, one in rows], np.int64)
    length = np.array([one.lasts for _, _, one in rows], np.int64)
    calls = {"collective": collective, "rank": rank, "start_ns": start}
    member = np.array([members.index((rank, number % devices)) for number, rank, _ in rows], np.int64)
    kinds = {name: [one.kind[at] for one in made] for at, name in enumerate(("operation", "group", "group_ranks"))}
    rest = {name: [getattr(one, name) for one in made] for name in ("matched_by", "sure", "group_size", "given")}
    clocks = np.array(members, np.int64).reshape(-1, 2)
    matches = Matches(
        Members.of({"rank": clocks[:, 0], "device": clocks[:, 1]}),
        MatchedCalls.of({**calls, "member": member}),
        MatchedCollectives.of(kinds | rest),
    )
    trace = replace(Builder().trace(), captures=tuple(Capture("a", "synthetic", world_size=world) for world in worlds))
    found = capture_warnings(
        Aligned(trace, unaligned(matches, "off"), matches),
        CollectiveTable.of(),
        RankCalls.of({**calls, "duration_ns": length}),
    )
    assert len({one.code for one in found}) == len(found)
    return {one.code: one.message for one in found}


def cut_off(*made: Made, devices: int = 1) -> str | None:
    return warnings_of(*made, devices=devices).get("cut-off")


def test_nothing_is_said_of_a_trace_without_communication() -> None:
    assert warnings_of(worlds=(4,)) == {}


def test_nothing_is_said_of_what_all_ranks_took_part_in_and_is_sure() -> None:
    assert warnings_of(Made(0, (0, 1)), Made(100, (0, 1)), worlds=(2, None)) == {}


@pytest.mark.parametrize(
    ("worlds", "size", "named"),
    [((None,), -1, "Only rank 5 was captured:"), ((4,), -1, "Only rank 5 of 4 was captured:"),
     ((None,), 3, "Only rank 5 of 3 was captured:"), ((4, 6, None), 3, "Only rank 5 of 6 was captured:"),
     ((2,), 3, "Only rank 5 of 3 was captured:"), ((2,), -1, "Only rank 5 of 2 was captured:")],
)  # fmt: skip
def test_one_rank_alone_is_said_with_how_many_there_are_where_that_is_known(
    worlds: tuple[int | None, ...], size: int, named: str
) -> None:
    found = warnings_of(
        Made(0, (5,), matched_by="alone"), Made(90, (5,), group_size=size, matched_by="alone"), worlds=worlds
    )
    assert list(found) == ["one-rank"]
    assert found["one-rank"].startswith(named)


def test_the_only_rank_of_a_job_of_one_lacks_nobody() -> None:
    assert warnings_of(Made(0, (0,), matched_by="alone"), worlds=(1,)) == {}


@pytest.mark.parametrize(("worlds", "size"), [((4,), -1), ((None, 4), 3), ((None,), 4), ((2,), 4)])
def test_ranks_nobody_captured_are_counted(worlds: tuple[int | None, ...], size: int) -> None:
    found = warnings_of(Made(0, (0, 2, 7)), Made(100, (0, 2, 7), group_size=size), worlds=worlds)
    assert list(found) == ["ranks-missing"]
    assert found["ranks-missing"].startswith("3 of 4 ranks were captured (0, 2, 7):")


def test_a_world_no_larger_than_the_ranks_seen_lacks_none() -> None:
    for world in (None, 1, 2, 3):
        assert warnings_of(Made(0, (0, 2, 7)), worlds=(world,)) == {}


@pytest.mark.parametrize(("count", "named"), [(8, "0, 1, 2, 3, 4, 5, 6, 7"), (9, "0, 1, 2, 3, 4, 5, 6, 7, …")])
def test_of_the_ranks_captured_eight_are_named(count: int, named: str) -> None:
    assert f"({named})" in warnings_of(Made(0, range(count)), worlds=(64,))["ranks-missing"]


def test_unsure_matches_are_counted_among_those_of_several_ranks() -> None:
    made = [
        Made(0, (0, 1)),
        Made(100, (0, 1), sure=False),
        Made(200, (0, 1), sure=False, matched_by="communicator"),
        Made(300, (0,), sure=False, matched_by="alone"),
        Made(400, (0, 1)),
        Made(500, (0, 1), matched_by="group"),
    ]
    found = warnings_of(*made)
    assert list(found) == ["unsure-matches"]
    assert found["unsure-matches"].startswith("2 of 5 collectives are matched over ranks without certainty")
    assert warnings_of(*(replace(one, sure=True) for one in made if one.matched_by != "alone")) == {}
    alone = Made(300, (0,), ("broadcast", "1", ""), sure=False, matched_by="alone")
    assert warnings_of(Made(0, (0, 1)), alone) == {}


def test_what_lacks_a_rank_that_was_given_is_counted_apart_from_what_is_unsure() -> None:
    """Two of three ranks' calls, one of two, and one that may be another's."""
    made = [Made(0, (0, 1), sure=False, given=3), Made(100, (0,), sure=False, given=2), Made(200, (0, 1), sure=False)]
    found = warnings_of(*made)
    assert found["partly-matched"].startswith("2 of 3 collectives lack the call of a rank that was given")
    assert found["unsure-matches"].startswith("1 of 2 collectives")


def test_a_rank_s_lack_is_what_its_group_did_before_its_first_and_after_its_last_call() -> None:
    made = [Made(at * 100, (0, 1) if at in (0, 1, 2, 8, 9) else (0, 1, 2)) for at in range(10)]
    text = cut_off(*made)
    assert text is not None
    assert ": rank 2 lacks the first 3 and the last 2 of its collectives." in text


def test_of_two_ranks_one_lacks_what_is_seen_on_the_other_only() -> None:
    text = cut_off(*(Made(at * 100, (0, 1) if at in (2, 3, 5) else (0,)) for at in range(7)))
    assert text is not None
    assert ": rank 1 lacks the first 2 and the last 1 of its collectives." in text


def test_each_rank_that_is_cut_off_is_named_in_order() -> None:
    made = [Made(at * 100, [rank for rank in range(4) if not (rank == 3 and at < 1) and not (rank == 1 and at > 6)])
            for at in range(10)]  # fmt: skip
    text = cut_off(*made)
    assert text is not None
    assert ": rank 1 lacks the last 3; rank 3 lacks the first 1 of its collectives." in text


def test_a_collective_in_between_that_a_rank_lacks_is_no_cut() -> None:
    assert cut_off(*(Made(at * 100, (0, 1) if at in (4, 5) else (0, 1, 2)) for at in range(10))) is None


@pytest.mark.parametrize(
    ("first", "last", "named"),
    [
        (50, 250, None),  # from 0 to 50, and from 250 on: at the very instants the rank's calls begin and end
        (51, 250, "the first 1 of"),
        (50, 249, "the last 1 of"),
        (51, 249, "the first 1 and the last 1 of"),
    ],
)
def test_what_touches_a_rank_s_first_or_last_call_is_not_beyond_it(first: int, last: int, named: str | None) -> None:
    text = cut_off(Made(0, (0, 1)), Made(first, (0, 1, 2), lasts=last - first), Made(250, (0, 1)))
    assert text is None if named is None else text is not None and f"rank 2 lacks {named}" in text


def test_collectives_of_groups_a_rank_has_no_part_in_are_not_lacking() -> None:
    """Ranks 0 and 1 go on while 2 and 3 do not; nobody says that all four belong together."""
    pairs = [Made(at * 100, ranks) for at in range(3) for ranks in ((0, 1), (2, 3))]
    assert cut_off(*pairs, *(Made(1000 + at * 100, (0, 1)) for at in range(4))) is None


def test_collectives_of_another_kind_than_a_rank_s_own_are_not_lacking() -> None:
    """Rank 2 makes all-reduces, and the others go on to something else."""
    for kind in (("all_gather", "0", ""), ("all_reduce", "1", ""), ("all_reduce", "0", "[0, 1]")):
        made = [*(Made(at * 100, (0, 1, 2)) for at in range(5)), *(Made(1000 + at, (0, 1), kind) for at in range(4))]
        assert cut_off(*made) is None
        assert cut_off(*made, Made(900, (0, 1))) is not None


def test_what_a_rank_lacks_of_several_kinds_adds_up() -> None:
    gather, scatter = ("all_gather", "0", ""), ("reduce_scatter", "0", "")
    made = [
        *(Made(at, (0, 1), gather, lasts=1) for at in (0, 10)),
        *(Made(at, (0, 1), scatter, lasts=1) for at in (20, 30, 40)),
        *(Made(at, (0, 1, 2), kind, lasts=1) for at, kind in ((100, gather), (110, scatter), (120, gather))),
        Made(200, (0, 1), scatter),
        *(Made(at, (0, 1), gather) for at in (300, 400, 500)),
    ]
    text = cut_off(*made)
    assert text is not None
    assert "rank 2 lacks the first 5 and the last 4 of" in text


def test_a_rank_that_two_clocks_belong_to_is_cut_off_where_both_are() -> None:
    """Its calls run on two devices in turn: the first of all and the last of all count."""
    made = [Made(at * 100, (0, 1, 2) if 2 <= at <= 7 else (0, 1)) for at in range(10)]
    text = cut_off(*made, devices=2)
    assert text is not None
    assert "rank 2 lacks the first 2 and the last 2 of" in text


def test_a_rank_belongs_to_no_more_than_the_eight_commonest_sets_of_ranks() -> None:
    """Sets of two and more come up twice each; rank 99 is in one that comes up once, with 0 and 1."""

    def made(others: int) -> list[Made]:
        sets = [(0, 1), *((2 * pair, 2 * pair + 1) for pair in range(1, others))]
        common = [Made(at * 1000 + number, ranks, lasts=1) for at in (1, 2) for number, ranks in enumerate(sets)]
        return [Made(0, (0, 1, 99), lasts=1), *common]

    text = cut_off(*made(7))
    assert text is not None
    assert "rank 99 lacks the last 2 of" in text
    assert cut_off(*made(8)) is None


def test_of_the_ranks_cut_off_eight_are_named_and_the_others_counted() -> None:
    def made(lacking: int) -> list[Made]:
        return [Made(0, (0, 1), lasts=1), *(Made(at, range(lacking + 2), lasts=1) for at in (100, 200))]

    eight, ten = cut_off(*made(8)), cut_off(*made(10))
    assert eight is not None
    assert ten is not None
    assert "; rank 9 lacks the first 1 of its" in eight
    assert "; rank 9 lacks the first 1; 2 more ranks likewise of its" in ten


def test_ranks_missing_cut_off_and_unsure_are_each_said() -> None:
    found = warnings_of(Made(0, (0, 1)), Made(100, (0, 1, 2), sure=False), worlds=(8,))
    assert list(found) == ["ranks-missing", "cut-off", "unsure-matches"]
