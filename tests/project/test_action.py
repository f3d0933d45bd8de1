"""`action.yml`: each step's script run by bash as GitHub runs it, with what GitHub would put into its environment."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]
ONE_RANK = "tests/data/torch/dpmp_overlap.rank0.json.gz"
CAPTURES = "tests/data/torch/dpmp_overlap.rank0.json.gz\n\n  \ntests/data/torch/dpmp_overlap.rank1.json.gz\n"
EXPRESSION = re.compile(r"\$\{\{\s*([\w.-]+)\s*\}\}")

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
class Job:
    """What a job that used the action saw."""

    codes: list[int] = field(default_factory=list)
    outputs: dict[str, str] = field(default_factory=dict)
    summary: str = ""
    printed: str = ""
    notes: str = ""


def action() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def run(folder: Path, **given: str) -> Job:
    """Run the action's steps, up to the first that fails, as a composite action does."""
    described, job = action(), Job()
    (folder / "temp").mkdir()
    (folder / "with space").mkdir()
    python = folder / "python"
    python.write_text(PYTHON.format(notes=folder / "notes", python=sys.executable), encoding="utf-8")
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    inputs = {name: one.get("default", "") for name, one in described["inputs"].items()}
    inputs |= {"python": str(python), "output": str(folder / "with space" / "report"), **given}
    known = {f"inputs.{name}": value for name, value in inputs.items()}
    known |= {"github.action_path": str(ROOT), "runner.temp": str(folder / "temp")}
    steps: dict[str, dict[str, str]] = {}
    for number, step in enumerate(described["runs"]["steps"]):
        assert step["shell"] == "bash", "the only one whose flags are known here"
        script, output, summary = (folder / f"{what}{number}" for what in ("script", "output", "summary"))
        assert not EXPRESSION.search(step["run"]), "an input as text in a script could hold commands"
        script.write_text(step["run"], encoding="utf-8")
        output.touch()
        summary.touch()
        environment = {
            **os.environ,
            "GITHUB_OUTPUT": str(output),
            "GITHUB_STEP_SUMMARY": str(summary),
            "TRACEVIZ_CHROMIUM": "/nowhere",  # no picture: tests/browser draws some
            "RUNNER_TEMP": known["runner.temp"],
        }
        environment |= {f"INPUT_{name.upper().replace(' ', '_')}": value for name, value in inputs.items()}
        environment |= {name: EXPRESSION.sub(lambda found: known[found[1]], text) for name, text in step["env"].items()}
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        job.codes.append(done.returncode)
        job.printed += done.stdout + done.stderr
        job.summary += summary.read_text(encoding="utf-8")
        steps[step.get("id", "")] = dict(line.split("=", 1) for line in output.read_text().splitlines())
        if done.returncode:
            break
    for name, one in described["outputs"].items():
        _, identity, _, key = EXPRESSION.fullmatch(one["value"])[1].split(".")  # type: ignore[index]
        job.outputs[name] = steps.get(identity, {}).get(key, "")
    job.notes = (folder / "notes").read_text(encoding="utf-8")
    return job


PAIR = {"traces": CAPTURES, "a": "nvtx:DP Embedding", "b": "nvtx:MP Embedding"}


def test_a_bar_that_is_met_lets_the_job_pass(tmp_path: Path) -> None:
    job = run(tmp_path, **PAIR, **{"min-overlap": "10%"})
    assert job.codes == [0, 0], job.printed
    assert job.outputs == {"verdict": "overlapped", "report": str(tmp_path / "with space" / "report")}
    assert job.summary.startswith("## OVERLAPPED: 'nvtx:DP Embedding' ran beside 'nvtx:MP Embedding' for 162 µs ")
    assert job.summary == (tmp_path / "with space" / "report" / "summary.md").read_text(encoding="utf-8")
    assert job.notes.splitlines() == [
        f"-m venv {tmp_path / 'temp' / 'traceviz-venv'}",
        f"-m pip install --quiet {ROOT}[png]",
    ]


def test_a_missed_bar_fails_the_job_after_the_report_was_written(tmp_path: Path) -> None:
    job = run(tmp_path, **PAIR)
    assert job.codes == [0, 1], job.printed
    assert job.outputs["verdict"] == "partial"
    assert job.summary.startswith("## PARTIAL: 'nvtx:DP Embedding' ran beside 'nvtx:MP Embedding' for 162 µs ")
    results = json.loads((tmp_path / "with space" / "report" / "results.json").read_text(encoding="utf-8"))
    assert results["overlap"]["bar"] == 0.6


def test_an_apparent_figure_decides_where_the_job_asks_for_it_and_is_called_so(tmp_path: Path) -> None:
    one = {**PAIR, "traces": ONE_RANK, "min-overlap": "10%"}
    for accept, codes, word in (("false", [0, 3], "INCONCLUSIVE"), ("true", [0, 0], "OVERLAPPED")):
        (tmp_path / accept).mkdir()
        job = run(tmp_path / accept, **one, **{"accept-apparent": accept})
        assert job.codes == codes, job.printed
        assert job.summary.startswith(f"## {word}: ")
        assert "16.1 % apparent" in job.summary.splitlines()[0]


def test_what_cannot_be_told_fails_the_job_with_its_reason(tmp_path: Path) -> None:
    job = run(tmp_path, traces=CAPTURES, a="nvtx:no such range", b="compute")
    assert job.codes == [0, 3], job.printed
    assert job.outputs["verdict"] == "inconclusive"
    assert "no range 'no such range'" in job.summary


@pytest.mark.parametrize("traces", ["", "not/there.json"])
def test_bad_input_fails_the_job_and_leaves_no_summary(tmp_path: Path, traces: str) -> None:
    job = run(tmp_path, traces=traces)
    assert job.codes == [0, 2], job.printed
    assert (job.summary, job.outputs) == ("", {"verdict": "", "report": ""})


def test_inputs_are_texts_never_commands(tmp_path: Path) -> None:
    marker = tmp_path / "hacked"
    text = f'nvtx:x"; touch {marker}; $(touch {marker}) `touch {marker}`'
    job = run(tmp_path, traces=CAPTURES, a=text, b=f"nvtx:$(touch {marker})")
    assert job.codes[-1] in (2, 3), job.printed
    assert not marker.exists()


def test_every_input_and_output_is_described() -> None:
    described = action()
    assert described["runs"]["using"] == "composite"
    assert all(one["description"] for one in [*described["inputs"].values(), *described["outputs"].values()])
    assert all(("default" in one) != one.get("required", False) for one in described["inputs"].values())
    used = set(EXPRESSION.findall((ROOT / "action.yml").read_text(encoding="utf-8")))
    assert {name.removeprefix("inputs.") for name in used if name.startswith("inputs.")} == set(described["inputs"])
