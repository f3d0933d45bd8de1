from __future__ import annotations

import pytest

from collectors.launchers import launcher_of, rank_in


@pytest.mark.parametrize(
    ("command", "name", "variables"),
    [
        (["torchrun", "train.py"], "torchrun", ("RANK",)),
        (["/usr/bin/srun", "-n", "8", "torchrun", "train.py"], "torchrun", ("RANK",)),
        (["srun", "python", "train.py"], "srun", ("SLURM_PROCID",)),
        (["python", "-m", "torch.distributed.run", "train.py"], "torchrun", ("RANK",)),
        (["python3", "/x/bin/torchrun", "train.py"], "torchrun", ("RANK",)),
        (["timeout", "60", "torchrun", "train.py"], "torchrun", ("RANK",)),
    ],
)
def test_launchers_are_told_by_their_words(command: list[str], name: str, variables: tuple[str, ...]) -> None:
    launcher = launcher_of(command)
    assert launcher is not None
    assert (launcher.name, launcher.variables) == (name, variables)


@pytest.mark.parametrize("command", [["python", "train.py"], ["./a.out", "torchrun"], ["python", "-c", "torchrun"]])
def test_a_plain_program_has_no_launcher(command: list[str]) -> None:
    assert launcher_of(command) is None


def test_mpi_tells_ranks_by_the_variables_of_several_implementations() -> None:
    launcher = launcher_of(["mpirun", "-n", "2", "python", "x.py"])
    assert launcher is not None
    assert rank_in({"PMI_RANK": "1"}, launcher.variables) == 1
    assert rank_in({"OMPI_COMM_WORLD_RANK": "3"}, launcher.variables) == 3
    assert rank_in({"SLURM_PROCID": "2"}, launcher.variables) is None
