"""`python -m traceviz`, and the `traceviz` command: ends quietly at a signal, from its first moment on."""

from __future__ import annotations

import signal
import sys
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM)
AGAIN = 0.02  # seconds after which a signal is heard again that came where Python drops exceptions


class Ended(BaseException):
    """The command was told to end; all that stands in a `finally` still runs."""


def main() -> None:
    """Run the command line; SIGINT ends it with 130 and SIGTERM with 143, whatever it is doing."""
    try:
        heard = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]  # as under nohup
        for number in heard:  # until all is imported there is nothing to clean up: end as the kernel does it
            signal.signal(number, signal.SIG_DFL)
        from traceviz.cli import main as run

        sys.unraisablehook = _hear_again
        for number in heard:
            signal.signal(number, _end)
        try:
            run()
        finally:
            _hear_no_more()
    except BaseException as error:
        ended = _ended_by(error)
        if ended is None:
            raise
        sys.exit(128 + ended.args[0])


def _ended_by(error: BaseException | None) -> Ended | None:
    """What told the command to end, where an error comes of that: Python 3.11 wraps what `__set_name__` raises."""
    while error is not None and not isinstance(error, Ended):
        error = error.__cause__ or error.__context__
    return error


def _end(number: int, frame: FrameType | None) -> None:
    for each in ENDING:
        signal.signal(each, signal.SIG_IGN)  # a second one must not cut off the cleaning up
    raise Ended(number)


def _hear_again(dropped: sys.UnraisableHookArgs, /) -> None:
    """Python drops what is raised in a finalizer or a callback of its own, as those of imports: raise it once more."""
    ended = dropped.exc_value
    if not isinstance(ended, Ended):
        sys.__unraisablehook__(dropped)
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise Ended(*ended.args)

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, AGAIN)


def _hear_no_more() -> None:
    """All is cleaned up, and Python takes its handlers away as it ends: from here on the kernel ends the process."""
    for number in ENDING:
        if signal.getsignal(number) is _end:
            signal.signal(number, signal.SIG_DFL)
    if signal.setitimer(signal.ITIMER_REAL, 0)[0]:  # one that was to be heard again, and must not ring at nobody
        signal.raise_signal(signal.SIGALRM)


if __name__ == "__main__":
    main()
