"""The server's tools: each runs a command in a process of its own and hands its brief answer on.

What a command prints can't mix with the protocol then, a crash or a lack of memory ends one answer and not the server,
and a call that is cancelled is ended.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import anyio
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import Field

from analyzers.common.errors import TracevizError
from traceviz import __version__
from traceviz.options.again import flag_of
from traceviz.output.brief import as_line
from traceviz.server.allowed import Allowed, captures_in

ANSWERED = (0, 1, 3)  # exit codes; with 2 there is an error instead
MOST_LETTERS = 16_000  # of an answer, whatever is asked
PACKAGE_ROOT = Path(__file__).resolve().parents[2]  # where Python finds this traceviz, and nobody else's
INSTRUCTIONS = """Answers from GPU profiles (Nsight Systems, torch.profiler): did work overlap, and if not, why.
Start with list_captures, then info, then check_overlap. Every figure is in ns. 'inconclusive' and 'apparent' are no
yes: the caveats say what is missing. Expand an id (gap:…, inst:…, sync:…, coll:…) with show."""
READ_ONLY = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)

Captures = Annotated[
    list[str] | str,
    Field(description="The captures of one run: a file, a glob, a folder or a manifest, or a list of them."),
]
One = Annotated[str, Field(description="One run: a file, a glob, a folder or a manifest.")]
A = Annotated[str, Field(description="One side, a selector: comm, compute, nvtx:NAME, kernel:PART, stream:N …")]
B = Annotated[str, Field(description="The other side.")]
Ranks = Annotated[str, Field(description="Only these ranks, such as 0,2 or 0-3.")]
Steps = Annotated[str, Field(description="Only steps A up to, not including, B, such as 10:13.")]
Window = Annotated[str, Field(description="Clip to this time, such as 10ms:25ms.")]


def serve(allowed: Allowed, more: Sequence[str] = ()) -> None:
    """Serve on standard input and output, until the client closes them.

    Parameters
    ----------
    more : options that every command gets, such as --no-cache.
    """
    server_of(allowed, more).run("stdio")


def server_of(allowed: Allowed, more: Sequence[str] = ()) -> MCPServer:
    """The server with its tools."""
    server = MCPServer("traceviz", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING")
    one_by_one = anyio.CapacityLimiter(1)  # two large captures at once may be more than memory holds

    async def answer(command: str, captures: str | Sequence[str], *, id: str = "", **part: str | Sequence[str]) -> str:
        try:
            words = [allowed.path(one) for one in _texts(captures)] + ([id] if id else [])
        except TracevizError as error:
            raise ToolError(str(error)) from error
        options = [word for name, given in part.items() for text in _texts(given) for word in (flag_of(name), text)]
        brief = [] if command == "show" else ["--brief"]
        arguments = [command, *options, *more, *brief, "--format", "json", "--", *words]
        async with one_by_one:
            ran = await anyio.run_process(
                [sys.executable, "-m", "traceviz", *arguments],
                stdin=subprocess.DEVNULL,
                check=False,
                cwd=PACKAGE_ROOT,
                env={**os.environ, "PYTHONUTF8": "1"},
            )
        return _told(ran)

    @server.tool(annotations=READ_ONLY, structured_output=False)
    def list_captures() -> str:
        """Which captures there are, those of one run together as a glob or a folder."""
        return as_line(captures_in(allowed.folders))

    @server.tool(annotations=READ_ONLY, structured_output=False)
    async def info(captures: Captures) -> str:
        """What is in captures: ranks, ranges to select by, steps, and what they can't answer."""
        return await answer("info", captures)

    @server.tool(annotations=READ_ONLY, structured_output=False)
    async def check_overlap(
        captures: Captures,
        a: A = "comm",
        b: B = "compute",
        min_overlap: Annotated[str, Field(description="The bar, such as 60%.")] = "60%",
        ranks: Ranks = "",
        steps: Steps = "",
        window: Window = "",
    ) -> str:
        """Did A and B overlap on the GPU? Verdict, figures, causes with ids, caveats, what to run next."""
        part = {"a": a, "b": b, "min_overlap": min_overlap, "ranks": ranks, "steps": steps, "window": window}
        return await answer("check-overlap", captures, **part)

    @server.tool(annotations=READ_ONLY, structured_output=False)
    async def syncs(captures: Captures, ranks: Ranks = "", steps: Steps = "", window: Window = "") -> str:
        """Where was the host blocked, what did it cost, and which work is unordered (a possible race)?"""
        return await answer("syncs", captures, ranks=ranks, steps=steps, window=window)

    @server.tool(annotations=READ_ONLY, structured_output=False)
    async def collectives(captures: Captures, ranks: Ranks = "", steps: Steps = "", window: Window = "") -> str:
        """What did collectives cost: fastest rank, who came last, how much was waiting, bandwidth?"""
        return await answer("collectives", captures, ranks=ranks, steps=steps, window=window)

    @server.tool(annotations=READ_ONLY, structured_output=False)
    async def compare(
        before: One,
        after: One,
        a: A = "",
        b: B = "",
        claimed: Annotated[
            str,
            Field(description="A stated speedup to check, such as 14.7x; of the pair with a or b, else of the step."),
        ] = "",
        ranks: Ranks = "",
        steps: Steps = "",
    ) -> str:
        """What changed between two runs, and can a claimed speedup be?"""
        return await answer("compare", [before, after], a=a, b=b, claimed=claimed, ranks=ranks, steps=steps)

    @server.tool(annotations=READ_ONLY, structured_output=False)
    async def what_if(
        captures: Captures,
        changes: Annotated[
            list[str], Field(description='Tried together, such as "drop-sync nvtx:lookup"; none: those suggested.')
        ] = [],  # noqa: B006 (never changed, and pydantic copies it)
        a: A = "comm",
        b: B = "compute",
        ranks: Ranks = "",
        steps: Steps = "",
    ) -> str:
        """What is a fix worth: step time and overlap predicted by replay, as ranges?"""
        return await answer("what-if", captures, change=changes, a=a, b=b, ranks=ranks, steps=steps)

    @server.tool(annotations=READ_ONLY, structured_output=False)
    async def show(
        captures: Captures,
        id: Annotated[str, Field(description="gap:r0.d0:1876012, inst:…, sync:r0:1874100 or coll:12.")],
        a: A = "comm",
        b: B = "compute",
        ranks: Ranks = "",
        steps: Steps = "",
        window: Window = "",
    ) -> str:
        """One finding by its id: when, in which step, the evidence, what is related. Give the a and b it came from."""
        return await answer("show", captures, id=id, a=a, b=b, ranks=ranks, steps=steps, window=window)

    return server


def _texts(given: str | Sequence[str]) -> Sequence[str]:
    if isinstance(given, str):
        return [given] if given else []
    return given


def _told(ran: subprocess.CompletedProcess[bytes]) -> str:
    """A command's answer; a tool's error with its one line where it has none."""
    if ran.returncode in ANSWERED:
        text = ran.stdout.decode(errors="replace").strip()
        if len(text) <= MOST_LETTERS:
            return text
        raise ToolError(f"The answer is over {MOST_LETTERS:,} letters. Ask for fewer ranks or steps.")
    lines = ran.stderr.decode(errors="replace").splitlines()
    told = [line.removeprefix("traceviz: ") for line in lines if line.startswith("traceviz: ")]
    raise ToolError(told[-1] if told else f"The command ended with {ran.returncode} and no answer.")
