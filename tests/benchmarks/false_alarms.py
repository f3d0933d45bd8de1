"""How often `compare` and `history` cry wolf, and what they detect: `python -m tests.benchmarks.false_alarms [DRAWS]`.

Steps of every capture in `tests/data/pairs` (20 each when it was measured; fixtures keep 6 to 20) are drawn again, in
blocks of five in a row, since slow steps come together. Of each capture, DRAWS times:

- nothing changed: two drawn runs of 20 steps, and two halves of the capture at random; each call but "noise" is a false
  alarm. Once a capture: its first half against its second, which holds what drifts within a capture, too;
- a change: the second drawn run takes x % more; detected where it is called so;
- the same program captured again: every two of 52 captures of ten steps, 13 in each of four processes, on two H200s
  (`tools/capture-repeats.py`), whose figures are in `tests/data/repeats.json`;
- histories: medians of drawn runs, each with a scatter from run to run besides, and a newest one that takes x % more.

Prints the tables of docs/measured/false-alarms.md.
"""

from __future__ import annotations

import json
import sys
from itertools import combinations
from pathlib import Path

import numpy as np

from analyzers.arrays.types import Ints
from analyzers.compare.against import basis_of
from analyzers.compare.noise import LESS, MORE, FigureChange, change, trend
from analyzers.compare.steps import FIGURES, group_steps, slowest, step_figures
from analyzers.load import load
from analyzers.select.select import select
from analyzers.select.sides import without_shared
from analyzers.trace.run import ALL, Run

PAIRS = Path(__file__).parents[1] / "data" / "pairs"
REPEATS = PAIRS.parent / "repeats.json"
STEPS, BLOCK = 20, 5
INJECTED = (0.01, 0.02, 0.05, 0.10)
GRID = (0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.10, 0.15, 0.20)
SCATTER = (0.0, 0.01, 0.027)  # from run to run: none, as on one quiet machine, as hosted runners vary (CodSpeed)
HISTORIES = (3, 5, 10, 20)  # runs before the newest
ENOUGH = 0.8  # of draws, for a change to count as detected


def captures() -> dict[str, dict[str, Ints]]:
    """The figures of each capture."""
    return {
        first.name.partition(".")[0]: figures_of(
            sorted(str(path) for path in PAIRS.glob(first.name.replace("rank0", "rank*")))
        )
        for first in sorted(PAIRS.glob("*.rank0.json.gz"))
    }


def figures_of(paths: list[str]) -> dict[str, Ints]:
    """Of one capture, figures of the job a step: step time on the slowest rank, others a mean over ranks, ns."""
    trace = load(paths)
    groups = group_steps(trace)
    common = basis_of(("one",), [Run.of(trace)], [ALL]).common
    a, b, _ = without_shared(trace, select(trace, "comm"), select(trace, "compute"))
    figures = step_figures(trace, groups, a.picked, b.picked)
    values = {name: figures.at(common.lanes, common.steps, name) for name in ("step_ns", "real_overlap_ns")}
    return {
        "step_ns": slowest(values["step_ns"]),
        "real_overlap_ns": np.rint(values["real_overlap_ns"].mean(axis=0)).astype(np.int64),
    }


def drawn(samples: Ints, rng: np.random.Generator, steps: int = STEPS) -> Ints:
    """Another run of a program, as far as a capture's steps tell: blocks of them, with replacement."""
    starts = rng.integers(samples.size, size=-(-steps // BLOCK))
    rows = (starts[:, None] + np.arange(BLOCK)).reshape(-1)[:steps] % samples.size
    return samples[rows]


def halves(samples: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Two halves of a capture, at random."""
    order, half = rng.permutation(samples.size), samples.size // 2
    return samples[np.sort(order[:half])], samples[np.sort(order[half : 2 * half])]


def more(samples: Ints, by: float) -> Ints:
    return np.rint(samples * (1 + by)).astype(np.int64)


def called(before: Ints, after: Ints, figure: str) -> str:
    """As `compare` calls it: step time is asked alone, any other among all figures."""
    return change(before, after, tests=1 if figure == "step_ns" else len(FIGURES)).call


def false_alarms(runs: dict[str, dict[str, Ints]], draws: int, rng: np.random.Generator) -> list[str]:
    lines = ["| nothing changed | comparisons | step time | real overlap |", "|---|---|---|---|"]
    counts: dict[str, dict[str, list[bool]]] = {}
    for values in runs.values():
        for figure, samples in values.items():
            if not samples.any():
                continue
            half = samples.size // 2
            kinds = {"two draws of 20 steps": draws, "random halves of 10": draws, "first half and second": 1}
            for kind, times in kinds.items():
                of_kind = counts.setdefault(kind, {}).setdefault(figure, [])
                for _ in range(times):
                    pair = (
                        (drawn(samples, rng), drawn(samples, rng))
                        if kind.startswith("two")
                        else halves(samples, rng)
                        if kind.startswith("random")
                        else (samples[:half], samples[half : 2 * half])
                    )
                    of_kind.append(called(*pair, figure) in (MORE, LESS))
    for kind, by_figure in counts.items():
        step, overlap = (by_figure[figure] for figure in ("step_ns", "real_overlap_ns"))
        lines.append(f"| {kind} | {len(step):,} | {np.mean(step):.1%} | {np.mean(overlap):.1%} |")
    return lines


def repeated() -> list[str]:
    """How often captures of one program are called different, and by more than a share of the step."""
    counts: dict[tuple[str, bool], list[FigureChange]] = {}
    runs = {
        name: {key: np.array(value) for key, value in one.items()}
        for name, one in json.loads(REPEATS.read_text()).items()
    }
    for before, after in combinations(sorted(runs), 2):
        (program, first, _), (other, second, _) = before.split("."), after.split(".")
        if program == other:
            one = change(runs[before]["step_ns"], runs[after]["step_ns"])
            counts.setdefault((program, first == second), []).append(one)
    lines = [
        "| program captured again | comparisons | step time differs | faster or slower | by over 5 % |",
        "|---|---|---|---|---|",
    ]
    for (program, together), changes in sorted(counts.items()):
        called = [one for one in changes if one.call in (MORE, LESS)]
        shares = [
            called,
            [one for one in called if one.beyond_runs],
            [one for one in called if abs(one.ratio or 0) > 0.05],
        ]
        cells = " | ".join(f"{len(some) / len(changes):.1%}" for some in shares)
        lines.append(
            f"| {program}, {'in one process' if together else 'in another process'} | {len(changes):,} | {cells} |"
        )
    return lines


def detection(runs: dict[str, dict[str, Ints]], draws: int, rng: np.random.Generator) -> list[str]:
    """Share of changes of step time that are detected, and of each capture the smallest that mostly is."""
    shares = {by: [] for by in {*INJECTED, *GRID}}  # type: ignore[var-annotated]
    for values in runs.values():
        samples = values["step_ns"]
        for by in shares:
            hits = [called(drawn(samples, rng), more(drawn(samples, rng), by), "step_ns") == MORE for _ in range(draws)]
            shares[by].append(np.mean(hits))
    lines = ["| step time takes | detected, of all draws | captures in which 80 % of draws are |", "|---|---|---|"]
    for by in INJECTED:
        mostly = np.mean([share >= ENOUGH for share in shares[by]])
        lines.append(f"| {by:.0%} more | {np.mean(shares[by]):.0%} | {mostly:.0%} |")
    least = [next((by for by in sorted(GRID) if shares[by][at] >= ENOUGH), float("inf")) for at in range(len(runs))]
    low, middle, high = np.quantile(least, [0.1, 0.5, 0.9], method="nearest")
    lines += ["", f"Smallest change detected in 80 % of draws: median {middle:.2%} (10 % {low:.2%}, 90 % {high:.2%})."]
    return lines


def histories(runs: dict[str, dict[str, Ints]], draws: int, rng: np.random.Generator) -> list[str]:
    head = "| runs before | scatter from run to run | false alarms | " + " | ".join(f"{by:.0%} more" for by in INJECTED)
    lines = [f"{head} |", "|---|---|---|" + "---|" * len(INJECTED)]
    for scatter in SCATTER:
        for before in HISTORIES:
            found = {by: [] for by in (0.0, *INJECTED)}  # type: ignore[var-annotated]
            for values in runs.values():
                for _ in range(draws):
                    medians = [
                        float(np.median(drawn(values["step_ns"], rng))) * (1 + scatter * rng.standard_normal())
                        for _ in range(before + 1)
                    ]
                    for by in found:
                        judged = trend([*medians[:-1], medians[-1] * (1 + by)], more_is_better=False)
                        found[by].append(judged is not None and judged.call == "regression")
            cells = " | ".join(f"{np.mean(found[by]):.1%}" for by in (0.0, *INJECTED))
            lines.append(f"| {before} | {scatter:.1%} | {cells} |")
    return lines


def main() -> None:
    draws = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    runs, rng = captures(), np.random.default_rng(20)
    print(f"{len(runs)} captures of {STEPS} steps, {draws} draws each.\n")
    for part in (false_alarms, detection, histories):
        print("\n".join(part(runs, draws, rng)), end="\n\n", flush=True)
    print("\n".join(repeated()))


if __name__ == "__main__":
    main()
