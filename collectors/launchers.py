"""What starts the ranks of a command, and by which environment variables a rank knows itself."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

TORCHRUN = ("RANK",)
MPI = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK")
SLURM = ("SLURM_PROCID",)
_MODULES = ("torch.distributed.run", "torch.distributed.launch", "torch.distributed.elastic")
_PROGRAMS = {  # those that start ranks in Python by RANK come first: `srun torchrun` is torchrun's run
    "torchrun": TORCHRUN,
    "accelerate": TORCHRUN,
    "deepspeed": TORCHRUN,
    "mpirun": MPI,
    "mpiexec": MPI,
    "orterun": MPI,
    "horovodrun": MPI,
    "srun": SLURM,
}
_SHELLS = ("sh", "bash", "zsh", "dash", "env", "make", "uv", "poetry", "conda", "numactl", "timeout", "nice")


@dataclass(frozen=True)
class Launcher:
    """What starts ranks; `variables` hold a rank's number, the first that is set counts."""

    name: str
    variables: tuple[str, ...]


def launcher_of(command: Sequence[str]) -> Launcher | None:
    """The launcher that a command starts its ranks with; None where it is one process without.

    >>> launcher_of(["srun", "-n", "8", "torchrun", "train.py"]).name
    'torchrun'
    >>> launcher_of(["python3", "-m", "torch.distributed.run", "train.py"]).variables
    ('RANK',)
    >>> launcher_of(["python3", "train.py", "--backend", "mpirun"]) is None
    True
    """
    words = [PurePath(word).name for word in command]
    if any(word in _MODULES and words[index] == "-m" for index, word in enumerate(command[1:])):
        return Launcher("torchrun", TORCHRUN)
    first = words[0] if words else ""
    if first.startswith(("python", "pypy")):  # `python /opt/bin/torchrun` too
        return _known(words[1:2])
    if first not in _PROGRAMS and first not in _SHELLS:
        return None
    return _known(words) or Launcher(first, (*TORCHRUN, *MPI))


def starts_elsewhere(command: Sequence[str]) -> bool:
    """Whether ranks are started by a daemon, not by the command.

    >>> starts_elsewhere(["srun", "-n", "8", "torchrun", "train.py"]), starts_elsewhere(["python", "train.py", "srun"])
    (True, False)
    """
    words = [PurePath(word).name for word in command]
    return "srun" in (words if words[0] in _SHELLS else words[:1])


def rank_in(environment: Mapping[str, str], variables: Sequence[str] = (*TORCHRUN, *MPI, *SLURM)) -> int | None:
    """The rank an environment states; None where none is there.

    >>> rank_in({"RANK": "3", "SLURM_PROCID": "0"}), rank_in({"RANK": "x"}), rank_in({})
    (3, None, None)
    """
    for name in variables:
        if environment.get(name, "").isdecimal():
            return int(environment[name])
    return None


def own_rank() -> int | None:
    """The rank of this very process: where the collector itself was started once a rank."""
    step = ("SLURM_PROCID",) if "SLURM_STEP_ID" in os.environ and os.environ.get("SLURM_NTASKS") != "1" else ()
    return rank_in(os.environ, (*TORCHRUN, *MPI, *step))


def _known(words: Sequence[str]) -> Launcher | None:
    return next((Launcher(name, variables) for name, variables in _PROGRAMS.items() if name in words), None)
