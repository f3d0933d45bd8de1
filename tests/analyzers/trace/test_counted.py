"""What counted as communication, and what may be some, against a count op by op."""

from __future__ import annotations

import random
from collections import Counter

from analyzers.info import facts_of, info
from analyzers.select.select import declare
from analyzers.trace.communication import Declared
from analyzers.trace.counted import about_neither, about_suggested, communication_facts
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from tests.support.builder import Builder

RULES = {  # name -> library, operation, kind: by hand
    "ncclDevKernel_SendRecv": ("NCCL", "send_recv", "communication"),
    "ncclDevKernel_Generic": ("NCCL", "", "communication"),
    "void deep_ep::intranode::dispatch<8>(x)": ("DeepEP", "dispatch", "communication"),
    "void dpsk::ep::internode::dispatch<8>(x)": ("DeepEP", "dispatch", "communication"),
    "void deep_ep::layout::get_dispatch_layout<8>(x)": ("DeepEP", "", "bookkeeping"),
    "gemm_all_reduce_kernel": ("fused", "all_reduce", "fused"),
}


def _run(seed: int) -> tuple[Trace, Counter[tuple[str, ...]], Counter[tuple[str, ...]]]:
    chance = random.Random(seed)
    builder = Builder()
    ops: Counter[tuple[str, ...]] = Counter()
    ns: Counter[tuple[str, ...]] = Counter()
    for number in range(2):
        rank = builder.rank(number)
        at = 0
        for _ in range(60):
            name = chance.choice([*RULES, "gemm", "my_pack", "my_ship"])
            took = chance.randrange(1, 1000)
            rank.kernel(name, 20 if name.startswith("my") else 7, at, at + took)
            at += took
            rule = None
            if name == "my_ship":
                rule = ("kernel:my_ship (--comm)", "", "", "communication")
            elif name in RULES:
                rule = ("kernel name", *RULES[name])
            if rule:
                ops[rule] += 1
                ns[rule] += took
        rank.copy("PtoP", 30, at, at + 77)
        ops["copy between GPUs", "", "", "communication"] += 1
        ns["copy between GPUs", "", "", "communication"] += 77
    return declare(builder.trace(), (Declared("kernel:my_ship", "--comm"),)), ops, ns


def test_ops_and_times_by_rule_are_those_counted_one_by_one() -> None:
    for seed in range(5):
        trace, ops, ns = _run(seed)
        facts = communication_facts(trace)
        found = {(one.rule, one.library, one.operation, one.kind): (one.ops, one.ns) for one in facts.counted}
        assert found == {rule: (ops[rule], ns[rule]) for rule in ops}
        assert info(trace).communication == facts.counted
        assert facts_of(trace).communication == facts


def test_unknown_kernels_beside_the_main_stream_are_suggested_and_none_that_runs_on_it() -> None:
    builder = Builder()
    for number in range(2):
        rank = builder.rank(number)
        rank.kernel("gemm", 7, 0, 1000)
        rank.kernel("my_ship<int>(x)", 20, 0, 300)
        rank.kernel("my_ship<int>(x)", 21, 300, 400)
        rank.kernel("pack", 20, 400, 500)
        rank.kernel("pack", 7, 1000, 1100)  # on the main stream, too
        rank.kernel("void at::native::copy<int>(x)", 20, 500, 900)  # plainly compute
        rank.kernel("blip", 20, 900, 905)  # too little to ask about
    trace = builder.trace()
    [one] = info(trace).suggested
    assert (one.name, one.streams, one.ops, one.ns) == ("my_ship", (20, 21), 4, 800)
    assert one.selector == "kernel:my_ship"
    [said] = [each for each in check_overlap(trace).warnings if each.code == "perhaps-communication"]
    assert "--comm 'kernel:my_ship'" in said.message
    declared = declare(trace, (Declared("kernel:my_ship", "--comm"),))
    assert not info(declared).suggested
    result = check_overlap(declared)
    assert not [each for each in result.warnings if each.code == "perhaps-communication"]
    assert [each.a.ops for each in result.ranks] == [2, 2]


def test_one_line_says_what_is_on_neither_side() -> None:
    builder = Builder()
    rank = builder.rank(0)
    rank.kernel("gemm", 7, 0, 1000)
    rank.kernel("ncclDevKernel_SendRecv", 20, 0, 500)
    rank.kernel("gemm_all_reduce_kernel", 7, 1000, 3000)
    rank.kernel("deep_ep::layout::get_dispatch_layout", 20, 500, 600)
    result = check_overlap(builder.trace())
    [said] = [each for each in result.warnings if each.code == "on-neither-side"]
    assert said.message == (
        "On neither side: fused kernels, whose overlap can't be measured (1 op, 2.00 µs); "
        "bookkeeping of communication, such as barriers and layouts (1 op, 100 ns)."
    )
    assert (result.ranks[0].a.busy_ns, result.ranks[0].b.busy_ns) == (500, 1000)
    assert not about_neither(()) and not about_suggested(())
    by_range = check_overlap(builder.trace(), "stream:20", "stream:7")
    assert not [each for each in by_range.warnings if each.code == "on-neither-side"]
