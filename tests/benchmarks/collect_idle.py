"""What an idle collector costs a program: the time of an optimizer step with the hook waiting, and without it.

    python tests/benchmarks/collect_idle.py [--steps 20000] [--rounds 5]

The window never comes, so all that runs is the count of steps. Rounds alternate; medians are compared. Start-up is
timed too: a Python that imports torch, with and without the hook.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

from collectors import session

PROGRAM = """
import sys, time, torch
parameter = torch.nn.Parameter(torch.zeros(4))
parameter.grad = torch.ones(4)
optimizer = torch.optim.SGD([parameter], lr=0.1)
for _ in range(1000):
    optimizer.step()
began = time.perf_counter()
for _ in range(int(sys.argv[1])):
    optimizer.step()
print((time.perf_counter() - began) / int(sys.argv[1]) * 1e9)
"""
SETTINGS = {
    "tool": "torch",
    "wrap": None,
    "ranks": None,
    "rank_variables": ["RANK"],
    "first": 10**9,
    "last": 10**9 + 1,
    "warmup": 0,
    "step_range": None,
    "shapes": False,
    "stacks": False,
    "shared": False,
}


def run(environment: dict[str, str], steps: int) -> tuple[float, float]:
    """Nanoseconds a step, and seconds the rest of the process took."""
    began = time.monotonic()
    command = [sys.executable, "-c", PROGRAM, str(steps)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    step_ns = float(ran.stdout.split()[-1])
    return step_ns, time.monotonic() - began - step_ns * steps / 1e9


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    plain = {**os.environ, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        hooked = session.hooked(plain, {**SETTINGS, "folder": folder})
        pairs = [(run(plain, arguments.steps), run(hooked, arguments.steps)) for _ in range(arguments.rounds)]
    for what, index, unit in (("step", 0, "ns"), ("start and end", 1, "s")):
        without, having = (statistics.median(pair[side][index] for pair in pairs) for side in (0, 1))
        more = having - without
        print(f"{what}: {without:.3f} {unit} without, {having:.3f} {unit} with the hook: {more:+.3f} {unit}")


if __name__ == "__main__":
    main()
