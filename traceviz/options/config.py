"""Settings of a project: `comm = [...]` in its `traceviz.toml`, or below `[tool.traceviz]` in its `pyproject.toml`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analyzers.common.errors import TracevizError
from analyzers.select.language import parse
from analyzers.trace.communication import Declared

SETTING_KEYS = ("comm",)
_EXAMPLE = 'Write it as comm = ["kernel:my_all_to_all", "stream:20"].'


def communication(given: str | Sequence[str] | None, source: str) -> tuple[Declared, ...]:
    """What is communication beside what names tell: what was given, then what the project's settings add.

    Parameters
    ----------
    source : where `given` stood, as an answer names it.

    Raises
    ------
    TracevizError : a selector can't be read, or the settings.
    """
    texts = [given] if isinstance(given, str) else list(given or ())
    for text in texts:
        parse(text)
    return (*(Declared(text, source) for text in texts), *project_communication())


def project_communication(folder: Path | None = None) -> tuple[Declared, ...]:
    """What the nearest settings upward from a folder, the working directory by default, say is communication.

    Raises
    ------
    TracevizError : they can't be read, or hold a key or selector that is none.
    """
    start = folder or Path.cwd()
    places = [
        place
        for at in (start, *start.parents)
        for place in ((at / "traceviz.toml", ()), (at / "pyproject.toml", ("tool", "traceviz")))
    ]
    found = ((path, settings) for path, keys in places if (settings := _table(path, keys)) is not None)
    path, settings = next(found, (None, {}))
    if path is None:
        return ()
    unknown = sorted(set(settings) - set(SETTING_KEYS))
    if unknown:
        raise TracevizError(
            f"has no setting {unknown[0]!r}.", path=path, hint=f"Settings are: {', '.join(SETTING_KEYS)}."
        )
    texts = settings.get("comm", [])
    texts = [texts] if isinstance(texts, str) else texts
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise TracevizError("comm is no list of selectors.", path=path, hint=_EXAMPLE)
    for text in texts:
        try:
            parse(text)
        except TracevizError as error:
            error.path = str(path)
            raise
    return tuple(Declared(text, f"comm in {path}") for text in texts)


def _table(path: Path, keys: Sequence[str]) -> dict[str, Any] | None:
    """A table of a file; None where the file, or the table in it, is not there."""
    found: Any = {}
    try:
        text = path.read_text(encoding="utf-8")
        if all(key in text for key in keys):  # what reads TOML is loaded where there is some
            if sys.version_info >= (3, 11):
                import tomllib
            else:
                import tomli as tomllib
            found = tomllib.loads(text)
    except (FileNotFoundError, NotADirectoryError, PermissionError, IsADirectoryError):
        return None
    except (OSError, ValueError) as error:
        if keys:  # a pyproject.toml that is no concern of ours; its own tools will tell
            return None
        raise TracevizError(f"can't be read: {error}.", path=path, hint=_EXAMPLE) from error
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else None
