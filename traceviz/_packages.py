"""Find out early when `analyzers` or `collectors` is not ours: both are common names of folders and packages."""

from __future__ import annotations

import importlib.util
from pathlib import Path

OWN = ("analyzers", "collectors")
MARKER = "__traceviz__"  # stands in the `__init__.py` of both


def check_packages() -> None:
    """Make sure that Python finds the packages that came with this `traceviz`, without running any.

    Raises
    ------
    ImportError : another package of the name comes first, or was installed over ours; says which, and what to do.
    """
    home = Path(__file__).resolve().parent.parent
    for name in OWN:
        own = home / name / "__init__.py"
        spec = importlib.util.find_spec(name)
        found = Path(spec.origin).resolve() if spec and spec.origin else own  # without origin: no __init__.py anywhere
        if found != own:
            raise ImportError(
                f"traceviz needs its own package '{name}' ({own.parent}), but Python finds another of that name first: "
                f"{found}. It comes from the current folder, PYTHONPATH or a project installed with 'pip install -e'. "
                f"Run from another folder, or with 'python -P' (Python 3.11+), or use the 'traceviz' command, which "
                f"doesn't look in the current folder; or install traceviz in an environment of its own."
            )
        if not own.is_file() or MARKER not in own.read_text(encoding="utf-8", errors="replace"):
            raise ImportError(
                f"traceviz is not installed whole: {own} is missing, or another distribution's that brings a package "
                f"'{name}' too and was installed into, or removed from, the same environment. Install traceviz again "
                f"(pip install --force-reinstall), in an environment of its own."
            )
