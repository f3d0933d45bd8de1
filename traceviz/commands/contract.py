"""`traceviz contract`."""

from __future__ import annotations

from typing import Annotated

import typer

from traceviz.options import arguments as option
from traceviz.options.run import RunOptions, without
from traceviz.output.terminal import emit, progress

EPILOG = """\b
Examples:
  traceviz contract tests/data/workloads/dpmp.overlapped.2gpu.torch docs/contracts/dpmp.toml
  traceviz contract report.nsys-rep contract.toml --steps 1:3
  traceviz contract "captures/rank*.json.gz" contract.toml --format md

\b
A rule is its name in brackets, and one of these lines below:
may_run_beside = [A, B]: nothing orders an op of A and one of B in a step (pairs = "some": not all of them)
  within = "step": of the whole step, where A and B are ranges that occur several times in it
no_host_sync_in = NAME: the host is not blocked in this range, but by what is listed in except = [...]
wait_on = A: B's stream (by = SEL: that of others) waits for A before_first_of = B or before_last_of = B is launched
own_stream = SEL: nothing else runs on its streams
host_waits_for = SEL: a host thread waits for its copies to pinned memory before the next one
no_race_between = [A, B]: no wait is missing between them
real_overlap = [A, B]: at_least = "60%" of what is possible, on the worst rank
A, B and SEL are selectors, as for check-overlap.

\b
Exit code: 0 all rules held, 1 one is broken, 2 bad input or usage, 3 the capture lacks what a rule needs."""


@without("everything memory dask")
def contract(
    context: typer.Context,
    *,
    contract: Annotated[str, typer.Argument(metavar="CONTRACT", help="Its rules: a TOML file.", show_default=False)],
    options: RunOptions,
    output: option.OutputFormat = "text",
) -> None:
    """Is the order of the work what it has to be?

    Timings scatter, structure does not: holds rules about what may run beside what, and what waits for what, against a
    capture of a few steps on any GPU.
    """
    from analyzers.contracts.checks import check_contract
    from analyzers.contracts.rules import read_contract
    from traceviz.output.views import contract as view

    rules = read_contract(contract)
    with progress() as on_progress:
        result = check_contract(options.narrowing.of(options.loaded(on_progress)), rules)
    emit(context.params, result, view.blocks, view.document)
    raise typer.Exit(result.exit_code)
