"""Runs first in every Python of a collected command, because its folder stands first in PYTHONPATH.

It may not import anything but the standard library: the command's Python need not be traceviz' own.
"""

import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _start_hook():
    settings = os.environ.get("TRACEVIZ_HOOK")
    if not settings:
        return
    spec = importlib.util.spec_from_file_location("_traceviz_hook", os.path.join(_HERE, "_traceviz_hook.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules["_traceviz_hook"] = module
    spec.loader.exec_module(module)
    module.start(settings)


def _hidden_one():
    """The `sitecustomize` that this one stands in front of, ready to run; None where there is none."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != _HERE]
    ours = sys.modules.pop("sitecustomize", None)
    spec = importlib.util.find_spec("sitecustomize")
    if spec is not None and spec.loader is not None:
        sys.modules["sitecustomize"] = importlib.util.module_from_spec(spec)
        return sys.modules["sitecustomize"]
    if ours is not None:
        sys.modules["sitecustomize"] = ours
    return None


try:
    _start_hook()
except Exception as error:  # the user's program runs whatever becomes of us
    print(f"traceviz: this process is not collected ({error!r}).", file=sys.stderr)
_hidden = _hidden_one()
if _hidden is not None:
    _hidden.__spec__.loader.exec_module(_hidden)
