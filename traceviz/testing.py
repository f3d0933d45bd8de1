"""Contracts in tests: profile a step, hold a contract against its order of work, and fail with the reason.

    from traceviz.testing import check_step

    check_step(train_step, "contract.toml")  # AssertionError where it is broken or can't be told

With pytest the fixture `overlap_contract` does the same, skips where no GPU is, and shows the report's folder.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyzers.common.records import Record

if TYPE_CHECKING:
    from analyzers.contracts.result import ContractResult as ContractResult
    from analyzers.contracts.rules import Rule
    from traceviz.opening import Run

    Rules = str | Path | Mapping[str, Mapping[str, Any]]

FAILURES = "traceviz-failures"


class ContractError(AssertionError):
    """A contract that is not held: `result` has what was found, `folder` the report, None where none was written."""

    def __init__(self, message: str, result: ContractResult, folder: Path | None = None) -> None:
        super().__init__(message)
        self.result, self.folder = result, folder

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.result, self.folder)


def unavailable() -> str:
    """Why a step can't be profiled here, such as "no GPU is here"; "" where it can."""
    from collectors import steps

    return steps.unavailable()


def check(trace: Run, contract: Rules, *, report: str | Path | None = None) -> ContractResult:
    """Hold a contract against captures that are there; inconclusive is no pass.

    Parameters
    ----------
    trace : a Trace, or what `load` takes.
    contract : a TOML file, or what such a file would hold.
    report : a folder for report, picture and answer, where the contract is not held.

    Raises
    ------
    ContractError : the contract is broken, or the capture lacks what a rule needs.
    TracevizError : a capture or the contract can't be read.
    """
    from traceviz.api import check_contract

    result: ContractResult = check_contract(trace, contract)
    if result.exit_code == 0:
        return result
    if report is None:
        raise ContractError(message(result, ()), result)
    files, lacks = _report(trace, result, Path(report))
    raise ContractError(message(result, files) + lacks, result, Path(report))


def check_step(
    step: Callable[[], object],
    contract: Rules,
    *,
    steps: int = 3,
    warmup: int = 3,
    report: str | Path = FAILURES,
) -> ContractResult:
    """Profile some calls of a step and hold a contract against them.

    In a program with an initialised process group all ranks call this: their captures are gathered on the first, which
    checks, and all of them fail or pass alike.

    Parameters
    ----------
    step : called `warmup` times, and then `steps` times under the profiler, without arguments.
    contract : a TOML file, or what such a file would hold.
    report : a folder for captures, report, picture and answer, where the contract is not held.

    Raises
    ------
    ContractError : the contract is broken, or the capture lacks what a rule needs.
    TracevizError : the contract can't be read.
    RuntimeError : no torch, or no GPU, is here.
    """
    from analyzers.contracts.rules import read_contract
    from collectors import steps as profiling

    reason = unavailable()
    if reason:
        raise RuntimeError(f"a step can't be profiled: {reason}")
    read_contract(contract)  # before anything runs
    with tempfile.TemporaryDirectory(prefix="traceviz-") as folder:
        ranks = profiling.profile_steps(step, Path(folder), steps=steps, warmup=warmup)
        outcome = _Outcome.of(Path(folder), contract, Path(report)) if ranks.first else _Outcome()
        outcome = ranks.all_of(outcome)[0]
    if outcome.error is not None:
        raise outcome.error
    result: ContractResult = outcome.result
    return result


class _Outcome(Record, frozen=True):
    """What the first rank found, for all of them."""

    result: Any = None  # a ContractResult
    error: Exception | None = None

    @staticmethod
    def of(folder: Path, contract: Rules, report: Path) -> _Outcome:
        """Check captures; whatever goes wrong concerns all ranks, which wait for the answer."""
        try:
            return _Outcome(check(folder, contract))
        except ContractError as error:
            try:
                kept = _kept(folder, report)
                files, lacks = _report(kept, error.result, kept)
                again = "" if isinstance(contract, Mapping) else f"traceviz contract {kept} {contract}"
                text = message(error.result, files, again) + lacks
                return _Outcome(error=ContractError(text, error.result, kept))
            except Exception as other:  # the folder can't be written: what was found still counts
                return _Outcome(error=ContractError(f"{error}\nNo report: {other}", error.result))
        except Exception as error:
            return _Outcome(error=error)


def _kept(captures: Path, report: Path) -> Path:
    """Move captures to where a report is to be, in place of an earlier one's."""
    report.mkdir(parents=True, exist_ok=True)
    for old in (*report.glob("rank*.json.gz"), report / "manifest.json"):
        old.unlink(missing_ok=True)
    for path in captures.iterdir():
        if path.is_file() and not path.name.startswith("."):
            (report / path.name).write_bytes(path.read_bytes())
    return report


def message(result: ContractResult, files: Sequence[Path] = (), again: str = "") -> str:
    """What a test says: the outcome, the path, the remedy, and where the report is."""
    decisive = result.decisive
    lines = [f"contract {result.outcome.upper()}: {result.sentence}"]
    first = decisive.findings[0] if decisive.findings else None
    if first is not None and first.path:
        lines.append(f"Path: {' → '.join(first.path)} (rank {first.rank}, {first.where})")
    lines += [f"Remedy: {decisive.remedy}"] if decisive.remedy else []
    if decisive.reason:
        lines.append(f"This rule needs {decisive.rule.kind.needs}.")
    if files:
        lines.append(f"Report in {files[0].parent}: {', '.join(path.name for path in files)}")
    return "\n".join([*lines, f"Again: {again}"] if again else lines)


def _report(trace: Run, result: ContractResult, folder: Path) -> tuple[list[Path], str]:
    """Write the answer, and the report with its picture about the sides of the rule that decided, or say why not."""
    from traceviz.api import report
    from traceviz.output.terminal import as_json, as_text
    from traceviz.output.views import contract as view

    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / "contract.md", folder / "contract.json"]
    written[0].write_text(as_text("md", view.blocks(result)), encoding="utf-8")
    written[1].write_text(as_json(view.document(result)), encoding="utf-8")
    try:
        return [*written, *report(trace, folder, *_sides(result.decisive.rule)).files], ""
    except Exception as error:  # a picture that can't be made must not hide what was found
        return written, f"\nNo picture: {error or type(error).__name__}"


def _sides(rule: Rule) -> tuple[str, str]:
    """The pair that a picture of a rule shows."""
    return (rule.a, rule.b) if rule.b else ("comm", "compute")
