"""What holding a contract against a capture found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analyzers.common.errors import TraceWarning
from analyzers.common.notebook import card
from analyzers.common.records import Record
from analyzers.common.wording import ranks_in_words
from analyzers.contracts.rules import Contract, Rule

if TYPE_CHECKING:
    import pandas as pd

HELD, BROKEN, INCONCLUSIVE = "held", "broken", "inconclusive"
EXIT_CODES = {HELD: 0, BROKEN: 1, INCONCLUSIVE: 3}
MOOD_OF_RULE = {HELD: "good", BROKEN: "bad", INCONCLUSIVE: "middle"}

SINGULAR = {"instances": "instance", "occurrences": "occurrence", "streams": "stream", "copies": "copy"}


class RuleFinding(Record, frozen=True):
    """One place where a rule is broken, or where that can't be told.

    `where` is the step or occurrence; `at_ns` when the host asked for what breaks it; `path` the steps from what runs
    first to what can't run beside it, "" where the rule is not about that; `exact` False where the path rests on a link
    that the capture does not state.
    """

    rank: int
    where: str
    at_ns: int
    text: str
    path: tuple[str, ...] = ()
    exact: bool = True


class RuleResult(Record, frozen=True):
    """What became of a rule.

    `checked` counts what it was held against (steps of all ranks; occurrences of a range; streams), `failed` those of
    them where it is not held, `cut_off` those that were left out because the capture ended in them;
    `findings` has one of each rank and kind at most, `reason` says why nothing can be told, "" where it can; `remedy`
    what to do.
    """

    rule: Rule
    outcome: str
    checked: int = 0
    failed: int = 0
    findings: tuple[RuleFinding, ...] = ()
    reason: str = ""
    remedy: str = ""
    cut_off: int = 0

    @property
    def name(self) -> str:
        """The rule's name."""
        return self.rule.name

    @property
    def sentence(self) -> str:
        """What was found, in a sentence."""
        counted = self.rule.kind.counted if self.checked != 1 else SINGULAR[self.rule.kind.counted]
        if self.reason:
            return f"{self.reason}."
        if self.outcome == HELD:
            cut = f", without {self.cut_off} in which the capture ends" if self.cut_off else ""
            return f"{self.rule.asked}: in {'all ' * (self.checked > 1)}{self.checked} {counted}{cut}."
        first = self.findings[0]
        many = f" ({self.ranks}; {self.failed} of {self.checked} {counted})" if self.failed else ""
        return f"{first.text}{many}."

    @property
    def ranks(self) -> str:
        """The ranks of its findings, in words."""
        return ranks_in_words(one.rank for one in self.findings)


class ContractResult(Record, frozen=True):
    """What became of each rule of a contract, in the contract's order."""

    contract: Contract
    rules: tuple[RuleResult, ...]
    ranks: tuple[int, ...]
    warnings: tuple[TraceWarning, ...] = ()

    @property
    def outcome(self) -> str:
        """ "broken" where any rule is, else "inconclusive" where any is, else "held"."""
        outcomes = {one.outcome for one in self.rules}
        return next(each for each in (BROKEN, INCONCLUSIVE, HELD) if each in outcomes)

    @property
    def exit_code(self) -> int:
        """What a command ends with: 0 held, 1 broken, 3 inconclusive."""
        return EXIT_CODES[self.outcome]

    @property
    def decisive(self) -> RuleResult:
        """The first rule that decides the outcome."""
        return next(one for one in self.rules if one.outcome == self.outcome)

    @property
    def sentence(self) -> str:
        """The outcome in a sentence."""
        many, decisive = len(self.rules), self.decisive
        if self.outcome == HELD:
            return f"{f'all {many} rules' if many > 1 else repr(decisive.name)} on {ranks_in_words(self.ranks)}."
        others = sum(one.outcome == self.outcome for one in self.rules) - 1
        more = f" {others} more of {many} rules {'are' if others > 1 else 'is'} {self.outcome}." if others else ""
        return f"{decisive.name!r}: {decisive.sentence}{more}"

    def to_frame(self) -> pd.DataFrame:
        """One row a rule, by name: kind, outcome, checked, failed, sentence."""
        import pandas as pd

        rows = [(one.name, one.rule.kind.key, one.outcome, one.checked, one.failed, one.sentence) for one in self.rules]
        return pd.DataFrame(rows, columns=["name", "kind", "outcome", "checked", "failed", "sentence"]).set_index(
            "name"
        )

    def _repr_html_(self) -> str:
        rows = [(one.name, one.outcome, one.sentence) for one in self.rules]
        mood, texts = MOOD_OF_RULE[self.outcome], ("rule", "outcome", "found")
        return card(self.outcome, self.sentence, texts, rows, mood=mood, texts=texts, warnings=self.warnings)

    def __repr__(self) -> str:
        return f"<contract {self.outcome}: {self.sentence}>"
