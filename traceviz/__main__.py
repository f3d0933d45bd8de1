"""`python -m traceviz`, and the `traceviz` command: SIGINT ends it with 130, SIGTERM with 143, quietly."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
from types import FrameType

GARBAGE = 200_000  # new objects until garbage is looked for: start-up makes half a million, hardly any garbage


class Ended(BaseException):
    """The command was told to end; all that stands in a `finally` still runs."""


def main() -> None:
    """Run the command line."""
    codes: list[int] = []  # the exit code, once there is one
    atexit.register(_leave, codes)  # before all others, so that it comes last
    gc.set_threshold(GARBAGE)
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, _end)
    try:
        from traceviz.cli import main as run

        run()
    except Ended as ended:
        sys.exit(128 + ended.args[0])
    except SystemExit as done:
        codes += [done.code or 0] if isinstance(done.code, int | None) else []
        raise
    finally:
        gc.freeze()  # the process ends: nothing is won by looking for garbage in all that was imported


def _leave(codes: list[int]) -> None:
    """End the process as soon as all is written: Python would first take every module apart, for 0.03 s."""
    try:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except (AttributeError, OSError, ValueError):
        return  # of which Python tells
    if codes:
        os._exit(codes[0])


def _end(number: int, frame: FrameType | None) -> None:
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)  # a second one must not cut off the cleaning up
    raise Ended(number)


if __name__ == "__main__":
    main()
