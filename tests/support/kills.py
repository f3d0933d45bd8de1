"""Kills work before each of its steps in a folder, and amid writing the files it makes there."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Of a line "step 5" it forks and works until the fifth thing that Python is about to do with a path in the folder; of
# "bytes 4096" until a file is about to grow beyond that. It answers with the signal that ended it, 0 where none did.
SERVER = """
import os, resource, signal, sys
{setup}
def work():
    {work}
def kill_at(step):
    steps = [0]
    def hook(event, arguments):
        if any(isinstance(one, (str, os.PathLike)) and os.fspath(one).startswith({folder!r}) for one in arguments):
            steps[0] += 1
            if steps[0] == step:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)
def kill_beyond(size):
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it, and would go on with an OSError
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
for line in sys.stdin:
    kind, number = line.split()
    child = os.fork()
    if child == 0:
        (kill_at if kind == "step" else kill_beyond)(int(number))
        try:
            work()
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if ended > 0:
        sys.exit("the work itself failed")
    print(-ended, flush=True)
"""


def killed_everywhere(setup: str, work: str, folder: Path) -> Iterator[str]:
    """Do the work again and again, each time killed a step later, then each time amid a larger file.

    Parameters
    ----------
    setup : Python to run once, imports and the like; it starts no threads.
    work : one line of Python that changes the folder.
    folder : where its steps count.

    Yields where each of them was killed. It goes on until one came to its end.
    """
    script = SERVER.format(setup=setup, work=work, folder=str(folder))
    server = subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdin is not None and server.stdout is not None
    with server, server.stdin, server.stdout:
        steps = (f"step {step}" for step in itertools.count(1))
        sizes = (f"bytes {3**power}" for power in itertools.count())
        for kind, points in ((signal.SIGKILL, steps), (signal.SIGXFSZ, sizes)):
            for point in points:
                server.stdin.write(f"{point}\n")
                server.stdin.flush()
                ended = int(server.stdout.readline())
                if ended == 0:
                    break
                assert ended == kind, (point, ended)
                yield point
