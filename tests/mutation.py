"""Mutation testing of a family of modules: `python -m tests.mutation intervals`; needs `pip install mutmut`.

Each family meets the tests that state its properties, and no others: a mutant that only a whole command notices counts
as a survivor. Works on a copy in build/mutation/FAMILY, where results stay: another run tries only what changed.
`python -m tests.mutation FAMILY MUTANT...` tries single ones, or patterns of their names, and `--show` prints what
survived. A survivor is no fault in itself; docs/hardening.md says why those there are make no difference.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Of tests that take long, those that a module needs.
CAUSES = (
    "causes",
    "causes_whose",
    "causes_random.py::test_each_slice_has_the_cause_that_the_slow_calculation_names",
    "causes_random.py::test_alone_time_is_split_without_loss_or_repetition",
)
CLOCKS = (
    "clocks_warnings",
    "clocks.py::test_a_contradiction_names_its_collective_and_marks_it_unsure",
    "clocks.py::test_disabled_moves_nothing_and_waits_come_from_times_as_captured",
    "clocks.py::test_wait_lasts_to_the_last_arrival_and_transfer_is_the_rest",
    "clocks.py::test_true_offsets_lie_within_the_bounds_whatever_the_ends_do",
)
CERTAINTY = ("certainty", "certainty_bounds", "certainty_calls", "certainty_truth")
SOLVE = [f"clocks_{one}" for one in ("apply", "bounds", "contradictions", "estimate", "evidence", "solve")]
SEQUENCES = ("anchors", "pair", "pair_order", "sequence")
MATCHING = [
    f"collectives_{one}" for one in (*SEQUENCES, "calls", "checks", "coalesced", "evidence", "matches", "merge")
]
ORDERING = (
    "ordering_steps",
    "ordering_graph.py::test_a_path_leads_from_op_to_op_through_ordered_steps",
    "ordering_graph.py::test_a_host_knows_of_an_op_by_the_first_synchronization_that_waited_for_it",
    "ordering_graph.py::test_an_op_is_released_by_its_stream_and_by_the_op_behind_its_waits_that_ended_last",
)
ORDERING_PARTS = ("lanes", "calls", "edges", "default_stream", "nodes", "launches", "links", "infer", "guesses")
ORDERING_GRAPH = (
    "ordering_steps",
    *(f"ordering_{part}" for part in ORDERING_PARTS),
    "ordering_graph.py::test_order_is_reachability_in_the_program[blocking0-3]",
    "ordering_graph.py::test_order_is_reachability_in_the_program[blocking1-2]",
)
# Each family: its modules in analyzers/, and its tests.
FAMILIES: dict[str, tuple[Sequence[str], Sequence[str]]] = {
    "intervals": (["intervals"], ["intervals"]),
    "overlap": (["overlap"], ["overlap"]),
    "clocks": (["clocks"], CLOCKS),
    "clocks_solve": (["clocks_*"], SOLVE),
    "collectives": (["collectives", "collectives_summary"], ["collectives", "collectives_figures"]),
    "collectives_match": (["collectives_[!s]*", "collectives_sequence"], MATCHING),
    "ordering": (["ordering"], ORDERING),
    "ordering_graph": (["ordering_*"], ORDERING_GRAPH),
    "causes": (["causes"], CAUSES),
    "certainty": (["certainty", "certainty_arrivals"], CERTAINTY),
}
COPIED = ("analyzers", "collectors", "traceviz", "tests")
SETTINGS = r"""
[mutmut]
source_paths =
    analyzers
also_copy =
    collectors
    traceviz
only_mutate =
    {modules}
do_not_mutate_patterns =
    "[^"]*\w,? \w[^"]*"
pytest_add_cli_args =
    --hypothesis-profile=mutation
    -pno:cacheprovider
    -pno:unraisableexception
pytest_add_cli_args_test_selection =
    {tests}
timeout_constant = 5.0
timeout_multiplier = 8.0
"""  # a line that holds prose is left alone: its wording is nothing for a test to hold


def main(family: str, *mutants: str) -> int:
    """Run a family, or some mutants of it, and list the survivors."""
    work = ROOT / "build" / "mutation" / family
    modules, tests = FAMILIES[family]
    settings = SETTINGS.format(
        modules="\n    ".join(f"analyzers/{module}.py" for module in modules),
        tests="\n    ".join(f"tests/test_{test}" if "::" in test else f"tests/test_{test}.py" for test in tests),
    )
    for name in COPIED:
        shutil.copytree(ROOT / name, work / name, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", work)
    (work / "setup.cfg").write_text(settings, encoding="utf-8")
    mutmut = [sys.executable, "-c", "from mutmut.__main__ import cli; cli()"]
    if mutants == ("--show",):
        listed = subprocess.run([*mutmut, "results"], cwd=work, check=True, capture_output=True, text=True).stdout
        survivors = [line.split(":")[0].strip() for line in listed.splitlines() if line.endswith("survived")]
        return max((subprocess.run([*mutmut, "show", one], cwd=work).returncode for one in survivors), default=0)
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)  # ends mutants that loop, unless a shell has it ignored
    ran = subprocess.run([*mutmut, "run", "--max-children", "1", *mutants], cwd=work)
    return ran.returncode or subprocess.run([*mutmut, "results"], cwd=work).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
