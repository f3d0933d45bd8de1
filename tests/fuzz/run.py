"""Cases of one loader: mutate, run, judge, and keep what failed."""

from __future__ import annotations

import faulthandler
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from unittest import mock

from tests.fuzz import commands, kineto, nsys, stats
from tests.fuzz.mutant import Mutation, Seed

LOADERS = {"kineto": kineto, "nsys": nsys, "nsys-stats": stats}
REAL_PROCESS = 100  # one case of so many runs as a process of its own


@dataclass
class Tally:
    """How the cases went: runs by mutation and by outcome, and the failures with the case that shows each."""

    loader: str
    inputs: int = 0
    commands: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    mutations: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        ends = ", ".join(f"{count:,} x {name}" for name, count in sorted(self.outcomes.items()))
        return (
            f"{self.loader}: {self.inputs:,} inputs, {self.commands:,} commands: {ends}; {len(self.failures)} failures"
        )


@contextmanager
def private_world(folder: Path) -> Iterator[None]:
    """Temporary files, cache and current folder of our own, and no browser."""
    for name in ("tmp", "cache", "cwd", "bin"):
        (folder / name).mkdir()
    settings = {"TMPDIR": folder / "tmp", "TRACEVIZ_CACHE": folder / "cache", "PATH": folder / "bin", "COLUMNS": "140"}
    before = Path.cwd()
    texts = {name: str(value) for name, value in settings.items()}
    with mock.patch.dict(os.environ, texts), mock.patch.object(tempfile, "tempdir", None):
        os.chdir(folder / "cwd")
        try:
            yield
        finally:
            os.chdir(before)


def fuzz(loader: str, cases: int, seed: int, *, only: int | None = None, say: bool = False) -> Tally:
    """Run so many cases. Case k of a seed is always the same one, whatever runs before it."""
    tally = Tally(loader)
    with tempfile.TemporaryDirectory(prefix="traceviz-fuzz-") as name, private_world(Path(name)):
        for case in range(cases) if only is None else [only]:
            faulthandler.dump_traceback_later(10 * commands.LIMIT, exit=True)
            rng = Random(f"{loader} {seed} {case}")
            found = _case(rng, LOADERS[loader], Path(name), tally, real=case % REAL_PROCESS == REAL_PROCESS - 1)
            for what in found:
                tally.failures.append(f"case {case}: {what}")
                if say:
                    print(f"case {case}: {what}", flush=True)
    faulthandler.cancel_dump_traceback_later()
    return tally


_unchanged: dict[tuple[str, ...], commands.Ended] = {}


def _case(rng: Random, loader: object, world: Path, tally: Tally, *, real: bool) -> Iterator[str]:
    seed: Seed = rng.choice(loader.seeds())  # type: ignore[attr-defined]
    mutation: Mutation = rng.choice(loader.MUTATIONS)  # type: ignore[attr-defined]
    place = rng.randrange(len(seed.files))
    folder, out = world / "in", world / "out"
    for each in (folder, out):
        shutil.rmtree(each, ignore_errors=True)
        each.mkdir()
    source = seed.files[place]
    target = folder / (source.name if rng.random() < 0.9 or source.suffix != ".gz" else source.stem)
    what = mutation.change(rng, source, target)
    if what is None:
        return
    tally.inputs += 1
    tally.mutations[mutation.name] += 1
    files = [str(target if k == place else one) for k, one in enumerate(seed.files)]
    pair = rng.choice(seed.pairs)
    there = _files(world)
    for words in commands.commands(rng, files, [str(one) for one in seed.files], pair, out):
        ended = (commands.in_subprocess if real else commands.in_process)(words)
        tally.commands += 1
        tally.outcomes["crash" if ended.crash else f"exit {ended.code}"] += 1
        wrong = commands.judged(words, ended)
        if not wrong and mutation.tells and words == _verdict(files, pair):
            whole = tuple(_verdict([str(one) for one in seed.files], pair))
            if whole not in _unchanged:
                _unchanged[whole] = commands.in_process(whole)
            wrong = commands.silently_changed(_unchanged[whole], ended)
        left = _files(world) - there
        if not wrong and ended.code == 2 and left:
            wrong = f"left behind: {sorted(left)}"
        if wrong:
            yield f"{source.name} {mutation.name} ({what}) {' '.join(words[:1])} {pair}: {wrong}\n{ended.crash}"


def _verdict(files: list[str], pair: tuple[str, str]) -> list[str]:
    return ["check-overlap", *files, "-a", pair[0], "-b", pair[1], "--format", "json"]


def _files(world: Path) -> set[str]:
    """All files there are; a history that `--save` makes may stay."""
    return {str(path.relative_to(world)) for path in world.rglob("*") if path.name != "runs.db"}
