"""The answer of `contract`: as a document and as JSON."""

from __future__ import annotations

from analyzers.contracts.result import HELD, INCONCLUSIVE, MOOD_OF_RULE, ContractResult, RuleResult
from traceviz.output.document import Block, Bullets, Headline, Paragraph, Table
from traceviz.output.records import Json, picked
from traceviz.output.views.caveats import caveats

MOST_FINDINGS = 8


def document(result: ContractResult) -> Json:
    """`traceviz.contract/1`: what became of each rule of a contract, in its order; instants are whole ns.

    `outcome` is "held", "broken" or "inconclusive", of a rule and of all of them. `checked` and `failed` count what
    `counted` says, over all ranks. A finding's `path` leads from what comes first to what has to wait for it; `exact`
    is false where a step of it is inferred.
    """
    return {
        "schema": "traceviz.contract/1",
        **picked(result, "outcome sentence contract=contract.path ranks rules warnings"),
    }


def blocks(result: ContractResult) -> list[Block]:
    """The outcome, what decides it with its path and a remedy, every rule, and what else is not held."""
    decisive = result.decisive
    shown: list[Block] = [Headline(result.outcome.upper(), result.sentence, MOOD_OF_RULE[result.outcome])]
    if decisive.outcome != HELD:
        shown += _about(decisive)
    if len(result.rules) > 1:
        headers = ("rule", "outcome", "found")
        rows = [(one.name, one.outcome, one.sentence) for one in result.rules]
        shown.append(Table(headers, rows, "Rules"))
    others = [one for one in result.rules if one is not decisive and one.outcome != HELD]
    shown += [Bullets(one.name, _details(one)) for one in others if _details(one)]
    return shown + caveats(result.warnings)


def _about(rule: RuleResult) -> list[Block]:
    shown: list[Block] = []
    first = rule.findings[0] if rule.findings else None
    if first is not None and first.path:
        shown.append(Paragraph(_path(rule), "Path"))
    more = rule.findings[1:MOST_FINDINGS]
    texts = dict.fromkeys(one.text for one in more if first is not None and one.text != first.text)
    if texts:
        shown.append(Bullets("Also", list(texts)))
    if rule.remedy:
        shown.append(Paragraph(rule.remedy, "Remedy"))
    if rule.outcome == INCONCLUSIVE:
        shown.append(Paragraph(f"{rule.rule.kind.needs}.", "This rule needs"))
    return shown


def _details(rule: RuleResult) -> list[str]:
    """What there is to say of a rule beside its sentence."""
    details = [f"Path: {_path(rule)}"] if rule.findings and rule.findings[0].path else []
    return details + ([f"Remedy: {rule.remedy}"] if rule.remedy else [])


def _path(rule: RuleResult) -> str:
    """The path of the first finding, and where that is."""
    first = rule.findings[0]
    return f"{' → '.join(first.path)} (rank {first.rank}, {first.where})."
