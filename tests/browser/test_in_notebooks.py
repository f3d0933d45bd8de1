"""A timeline in an executed notebook, as nbconvert makes a page of it, in a real browser; with scripts and without."""

from __future__ import annotations

import base64
import html
import json
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import traceviz as tv
from tests.browser.chromium import Chromium
from tests.support.timeline_traces import two_instances

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]
CELL = """import traceviz as tv
tv.timeline(r"{root}/tests/data/torch/dpmp_overlap.rank0.json.gz", "nvtx:DP Embedding", "nvtx:MP Embedding")"""
FRAME = "document.querySelector('iframe').contentDocument"
READY = f"""new Promise((done) => {{ const timer = setInterval(() => {{
  if ({FRAME}.getElementById('timeline')?.dataset.ready) {{ clearInterval(timer); done(); }} }}, 20); }})"""
STILL = "document.querySelector('iframe').nextElementSibling"


def executed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A page of a notebook that drew a timeline."""
    nbconvert = pytest.importorskip("nbconvert", reason="pip install nbconvert")
    nbclient = pytest.importorskip("nbclient")
    import nbformat
    from traitlets.config import Config

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    cell = nbformat.v4.new_code_cell(CELL.format(root=ROOT))
    notebook = nbformat.v4.new_notebook(cells=[cell])
    with warnings.catch_warnings(), TemporaryDirectory() as sockets:
        warnings.simplefilter("ignore")  # Jupyter's own
        config = Config({"KernelManager": {"transport": "ipc", "ip": f"{sockets}/kernel"}})
        nbclient.NotebookClient(notebook, timeout=120, config=config).execute()
        (output,) = notebook.cells[0].outputs
        assert set(output.data) == {"text/html", "text/plain", "image/png"}
        assert base64.b64decode(output.data["image/png"])[:8] == b"\x89PNG\r\n\x1a\n"
        page, _ = nbconvert.HTMLExporter(embed_images=True).from_notebook_node(notebook)
    path = folder / "notebook.html"
    path.write_text(page, encoding="utf-8")
    return path


def test_an_executed_notebook_shows_the_page_and_a_picture_where_scripts_do_not_run(
    browser: Chromium, kaleido: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = executed(tmp_path, monkeypatch)
    browser.open(path.as_uri())
    browser.evaluate(READY)
    assert browser.evaluate(f"{FRAME}.querySelectorAll('.barlayer path').length") > 100
    assert browser.evaluate(f"{FRAME}.querySelectorAll('.arrows path').length") > 1
    browser.evaluate(UNTIL % f"getComputedStyle({STILL}).display === 'none'")
    assert browser.evaluate("document.querySelector('iframe').clientHeight") >= browser.evaluate(
        f"{FRAME}.documentElement.scrollHeight"
    )
    # GitHub, and a notebook that is not trusted, keep no frame.
    text = path.read_text(encoding="utf-8")
    start, end = text.index("<iframe"), text.index("</iframe>")
    path.write_text(text[:start] + text[end:], encoding="utf-8")
    browser.open(path.as_uri())
    assert browser.evaluate("[...document.images].map((one) => [one.naturalWidth, one.clientWidth > 400])") == [
        [1720, True]
    ]


# VS Code shows the first of a bundle's types that stands in its list (notebookCommon.ts), where "text/html" is before
# "image/png"; it puts HTML into its view as text, makes scripts again, and holds all to this, if it was told to.
VS_CODE = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src https: http: data:; font-src https:; connect-src https:; child-src https: data:"
)
AS_VS_CODE = """<!DOCTYPE html><meta http-equiv="Content-Security-Policy" content="%s"><div id="output"></div><script>
const output = document.getElementById("output");
output.innerHTML = %s;
for (const old of output.querySelectorAll("script")) {
  const script = document.createElement("script");
  script.textContent = old.textContent;
  old.replaceWith(script);
}</script>"""
# A host that keeps outputs apart: of no origin, so that neither knows the other's document. It tells what it sees.
APART = """<!DOCTYPE html><iframe sandbox="allow-scripts" style="width:900px;height:900px" srcdoc="%s"></iframe><script>
addEventListener("message", ({data}) => { document.title = data; });</script>"""
WATCH = """<script>setInterval(() => parent.postMessage(
  getComputedStyle(document.querySelector("iframe").nextElementSibling).display, "*"), 50)</script>"""
UNTIL = """new Promise((done) => { const timer = setInterval(() => {
  if (%s) { clearInterval(timer); done(); } }, 20); })"""


@pytest.fixture
def output(kaleido: object) -> str:
    return tv.timeline(two_instances(), "nvtx:A", "nvtx:B").shown()[0]["text/html"]


def test_the_page_is_drawn_under_the_policy_of_vs_code(browser: Chromium, output: str, tmp_path: Path) -> None:
    path = tmp_path / "webview.html"
    path.write_text(AS_VS_CODE % (VS_CODE, json.dumps(output).replace("</", "<\\/")), encoding="utf-8")
    browser.open(path.as_uri())
    browser.evaluate(READY)
    browser.evaluate(UNTIL % f"getComputedStyle({STILL}).display === 'none'")


def test_in_a_sandbox_the_page_hides_the_picture_that_stood_in_for_it(
    browser: Chromium, output: str, tmp_path: Path
) -> None:
    path = tmp_path / "sandbox.html"
    path.write_text(APART % html.escape(output + WATCH), encoding="utf-8")
    browser.open(path.as_uri())
    browser.evaluate(UNTIL % "document.title === 'none'")
