"""Mutations of pasted `nsys stats` output, on its lines and on its bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

from tests.fuzz.mutant import HOSTILE_INTS, HOSTILE_TEXTS, Change, Seed, mutations

DATA = Path(__file__).parents[1] / "data" / "nsys-stats"
Edit = Callable[[Random, list[str]], "list[str]"]


def seeds() -> list[Seed]:
    """Every paste there is."""
    return [Seed((path,), (("comm", "compute"),)) for path in sorted(DATA.glob("*.[tc][xs][tv]"))]


def drop(rng: Random, lines: list[str]) -> list[str]:
    """Lines are gone."""
    return [line for line in lines if rng.random() < 0.8]


def duplicate(rng: Random, lines: list[str]) -> list[str]:
    """Lines are there twice."""
    return [line for line in lines for _ in range(rng.choice((1, 1, 2)))]


def reorder(rng: Random, lines: list[str]) -> list[str]:
    """Lines in any order."""
    return rng.sample(lines, len(lines))


def words(rng: Random, lines: list[str]) -> list[str]:
    """A word is another one."""
    texts = [text for text in HOSTILE_TEXTS if "\n" not in text]
    odd = [*map(str, HOSTILE_INTS), *texts, "1e300", "9" * 5000, "-", "inf"]
    changed = list(lines)
    for _ in range(rng.randrange(1, 6)):
        place = rng.randrange(len(changed))
        comma = "," if "," in changed[place] and rng.random() < 0.5 else None
        parts = changed[place].split(comma)
        if parts:
            parts[rng.randrange(len(parts))] = rng.choice(odd)
            changed[place] = (comma or " ").join(parts)
    return changed


def without_word(rng: Random, lines: list[str]) -> list[str]:
    """A column is missing."""
    place = rng.randrange(20)
    return [" ".join(part for k, part in enumerate(line.split()) if k != place) for line in lines]


def prose(rng: Random, lines: list[str]) -> list[str]:
    """A review's words around and between the rows."""
    return [
        text for line in lines for text in ((line, "> and here it says 5 ms (3)") if rng.random() < 0.3 else (line,))
    ]


EDITS: tuple[Edit, ...] = (drop, duplicate, reorder, words, without_word, prose)


def _edited(edit: Edit) -> Change:
    def change_file(rng: Random, source: Path, target: Path) -> str:
        changed = edit(rng, source.read_text().splitlines())
        target.write_text("\n".join(changed) + "\n", encoding="utf-8", errors="surrogatepass")
        return edit.__name__

    return change_file


MUTATIONS = mutations({edit.__name__: (edit, edit is reorder) for edit in EDITS}, _edited)
