"""A command that is interrupted while it is still being imported ends at once: there is nothing yet to clean up.

Python's own handler would print a stack trace of the import. It is replaced only where `traceviz` is the program, and
not where it is a library of somebody else's; `traceviz.__main__` then installs the command's own.
"""

import _signal  # type: ignore[import-not-found]  # built in: `signal` reads files, and could be interrupted there
import sys


def end_at_once() -> None:
    """Let SIGINT end the process as the kernel does it, silently, where this process is the `traceviz` command."""
    if _is_command(sys.argv, sys.orig_argv) and _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


def _is_command(argv: list[str], started_as: list[str]) -> bool:
    """Whether Python runs `python -m traceviz` or a script of that name.

    >>> _is_command(["-m"], ["python", "-m", "traceviz", "info"]), _is_command(["/bin/traceviz", "info"], [])
    (True, True)
    >>> _is_command(["-m"], ["python", "-m", "train"]), _is_command(["train.py", "-m", "traceviz"], [])
    (False, False)
    """
    program = argv[0] if argv else ""
    if program == "-m":  # as it is while Python looks for the module to run
        return "traceviz" in started_as[1:] and started_as[started_as.index("traceviz") - 1] == "-m"
    return program.rpartition("/")[2] == "traceviz"
