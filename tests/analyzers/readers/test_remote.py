"""Captures named by URL: in memory, by HTTP from a local server, on S3 as moto plays it, on Google's as we do."""

from __future__ import annotations

import contextlib
import functools
import http.server
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Callable, Iterator
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

on_gs = pytest.mark.skipif(importlib.util.find_spec("gcsfs") is None, reason="needs gcsfs")

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


@contextlib.contextmanager
def serving(handler: Callable[..., http.server.BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address, on 127.0.0.1, of a server that answers so."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    """The address of a web server on 127.0.0.1 that has the captures."""
    for path in TORCH:
        shutil.copy(path, tmp_path)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with serving(functools.partial(Quiet, directory=str(tmp_path))) as address:
        yield address


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


class Bucket(http.server.BaseHTTPRequestHandler):
    """As much of Google Cloud Storage's JSON API as it takes to list and read the bucket `captures`."""

    protocol_version = "HTTP/1.1"
    files = {f"run7/{path.name}": path for path in TORCH}  # noqa: RUF012

    def do_GET(self) -> None:
        """Answer with an object's bytes, what is known of it, or a list of them."""
        path, _, query = self.path.partition("?")
        asked = urllib.parse.parse_qs(query)
        _, _, name = path.partition("/b/captures/o")
        name = urllib.parse.unquote(name.strip("/"))
        if "/b/captures/o" not in path or (name and name not in self.files):
            return self.answer(404, b"{}")
        if not name:
            (prefix,) = asked.get("prefix", [""])
            items = [self.about(one) for one in self.files if one.startswith(prefix)]
            return self.answer(200, json.dumps({"items": items, "prefixes": []}).encode())
        if asked.get("alt") != ["media"]:
            return self.answer(200, json.dumps(self.about(name)).encode())
        content, wanted = self.files[name].read_bytes(), self.headers.get("Range", "")
        if not wanted:
            return self.answer(200, content)
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        part = content[int(first) : int(last) + 1 if last else None]
        return self.answer(206, part)

    def about(self, name: str) -> dict[str, str]:
        size = str(self.files[name].stat().st_size)
        path = f"download/storage/v1/b/captures/o/{urllib.parse.quote(name, safe='')}"
        link = f"http://{self.headers['Host']}/{path}?alt=media"
        return {"name": name, "bucket": "captures", "size": size, "generation": "1", "etag": "x", "mediaLink": link}

    def answer(self, code: int, content: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # it has heard enough
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def google() -> Iterator[dict[str, str]]:
    """The environment in which gcsfs asks a server on 127.0.0.1."""
    with serving(Bucket) as address:
        yield {
            "STORAGE_EMULATOR_HOST": address,
            "FSSPEC_GS_TOKEN": "anon",
            "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",  # which asks another server, by gRPC
        }


@on_gs
@ALONE_AND_BY_PARTS
def test_captures_on_google_cloud_storage_give_the_answers_of_their_files(
    google: dict[str, str], more: list[str]
) -> None:
    words = ["check-overlap", URL.replace("s3:", "gs:"), "--format", "json", *more]
    assert script(COMMAND, *words, **google) == run_text("check-overlap", *PATHS, *more)


@on_gs
def test_a_capture_that_the_bucket_lacks_is_an_error_that_names_it(google: dict[str, str]) -> None:
    url = "gs://captures/run7/rank9.json"
    assert script(EXPANDING, url, **google) == f"{url}: There is no such file.\n"


def test_what_fsspec_cannot_open_is_an_error_in_the_projects_form(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TracevizError) as caught:
        expand("nosuch://bucket/rank0.json")
    assert caught.value.path == "nosuch://bucket/rank0.json"
    with pytest.raises(TracevizError, match="There is no such file"):
        expand("file:///nowhere/rank0.json")
    monkeypatch.setenv(cache.VARIABLE, "off")
    with pytest.raises(TracevizError, match="can't be read"):
        head_of("memory://nothing/here.json")
