"""Runs first in every Python of a collected command, because its folder stands first in PYTHONPATH.

It may not import anything but the standard library: the command's Python need not be traceviz' own.
"""

import _signal  # built in: `signal` reads files, and could be interrupted there
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _run_the_hidden_one():
    """Run the `sitecustomize` that this one stands in front of, as Python would have."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != _HERE]
    ours = sys.modules.pop("sitecustomize", None)
    spec = importlib.util.find_spec("sitecustomize")
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)
    elif ours is not None:
        sys.modules["sitecustomize"] = ours


def _start_hook():
    settings = os.environ.get("TRACEVIZ_HOOK")
    if not settings:
        return
    spec = importlib.util.spec_from_file_location("_traceviz_hook", os.path.join(_HERE, "_traceviz_hook.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules["_traceviz_hook"] = module
    _load(spec.loader, module)
    module.start(settings)


def _load(loader, module):
    """Import it; an interrupt meanwhile ends the process as the kernel does, not with a stack trace of ours."""
    heard = _signal.getsignal(_signal.SIGINT)
    ours = heard is _signal.default_int_handler
    if ours:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    try:
        loader.exec_module(module)
    finally:
        if ours:
            _signal.signal(_signal.SIGINT, heard)


try:
    _start_hook()
except Exception as error:  # the user's program runs whatever becomes of us
    print(f"traceviz: this process is not collected ({error!r}).", file=sys.stderr)
_run_the_hidden_one()
