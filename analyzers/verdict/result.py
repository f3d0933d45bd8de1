"""What `check_overlap` answers: its figures, its first lines, and how a notebook shows it."""

from __future__ import annotations

from analyzers.common.notebook import card
from analyzers.common.wording import count_of, duration, percent, percent_span
from analyzers.verdict.figures import OverlapFigures
from analyzers.verdict.lines import Line, lines_of


class OverlapResult(OverlapFigures, frozen=True):
    """What `check_overlap` found, in figures (`OverlapFigures`) and in its first lines."""

    @property
    def lines(self) -> tuple[Line, ...]:
        """What a reviewer reads first."""
        return lines_of(self)

    def _repr_html_(self) -> str:
        headers = ("rank", "device", "A busy", "B busy", "real overlap", "real / min(A, B)", "missed", "mostly by")
        rows = [
            (
                rank.rank,
                rank.device,
                duration(rank.a.busy_ns),
                duration(rank.b.busy_ns),
                duration(rank.real_overlap_ns),
                percent(rank.real_overlap_ratio, apparent=rank.is_apparent),
                duration(rank.missed_ns),
                rank.missed[0].cause if rank.missed else "–",
            )
            for rank in self.ranks
        ]
        text = f"A = {self.a}, B = {self.b}. {self.first_sentence}"
        mood = self.mood
        lines = [one.text for one in self.lines[1:]]
        notes = [f"overlap costs: {self.cost_sentence}"] if self.cost_sentence else []
        notes += [f"claim: {self.claim.words}"] if self.claim else []
        return card(
            self.verdict,
            text,
            headers,
            rows,
            mood=mood,
            texts=("mostly by",),
            lines=lines,
            notes=notes,
            warnings=self.warnings,
        )

    def __repr__(self) -> str:
        ratio = self.job.real_overlap_ratio
        apparent = "apparent: " if self.job.apparent else ""
        figure = f"{apparent}{percent(ratio)} of what is achievable" if ratio is not None else self.reason
        if ratio is not None and self.passed is None:
            figure += f", range {percent_span(self.job.ratio_low, self.job.ratio_high)}"
        of = f"{percent(self.bar)}; {count_of(len(self.ranks), 'rank')}"
        return f"<{self.verdict}: '{self.a}' against '{self.b}', {figure}; threshold {of}>"
