"""Which GPU of the host a rank works on, as nsys numbers them. Self-contained: it runs in the user's Python."""

from __future__ import annotations

LOCAL_RANKS = (
    *("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"),
    "SLURM_LOCALID",
)


def own_gpu(environment):
    """The GPU's index as text; None where the environment can't tell.

    Launchers set a local rank, by which programs choose a GPU; CUDA_VISIBLE_DEVICES says which one that is. One that is
    named by its UUID has no index here.

    >>> own_gpu({"LOCAL_RANK": "1"}), own_gpu({"LOCAL_RANK": "1", "CUDA_VISIBLE_DEVICES": "4,6"})
    ('1', '6')
    >>> own_gpu({"LOCAL_RANK": "1", "CUDA_VISIBLE_DEVICES": "5"}), own_gpu({"CUDA_VISIBLE_DEVICES": "GPU-ab"})
    ('5', None)
    """
    texts = [environment[name] for name in LOCAL_RANKS if environment.get(name, "").isdigit()]
    visible = [one.strip() for one in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if one.strip()]
    if len(visible) == 1:
        return visible[0] if visible[0].isdigit() else None
    if not texts:
        return None
    local = int(texts[0])
    if not visible:
        return str(local)
    return visible[local] if local < len(visible) and visible[local].isdigit() else None
