"""`python -m traceviz`, and the `traceviz` command: SIGINT ends it with 130, SIGTERM with 143, quietly."""

from __future__ import annotations

import gc
import signal
import sys
from types import FrameType

GARBAGE = 200_000  # new objects until garbage is looked for: start-up makes half a million, hardly any garbage


class Ended(BaseException):
    """The command was told to end; all that stands in a `finally` still runs."""


def main() -> None:
    """Run the command line."""
    gc.set_threshold(GARBAGE)
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, _end)
    try:
        from traceviz.cli import main as run

        run()
    except Ended as ended:
        sys.exit(128 + ended.args[0])
    finally:
        gc.freeze()  # the process ends: nothing is won by looking for garbage in all that was imported


def _end(number: int, frame: FrameType | None) -> None:
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)  # a second one must not cut off the cleaning up
    raise Ended(number)


if __name__ == "__main__":
    main()
