"""The manifest beside captures: what was run, where, with what, and which file is whose."""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

SCHEMA = "traceviz.manifest/1"
MANIFEST_NAME = "manifest.json"
SECONDS = 20
# Settings that order a run's work more strictly than its streams do; each rank states its own, as it captures.
SETTINGS = (
    *("CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_LAUNCH_BLOCKING"),
    *("GPU_MAX_HW_QUEUES", "HIP_LAUNCH_BLOCKING", "AMD_SERIALIZE_KERNEL", "AMD_SERIALIZE_COPY"),
    *("TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT", "NCCL_LAUNCH_ORDER_IMPLICIT"),
    *("UR_L0_SERIALIZE", "UR_L0_USE_IMMEDIATE_COMMANDLISTS", "SYCL_PI_LEVEL_ZERO_USE_IMMEDIATE_COMMANDLISTS"),
    "XLA_FLAGS",
)
# What changes how a run behaves on the GPU. Nothing else of the environment is ever recorded.
KEPT = re.compile(
    rf"({'|'.join(SETTINGS)}|CUDA_VISIBLE_DEVICES|CUDA_MODULE_LOADING|CUDA_DEVICE_ORDER"
    r"|HIP_VISIBLE_DEVICES|ROCR_VISIBLE_DEVICES|ZE_AFFINITY_MASK"
    r"|NCCL_(ALGO|PROTO|NVLS_ENABLE|MIN_CTAS|MAX_CTAS|MIN_NCHANNELS|MAX_NCHANNELS|P2P_DISABLE|P2P_LEVEL|SHM_DISABLE"
    r"|IB_DISABLE|NTHREADS|BUFFSIZE|CUMEM_ENABLE|GRAPH_REGISTER|LAUNCH_MODE)"
    r"|TORCH_NCCL_(AVOID_RECORD_STREAMS|ASYNC_ERROR_HANDLING|ENABLE_TIMING|HIGH_PRIORITY)"
    r"|PYTORCH_CUDA_ALLOC_CONF|PYTORCH_ALLOC_CONF|TORCH_CUDA_ARCH_LIST|OMP_NUM_THREADS"
    r"|WORLD_SIZE|LOCAL_WORLD_SIZE|SLURM_NTASKS|SLURM_NNODES)"
)
# Names of options and variables whose values are secrets; a count of tokens, a tokenizer or an author is none.
_SECRET = re.compile(
    r"secret|passw|passphrase|credential|bearer|auth(?!or(s|ed)?\b)|(api|access|private)[-_]?key|token(?!iz)",
    re.IGNORECASE,
)
_MAY_COUNT = re.compile(r"tokens|token[-_]", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?[\d_]*\.?\d+(e[-+]?\d+)?[kKmMbBgG]?|true|false|none", re.IGNORECASE)
_LOOKS_SECRET = re.compile(
    r"(hf_|ghp_|gho_|glpat-|github_pat_|sk-|xox[a-z]-|AKIA|AIza|eyJ)[A-Za-z0-9_./+-]{8,}|://[^/@\s]+:[^/@\s]+@"
    r"|\b[Bb]earer\s+\S+"
)
HIDDEN = "***"


@dataclass(frozen=True)
class CaptureEntry:
    """One file; `rank` is None where it holds several ranks, or where nothing says which it is."""

    path: str
    rank: int | None
    steps: list[int] | None = None
    note: str = ""


@dataclass
class Manifest:
    """What stands in manifest.json beside its schema."""

    tool: str
    mode: str
    command: list[str]
    captures: list[CaptureEntry] = field(default_factory=list)
    world_size: int | None = None
    window: dict[str, Any] = field(default_factory=dict)
    start_utc: str = ""
    exit_code: int | None = None
    host: dict[str, Any] = field(default_factory=dict)
    gpus: list[dict[str, str]] = field(default_factory=list)
    topology: str = ""
    versions: dict[str, str | None] = field(default_factory=dict)
    git: dict[str, Any] | None = None
    environment: dict[str, str] = field(default_factory=dict)
    ranks: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def write(folder: Path, manifest: Manifest) -> Path:
    """Write the manifest, joined with one that another rank's collector of the same run wrote before.

    Ranks that collect for themselves write at the same time; a lock lets each add its captures.
    """
    path = folder / MANIFEST_NAME
    with (folder / ".manifest.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        content = {"schema": SCHEMA, **asdict(manifest)}
        if path.exists() and manifest.mode == "own-rank":
            content = _joined(json.loads(path.read_text(encoding="utf-8")), content)
        partial = folder / f".{MANIFEST_NAME}.partial"
        partial.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        partial.replace(path)
    return path


def _joined(earlier: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    our_paths = {one["path"] for one in ours["captures"]}
    captures = [one for one in earlier["captures"] if one["path"] not in our_paths] + ours["captures"]
    captures.sort(key=lambda one: (one["rank"] is None, one["rank"], one["path"]))
    ranks = [one for one in earlier["ranks"] if one.get("rank") not in {own.get("rank") for own in ours["ranks"]}]
    notes = list(dict.fromkeys(earlier["notes"] + ours["notes"]))
    return {**earlier, "captures": captures, "ranks": ranks + ours["ranks"], "notes": notes}


def now() -> str:
    """The time, UTC, as the manifest writes it."""
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")


def safe_command(command: Sequence[str]) -> list[str]:
    """A command without what looks like a secret in it.

    >>> safe_command(["train.py", "--hf-token", "hf_abcdefghijk", "--api-key=xyz", "--tokens", "4096"])
    ['train.py', '--hf-token', '***', '--api-key=***', '--tokens', '4096']
    """
    shown, secret = [], ""
    for argument in command:
        word = _LOOKS_SECRET.sub(HIDDEN, argument)
        name, equals, value = word.partition("=")
        option = bool(_SECRET.search(name)) and (name.startswith("-") or bool(equals))
        if secret and not word.startswith("-"):
            shown.append(word if _is_count(secret, word) else HIDDEN)
        elif len(parts := re.split(r"(\s+)", word)) > 1:  # a command within: sh -c "HF_TOKEN=x python train.py"
            parts[::2] = safe_command(parts[::2])
            shown.append("".join(parts))
        elif option and equals:
            shown.append(word if _is_count(name, value) else f"{name}={HIDDEN}")
        else:
            shown.append(word)
        secret = name if option and not equals else ""
    return shown


def _is_count(name: str, value: str) -> bool:
    """Whether an option that may count tokens does: --tokens 4096, --token-dropout=0.1."""
    others = _MAY_COUNT.sub("", name)
    return bool(_MAY_COUNT.search(name) and not _SECRET.search(others) and _NUMBER.fullmatch(value))


def safe_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that are known to matter and to hold no secret.

    >>> safe_environment({"NCCL_ALGO": "Ring", "AWS_SECRET_ACCESS_KEY": "x", "NCCL_ALGO_TOKEN": "y"})
    {'NCCL_ALGO': 'Ring'}
    """
    found = {name: value for name, value in sorted(environment.items()) if KEPT.fullmatch(name)}
    if "XLA_FLAGS" in found:  # switches alone: others name folders
        found["XLA_FLAGS"] = " ".join(re.findall(r"--xla_gpu_\w+=(?:true|false|\d+)\b", found["XLA_FLAGS"]))
    return found


def host() -> dict[str, Any]:
    """The machine: name, system, processors."""
    system = os.uname()
    return {"name": system.nodename, "system": f"{system.sysname} {system.release}", "cpus": os.cpu_count()}


def gpus() -> list[dict[str, str]]:
    """The GPUs that nvidia-smi lists; none where it is not there."""
    fields = "index,name,driver_version,memory.total,pci.bus_id"
    output = output_of(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"])
    names = ("index", "name", "driver", "memory", "bus")
    rows = [[cell.strip() for cell in line.split(",")] for line in output.splitlines()]
    return [dict(zip(names, row, strict=True)) for row in rows if len(row) == len(names)]


def topology() -> str:
    """How the GPUs are linked, as `nvidia-smi topo -m` draws it; "" where it doesn't."""
    output = re.sub(r"\x1b\[[0-9;]*m", "", output_of(["nvidia-smi", "topo", "-m"]))
    return output.partition("Legend:")[0].rstrip()


def git(folder: Path) -> dict[str, Any] | None:
    """Commit of the checkout that the command runs in, and whether it has changes; None outside one."""
    commit = output_of(["git", "-C", str(folder), "rev-parse", "HEAD"]).strip()
    if not commit:
        return None
    return {"commit": commit, "dirty": bool(output_of(["git", "-C", str(folder), "status", "--porcelain"]).strip())}


def output_of(command: list[str], seconds: float = SECONDS) -> str:
    """What a command prints; "" where it fails, or takes longer."""
    try:
        ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ran.stdout.decode(errors="replace") if ran.returncode == 0 else ""
