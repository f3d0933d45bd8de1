"""What A and B likely contend for while both run, each by a rule with its numbers.

- *sms*: SMs are nearly all active, and the pipes of the side that uses them more are less busy than alone (P90, of
  tensor pipes; of issue where neither side uses those); where both sides are known alone, their active SMs add up to
  more than there are.
- *dram*, *nvlink*, *pcie*: reads and writes, or the busier direction, are near what can be reached, and each side that
  is known alone uses some of it.
- *power*: the GPC clock is lower than the best that the GPU reached in any state.

Several can hold at once. Too few samples of both say nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from analyzers.common.wording import duration
from analyzers.counters.states import State

FEWEST = 10  # samples of both: some 3 % of error of a mean that varies by 10 % of its value
FEWEST_ALONE = 5
MOSTLY = 0.5  # of a state's samples have to be filled by it: others are smeared by what came before and after
SMS_BUSY = 85.0  # % of SMs active from which on there is hardly one free
SMS_ALL = 105.0  # % that both sides' SMs alone have to add up to: kernels' edges smear some
FELL = 0.9  # of what it was alone: means vary by some 2 % from run to run
TENSOR_USED = 10  # % (P90) from which on a side is told by its tensor pipes
# %: an H100 copies at 84 to 92 % of DRAM's peak; ring all-reduces move 70 to 78 % of NVLink's in user data; copies from
# pinned memory reach some 80 % of PCIe's. What is a seventh below that still slows who shares it.
NEAR = {"dram": 75.0, "nvlink": 60.0, "pcie": 70.0}
SHARES = 0.1  # of `NEAR` that each side alone has to use
CLOCK_FELL = 0.95  # of the best clock; without a limit it stays within 1 %
NAMES = {"sms": "SMs", "dram": "DRAM", "nvlink": "NVLink", "pcie": "PCIe", "power": "power"}


@dataclass(frozen=True)
class Likely:
    """One thing that the sides contend for.

    contention : a key of NAMES. taken_by : the side that takes it from the other, "a" or "b"; "" where neither does.
    beside, alone : what was compared, both % or MHz: while both run, and at its best alone (the limit of `NEAR`).
    text : in words.
    """

    contention: str
    taken_by: str
    beside: float
    alone: float
    text: str


@dataclass(frozen=True)
class Contended:
    """All that is likely; `unknown` says why nothing can be told, "" where it can."""

    likely: tuple[Likely, ...] = ()
    unknown: str = ""

    @property
    def sentence(self) -> str:
        """What the sides likely contend for."""
        if self.unknown:
            return f"Likely contention: not known, {self.unknown}."
        if not self.likely:
            return "Likely contention: none to be seen (SMs, DRAM, NVLink, PCIe and clock have room while both run)."
        return f"Likely contention: {'; '.join(one.text for one in self.likely)}."


def contended(states: Mapping[str, State], period_ns: int, a: str, b: str) -> Contended:
    """What A and B likely contend for.

    Parameters
    ----------
    states : of one device, or of several together.
    a, b : what the sides are called.
    """
    both = states["both"]
    if not both.time_ns:
        return Contended(unknown=f"'{a}' and '{b}' never ran at once")
    if both.sampled_ns < FEWEST * period_ns:
        why = f"both ran for {duration(both.time_ns)}, and a sample takes {duration(period_ns)}: too few"
        return Contended(unknown=f"{why}. Sample at a higher rate")
    if both.whole_ns < MOSTLY * both.sampled_ns:
        why = f"both run in turns shorter than a sample ({duration(period_ns)})"
        return Contended(unknown=f"{why}. Sample at a higher rate")
    names = {"a": a, "b": b}
    alone = {
        side: states[side]
        for side in names
        if states[side].sampled_ns >= FEWEST_ALONE * period_ns
        and states[side].whole_ns >= MOSTLY * states[side].sampled_ns
    }
    found = [_sms(both, alone, names), *(_limit(which, both, alone) for which in NEAR), _power(states, period_ns)]
    return Contended(tuple(one for one in found if one is not None))


def _sms(both: State, alone: Mapping[str, State], names: Mapping[str, str]) -> Likely | None:
    busy = both.mean("sm_active")
    if busy is None or busy < SMS_BUSY or not alone:
        return None
    if len(alone) == 2:
        together = sum(state.mean("sm_active") or 0.0 for state in alone.values())
        if together < SMS_ALL:
            return None
    used = {counter: {side: state.p90(counter) or 0 for side, state in alone.items()} for counter in _WORK}
    work = "tensor_active" if max(used["tensor_active"].values()) >= TENSOR_USED else "sm_issue"
    loser = max(used[work], key=lambda side: used[work][side])
    before, now = used[work][loser], both.p90(work)
    if now is None or before <= 1 or now > FELL * before:  # 1 %: as good as nothing
        return None
    taker = "b" if loser == "a" else "a"
    text = (
        f"SMs taken by '{names[taker]}' ({_WORK[work]} {now} % of the time, {before} % in '{names[loser]}' alone, P90; "
        f"{busy:.0f} % of SMs active)"
    )
    return Likely("sms", taker, float(now), float(before), text)


_WORK = {"tensor_active": "tensor pipes active", "sm_issue": "SMs issue"}
_DIRECTIONS = {
    "dram": ("dram_read", "dram_write"),
    "nvlink": ("nvlink_in", "nvlink_out"),
    "pcie": ("pcie_in", "pcie_out"),
}


def _limit(which: str, both: State, alone: Mapping[str, State]) -> Likely | None:
    now = _use(which, both)
    if now is None or now < NEAR[which]:
        return None
    if any((_use(which, state) or 0.0) < SHARES * NEAR[which] for state in alone.values()):
        return None
    before = "; ".join(f"{_use(which, state):.0f} % in {side.upper()} alone" for side, state in alone.items())
    text = f"{NAMES[which]} near its limit ({now:.0f} % of its peak{f'; {before}' if before else ''})"
    return Likely(which, "", now, NEAR[which], text)


def _use(which: str, state: State) -> float | None:
    """Reads and writes share DRAM's pins; a link has its own for each direction."""
    known = [mean for counter in _DIRECTIONS[which] if (mean := state.mean(counter)) is not None]
    if not known:
        return None
    return sum(known) if which == "dram" else max(known)


def _power(states: Mapping[str, State], period_ns: int) -> Likely | None:
    now = states["both"].mean("gpc_clock")
    seen = [state for state in states.values() if state.sampled_ns >= FEWEST_ALONE * period_ns]
    best = max((state.p90("gpc_clock") or 0 for state in seen), default=0)
    if now is None or now > CLOCK_FELL * best:
        return None
    text = f"power (GPC clock {now / 1000:.2f} GHz while both run, {best / 1000:.2f} GHz at best)"
    return Likely("power", "", now, float(best), text)
