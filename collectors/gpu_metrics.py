"""GPU counters with nsys: in its options, for which GPUs, and whether the driver lets us."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from collectors.errors import CollectError
from collectors.inject import _traceviz_gpu
from collectors.nsys_command import HELP_SECONDS, Nsys

FREQUENCY = 20_000  # Hz: some 1 % of a 5 ms step, and 2 million rows a second on 4 GPUs
LEAST, MOST = 10, 200_000  # Hz that nsys takes
OPTIONS = ("--gpu-metrics-devices", "--gpu-metrics-device")  # now, and before 2024.4
FREQUENCY_OPTION = "--gpu-metrics-frequency"
PARAMETERS = Path("/proc/driver/nvidia/params")
STATUS = Path("/proc/self/status")
SYS_ADMIN = 21  # the bit of CAP_SYS_ADMIN
_REFUSED = re.compile(
    r".*(insufficient privilege|ERR_NVGPUCTRPERM|not supported|not available|none of the installed).*", re.IGNORECASE
)
_PRIVILEGE = re.compile("privilege|ERR_NVGPUCTRPERM", re.IGNORECASE)
_HINT = (
    "Run as root (in a container with --cap-add=SYS_ADMIN), or have the administrator load the driver with "
    "NVreg_RestrictProfilingToAdminUsers=0 (https://developer.nvidia.com/ERR_NVGPUCTRPERM)."
)


def read_frequency(text: str) -> int:
    """A rate such as 20000 or 20kHz.

    >>> read_frequency("20000"), read_frequency("50k"), read_frequency("20kHz")
    (20000, 50000, 20000)
    """
    found = re.fullmatch(r"\s*(\d{1,9})\s*(k?)\s*(hz)?\s*", text, re.IGNORECASE)
    rate = int(found[1]) * (1000 if found[2] else 1) if found else 0
    if not LEAST <= rate <= MOST:
        raise CollectError(
            f"--gpu-metrics can't be {text!r}.", hint=f"Give samples a second, from {LEAST} to {MOST:,}: 20000."
        )
    return rate


def option_of(nsys: Nsys) -> str:
    """The option that names the GPUs.

    Raises
    ------
    CollectError : this nsys can't sample counters.
    """
    option = next((one for one in OPTIONS if one in nsys.options), None)
    if option is None:
        hint = "Give a newer one with --nsys, or leave --gpu-metrics out."
        raise CollectError(f"nsys {nsys.release} can't sample GPU counters.", hint=hint)
    return option


def check_permission(nsys: Nsys) -> None:
    """Refuse where counters can't be sampled: by what nsys says itself, and by what the driver asks.

    Raises
    ------
    CollectError : with what nsys says, or the driver, and what to do.
    """
    words = [str(nsys.path), "profile", f"{option_of(nsys)}=help"]
    try:
        ran = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=HELP_SECONDS, check=False)
        said = (ran.stdout + ran.stderr).decode(errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        said = ""
    refused = [line.strip() for line in said.splitlines() if _REFUSED.fullmatch(line)]
    if refused and not re.search(r"^\s*\[?\d+\]?\s*:", said, re.MULTILINE):  # it lists no GPU that it can sample
        hint = _HINT if _PRIVILEGE.search(refused[0]) else "Leave --gpu-metrics out."
        raise CollectError(f"GPU counters can't be sampled: nsys says: {refused[0].rstrip('.')}.", hint=hint)
    if _admins_only() and not _is_admin():
        text = "GPU counters can't be sampled: the driver lets only administrators (RmProfilingAdminOnly: 1)."
        raise CollectError(text, hint=_HINT)


def words_of(nsys: Nsys, frequency: int) -> list[str]:
    """The words that set the rate; the GPUs' come apart, as each report may have its own."""
    return [f"{FREQUENCY_OPTION}={frequency}"] if FREQUENCY_OPTION in nsys.options else []


def devices_of(environment: Mapping[str, str]) -> str | None:
    """The GPU of the rank that runs in an environment, by its index on the host; None where that can't be told."""
    gpu: str | None = _traceviz_gpu.own_gpu(environment)  # type: ignore[no-untyped-call]
    return gpu


def _admins_only() -> bool:
    try:
        return bool(re.search(r"^RmProfilingAdminOnly:\s*1\s*$", PARAMETERS.read_text(), re.MULTILINE))
    except OSError:  # no driver here: nsys will say so
        return False


def _is_admin() -> bool:
    try:
        found = re.search(r"^CapEff:\s*([0-9a-fA-F]+)", STATUS.read_text(), re.MULTILINE)
    except OSError:
        return os.geteuid() == 0
    return bool(found and int(found[1], 16) >> SYS_ADMIN & 1)
