"""The manual's pages: what they show is what commands print, their Python runs, their links lead somewhere.

Code in `bash` and `python` is run, in `sh` and `py` it is the reader's. Of a long output a page shows the paragraphs
that it discusses: `<!-- show: first; Per rank; Why, on rank +4 -->` above a block names them by how they begin, and of
the last its first four lines. `python -m tests.project.test_docs [PAGE...]` writes the outputs anew.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

import traceviz as tv
from analyzers.causes.table import CAUSE_TABLE
from analyzers.trace.tables import Trace
from tests.support.builder import Builder
from tests.support.command_lines import invoked
from tests.support.nightly import mostly_nightly

ROOT = Path(__file__).parents[2]
PAGES = sorted(path.stem for path in (ROOT / "docs").glob("*.md"))
BY_PAGE = pytest.mark.parametrize("page", PAGES)
SHOWN = re.compile(r"```bash\n(traceviz .*?)```(?:\n\n(?:<!-- show: (.*?) -->\n)?```text\n(.*?)```)?", re.DOTALL)
LEFT_OUT = "…\n"
TELLING = "traceviz() { printf '%s\\0' \"$@\"; }\n"  # a shell that says what words a command is called with
WIDTH = "112"  # what GitHub and the site show of a line without scrolling


def read(page: str) -> str:
    return (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")


def printed(command: str) -> str:
    """What a command of the manual prints, with the project's data at hand; it may end with 1 or 3, which answer.

    A shell makes its words, quoted globs and all; it runs in this process, as the README's runs in one of its own.
    """
    with tempfile.TemporaryDirectory() as folder:
        for name in ("tests", "docs"):
            Path(folder, name).symlink_to(ROOT / name)
        said = subprocess.run(["bash", "-c", TELLING + command], cwd=folder, capture_output=True, text=True, check=True)
        *words, code = said.stdout.split("\0")
        here = Path.cwd()
        os.chdir(folder)
        try:
            ran = invoked(*words, env={"COLUMNS": WIDTH})
        finally:
            os.chdir(here)
    assert ran.exit_code in (0, 1, 3), ran.output
    assert code in ("", "exit code 0\n")
    assert not re.sub("^There is no timeline.png: .*\n", "", ran.stderr)  # where neither Chrome nor Chromium is
    return ran.stdout + code.replace("0", str(ran.exit_code))


def selected(output: str, show: str) -> str:
    """The paragraphs of an output that a page shows, `…` where some are left out; all of it where nothing is said.

    >>> selected("one\\n\\ntwo\\n a\\n b\\n\\nthree\\n", "first; two +2")
    'one\\n\\ntwo\\n a\\n…\\n'
    """
    if not show:
        return output
    paragraphs = output.rstrip("\n").split("\n\n")
    shown: dict[int, list[str]] = {}
    for one in show.split(";"):
        begin, _, count = one.strip().partition(" +")
        found = [i for i, text in enumerate(paragraphs) if text.lstrip().startswith(begin)]
        assert found or begin == "first", f"no paragraph begins with '{begin}'"
        lines = paragraphs[found[0] if found else 0].split("\n")
        shown[found[0] if found else 0] = lines[: int(count or len(lines))]
    text, after = "", -1
    for i, lines in sorted(shown.items()):
        left_out = i > after + 1 and not text.endswith(LEFT_OUT)
        text += ("\n" if text and not left_out else "") + (LEFT_OUT if left_out else "") + "\n".join(lines) + "\n"
        if len(lines) < len(paragraphs[i].split("\n")):
            text += LEFT_OUT
        after = i
    return text + (LEFT_OUT if after < len(paragraphs) - 1 and not text.endswith(LEFT_OUT) else "")


COMMANDS = [(page, *match) for page in PAGES for match in SHOWN.findall(read(page))]


@pytest.mark.parametrize(("page", "command", "show", "shown"), mostly_nightly(COMMANDS, lambda case: bool(case[-1])))
def test_commands_print_what_is_shown(page: str, command: str, show: str, shown: str) -> None:
    output = printed(command)
    assert output
    if shown:
        assert shown == selected(output, show), f"python -m tests.project.test_docs {page} writes {page}.md anew"


@BY_PAGE
def test_python_runs_and_prints_what_its_comments_say(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("tests", "docs"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", read(page), re.MULTILINE | re.DOTALL):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(block, namespace)
        assert output.getvalue().splitlines() == re.findall(r"^print\(.*\)  # (.*)$", block, re.MULTILINE)


PROSE = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def anchors(text: str) -> set[str]:
    """What a page's headings are called in links, as GitHub and the site make it of them."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Relative links, to files that git tracks or would; anchors, to headings; pictures, to pictures."""
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("http"):
            continue
        name, _, anchor = target.partition("#")
        path = page.parent / name if name else page
        assert path.exists(), target
        if anchor:
            assert anchor in anchors(path.read_text(encoding="utf-8")), target


def test_the_projects_files_that_pages_name_are_there() -> None:
    named = re.compile(r"(?<![\w/.-])(?:tests|tools|analyzers|collectors|traceviz)/[\w/-]+\.(?:py|sh|txt)\b")
    gone = {
        f"{page.name}: {path}"
        for page in PROSE
        for path in named.findall(page.read_text(encoding="utf-8"))
        if not (ROOT / path).exists()
    }
    assert not gone


def test_the_manual_stays_readable() -> None:
    """What a person wrote, by `wc -w`; measurements stand in docs/measured, and commands.md and keys.md are made."""
    words = {
        page.name: len(page.read_text(encoding="utf-8").split()) for page in PROSE if page.parent.name != "measured"
    }
    assert words.pop("CONTRIBUTING.md")
    assert words.pop("commands.md")
    assert words.pop("keys.md")
    assert sum(words.values()) <= 15_000, words
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 120


def test_the_site_has_every_page() -> None:
    """`mkdocs.yml` leads to all of them."""
    listed = set(re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert pages <= listed


def example(page: str, words: str) -> str:
    blocks = re.findall(r"^```python\n(.*?)^```", read(page), re.MULTILINE | re.DOTALL)
    return next(block for block in blocks if words in block)


def chunks(early: bool) -> Trace:
    """Three chunks on two ranks; where asked, rank 1's chunk 2 sends 10 ns before its product ends."""
    run = Builder()
    for number in (0, 1):
        rank = run.rank(number)
        for chunk in range(3):
            at = 1000 * chunk
            rank.range(f"chunk {chunk}", at, at + 100)
            rank.kernel("sgemm", stream=20 + chunk, start=at + 200, end=at + 500, launch=(at + 10, at + 20))
            start = at + 490 if early and (number, chunk) == (1, 2) else at + 500
            reduce = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)"
            rank.kernel(reduce, stream=9, start=start, end=at + 700, launch=(at + 30, at + 40))
    return run.trace()


@pytest.mark.parametrize(("early", "found"), [(False, []), (True, [(1, "chunk 2")])])
def test_the_question_no_command_covers_is_answered_in_under_ten_lines(early: bool, found: list[Any]) -> None:
    code = example("python", 'in_ranges("chunk *")')
    lines = [line for line in code.splitlines() if not line.startswith("print")]
    assert len(lines) < 10
    namespace: dict[str, Any] = {"tv": tv, "trace": tv.Trace(chunks(early))}
    exec("\n".join(line for line in lines if "tv.load" not in line), namespace)
    assert [(rank, name) for rank, name, _ in namespace["early"].index] == found
    assert len(namespace["span"]) == 6


def test_the_tutorials_contract_is_the_file_that_it_runs() -> None:
    (shown,) = re.findall(r"^```toml\n(.*?)^```", read("tutorial"), re.MULTILINE | re.DOTALL)
    assert (ROOT / "docs/contracts/tutorial.toml").read_text(encoding="utf-8").endswith(shown)


@pytest.mark.parametrize("page", ["definitions", "reading-a-verdict"])
def test_every_cause_is_defined_and_has_a_remedy(page: str) -> None:
    assert re.findall(r"^\| `([a-z-]+)` \|", read(page), re.MULTILINE) == [cause.name for cause in CAUSE_TABLE]
    assert read(page) == with_cause_tables(read(page)), f"python -m tests.project.test_docs {page} writes it anew"


def test_every_warning_is_explained() -> None:
    """By the codes that stand in the source."""
    codes = set()
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "analyzers").rglob("*.py")]
    in_each = [
        {
            getattr(node.targets[0], "id", ""): node.value
            for node in tree.body
            if isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        }
        for tree in trees
    ]
    of_all = {name: value for one in in_each for name, value in one.items()}  # for those that import them
    for tree, own in zip(trees, in_each, strict=True):
        named = {**of_all, **own}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and node.args:
                code = named.get(getattr(node.args[0], "id", ""), node.args[0])
                name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
                if name in ("TraceWarning", "warn") and isinstance(code, ast.Constant):
                    codes.add(str(code.value))
    table = read("cannot-tell").partition("## Warnings")[2]
    named = re.findall(r"^- ((?:`[a-z-]+`,? ?)+):", table, re.MULTILINE)
    explained = {code for one in named for code in re.findall("`(.*?)`", one)}
    assert codes - explained == set(), "explain them in docs/cannot-tell.md"
    texts = {node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    assert explained - texts <= {"other-steps", "other-ranks"}, "no such codes"


def test_every_table_of_an_exported_database_is_described(tmp_path: Path) -> None:
    import sqlite3

    path = tv.load(ROOT / "tests/data/torch/dpmp_overlap.rank0.json.gz").to_sqlite(tmp_path / "x.sqlite")
    with contextlib.closing(sqlite3.connect(path)) as database:
        query = "select name from sqlite_master where type in ('table', 'view') and name not like 'sqlite%'"
        names = {name for (name,) in database.execute(query)}
    described = set(re.findall(r"`([a-z_]+)`", read("python").partition("**SQLite**")[2]))
    assert names - described == set()


def with_cause_tables(text: str) -> str:
    """A page with a row for each cause, as its record has it, where it has such a table."""
    rows = {
        2: [f"| `{cause.name}` | {cause.meaning} |\n" for cause in CAUSE_TABLE],
        3: [f"| `{cause.name}` | {cause.look_at} | {cause.remedy} |\n" for cause in CAUSE_TABLE],
    }
    return re.sub(
        r"(\| cause \|.*\n([|-]+)\n)(?:\|.*\n)+", lambda head: head[1] + "".join(rows[head[2].count("|") - 1]), text
    )


def written_anew(text: str) -> str:
    """A page with the outputs that its commands print now."""

    def block(found: re.Match[str]) -> str:
        command, show, shown = found.groups()
        if shown is None:
            return found[0]
        return f"{found[0][: -len(shown) - 3]}{selected(printed(command), show or '')}```"

    return SHOWN.sub(block, with_cause_tables(text))


if __name__ == "__main__":
    for each in sys.argv[1:] or PAGES:
        (ROOT / "docs" / f"{each}.md").write_text(written_anew(read(each)), encoding="utf-8")
