"""The MCP server, driven by the SDK's own client over stdio: its answers, and what it refuses to read."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="needs the extra 'mcp'", exc_type=ImportError)

import anyio
from mcp import Client, StdioServerParameters, stdio_client

from tests.traceviz.test_brief import counted

TORCH = Path(__file__).parents[2] / "data" / "torch"
TOOLS = {"list_captures", "info", "check_overlap", "syncs", "collectives", "compare", "what_if", "show"}
REFUSED = "outside the folders that may be read. Give captures in "
ITEM = "item_before.rank*.json.gz"


def served(folders: list[Path], use: Callable[[Client], Awaitable[None]], *more: str) -> None:
    allow = [word for folder in folders for word in ("--allow", str(folder))]
    server = StdioServerParameters(command=sys.executable, args=["-m", "traceviz", "mcp", *allow, *more])

    async def session() -> None:
        with anyio.fail_after(240):
            async with Client(stdio_client(server)) as client:
                await use(client)

    anyio.run(session)


async def told(client: Client, tool: str, **arguments: Any) -> Any:
    """A tool's answer, which is short."""
    result = await client.call_tool(tool, arguments)
    (content,) = result.content
    assert not result.is_error, content.text
    assert counted(content.text) <= 2_000
    return json.loads(content.text)


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    """A tool's error, which is one line."""
    result = await client.call_tool(tool, arguments)
    (content,) = result.content
    assert result.is_error, content.text
    assert "\n" not in content.text
    assert "Traceback" not in content.text
    return str(content.text)


def test_each_tool_answers_briefly_and_only_reads() -> None:
    async def use(client: Client) -> None:
        tools = (await client.list_tools()).tools
        assert {one.name for one in tools} == TOOLS
        assert all(one.annotations and one.annotations.read_only_hint for one in tools)
        listed = await told(client, "list_captures")
        assert {"path": ITEM, "files": 4, "bytes": sum(one.stat().st_size for one in TORCH.glob(ITEM))} in listed[
            "captures"
        ]
        assert (await told(client, "info", captures=[ITEM]))["ranks"] == "0-3"
        verdict = await told(client, "check_overlap", captures=ITEM, min_overlap="0%")
        assert (verdict["verdict"], verdict["bar"]) == (
            "inconclusive" if verdict["passed"] is None else "overlapped",
            0.0,
        )
        serial = await told(client, "check_overlap", captures=[f"item_before.rank{rank}.json.gz" for rank in range(4)])
        assert serial["verdict"] == "serialized"
        gap = serial["causes"][0]["id"]
        shown = await told(client, "show", captures=ITEM, id=gap)
        assert (shown["id"], shown["rank"]) == (gap, serial["job"]["rank"])
        assert (await told(client, "syncs", captures=ITEM, steps="1:4"))["syncs"][0]["op"].startswith("aten::item")
        assert (await told(client, "collectives", captures=ITEM))["count"] == 3
        runs = {"before": "dpmp_serial.rank*.json.gz", "after": "dpmp_overlap.rank*.json.gz"}
        sides = {"a": "nvtx:DP Embedding", "b": "nvtx:MP Embedding"}
        assert (await told(client, "compare", **runs, **sides, claimed="14.7x"))["claim"]["possible"] is False
        changes = (await told(client, "what_if", captures=ITEM, changes=["drop-sync nvtx:MP lookup"]))["changes"]
        assert [one["change"] for one in changes] == ["drop-sync nvtx:MP lookup"]

    served([TORCH], use)


@pytest.mark.nightly
def test_what_is_wrong_with_a_call_is_one_line_with_the_hint() -> None:
    async def use(client: Client) -> None:
        assert "Ids look like gap:r0.d0:1876012" in await refused(client, "show", captures=ITEM, id="first")
        assert "Write it as 10:13" in await refused(client, "syncs", captures=ITEM, steps="--no-align")
        assert "There is no such file" in await refused(client, "info", captures="absent.json")
        assert "-x" in await refused(client, "check_overlap", captures=ITEM, a="-x")
        assert "is JSON, but not a trace" in await refused(client, "info", captures="step_time_ms.json")

    served([TORCH], use)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Captures in a folder that may be read, and others beside it."""
    allowed, outside = tmp_path / "allowed", tmp_path / "outside"
    for folder in (allowed, outside):
        folder.mkdir()
        for rank in (0, 1):
            shutil.copy(TORCH / f"dpmp_overlap.rank{rank}.json.gz", folder / f"run.rank{rank}.json.gz")
    return allowed, outside


def test_paths_that_lead_outside_are_refused(folders: tuple[Path, Path]) -> None:
    allowed, outside = folders
    secret = outside / "run.rank0.json.gz"
    (allowed / "link.json.gz").symlink_to(secret)
    (allowed / "away").symlink_to(outside, target_is_directory=True)
    (allowed / "loop").symlink_to(allowed / "loop")
    mixed = allowed / "mixed"
    mixed.mkdir()
    (mixed / "run.rank0.json.gz").symlink_to(secret)
    listed = allowed / "listed"
    listed.mkdir()
    entries = {"schema": "traceviz.manifest/1", "captures": [{"path": "../../outside/run.rank0.json.gz", "rank": 0}]}
    (listed / "manifest.json").write_text(json.dumps(entries))
    entries["captures"] = [{"path": str(secret), "rank": 0}]
    (allowed / "absolute.json").write_text(json.dumps(entries))
    entries["captures"] = [{"path": "link.json.gz", "rank": 0}]
    (allowed / "linked.json").write_text(json.dumps(entries))
    exported = allowed / "exported"
    exported.mkdir()
    (exported / "trace.json").write_text(
        json.dumps({"schema": "traceviz.parquet/1", "tables": {"../../outside/x": 1}}, separators=(",", ":"))
    )
    (allowed / "report.nsys-rep").write_bytes(b"NSYS")
    (allowed / "report.sqlite").symlink_to(secret)
    outward = [
        str(secret),
        str(outside),
        str(outside / "*.json.gz"),
        "../outside/run.rank0.json.gz",
        "../outside/*.json.gz",
        "away/../../outside/run.rank0.json.gz",
        "link.json.gz",
        "away",
        "away/run.rank0.json.gz",
        "away/*.json.gz",
        "a*/run.rank0.json.gz",
        "*/../../outside/*.gz",
        "l*.json.gz",
        "mixed",
        "mixed/*",
        "listed",
        "listed/manifest.json",
        "absolute.json",
        "linked.json",
        "exported",
        "exported/trace.json",
        "report.nsys-rep",
        "/etc/passwd",
        "/nowhere/at/all.json",
        "~/x.json",
        "loop/x.json",
        "file:///etc/passwd",
        "https://example.invalid/x.json",
        "s3://bucket/x.json",
        "a\0b",
        "",
    ]

    async def use(client: Client) -> None:
        for path in outward:
            error = await refused(client, "info", captures=[path])
            assert REFUSED in error or (path in ("~/x.json",) and "no such file" in error), (path, error)
            assert str(outside) not in error.replace(path, "") or not path
        both = await refused(client, "check_overlap", captures=["run.rank0.json.gz", "link.json.gz"])
        assert REFUSED in both
        assert REFUSED in await refused(client, "compare", before="run.rank*.json.gz", after=str(outside))
        assert REFUSED in await refused(client, "show", captures=str(secret), id="coll:0")
        paths = [one["path"] for one in (await told(client, "list_captures"))["captures"]]
        assert "run.rank*.json.gz" in paths
        assert not [path for path in paths if path.startswith(("away", "link", "mixed"))]

    served([allowed], use, "--no-cache")


@pytest.mark.nightly
def test_paths_within_are_read_however_they_are_written(folders: tuple[Path, Path], tmp_path: Path) -> None:
    allowed, _ = folders
    odd = allowed / "a [1] b"
    odd.mkdir()
    for rank in (0, 1):
        shutil.copy(allowed / f"run.rank{rank}.json.gz", odd / f"-run.rank{rank}.json.gz")
    (allowed / "inner.json.gz").symlink_to(odd / "-run.rank0.json.gz")
    entries = {"schema": "traceviz.manifest/1", "captures": [{"path": "run.rank1.json.gz", "rank": 1}]}
    (allowed / "manifest.json").write_text(json.dumps(entries))
    via = tmp_path / "via"
    via.symlink_to(allowed, target_is_directory=True)

    async def use(client: Client) -> None:
        for path, ranks in (
            ("run.rank*.json.gz", "0-1"),
            ("a [1] b", "0-1"),
            ("a [1] b/../run.rank0.json.gz", "0"),
            ("a [[]1] b/-run.rank?.json.gz", "0-1"),
            (str(allowed / "run.rank0.json.gz"), "0"),
            (str(via / "run.rank0.json.gz"), "0"),
            ("inner.json.gz", "0"),
            ("manifest.json", "1"),
            (".", "1"),
        ):
            assert (await told(client, "info", captures=path))["ranks"] == ranks, path

    served([via], use, "--no-cache")


@pytest.mark.nightly
def test_nothing_is_written_beside_the_captures(folders: tuple[Path, Path]) -> None:
    allowed, _ = folders
    before = {path: path.stat().st_mtime_ns for path in allowed.rglob("*")}

    async def use(client: Client) -> None:
        await told(client, "check_overlap", captures="run.rank*.json.gz")
        await told(client, "show", captures="run.rank*.json.gz", id="coll:0")

    served([allowed], use)
    assert {path: path.stat().st_mtime_ns for path in allowed.rglob("*")} == before


def test_traceviz_itself_does_not_import_the_sdk() -> None:
    code = """
import sys
import traceviz, traceviz.cli, traceviz.api, traceviz.commands.mcp
assert not {"mcp", "mcp_types", "anyio", "pydantic"} & set(sys.modules), sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", code], check=True)
