"""Captures named by URL: in memory, by HTTP from a local server, on S3 as moto plays it."""

from __future__ import annotations

import functools
import http.server
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from analyzers.cache import folder as cache
from analyzers.common.errors import TracevizError
from analyzers.readers.remote import brought, expand, head_of
from tests.support.command_lines import run_json, run_text

pytestmark = pytest.mark.skipif(importlib.util.find_spec("fsspec") is None, reason="needs fsspec (the extra `cluster`)")
# What s3fs and aiohttp start, threads and loops of their own, is no business of pytest's.
by_http = pytest.mark.skipif(importlib.util.find_spec("aiohttp") is None, reason="needs aiohttp")
on_s3 = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("moto", "flask", "s3fs"))), reason="needs moto[server] and s3fs"
)

ROOT = Path(__file__).parents[3]
TORCH = [ROOT / "tests" / "data" / "torch" / f"dpmp_overlap.rank{rank}.json.gz" for rank in (0, 1)]
PATHS = [str(path) for path in TORCH]


def test_files_in_memory_are_read_as_those_on_disk() -> None:
    import fsspec

    files = fsspec.filesystem("memory")
    for path in TORCH:
        files.pipe_file(f"/run7/{path.name}", path.read_bytes())
    url = "memory://run7/dpmp_overlap.rank*.json.gz"
    found = expand(url)
    assert [one.rpartition("/")[2] for one in found] == [path.name for path in TORCH]
    assert head_of(found[0])[:2] == b"\x1f\x8b"
    for command in ("check-overlap", "collectives", "streams", "syncs"):
        assert run_text(command, url) == run_text(command, *PATHS)
    assert [one["path"] for one in run_json("info", url)["captures"]] == found


def test_a_file_is_brought_once_for_each_of_its_versions(tmp_path: Path) -> None:
    there = tmp_path / "rank0.json"
    paths = set()
    for text in ("first", "second, longer"):
        there.write_text(text)
        for _ in range(2):
            with brought(f"file://{there}", keep=True) as path:
                assert (path.name, path.read_text()) == ("rank0.json", text)
                paths.add(path)
    assert len(paths) == 2
    with brought(f"file://{there}", keep=False) as path:
        assert path.read_text() == "second, longer"
    assert not path.exists()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    """The address of a web server on 127.0.0.1 that has the captures."""
    for path in TORCH:
        shutil.copy(path, tmp_path)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(tmp_path)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def script(text: str, *arguments: str, **environment: str) -> str:
    """What a Python program of its own prints."""
    settings = {**os.environ, **environment}
    settings["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    found = subprocess.run([sys.executable, "-c", text, *arguments], capture_output=True, text=True, cwd=ROOT,
                           env=settings, timeout=180, check=False)  # fmt: skip
    assert found.returncode in (0, 1, 3) and "Traceback" not in found.stderr, found.stderr[-3000:]
    return found.stdout


COMMAND = "from traceviz.cli import main; main()"
EXPANDING = """
import sys
from analyzers.common.errors import TracevizError
from analyzers.readers.remote import expand

try:
    expand(sys.argv[1])
except TracevizError as error:
    print(error)
"""
ALONE_AND_BY_PARTS = pytest.mark.parametrize(
    "more", [[], ["--no-cache"], ["--memory", "8GB", "--workers", "2"]], ids=" ".join
)


@by_http
@ALONE_AND_BY_PARTS
def test_urls_of_a_web_server_give_the_answers_of_their_files(site: str, more: list[str]) -> None:
    urls = [f"{site}/{path.name}" for path in TORCH]
    words = ["check-overlap", *urls, "--format", "json", *more]
    assert script(COMMAND, *words) == run_text("check-overlap", *PATHS, *more)


@by_http
def test_a_url_the_server_does_not_have_is_an_error_that_names_it(site: str) -> None:
    assert script(EXPANDING, f"{site}/rank7.json") == f"{site}/rank7.json: There is no such file.\n"


S3 = """
import os, sys
from pathlib import Path
from moto.server import ThreadedMotoServer

server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
host, port = server.get_host_and_port()
os.environ["FSSPEC_S3_ENDPOINT_URL"] = f"http://{host}:{port}"
import s3fs

files = s3fs.S3FileSystem()
files.mkdir("captures")
captures, words = sys.argv[1:3], sys.argv[3:]
for path in captures:
    files.put_file(path, f"captures/run7/{Path(path).name}")
from traceviz.cli import main

sys.argv = ["traceviz", *words]
try:
    main()
finally:
    server.stop()
"""
KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}
URL = "s3://captures/run7/dpmp_overlap.rank*.json.gz"


@on_s3
@ALONE_AND_BY_PARTS
def test_captures_on_s3_give_the_answers_of_their_files(more: list[str]) -> None:
    words = ["check-overlap", URL, "--format", "json", *more]
    assert script(S3, *PATHS, *words, **KEYS) == run_text("check-overlap", *PATHS, *more)


@on_s3
def test_captures_on_s3_are_cited_by_their_urls() -> None:
    answer = json.loads(script(S3, *PATHS, "info", URL, "--format", "json", **KEYS))
    assert [one["path"] for one in answer["captures"]] == [f"s3://captures/run7/{path.name}" for path in TORCH]


def test_what_fsspec_cannot_open_is_an_error_in_the_projects_form(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TracevizError) as caught:
        expand("nosuch://bucket/rank0.json")
    assert caught.value.path == "nosuch://bucket/rank0.json"
    with pytest.raises(TracevizError, match="There is no such file"):
        expand("file:///nowhere/rank0.json")
    monkeypatch.setenv(cache.VARIABLE, "off")
    with pytest.raises(TracevizError, match="can't be read"):
        head_of("memory://nothing/here.json")
