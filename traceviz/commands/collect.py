"""`traceviz collect nsys`, `torch`, `rocprofv3` and `jax`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from traceviz.options.arguments import read_steps

if TYPE_CHECKING:
    from collectors.nsys_command import Nsys
    from collectors.session import Collected, Steps

NSYS_EPILOG = """\b
Examples:
  traceviz collect nsys -o captures -- torchrun --nproc-per-node 4 train.py --lr 0.1
  traceviz collect nsys --per-rank --steps 10:13 -o captures -- torchrun --nproc-per-node 4 train.py
  traceviz collect nsys --gpu-metrics --steps 10:13 -o captures -- torchrun --nproc-per-node 4 train.py
  traceviz collect nsys --rank0 --steps 10:13 -o captures -- srun -n 8 python train.py
  mpirun -n 4 traceviz collect nsys -o captures -- ./program

\b
Exit code: the command's own; 124 after --timeout; 3 where the command ended well and nothing was captured."""

TORCH_EPILOG = """\b
Examples:
  traceviz collect torch -o captures -- torchrun --nproc-per-node 4 train.py --lr 0.1
  traceviz collect torch --steps 10:13 --shapes -o captures -- python train.py
  traceviz collect torch --step-range "train step" --wait 20 --active 2 -o captures -- mpirun -n 4 python train.py

\b
Exit code: the command's own; 124 after --timeout; 3 where the command ended well and nothing was captured."""

ROCPROF_EPILOG = """\b
Examples:
  traceviz collect rocprofv3 -o captures -- torchrun --nproc-per-node 4 train.py --lr 0.1
  mpirun -n 4 traceviz collect rocprofv3 -o captures -- ./program

\b
Exit code: the command's own; 124 after --timeout; 3 where the command ended well and nothing was captured."""

JAX_EPILOG = """\b
Examples:
  traceviz collect jax -o captures -- python train.py
  traceviz collect jax --steps 10:13 -o captures -- mpirun -n 4 python train.py
  traceviz collect jax --steps 10:13 --step-range "train step" -o captures -- python train.py

\b
Exit code: the command's own; 124 after --timeout; 3 where the command ended well and nothing was captured."""

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Run a command and capture it.")
Command = Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="What to run.", show_default=False)]
Output = Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Where to put captures and manifest.json.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the captures that DIR holds.")]
Timeout = Annotated[
    float | None, typer.Option(metavar="SECONDS", min=0, help="Stop the command after this long.", show_default=False)
]
StepsOption = Annotated[
    str | None,
    typer.Option("--steps", metavar="A:B", help="Capture steps A up to, not including, B.", show_default=False),
]
StepRange = Annotated[
    str | None,
    typer.Option(
        "--step-range",
        metavar="NAME",
        help="A step is a record_function or NVTX range of this name, not an optimizer's step.",
        show_default=False,
    ),
]
CONTEXT = {"allow_interspersed_args": False}


class RateMayBeLeftOut(TyperCommand):
    """Takes `--gpu-metrics` without a value, too."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give it one before the options are read."""
        end = args.index("--") if "--" in args else len(args)
        filled = ["--gpu-metrics=20000" if word == "--gpu-metrics" else word for word in args[:end]]
        return super().parse_args(ctx, [*filled, *args[end:]])


@app.command("nsys", epilog=NSYS_EPILOG, context_settings=CONTEXT, cls=RateMayBeLeftOut)
def nsys(
    command: Command,
    output: Output = Path("captures"),
    one_report: Annotated[
        bool, typer.Option("--one-report", help="One report over all ranks, on one clock (the default).")
    ] = False,
    per_rank: Annotated[
        bool, typer.Option("--per-rank", help="A report a rank; clocks are aligned by the collectives.")
    ] = False,
    rank0: Annotated[bool, typer.Option("--rank0", help="A report of rank 0 alone; waiting can't be told.")] = False,
    steps: StepsOption = None,
    step_range: StepRange = None,
    trace: Annotated[str, typer.Option(metavar="LIST", help="What nsys traces.")] = "cuda,nvtx",
    graphs: Annotated[
        str, typer.Option(metavar="graph|node", help="CUDA graphs: one row each, or by kernel.")
    ] = "graph",
    nsys_path: Annotated[
        str | None,
        typer.Option("--nsys", metavar="PATH", help="The nsys to use.", show_default="$TRACEVIZ_NSYS, else found"),
    ] = None,
    memory: Annotated[
        bool, typer.Option("--memory", help="Record allocations on the GPU, so that compare can tell the peak.")
    ] = False,
    gpu_metrics: Annotated[
        str | None,
        typer.Option(
            "--gpu-metrics",
            metavar="[=HZ]",
            help="Sample GPU counters so many times a second, for traceviz counters; without =HZ 20,000 times.",
            show_default=False,
        ),
    ] = None,
    overwrite: Overwrite = False,
    timeout: Timeout = None,
) -> None:
    """Run a command under Nsight Systems.

    Writes reports and a manifest.json, which every command takes: traceviz check-overlap DIR.
    """
    from collectors import with_nsys
    from collectors.errors import CollectError
    from collectors.nsys_command import read_frequency

    if one_report + per_rank + rank0 > 1:
        raise CollectError("--one-report, --per-rank and --rank0 exclude each other.", hint="Give one of them.")
    if graphs not in ("graph", "node"):
        raise CollectError(f"--graphs can't be {graphs!r}.", hint="Give graph or node.")
    if step_range is not None and steps is None:
        raise CollectError("--step-range needs --steps.", hint="Give --steps 10:13 too.")
    options = with_nsys.NsysOptions(
        folder=output,
        nsys=find_nsys(nsys_path),
        mode="per-rank" if per_rank else "rank0" if rank0 else "one-report",
        steps=_steps(steps, step_range) if steps else None,
        trace=tuple(trace.split(",")),
        graphs=graphs,
        memory=memory,
        gpu_metrics=read_frequency(gpu_metrics) if gpu_metrics is not None else None,
        overwrite=overwrite,
        timeout=timeout,
    )
    end(with_nsys.collect(command, options))


@app.command("torch", epilog=TORCH_EPILOG, context_settings=CONTEXT)
def torch(
    command: Command,
    output: Output = Path("captures"),
    wait: Annotated[int, typer.Option(metavar="N", min=0, help="Steps to let pass before warming up.")] = 5,
    warmup: Annotated[int, typer.Option(metavar="N", min=0, help="Steps in which the profiler warms up.")] = 2,
    active: Annotated[int, typer.Option(metavar="N", min=1, help="Steps to capture.")] = 3,
    steps: StepsOption = None,
    step_range: StepRange = None,
    shapes: Annotated[bool, typer.Option("--shapes", help="Record the ops' shapes.")] = False,
    stacks: Annotated[bool, typer.Option("--stacks", help="Record Python stacks; costs much.")] = False,
    memory: Annotated[
        bool, typer.Option("--memory", help="Record allocations of tensors, so that compare can tell the peak.")
    ] = False,
    overwrite: Overwrite = False,
    timeout: Timeout = None,
) -> None:
    """Run a command with torch.profiler in every rank.

    The program needs no change: steps are told by its optimizer, or by a range with --step-range. Writes rankN.json.gz
    and a manifest.json, which every command takes: traceviz check-overlap DIR.
    """
    from collectors import with_hook
    from collectors.session import Steps

    window = (
        _steps(steps, step_range, warmup) if steps else Steps(wait + warmup, wait + warmup + active, warmup, step_range)
    )
    options = with_hook.TorchOptions(output, window, overwrite, timeout, shapes, stacks, memory)
    end(with_hook.collect_torch(command, options))


@app.command("rocprofv3", epilog=ROCPROF_EPILOG, context_settings=CONTEXT)
def rocprofv3(
    command: Command,
    output: Output = Path("captures"),
    path: Annotated[
        str | None,
        typer.Option("--rocprofv3", metavar="PATH", help="The rocprofv3 to use.", show_default="found in ROCm"),
    ] = None,
    overwrite: Overwrite = False,
    timeout: Timeout = None,
) -> None:
    """Run a command under AMD's rocprofv3, every rank. Not tried on an AMD GPU.

    Writes rankN_results.json of the whole run and a manifest.json, which every command takes: traceviz check-overlap
    DIR.
    """
    from collectors import with_rocprof

    found = with_rocprof.find_rocprofv3(path)
    options = with_rocprof.RocprofOptions(output, None, overwrite, timeout, rocprofv3=found)
    end(with_rocprof.collect(command, options))


@app.command("jax", epilog=JAX_EPILOG, context_settings=CONTEXT)
def jax(
    command: Command,
    output: Output = Path("captures"),
    steps: StepsOption = None,
    step_range: Annotated[
        str | None,
        typer.Option(
            "--step-range",
            metavar="NAME",
            help="A step is an annotation of this name, not a StepTraceAnnotation of any.",
            show_default=False,
        ),
    ] = None,
    overwrite: Overwrite = False,
    timeout: Timeout = None,
) -> None:
    """Run a command with jax.profiler in every process.

    The program needs no change: without --steps all of it is captured, from when it has a backend. Writes
    rankN.trace.json.gz, the same whole as rankN.xplane.pb, and a manifest.json, which every command takes: traceviz
    check-overlap DIR.
    """
    from collectors import with_hook
    from collectors.errors import CollectError
    from collectors.session import Options

    if step_range is not None and steps is None:
        raise CollectError("--step-range needs --steps.", hint="Give --steps 10:13 too.")
    window = _steps(steps, step_range or "") if steps else None
    end(with_hook.collect_jax(command, Options(output, window, overwrite, timeout)))


def find_nsys(chosen: str | None = None) -> Nsys:
    """The nsys to capture with: the chosen one, $TRACEVIZ_NSYS, `PATH`'s, or the newest of the usual folders.

    Raises
    ------
    CollectError : none is here.
    TracevizError : the chosen one does not run.
    """
    from analyzers.readers.nsys import export
    from collectors.errors import CollectError
    from collectors.nsys_command import Nsys, options_of

    for found in export.find_nsys(chosen):
        if sys.stderr.isatty():
            sys.stderr.write(f"traceviz: nsys {export.text(found.version)} at {found.path}.\n")
        return Nsys(found.path, found.version, options_of(found.path))
    hint = f"Install Nsight Systems, or name it with --nsys or ${export.NSYS_VARIABLE}; or collect torch."
    raise CollectError("nsys is not here.", hint=hint)


def _steps(text: str, step_range: str | None, warmup: int = 2) -> Steps:
    from collectors.session import Steps

    return Steps(*read_steps(text), warmup, step_range)


def end(collected: Collected) -> None:
    """Say what is usable, and end with the command's exit code; 128 and the signal's number where one ended it."""
    for line in summary(collected):
        sys.stderr.write(f"traceviz: {line}\n")
    raise typer.Exit(collected.exit_code)


def summary(collected: Collected) -> list[str]:
    """What was captured and what came in its way, a line each."""
    from traceviz.output.document import plain

    outcome = collected.outcome
    lines = [plain(note) for note in collected.notes]
    if outcome.stopped:
        lines.append(f"stopped by {outcome.stopped}.")
    if outcome.killed:
        lines.append(f"processes that were left and had to be stopped: {outcome.killed}.")
    names = ", ".join(capture.path for capture in collected.captures)
    where = plain(str(collected.folder))
    lines.append(f"usable in {where}: {names}. Next: traceviz info {where}" if names else f"nothing usable in {where}.")
    return lines
