"""What `show` answers: one finding, its window of time, its evidence in words, and what it is related to."""

from __future__ import annotations

from collections.abc import Mapping

from analyzers.common.notebook import card
from analyzers.common.records import Record
from analyzers.common.wording import duration


class Related(Record, frozen=True):
    """Another finding worth a look: its id, and what it is."""

    id: str
    words: str


class Piece(Record, frozen=True):
    """What counts towards a finding: a cause in a gap or an instance, a rank's part in a collective; ns.

    start_ns, end_ns : from when to when it counts, on the trace's clock.
    """

    name: str
    ns: int
    start_ns: int
    end_ns: int
    evidence: str


class Shown(Record, frozen=True):
    """One finding.

    kind : "gap", "instance", "sync" or "collective"; a, b : the pair it was looked for in, "" where none plays a part.
    rank, device : None where several have a part in it, or the capture does not say.
    start_ns, end_ns : its window, ns from the capture's start; steps : the numbers of the steps that it lies in.
    sentence : what it is. figures : ns, bytes and counts by name. pieces : what it consists of, the most first, and
    how many more there are. evidence : more in words.
    """

    id: str
    kind: str
    a: str
    b: str
    rank: int | None
    device: int | None
    start_ns: int
    end_ns: int
    steps: tuple[int, ...]
    sentence: str
    figures: Mapping[str, int]
    pieces: tuple[Piece, ...] = ()
    more_pieces: int = 0
    evidence: tuple[str, ...] = ()
    related: tuple[Related, ...] = ()

    @property
    def window(self) -> str:
        """From when to when, in words."""
        numbers = ", ".join(map(str, self.steps))
        steps = f", step{'s' if len(self.steps) > 1 else ''} {numbers}" if self.steps else ""
        return (
            f"{duration(self.start_ns)} to {duration(self.end_ns)} from the capture's start "
            f"({self.start_ns} to {self.end_ns} ns){steps}"
        )

    def __repr__(self) -> str:
        return f"<{self.id}: {self.sentence}>"

    def _repr_html_(self) -> str:
        headers = ("what", "takes", "at", "evidence")
        rows = [(one.name, duration(one.ns), duration(one.start_ns), one.evidence) for one in self.pieces]
        notes = [*self.evidence, *(f"{one.id}: {one.words}" for one in self.related)]
        return card(self.id, f"{self.sentence} {self.window}.", headers, rows, texts=("what", "evidence"), notes=notes)
