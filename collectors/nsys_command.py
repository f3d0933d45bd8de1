"""The `nsys profile` command line: what is asked for, in the options that the installed version knows.

GPU counters, too: in which options, for which GPUs, and whether the driver lets us.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from collectors import manifest as manifests
from collectors.errors import CollectError

# What is wanted of every capture: no CPU samples, which cost much and answer nothing here, and each event record
# and wait, without which an order between streams can't be proven.
WANTED_NSYS_OPTIONS = (
    ("--sample", "none"),
    ("--cpuctxsw", "none"),
    ("--cuda-event-trace", "true"),
    ("--force-overwrite", "true"),
)
NEEDED = ("--session-new", "--env-var")  # of the supervisor, to find the program and to end the recording
HELP_SECONDS = 60
_OPTION = re.compile(r"^\t(?:\([^)]*\) )?(?:-\w, )?(--[a-z][a-z-]*)", re.MULTILINE)
LOST = {
    "--cuda-event-trace": "waits between streams won't be linked to their records, so an order can't always be proven",
    "--cuda-graph-trace": "graphs are traced as this nsys does it by default",
    "--cuda-memory-usage": "memory won't be recorded",
    "--capture-range-end": "nsys may end the command when the captured steps are over",
}

LEAST_HZ, MOST_HZ = 10, 200_000  # that nsys takes
COUNTER_OPTIONS = ("--gpu-metrics-devices", "--gpu-metrics-device")  # now, and before 2024.4
FREQUENCY_OPTION = "--gpu-metrics-frequency"
PARAMETERS = Path("/proc/driver/nvidia/params")
PROC_STATUS = Path("/proc/self/status")
SYS_ADMIN = 21  # the bit of CAP_SYS_ADMIN
_REFUSED = re.compile(
    r".*(insufficient privilege|ERR_NVGPUCTRPERM|not supported|not available|none of the installed).*", re.IGNORECASE
)
_PRIVILEGE = re.compile("privilege|ERR_NVGPUCTRPERM", re.IGNORECASE)
_HINT = (
    "Run as root (in a container with --cap-add=SYS_ADMIN), or have the administrator load the driver with "
    "NVreg_RestrictProfilingToAdminUsers=0 (https://developer.nvidia.com/ERR_NVGPUCTRPERM)."
)


@dataclass(frozen=True)
class Nsys:
    """The nsys that captures; `options` are those `nsys profile` takes, each with what its help says."""

    path: Path
    version: tuple[int, ...]
    options: dict[str, str]

    @property
    def release(self) -> str:
        """Its version as people write it."""
        return ".".join(map(str, self.version[:3]))


def options_of(path: Path) -> dict[str, str]:
    """Options that `nsys profile` takes, with their help; none where it does not say."""
    return parse_options(manifests.output_of([str(path), "profile", "--help"], HELP_SECONDS))


def parse_options(text: str) -> dict[str, str]:
    r"""Options in the help of `nsys profile`.

    >>> parse_options("\t-t, --trace=\n\n\t   Possible values are 'cuda'\n\n\t--kill=\n\t   x\n")["--trace"]
    "Possible values are 'cuda'"
    """
    heads = list(_OPTION.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    options = zip(heads, ends, strict=False)
    return {head[1]: " ".join(text[head.end() : end].lstrip("=").split()) for head, end in options}


def build(
    nsys: Nsys,
    *,
    trace: Sequence[str] = ("cuda", "nvtx"),
    graphs: str = "graph",
    memory: bool = False,
    between_calls: bool = False,
) -> tuple[list[str], list[str]]:
    """The words in front of `--output` and the user's command, and notes on what this nsys lacks.

    Parameters
    ----------
    trace : APIs.
    graphs : "graph" for a row a CUDA graph, "node" for one a kernel.
    memory : each allocation and release on the GPU.
    between_calls : only between cudaProfilerStart and cudaProfilerStop.

    Raises
    ------
    CollectError : without an option there would be no capture as asked.
    """
    if absent := [option for option in NEEDED if option not in nsys.options]:
        raise CollectError(
            f"nsys {nsys.release} lacks {' and '.join(absent)}, which collecting needs.",
            hint="Give a newer one with --nsys.",
        )
    if _lacking(nsys, "--trace", ",".join(trace)):
        raise CollectError(f"nsys {nsys.release} can't trace {','.join(trace)!r}.", hint="See nsys profile --help.")
    wanted = [("--trace", ",".join(trace)), *WANTED_NSYS_OPTIONS]
    if "cuda" in trace:
        wanted.append(("--cuda-graph-trace", graphs))
    if memory:
        if "cuda" not in trace:
            raise CollectError("memory is recorded with CUDA only.", hint="Trace cuda too, or leave --memory out.")
        wanted.append(("--cuda-memory-usage", "true"))
    if between_calls:
        if "--capture-range" not in nsys.options:
            raise CollectError(f"nsys {nsys.release} can't capture single steps.", hint="Leave --steps out.")
        wanted += [("--capture-range", "cudaProfilerApi"), ("--capture-range-end", "stop")]
    words, notes = [str(nsys.path), "profile"], []
    for option, value in wanted:
        lacking = _lacking(nsys, option, value)
        if lacking:
            notes.append(f"nsys {nsys.release} lacks {lacking}: {LOST.get(option, 'left out')}.")
        else:
            words.append(f"{option}={value}")
    return words, notes


def _lacking(nsys: Nsys, option: str, value: str) -> str:
    """The option, or its value, that a version does not know; "" where it knows both."""
    if option not in nsys.options:
        return option
    text = nsys.options[option]
    known = "Possible values" not in text or all(part in text for part in value.split(","))
    return "" if known else f"{option}={value}"


def read_frequency(text: str) -> int:
    """A rate such as 20000 or 20kHz.

    >>> read_frequency("20000"), read_frequency("50k"), read_frequency("20kHz")
    (20000, 50000, 20000)
    """
    found = re.fullmatch(r"\s*(\d{1,9})\s*(k?)\s*(hz)?\s*", text, re.IGNORECASE)
    rate = int(found[1]) * (1000 if found[2] else 1) if found else 0
    if not LEAST_HZ <= rate <= MOST_HZ:
        raise CollectError(
            f"--gpu-metrics can't be {text!r}.", hint=f"Give samples a second, from {LEAST_HZ} to {MOST_HZ:,}: 20000."
        )
    return rate


def counter_option(nsys: Nsys) -> str:
    """The option that names the GPUs.

    Raises
    ------
    CollectError : this nsys can't sample counters.
    """
    option = next((one for one in COUNTER_OPTIONS if one in nsys.options), None)
    if option is None:
        hint = "Give a newer one with --nsys, or leave --gpu-metrics out."
        raise CollectError(f"nsys {nsys.release} can't sample GPU counters.", hint=hint)
    return option


def check_counters_allowed(nsys: Nsys) -> None:
    """Refuse where counters can't be sampled: by what nsys says itself, and by what the driver asks.

    Raises
    ------
    CollectError : with what nsys says, or the driver, and what to do.
    """
    words = [str(nsys.path), "profile", f"{counter_option(nsys)}=help"]
    try:
        ran = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=HELP_SECONDS, check=False)
        said = (ran.stdout + ran.stderr).decode(errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        said = ""
    refused = [line.strip() for line in said.splitlines() if _REFUSED.fullmatch(line)]
    if refused and not re.search(r"^\s*\[?\d+\]?\s*:", said, re.MULTILINE):  # it lists no GPU that it can sample
        hint = _HINT if _PRIVILEGE.search(refused[0]) else "Leave --gpu-metrics out."
        raise CollectError(f"GPU counters can't be sampled: nsys says: {refused[0].rstrip('.')}.", hint=hint)
    with contextlib.suppress(OSError):  # no driver here: nsys will say so
        if not re.search(r"^RmProfilingAdminOnly:\s*1\s*$", PARAMETERS.read_text(), re.MULTILINE) or _is_admin():
            return
        text = "GPU counters can't be sampled: the driver lets only administrators (RmProfilingAdminOnly: 1)."
        raise CollectError(text, hint=_HINT)


def frequency_words(nsys: Nsys, frequency: int) -> list[str]:
    """The words that set the rate; the GPUs' come apart, as each report may have its own."""
    return [f"{FREQUENCY_OPTION}={frequency}"] if FREQUENCY_OPTION in nsys.options else []


def _is_admin() -> bool:
    try:
        found = re.search(r"^CapEff:\s*([0-9a-fA-F]+)", PROC_STATUS.read_text(), re.MULTILINE)
    except OSError:
        return os.geteuid() == 0
    return bool(found and int(found[1], 16) >> SYS_ADMIN & 1)
