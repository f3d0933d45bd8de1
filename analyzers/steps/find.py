"""Find the steps of a run, once its captures are one trace, and say which of them time figures are of."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from analyzers.common.errors import TracevizError
from analyzers.common.wording import ranks_in_words
from analyzers.steps.candidates import Candidate, Candidates, candidates
from analyzers.steps.choose import steps_of_run
from analyzers.trace.columns import codes
from analyzers.trace.numbered import family
from analyzers.trace.tables import Trace

MOST_NAMES = 8


def with_steps(trace: Trace, given: str | None = None, found: Candidates | None = None) -> Trace:
    """The trace of a run, before its clocks are aligned, with its steps.

    Parameters
    ----------
    given : the range by which the user wants steps, a name, # for each number.
    found : the candidates of its processes, where they were looked for before.

    Raises
    ------
    TracevizError : no range of the given name bounds a step.
    """
    found = candidates(trace, given) if found is None else found
    if given is not None and not any(found.values()):
        raise TracevizError(f"No range is called {given!r}, so it bounds no steps.", hint=_hint(trace))
    steps = steps_of_run(trace, found, given)
    if given is not None and not steps.size:
        lacking = [trace.processes[process].rank for process, some in found.items() if not some]
        where = f" {ranks_in_words(lacking)}" if lacking else " all ranks"
        raise TracevizError(f"'{given}' can't bound steps: it does not recur on{where}.", hint=_hint(trace))
    return replace(trace, steps=steps)


def of_run(parts: Sequence[tuple[int, Candidates, int]]) -> Candidates:
    """Candidates of captures as those of their run: how many processes and ns lie before each, and what it has."""
    return {
        before + process: tuple(_moved(one, shift) for one in some)
        for before, found, shift in parts
        for process, some in found.items()
    }


def _moved(one: Candidate, shift: int) -> Candidate:
    start, end = (times + shift for times in (one.start_ns, one.end_ns))
    return replace(one, start_ns=start, end_ns=end)


def _hint(trace: Trace) -> str:
    code, texts = codes(trace.ranges, "name")
    names = sorted({family(texts[one]) for one in set(code.tolist()) if not texts[one].startswith(("aten::", "nccl"))})
    listed = ", ".join(names[:MOST_NAMES])
    return f"There are {listed}{' …' if len(names) > MOST_NAMES else ''}." if names else "The captures have no ranges."
