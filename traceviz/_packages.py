"""Find out early when another `analyzers` or `collectors` stands in front of ours: both are common folder names."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

OWN = ("analyzers", "collectors")


def check_packages() -> None:
    """Make sure that the packages installed beside `traceviz` are the ones Python finds, without running any.

    Raises
    ------
    ImportError : another package of the name comes first; says which, and what to do.
    """
    home = Path(__file__).resolve().parent.parent
    for name in OWN:
        found = _location(name)
        if found is None:
            raise ImportError(
                f"traceviz is not installed whole: its package '{name}' is missing from {home}. Reinstall it."
            )
        if found != home / name:
            raise ImportError(
                f"traceviz needs its own package '{name}' ({home / name}), but Python finds another of that name "
                f"first: {found}. It comes from the current folder or PYTHONPATH. Run from another folder, or with "
                f"'python -P' (Python 3.11+), or use the 'traceviz' command, which doesn't look in the current folder."
            )


def _location(name: str) -> Path | None:
    module = sys.modules.get(name)
    if module is not None and getattr(module, "__file__", None):
        return Path(str(module.__file__)).resolve().parent
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    places = [spec.origin] if spec.origin else list(spec.submodule_search_locations or [])
    path = Path(places[0]).resolve() if places else None
    return path.parent if path is not None and spec.origin else path
