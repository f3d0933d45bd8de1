from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.common.errors import TracevizError
from analyzers.readers.nsys import export
from collectors.errors import CollectError
from collectors.nsys_command import Nsys, build, options_of, parse_options
from traceviz.commands.collect import find_nsys

OPTIONS = {
    "--session-new": "",
    "--env-var": "",
    "--trace": "Possible values are 'cuda', 'nvtx', 'osrt' or 'none'.",
    "--sample": "Possible values are 'process-tree', 'system-wide' or 'none'.",
    "--cpuctxsw": "Possible values are 'process-tree' or 'none'.",
    "--force-overwrite": "Possible values are 'true' or 'false'.",
    "--cuda-graph-trace": "Possible values for <granularity> are 'graph' or 'node'.",
    "--cuda-memory-usage": "Possible values are 'true' or 'false'.",
    "--cuda-event-trace": "Possible values are 'true' or 'false'.",
    "--capture-range": "Possible values are none, cudaProfilerApi, nvtx, hotkey.",
    "--capture-range-end": "Possible values are 'none', 'stop', 'stop-shutdown'.",
}


def nsys(*without: str) -> Nsys:
    return Nsys(
        Path("/opt/x/nsys"), (2024, 6, 1), {name: text for name, text in OPTIONS.items() if name not in without}
    )


def test_all_that_is_known_is_asked_for() -> None:
    words, notes = build(nsys(), between_calls=True)
    assert words == [
        "/opt/x/nsys",
        "profile",
        "--trace=cuda,nvtx",
        "--sample=none",
        "--cpuctxsw=none",
        "--cuda-event-trace=true",
        "--force-overwrite=true",
        "--cuda-graph-trace=graph",
        "--capture-range=cudaProfilerApi",
        "--capture-range-end=stop",
    ]
    assert notes == []


def test_what_a_version_lacks_is_left_out_with_a_note() -> None:
    words, notes = build(nsys("--cuda-event-trace", "--cuda-graph-trace"))
    assert not [word for word in words if word.startswith(("--cuda-event-trace", "--cuda-graph-trace"))]
    assert [note.split(":")[0] for note in notes] == [
        "nsys 2024.6.1 lacks --cuda-event-trace",
        "nsys 2024.6.1 lacks --cuda-graph-trace",
    ]


def test_memory_is_recorded_on_request_where_the_version_can() -> None:
    words, notes = build(nsys(), memory=True)
    assert ("--cuda-memory-usage=true" in words, notes) == (True, [])
    words, notes = build(nsys("--cuda-memory-usage"), memory=True)
    assert not [word for word in words if "memory" in word]
    assert notes == ["nsys 2024.6.1 lacks --cuda-memory-usage: memory won't be recorded."]
    with pytest.raises(CollectError, match="with CUDA only"):
        build(nsys(), trace=("nvtx",), memory=True)


def test_a_value_that_a_version_lacks_is_left_out_with_a_note() -> None:
    old = nsys()
    old.options["--capture-range-end"] = "Possible values are 'none' or 'repeat'."
    words, notes = build(old, between_calls=True)
    assert "--capture-range-end=stop" not in words
    assert "lacks --capture-range-end=stop" in notes[0]


def test_without_capture_ranges_single_steps_are_refused() -> None:
    with pytest.raises(CollectError, match="can't capture single steps"):
        build(nsys("--capture-range"), between_calls=True)


def test_an_nsys_that_could_not_be_told_to_stop_is_refused() -> None:
    with pytest.raises(CollectError, match="lacks --session-new, which collecting needs"):
        build(nsys("--session-new"))


def test_an_api_that_this_nsys_cannot_trace_is_refused() -> None:
    with pytest.raises(CollectError, match="can't trace 'cuda,nvxt'"):
        build(nsys(), trace=("cuda", "nvxt"))


def test_options_are_read_from_the_help_with_short_and_marked_forms() -> None:
    text = "\t-b, --backtrace=\n\n\t   Select.\n\n\t(Experimental) --ib-switch=<x>\n\n\t   A list.\n\n\t--no-value\n"
    assert list(parse_options(text)) == ["--backtrace", "--ib-switch", "--no-value"]


def fake_nsys(folder: Path, version: str) -> Path:
    folder.mkdir(parents=True)
    path = folder / "nsys"
    path.write_text(f"#!/bin/sh\necho 'NVIDIA Nsight Systems version {version}.1-1v0'\n")
    path.chmod(0o755)
    return path


def test_without_an_nsys_it_is_said_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nsys is looked for is proven with the analyzers, which export with what is found."""
    monkeypatch.setattr(export, "FOLDERS", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("TRACEVIZ_NSYS", raising=False)
    with pytest.raises(CollectError, match=r"nsys is not here\. Install .* or collect torch\."):
        find_nsys()
    with pytest.raises(TracevizError, match="no nsys runs at"):
        find_nsys(str(tmp_path / "none"))
    there = fake_nsys(tmp_path / "b", "2022.2.2")
    assert (find_nsys(str(there)).path, find_nsys(str(there)).release) == (there, "2022.2.2")


def test_an_nsys_that_does_not_say_what_it_can_has_no_options(tmp_path: Path) -> None:
    assert options_of(tmp_path / "none") == {}
    (tmp_path / "nsys").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "nsys").chmod(0o755)
    assert options_of(tmp_path / "nsys") == {}
