"""What the tests of collectors share: traceviz as a command, programs to run under it, and who is left running."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from collectors.inject._traceviz_supervise import descendants
from tests.support.endings import answered

HOME = Path(__file__).parents[2]
TRAIN = """
import os, sys, time
import torch, torch.distributed as dist

def say(line):
    os.write(1, (line + "\\n").encode())  # at once: lines of several ranks must not mix

ranks = "RANK" in os.environ
if ranks:
    dist.init_process_group("gloo")
rank = int(os.environ.get("RANK", 0))
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
say(f"ARGUMENTS {sys.argv[1:]}")
say(f"PATH {os.environ.get('PYTHONPATH', '')}")
for index in range(int(os.environ.get("STEPS", 12))):
    with torch.profiler.record_function(f"step {index}"):
        model(torch.randn(2, 8)).sum().backward()
        if ranks:
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
        optimizer.step()
    time.sleep(float(os.environ.get("PAUSE", 0)))
    say(f"STEP {index}")
    if rank == 1 and str(index) == os.environ.get("DIES_AFTER"):
        os.kill(os.getpid(), 9)
sys.exit(int(os.environ.get("CODE", 0)))
"""

# What nsys says when its agent is gone, and when it then takes up the report without it.
NSYS_BROKE_DOWN = ("Connection to Agent lost", "End of file", "Failed to create '", "Local Endpoint is not available")


def environment(**more: str) -> dict[str, str]:
    """The tests' own environment, in which traceviz is found from any folder."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("TRACEVIZ_HOOK", "TRACEVIZ_WRAPPED"))
    }
    return {**kept, "PYTHONPATH": str(HOME), "OMP_NUM_THREADS": "1", **more}


def traceviz(*words: str, cwd: Path, timeout: float = 120, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command of traceviz to its end."""
    command = [sys.executable, "-m", "traceviz", *words]
    ran = subprocess.run(
        command, cwd=cwd, env=environment(**more), capture_output=True, text=True, timeout=timeout, check=False
    )
    return answered(ran)


def under_nsys(*words: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run `traceviz collect nsys -o FOLDER`, again where nsys broke down: its agent may crash, or hang.

    The collector itself has to end a run that hangs.
    """
    own_limit = "--timeout" in words
    for _ in range(4):
        limit = () if own_limit else ("--timeout", "60")
        ran = traceviz("collect", "nsys", *limit, *words, cwd=cwd, timeout=200, **more)
        hung = ran.returncode == 124 and not own_limit
        if not hung and (ran.returncode == 0 or not any(line in ran.stderr for line in NSYS_BROKE_DOWN)):
            break
        shutil.rmtree(cwd / words[words.index("-o") + 1], ignore_errors=True)
    return ran


def torchrun(script: Path, *words: str, ranks: int = 2) -> list[str]:
    """The command that runs a script in ranks."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    return [*launcher, str(script), *words]


def manifest(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    return content


def running(mark: str) -> list[str]:
    """Command lines of living processes that contain a text."""
    found = []
    for pid in descendants(1):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if mark in line and pid != os.getpid():
            found.append(line)
    return found
