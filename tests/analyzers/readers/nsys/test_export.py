"""Reports become exports in the cache: with a real nsys where there is one, with stand-ins for what it can't show."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from analyzers.common.errors import TracevizError
from analyzers.readers.nsys import export
from analyzers.readers.nsys.export import exported, find_nsys, is_complete, made_by
from analyzers.readers.nsys.nsys_export import read_sqlite
from analyzers.trace.schemas import TABLES
from tests.support.endings import is_alive, soon

ROOT = Path(__file__).parents[4]
DATA = Path(__file__).parents[3] / "data" / "nsys"
REPORT = DATA / "dpmp_hidden_sync.2gpu.nsys2023.nsys-rep"
EXPORT = DATA / "dpmp_hidden_sync.2gpu.nsys2023.sqlite"
NEWER = DATA / "rowpar_s1.rank0.nsys2025.nsys-rep"
FAKE = """#!/bin/sh
if [ "$1" = --version ]; then echo "NVIDIA Nsight Systems version {version}.59-241234567890v0"; exit 0; fi
if [ "$2" = --help ]; then echo "usage: nsys export {help}"; exit 0; fi
for word in "$@"; do case "$word" in --output=*) out="${{word#--output=}}";; esac; last="$word"; done
echo "$0 $*" >> "{log}"
{body}
"""
GOOD = f'cp "{EXPORT}" "$out"'
CUT = f'head -c 9000 "{EXPORT}" > "$out"'
PARTIAL = 'echo "Exportation error: no good"; head -c 5000 /dev/zero > "$out"'


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, and no nsys but those the test names."""
    monkeypatch.setenv("TRACEVIZ_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("TRACEVIZ_NSYS", raising=False)
    monkeypatch.setattr(export, "FOLDERS", ())
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return tmp_path / "cache" / "nsys"


@pytest.fixture(scope="session")
def real_nsys() -> str:
    return str(next(find_nsys()).path)


@pytest.fixture
def fake(tmp_path: Path) -> Callable[..., Path]:
    def make(body: str, version: str = "2024.2.1", folder: str = "fake", options: str = "") -> Path:
        path = tmp_path / folder / "nsys"
        path.parent.mkdir(parents=True)
        path.write_text(FAKE.format(version=version, help=options, body=body, log=tmp_path / "log"))
        path.chmod(0o755)
        return path

    return make


@pytest.fixture
def report(tmp_path: Path) -> Path:
    """A report with a name that would mislead a shell or an option parser, in a folder nobody may write to."""
    folder = tmp_path / "reports"
    folder.mkdir()
    path = folder / "-o $(touch pwned) rank3 é.nsys-rep"
    shutil.copyfile(REPORT, path)
    return path


def runs(tmp_path: Path) -> list[str]:
    log = tmp_path / "log"
    return log.read_text().splitlines() if log.exists() else []


def left_in(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir()) if cache.exists() else []


@pytest.mark.nsys
def test_a_real_export_holds_what_the_shipped_one_holds(real_nsys: str) -> None:
    made, shipped = read_sqlite(exported(REPORT, real_nsys)), read_sqlite(EXPORT)
    for name in TABLES:
        left, right = (
            getattr(trace, name).to_frame().sort_values(list(TABLES[name].schema)) for trace in (made, shipped)
        )
        pd.testing.assert_frame_equal(
            left.reset_index(drop=True), right.reset_index(drop=True), check_categorical=False, obj=name
        )


@pytest.mark.nsys
def test_the_reports_folder_is_never_written_to(report: Path, real_nsys: str, cache: Path) -> None:
    report.parent.chmod(0o555)
    before = {path.name: path.stat().st_mtime_ns for path in report.parent.iterdir()}
    made = exported(report, real_nsys)
    report.parent.chmod(0o755)
    assert {path.name: path.stat().st_mtime_ns for path in report.parent.iterdir()} == before
    assert made.parent == cache
    assert left_in(cache) == [made.name]
    assert len(read_sqlite(made).ops) == 145


@pytest.mark.nsys
def test_a_report_newer_than_nsys_says_which_made_it_which_is_here_and_what_to_do(
    tmp_path: Path, real_nsys: str, cache: Path
) -> None:
    (version,) = {found.version for found in find_nsys(real_nsys)}
    if version >= (2025, 3):
        pytest.skip("the nsys here opens every report at hand")
    lone = tmp_path / NEWER.name
    shutil.copyfile(NEWER, lone)
    with pytest.raises(TracevizError) as caught:
        exported(lone, real_nsys)
    message = str(caught.value)
    assert "made by nsys 2025.3.1, newer than nsys 20" in message
    assert f"nsys export --type sqlite --output {lone.stem}.sqlite {lone.name}" in message
    assert left_in(cache) == []


def test_a_report_is_exported_once(report: Path, fake: Callable[..., Path], tmp_path: Path) -> None:
    nsys = fake(GOOD)
    first = exported(report, str(nsys))
    assert exported(report, str(nsys)) == first
    assert len(runs(tmp_path)) == 1
    with report.open("ab") as file:
        file.write(b"more")
    assert exported(report, str(nsys)) != first
    assert len(runs(tmp_path)) == 2


def test_names_are_data_never_options_or_shell(
    report: Path, fake: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(report.parent)
    made = exported(Path(report.name), str(fake(GOOD)))
    (command,) = runs(tmp_path)
    assert "pwned" not in command
    assert not list(tmp_path.rglob("pwned"))
    assert made.name.startswith("o_touch_pwned_rank3")


def test_payloads_are_asked_for_where_nsys_knows_how(report: Path, fake: Callable[..., Path], tmp_path: Path) -> None:
    exported(report, str(fake(GOOD, options="--include-blobs [true|false]")))
    assert "--include-blobs=true" in runs(tmp_path)[0]


@pytest.mark.parametrize("ending", ["exit 0", "exit 1"])
@pytest.mark.parametrize("body", [PARTIAL, CUT, 'echo "Exportation error: File not found"'])
def test_a_failed_export_is_a_failure_whatever_it_exits_with(
    report: Path, fake: Callable[..., Path], cache: Path, body: str, ending: str
) -> None:
    with pytest.raises(TracevizError, match="can't export it"):
        exported(report, str(fake(f"{body}\n{ending}", version="2026.1.1")))
    assert left_in(cache) == []


def test_an_export_that_hangs_is_ended_with_its_children(
    report: Path, fake: Callable[..., Path], cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "PATIENCE_SECONDS", 0.5)
    monkeypatch.setattr(export, "BYTES_PER_SECOND", 10**9)
    child = tmp_path / "child"
    with pytest.raises(TracevizError, match="did not end within"):
        exported(report, str(fake(f'sleep 300 & echo $! > "{child}"; wait')))
    assert soon(lambda: not is_alive(int(child.read_text())))
    assert left_in(cache) == []


def test_an_interrupt_leaves_nothing_running_or_lying_about(
    report: Path, fake: Callable[..., Path], cache: Path, tmp_path: Path
) -> None:
    child = tmp_path / "child"
    nsys = fake(f'sleep 300 & echo $! > "{child}"; wait')

    def interrupt(what: str, done: int, total: int) -> None:
        if child.exists() and child.read_text().strip():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        exported(report, str(nsys), interrupt)
    assert soon(lambda: not is_alive(int(child.read_text())))
    assert left_in(cache) == []


def test_progress_follows_the_growing_file(report: Path, fake: Callable[..., Path], tmp_path: Path) -> None:
    reported: list[int] = []

    def progress(what: str, done: int, total: int) -> None:
        reported.append(done)
        (tmp_path / f"seen-{done}").touch()

    sizes = [50000, EXPORT.stat().st_size]
    seen = [f'until [ -e "{tmp_path}/seen-{size}" ]; do sleep 0.05; done' for size in sizes]
    exported(report, str(fake(f'head -c 50000 "{EXPORT}" > "$out"; {seen[0]}; {GOOD}; {seen[1]}')), progress)
    assert reported == sorted(reported)
    assert set(sizes) <= set(reported)


def test_two_processes_exporting_at_once_end_in_one_good_entry(
    report: Path, fake: Callable[..., Path], cache: Path, tmp_path: Path
) -> None:
    nsys = fake(f'until [ "$(wc -l < "{tmp_path}/log")" -ge 2 ]; do sleep 0.05; done; {GOOD}')
    code = (
        "import sys; from pathlib import Path; from analyzers.readers.nsys.export import exported; "
        "print(exported(Path(sys.argv[1]), sys.argv[2]))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    both = [
        subprocess.Popen([sys.executable, "-c", code, report, nsys], stdout=subprocess.PIPE, env=environment, text=True)
        for _ in range(2)
    ]
    answers = {process.communicate()[0].strip() for process in both}
    assert len(answers) == 1
    (name,) = left_in(cache)
    assert is_complete(cache / name)
    assert len(runs(tmp_path)) == 2


def test_a_damaged_entry_is_made_anew(report: Path, fake: Callable[..., Path], tmp_path: Path) -> None:
    nsys = str(fake(GOOD))
    entry = exported(report, nsys)
    entry.write_bytes(entry.read_bytes()[:10000])
    assert is_complete(exported(report, nsys))
    assert len(runs(tmp_path)) == 2


def test_without_nsys_an_export_beside_the_report_serves(report: Path) -> None:
    beside = report.with_suffix(".sqlite")
    shutil.copyfile(EXPORT, beside)
    assert exported(report) == beside


def test_without_nsys_an_older_or_incomplete_export_does_not(report: Path) -> None:
    with pytest.raises(TracevizError, match="none is here"):
        exported(report)
    beside = report.with_suffix(".sqlite")
    shutil.copyfile(EXPORT, beside)
    os.utime(beside, (0, 0))
    with pytest.raises(TracevizError, match="older than the report"):
        exported(report)
    beside.write_bytes(EXPORT.read_bytes()[:8192])
    with pytest.raises(TracevizError, match=r"beside it is incomplete.*") as caught:
        exported(report)
    assert "Install Nsight Systems 2023.4.4 or newer" in str(caught.value)
    assert "--output './-o $(touch pwned) rank3 é.sqlite' './-o $(touch pwned) rank3 é.nsys-rep'" in str(caught.value)


def test_an_export_beside_a_report_newer_than_nsys_serves(tmp_path: Path, fake: Callable[..., Path]) -> None:
    lone = tmp_path / NEWER.name
    shutil.copyfile(NEWER, lone)
    with pytest.raises(TracevizError, match=r"made by nsys 2025\.3\.1, newer than nsys 2024\.2\.1"):
        exported(lone, str(fake(PARTIAL)))
    beside = lone.with_suffix(".sqlite")
    shutil.copyfile(NEWER.with_suffix(".sqlite"), beside)
    assert exported(lone, str(tmp_path / "fake" / "nsys")) == beside


def test_what_is_no_report_is_said_to_be_none(tmp_path: Path, fake: Callable[..., Path]) -> None:
    other = tmp_path / "notes.nsys-rep"
    other.write_text("dear diary")
    with pytest.raises(TracevizError, match="not an nsys report"):
        exported(other, str(fake(PARTIAL)))
    other.write_text("")
    with pytest.raises(TracevizError, match="empty"):
        exported(other)


def test_a_cache_that_can_not_be_written_is_said_so(
    report: Path, fake: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("TRACEVIZ_CACHE", str(tmp_path / "file"))
    with pytest.raises(TracevizError, match="cache can't be written") as caught:
        exported(report, str(fake(GOOD)))
    assert "TRACEVIZ_CACHE" in str(caught.value)


def test_the_cache_is_the_users_unless_said_otherwise(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TRACEVIZ_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert export.cache_folder() == tmp_path / "xdg" / "traceviz" / "nsys"


def test_the_chosen_nsys_is_the_only_one(
    fake: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, report: Path, tmp_path: Path
) -> None:
    chosen, other = fake(PARTIAL, "2024.1.1", "chosen"), fake(GOOD, "2025.5.1", "other")
    monkeypatch.setenv("PATH", str(other.parent), prepend=os.pathsep)
    monkeypatch.setenv("TRACEVIZ_NSYS", str(chosen))
    assert [found.path for found in find_nsys()] == [chosen]
    assert [found.path for found in find_nsys(str(other))] == [other]
    with pytest.raises(TracevizError, match="can't export"):
        exported(report)
    with pytest.raises(TracevizError, match="no nsys runs at"):
        list(find_nsys(str(tmp_path / "nowhere" / "nsys")))


def test_path_comes_first_and_then_the_folders_newest_first(
    fake: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    on_path = fake(GOOD, "2024.3.1", "bin")
    for version in ("2023.4.4", "2025.10.1", "2025.3.1"):
        fake(GOOD, version, f"opt/{version}/bin")
    (tmp_path / "opt" / "broken" / "bin").mkdir(parents=True)
    (tmp_path / "opt" / "broken" / "bin" / "nsys").write_text("no program")
    monkeypatch.setenv("PATH", str(on_path.parent), prepend=os.pathsep)
    monkeypatch.setattr(export, "FOLDERS", (f"{tmp_path}/opt/*/bin/nsys", f"{tmp_path}/bin/nsys"))
    assert [found.version[:3] for found in find_nsys()] == [(2024, 3, 1), (2025, 10, 1), (2025, 3, 1), (2023, 4, 4)]


def test_a_newer_nsys_is_tried_where_one_fails_and_no_older_one(
    fake: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, report: Path
) -> None:
    on_path = fake(PARTIAL, "2024.3.1", "bin")
    fake(GOOD, "2025.3.1", "opt/new")
    fake(GOOD, "2023.4.4", "opt/old")
    monkeypatch.setenv("PATH", str(on_path.parent), prepend=os.pathsep)
    monkeypatch.setattr(export, "FOLDERS", (f"{tmp_path}/opt/*/nsys",))
    exported(report)
    assert [line.split()[0] for line in runs(tmp_path)] == [str(on_path), str(tmp_path / "opt" / "new" / "nsys")]
    monkeypatch.setattr(export, "FOLDERS", (f"{tmp_path}/opt/old/nsys",))
    with report.open("ab") as file:
        file.write(b"more")
    with pytest.raises(TracevizError):
        exported(report)
    assert len(runs(tmp_path)) == 3


@pytest.mark.parametrize("entry", ["", ".", "bin", "{here}"])
def test_an_nsys_in_the_current_folder_is_never_run(
    fake: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, entry: str
) -> None:
    here = fake("exit 1", folder="here").parent
    shutil.copytree(here, here / "bin")
    (here / "nsys").write_text(f'#!/bin/sh\ntouch "{tmp_path}/ran"\necho 2024.1.1\n')
    monkeypatch.chdir(here)
    monkeypatch.setenv("PATH", os.pathsep.join([entry.format(here=here), "/usr/bin"]))
    assert list(find_nsys()) == []
    with pytest.raises(TracevizError):
        list(find_nsys("nsys"))
    assert not (tmp_path / "ran").exists()


def test_a_report_tells_which_nsys_made_it(tmp_path: Path) -> None:
    assert made_by(REPORT) == (2023, 4, 4, 54)
    assert made_by(NEWER) == (2025, 3, 1, 0)
    other = tmp_path / "other"
    other.write_bytes(b"dear diary")
    assert made_by(other) is None


def test_an_nsys_in_a_folder_that_anybody_may_write_to_is_not_run(
    fake: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nsys = fake(GOOD, "2099.1.1", "here")
    nsys.parent.chmod(0o777)
    monkeypatch.setenv("PATH", f"{nsys.parent}:/nowhere")
    assert list(find_nsys()) == []


def test_progress_says_which_nsys_runs(fake: Callable[..., Path], report: Path) -> None:
    """One that stands on PATH is not run without a word; what `collect` says of it, its own tests show."""
    reported: list[str] = []
    nsys = fake(GOOD)
    exported(report, str(nsys), lambda what, done, total: reported.append(what))
    assert set(reported) == {f"exporting · nsys 2024.2.1 at {nsys}"}
