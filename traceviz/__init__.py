"""Did it really overlap? A verdict, the cause and the evidence from GPU profiles.

>>> import traceviz as tv
>>> trace = tv.load("rank0.json.gz", "rank1.json.gz")  # doctest: +SKIP
>>> tv.check_overlap(trace, a="nvtx:DP Embedding", b="nvtx:MP Embedding")  # doctest: +SKIP
"""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

TYPE_CHECKING = False  # without typing, which takes its time, as all that is imported here

if TYPE_CHECKING:
    from traceviz.api import *  # noqa: F403
    from traceviz.api import __all__ as __all__

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """What is public is imported when it is asked for: a command needs none of it, and pandas takes long to load."""
    found: object = None
    if name == "__all__" or not name.startswith("_"):
        api = import_module("traceviz.api")
        found = (
            [*api.__all__, "__version__"] if name == "__all__" else vars(api).get(name) if name in api.__all__ else None
        )
    if found is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})  # type: ignore[misc]


def _refuse_other_packages() -> None:
    """Raise an ImportError where `analyzers` or `collectors`, names that others use too, are not ours; run neither."""
    home = Path(__file__).resolve().parent.parent
    for name in ("analyzers", "collectors"):
        own = home / name / "__init__.py"
        spec = find_spec(name)
        found = Path(spec.origin).resolve() if spec and spec.origin else own
        if not own.is_file() or "__traceviz__" not in own.read_text(encoding="utf-8", errors="replace"):
            hint = "Install traceviz again (pip install --force-reinstall), in an environment of its own."
            raise ImportError(f"traceviz is not installed whole: {own} is missing, or another distribution's. {hint}")
        if found != own:
            hint = "Run from another folder, or install traceviz in an environment of its own."
            raise ImportError(
                f"traceviz needs its own package '{name}' ({own.parent}), but Python finds {found}. {hint}"
            )


_refuse_other_packages()
