"""Notebooks run from top to bottom, and are committed without outputs."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
BY_PATH = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def code_cells(path: Path) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]


@BY_PATH
def test_outputs_are_stripped(path: Path) -> None:
    kept = [cell["id"] for cell in code_cells(path) if cell["outputs"] or cell["execution_count"] is not None]
    assert not kept


@BY_PATH
def test_runs_from_top_to_bottom(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # the kernel starts in the notebook's folder
    reason = "running notebooks needs nbclient and ipykernel: pip install 'traceviz[dev]'"
    pytest.importorskip("ipykernel", reason=reason)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Jupyter's own
        nbclient = pytest.importorskip("nbclient", reason=reason)
        import nbformat

        notebook = nbformat.read(path, as_version=4)
        nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": path.parent}}).execute()
    nothing_shown = [cell.id for cell in notebook.cells if cell.cell_type == "code" and not cell.outputs]
    assert not nothing_shown
