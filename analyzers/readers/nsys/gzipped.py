"""Read an nsys export that was gzipped: unpacked into a temporary folder, which is gone once it has been read."""

from __future__ import annotations

import tempfile
from pathlib import Path

from analyzers.common.errors import TracevizError
from analyzers.common.progress import Progress
from analyzers.readers.gzipped import Bomb, DamagedGzip, Plain
from analyzers.readers.nsys import read as nsys
from analyzers.trace.tables import Trace

BLOCK = 1 << 20


def read(path: Path, progress: Progress, *, counters: bool = False) -> Trace:
    """Read one `.sqlite.gz`, as `analyzers.readers.nsys.read.read_sqlite` reads what is in it.

    Raises
    ------
    TracevizError : it is damaged or cut short, there is no room to unpack it, or it is no nsys export.
    """
    with tempfile.TemporaryDirectory(prefix="traceviz-") as folder:
        database = Path(folder, path.name.removesuffix(".gz"))
        try:
            _unpack(path, database)
            return nsys.read_sqlite(database, progress, report=path, counters=counters)
        except TracevizError as error:
            error.path = str(path)
            raise


def _unpack(path: Path, database: Path) -> None:
    try:
        with path.open("rb") as packed, database.open("wb") as file:
            content = Plain(packed)
            while block := content.read(BLOCK):
                file.write(block)
    except (DamagedGzip, Bomb) as error:
        raise TracevizError(f"The compressed data are damaged ({error}).", hint="Copy it again.") from error
    except OSError as error:
        hint = "Unpack it yourself, or set $TMPDIR to a folder with more room."
        raise TracevizError(f"This can't be unpacked ({error.strerror or error}).", hint=hint) from error
    if content.cut_short:
        raise TracevizError("The file ends too early.", hint="Was it copied whole? Copy it again.")
