"""`traceviz workload`."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from collectors.session import Collected
    from collectors.workloads.catalog import Expected

PACKAGE_ROOT = Path(__file__).resolve().parent.parent.parent
WINDOW = 3  # steps captured; the one before lets the host get ahead of the GPU again
EPILOG = """\b
Without a name it lists workloads, variants and sizes. Examples:
  traceviz workload
  traceviz workload pipelines --variant overlap
  traceviz workload dpmp --variant hidden-sync --collect torch -o captures --check
  traceviz workload rowpar --variant s4 --size tokens=4096 --collect nsys --per-rank -o captures

\b
Exit code: the run's own; with --check 1 where traceviz does not find in the capture what it must."""


Tool = Literal["torch", "nsys"]


def workload(
    name: Annotated[
        str | None, typer.Argument(help="Which one; lists them where not given.", show_default=False)
    ] = None,
    variant: Annotated[str | None, typer.Option(metavar="NAME", help="Its variant.", show_default="its first")] = None,
    size: Annotated[
        list[str] | None, typer.Option(metavar="NAME=N", help="A size; repeatable.", show_default=False)
    ] = None,
    ranks: Annotated[int | None, typer.Option(metavar="N", min=1, help="Ranks.", show_default="one a GPU")] = None,
    steps: Annotated[int, typer.Option(metavar="N", min=1, help="Steps to time, without --collect.")] = 30,
    warmup: Annotated[int, typer.Option(metavar="N", min=4, help="Steps before them.")] = 10,
    device: Annotated[str, typer.Option(metavar="cuda|cpu", help="On a CPU only the program is tried.")] = "cuda",
    collect: Annotated[Tool | None, typer.Option(help="Capture three steps with this.", show_default=False)] = None,
    per_rank: Annotated[bool, typer.Option("--per-rank", help="With nsys: a report a rank.")] = False,
    rank0: Annotated[bool, typer.Option("--rank0", help="With nsys: a report of rank 0 alone.")] = False,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Where to put the captures.")] = Path(
        "captures"
    ),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the captures that DIR holds.")] = False,
    check: Annotated[bool, typer.Option("--check", help="See whether traceviz finds what it must.")] = False,
    results: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the times there, as JSON.", show_default=False)
    ] = None,
    turn: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Take turns with runs that name this file too.", show_default=False),
    ] = None,
) -> None:
    """Run one of the situations with real work, capture it, and check the answer.

    Prints step time (median, P90) and peak memory, and what traceviz must find in a capture.
    """
    from collectors.errors import CollectError
    from collectors.workloads import catalog

    if name is None:
        sys.stdout.write(listing())
        return
    found, chosen = catalog.find(name, variant)
    sizes = catalog.read_sizes(found, size or [], small=device == "cpu")
    expected = found.variants[chosen]
    if check and collect is None:
        raise CollectError("--check needs a capture.", hint="Give --collect torch or --collect nsys.")
    if (per_rank or rank0) and collect != "nsys":
        raise CollectError("--per-rank and --rank0 are ways to run nsys.", hint="Give --collect nsys too.")
    if per_rank and rank0:
        raise CollectError("--per-rank and --rank0 exclude each other.", hint="Give one of them.")
    if not importlib.util.find_spec("torch"):
        raise CollectError("workloads need torch, which is not here.", hint="Install it: pip install torch.")
    if not found.is_here:
        raise CollectError(f"this workload needs {found.needs}, which is not here.", hint=f"pip install {found.needs}")
    number = ranks or _gpus()
    count = str(number)
    sys.stdout.write(f"{found.about}.\nExpected: {expectation(expected.of_ranks(number))}\n")
    sys.stdout.flush()
    program = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", count]
    program += ["-m", "collectors.workloads", name, "--variant", chosen, "--device", device, "--warmup", str(warmup)]
    program += ["--steps", str(WINDOW + 2 if collect else steps)]
    program += [word for key, value in sizes.items() for word in ("--size", f"{key}={value}")]
    program += ["--results", str(results.absolute())] if results else []
    program += ["--turn", str(turn.absolute())] if turn else []
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(PACKAGE_ROOT), os.environ.get("PYTHONPATH")]))
    if collect is None:
        from collectors.processes import run

        raise typer.Exit(run(program, os.environ).exit_code)
    mode = "per-rank" if per_rank else "rank0" if rank0 else "one-report"
    end(_captured(collect, program, output, mode, warmup + 1, overwrite), expected if check else None)


def _captured(tool: Tool, program: list[str], output: Path, mode: str, first: int, overwrite: bool) -> Collected:
    from collectors import with_hook, with_nsys
    from collectors.session import Steps
    from traceviz.commands.collect import find_nsys

    steps = Steps(first, first + WINDOW, warmup=2, step_range="step")
    if tool == "torch":
        return with_hook.collect_torch(program, with_hook.TorchOptions(output, steps, overwrite))
    options = with_nsys.NsysOptions(output, steps, overwrite, nsys=find_nsys(), mode=mode)
    return with_nsys.collect(program, options)


def end(collected: Collected, expected: Expected | None) -> None:
    """End as the run did, or, where it ended well, with what the check found."""
    from traceviz.commands import collect

    if expected is None or collected.exit_code:
        collect.end(collected)
        return
    for line in collect.summary(collected):
        sys.stderr.write(f"traceviz: {line}\n")
    wrong = verify(collected.folder, expected)
    for problem in wrong:
        sys.stdout.write(f"check: NOT as expected: {problem}\n")
    if not wrong:
        sys.stdout.write("check: as expected\n")
    raise typer.Exit(1 if wrong else 0)


def verify(folder: Path, expected: Expected) -> list[str]:
    """What the commands say of a capture's steps that they must not say; empty where all is as expected."""
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    window, expected = manifest["window"]["steps"], expected.of_ranks(manifest["world_size"])
    steps = ("--steps", f"{window[0]}:{window[1]}")
    answer = ask("check-overlap", str(folder), *steps, "-a", expected.a, "-b", expected.b)
    if "verdict" not in answer:
        return [answer["error"]]
    wrong = []
    job = answer["job"]
    sys.stdout.write(f"check: {answer['verdict']}, real overlap ratio {job['real_overlap_ratio']}, {causes(answer)}\n")
    found = by_its_ratio(answer)
    if found not in expected.verdicts:
        wrong.append(f"the verdict is {found}, not {' or '.join(expected.verdicts)}")
    largest = causes(answer)
    if expected.causes and (not largest or largest[0][0] not in expected.causes):
        wrong.append(f"the largest cause is {largest[:1]}, not {' or '.join(expected.causes)}")
    ratio = job["real_overlap_ratio"]
    if expected.at_most is not None and ratio is not None and ratio > expected.at_most:
        wrong.append(f"the real overlap ratio is {ratio:.3f}, more than {expected.at_most:g}")
    order = ask("syncs", str(folder), *steps)
    if "syncs" not in order:
        return [*wrong, order["error"]]
    blocked = {
        one["range"]
        for one in order["syncs"]
        if one["range"] and not one["range"].startswith(("step ", "ProfilerStep"))
    }
    if expected.sync == "" and blocked:
        wrong.append(f"the host was blocked in {sorted(blocked)}, and must not have been")
    if expected.sync and expected.sync not in blocked:
        wrong.append(f"the host must have been blocked in {expected.sync!r}; it was in {sorted(blocked)}")
    for key, wanted in (("missing_waits", expected.missing_wait), ("unwaited_copies", expected.unwaited_copy)):
        if wanted is not None and bool(order[key]) != wanted:
            wrong.append(f"{key.replace('_', ' ')}: {len(order[key])}, {'some' if wanted else 'none'} expected")
    return wrong


def by_its_ratio(answer: dict[str, Any]) -> str:
    """The verdict, or what it would be if clocks were known better: few steps tie the ranks' clocks but loosely."""
    from analyzers.verdict.check import verdict

    ratio = answer["job"]["real_overlap_ratio"]
    return str(answer["verdict"]) if ratio is None else verdict(ratio, answer["bar"])


def causes(answer: dict[str, Any]) -> list[tuple[str, int]]:
    """Causes of what the critical rank missed, largest first, ns."""
    critical = answer["job"]["rank"]
    ranks = [rank for rank in answer["ranks"] if critical in (None, rank["rank"])]
    missed = [(one["cause"], one["ns"]) for rank in ranks for one in rank["missed"]]
    return sorted(missed, key=lambda one: -one[1])


def ask(*words: str) -> dict[str, Any]:
    """What a command of traceviz answers, as JSON; its complaint as `error` where it has no answer."""
    command = [sys.executable, "-m", "traceviz", *words, "--format", "json"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        answer: dict[str, Any] = json.loads(ran.stdout)
    except ValueError:
        return {"error": f"traceviz {words[0]} ended with {ran.returncode}: {ran.stderr.strip()[-500:]}"}
    return answer


def expectation(expected: Expected) -> str:
    """What a capture must show, in words."""
    parts = [f"{expected.a!r} against {expected.b!r} is {_answer(expected.verdicts, expected.at_most)}"]
    parts += [f"with {ranks} ranks {_answer(*answer)}" for ranks, answer in expected.with_ranks.items()]
    if expected.causes:
        parts.append(f"because of {' or '.join(expected.causes)}")
    if expected.sync:
        parts.append(f"the host is blocked in {expected.sync!r}")
    if expected.missing_wait:
        parts.append("a missing wait")
    if expected.unwaited_copy:
        parts.append("a copy to the host that nothing waits for")
    return f"{', '.join(parts)} ({expected.why})."


def _answer(verdicts: tuple[str, ...], at_most: float | None) -> str:
    bound = "" if at_most is None else f" (real overlap ratio {'0' if at_most == 0 else f'at most {at_most:g}'})"
    return " or ".join(verdicts) + bound


def listing() -> str:
    """All workloads with variants and sizes."""
    from collectors.workloads.catalog import WORKLOADS

    lines = []
    for name, one in WORKLOADS.items():
        lines.append(
            f"{name}: {one.about}.\n  sizes: {', '.join(f'{key}={value}' for key, value in one.sizes.items())}"
        )
        lines += [f"  {variant}: {expectation(expected)}" for variant, expected in one.variants.items()]
    return "\n".join(lines) + "\n"


def _gpus() -> int:
    from collectors.errors import CollectError
    from collectors.manifest import gpus

    count = len(gpus())
    if not count:
        raise CollectError("no GPU is here.", hint="Give --device cpu --ranks 2 to try the program alone.")
    return count
