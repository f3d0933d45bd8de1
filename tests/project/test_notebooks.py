"""Notebooks run from top to bottom, come to the conclusions they state, and are committed without outputs."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
BY_PATH = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)

# What must stand in each one's outputs for its text to be true.
SAYS = {
    "00-start-here": ("partial", "late-launch", "162879"),
    "01-dp-mp-embedding": (
        "serialized",
        "aten::item",
        "75 % of what is possible, range",
        "at most 1.12x; 14.7x",
        "does not wait for",
    ),
    "02-optimizer-beside-lookup": ("same-stream", "gpu-full", "0.676", "effective gain", "10.00", "9.6"),
    "03-all-to-all-with-check": ("serialized", "aten::item in 'assert'", "cudaEventSynchronize", "next copy"),
    "04-tracking-deltas": ("serialized", "pageable", "aten::to in 'track delta'", "overlapped", "0 missing waits"),
    "05-row-parallel-loop": ("gpu-full", "0 of 24 chunks", "756.927", "264926", "Only rank 0 was captured"),
    "06-definitions": ("busy A 120", "real 0%", "inconclusive"),
    "07-what-a-fix-is-worth": (
        "serialized",
        "host-sync",
        "from aten::item in 'MP lookup'",
        "drop-sync nvtx:MP lookup",
        "-14.6 % without a profiler",
        "the truth lies in the range: True",
        "57.3 % of what is possible",
    ),
}


def code_cells(path: Path) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]


@BY_PATH
def test_outputs_are_stripped(path: Path) -> None:
    kept = [cell["id"] for cell in code_cells(path) if cell["outputs"] or cell["execution_count"] is not None]
    assert not kept


@BY_PATH
def test_runs_from_top_to_bottom(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over sockets that are files: a TCP port that Jupyter chose may be another's once the kernel has started."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # the kernel starts in the notebook's folder
    reason = "running notebooks needs nbclient and ipykernel: pip install 'traceviz-gpu[dev]'"
    pytest.importorskip("ipykernel", reason=reason)
    with warnings.catch_warnings(), TemporaryDirectory() as sockets:  # pytest's folders have names too long for sockets
        warnings.simplefilter("ignore")  # Jupyter's own
        nbclient = pytest.importorskip("nbclient", reason=reason)
        import nbformat
        from traitlets.config import Config

        notebook = nbformat.read(path, as_version=4)
        config = Config({"KernelManager": {"transport": "ipc", "ip": f"{sockets}/kernel"}})
        resources = {"metadata": {"path": path.parent}}
        nbclient.NotebookClient(notebook, timeout=120, resources=resources, config=config).execute()
    nothing_shown = [cell.id for cell in notebook.cells if cell.cell_type == "code" and not cell.outputs]
    assert not nothing_shown
    outputs = json.dumps([cell.outputs for cell in notebook.cells if cell.cell_type == "code"])
    assert [text for text in SAYS[path.stem] if text not in outputs] == []


@BY_PATH
def test_names_no_place_outside_the_repository(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    text = "".join("".join(cell["source"]) for cell in cells)
    links = [path.parent / link for link in re.findall(r"\]\(([^):#]+)\)", text)]
    assert not [link for link in links if not link.exists()]
    assert "http" not in text
