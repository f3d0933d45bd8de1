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

import msgspec

from analyzers.common.records import Record
from analyzers.common.wording import duration
from analyzers.counters.states import Mixture, SideState

MIN_SAMPLES = 10  # samples of both: some 3 % of error of a mean that varies by 10 % of its value
FEWEST_ALONE = 5
MIN_FILLED_SHARE = 0.5  # of a state's samples have to be filled by it; else it is told from others by least squares
MAX_STANDARD_ERROR = 5.0  # standard error, % or MHz, up to which such a mean is believed
SMS_BUSY = 85.0  # % of SMs active from which on there is hardly one free
SMS_ALL = 105.0  # % that both sides' SMs alone have to add up to: kernels' edges smear some
FELL = 0.9  # of what it was alone: means vary by some 2 % from run to run
TENSOR_USED = 10  # % (P90) from which on a side is told by its tensor pipes
# %: an H100 copies at 84 to 92 % of DRAM's peak; ring all-reduces move 70 to 78 % of NVLink's in user data; copies from
# pinned memory reach some 80 % of PCIe's. What is a seventh below that still slows who shares it.
NEAR_LIMIT_PERCENT = {"dram": 75.0, "nvlink": 60.0, "pcie": 70.0}
SHARES = 0.1  # of `NEAR_LIMIT_PERCENT` that each side alone has to use
CLOCK_FELL = 0.95  # of the best clock; without a limit it stays within 1 %
LIMIT_NAMES = {"sms": "SMs", "dram": "DRAM", "nvlink": "NVLink", "pcie": "PCIe", "power": "power"}


class Likely(Record, frozen=True):
    """One thing that the sides contend for.

    contention : a key of `LIMIT_NAMES`. taken_by : the side that takes it from the other, "a" or "b"; "" where none.
    beside, alone : what was compared, both % or MHz: while both run, and at its best alone (or its limit).
    text : in words.
    """

    contention: str
    taken_by: str
    beside: float
    alone: float
    text: str


class Contended(Record, frozen=True):
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


class _Seen(msgspec.Struct, frozen=True):
    """Figures of each state, told apart by least squares where its samples are mostly shared with others."""

    states: Mapping[str, SideState]
    mixtures: Mapping[str, Mixture]
    period_ns: int

    def is_whole(self, state: str) -> bool:
        """Whether a state has enough samples of its own."""
        one = self.states[state]
        fewest = MIN_SAMPLES if state == "both" else FEWEST_ALONE
        return one.sampled_ns >= fewest * self.period_ns and one.whole_ns >= MIN_FILLED_SHARE * one.sampled_ns

    def mean(self, counter: str, state: str) -> float | None:
        """A mean; None where too few samples tell."""
        if self.is_whole(state):
            return self.states[state].mean(counter)
        apart = self.mixtures[counter].mean(state)
        return apart[0] if apart is not None and apart[1] <= MAX_STANDARD_ERROR else None

    def most(self, counter: str, *states: str) -> list[float | None]:
        """What each state reaches: its P90, which kernels of other kinds on a side leave alone; else its mean."""
        if all(self.is_whole(state) for state in states):
            return [self.states[state].p90(counter) for state in states]
        return [self.mean(counter, state) for state in states]


def contended(
    states: Mapping[str, SideState], mixtures: Mapping[str, Mixture], period_ns: int, a: str, b: str
) -> Contended:
    """What A and B likely contend for.

    Parameters
    ----------
    states, mixtures : of one device, or of several together.
    a, b : what the sides are called.
    """
    seen = _Seen(states, mixtures, period_ns)
    both = states["both"]
    if not both.time_ns:
        return Contended(unknown=f"{a} and {b} never ran at once")
    if seen.mean("sm_active", "both") is None:
        why = f"both ran for {duration(both.time_ns)}, in pieces that samples of {duration(period_ns)} can't tell apart"
        return Contended(unknown=f"{why}. Sample at a higher rate")
    names = {side: name for side, name in (("a", a), ("b", b)) if seen.mean("sm_active", side) is not None}
    found = [
        _sms(seen, names, {"a": a, "b": b}),
        *(_limit(which, seen, names) for which in NEAR_LIMIT_PERCENT),
        _power(seen),
    ]
    return Contended(tuple(one for one in found if one is not None))


def _sms(seen: _Seen, alone: Mapping[str, str], names: Mapping[str, str]) -> Likely | None:
    busy = seen.mean("sm_active", "both")
    if busy is None or busy < SMS_BUSY or not alone:
        return None
    if len(alone) == 2 and sum(seen.mean("sm_active", side) or 0.0 for side in alone) < SMS_ALL:
        return None
    used = {counter: seen.most(counter, "both", *alone) for counter in _WORK}
    work = "tensor_active" if max(one or 0.0 for one in used["tensor_active"][1:]) >= TENSOR_USED else "sm_issue"
    now, *by_side = used[work]
    before = max(one or 0.0 for one in by_side)
    if now is None or before <= 1 or now > FELL * before:  # 1 %: as good as nothing
        return None
    loser = [*alone][by_side.index(before)]
    taker = "b" if loser == "a" else "a"
    how = "P90" if seen.is_whole("both") else "mean"
    text = (
        f"SMs taken by {names[taker]}: {_WORK[work]} {now:.0f} % of the time, {before:.0f} % in {names[loser]} alone "
        f"({how}), {busy:.0f} % of SMs active"
    )
    return Likely("sms", taker, float(now), float(before), text)


_WORK = {"tensor_active": "tensor pipes active", "sm_issue": "SMs issue"}
_DIRECTIONS = {
    "dram": ("dram_read", "dram_write"),
    "nvlink": ("nvlink_in", "nvlink_out"),
    "pcie": ("pcie_in", "pcie_out"),
}


def _limit(which: str, seen: _Seen, alone: Mapping[str, str]) -> Likely | None:
    now, before = _use(which, seen, "both"), {name: _use(which, seen, side) for side, name in alone.items()}
    if (
        now is None
        or now < NEAR_LIMIT_PERCENT[which]
        or any((used or 0.0) < SHARES * NEAR_LIMIT_PERCENT[which] for used in before.values())
    ):
        return None
    told = "".join(f", {used:.0f} % in {name} alone" for name, used in before.items())
    return Likely(
        which, "", now, NEAR_LIMIT_PERCENT[which], f"{LIMIT_NAMES[which]} near its limit: {now:.0f} % of its peak{told}"
    )


def _use(which: str, seen: _Seen, state: str) -> float | None:
    """Reads and writes share DRAM's pins; a link has its own for each direction."""
    known = [mean for counter in _DIRECTIONS[which] if (mean := seen.mean(counter, state)) is not None]
    if not known:
        return None
    return sum(known) if which == "dram" else max(known)


def _power(seen: _Seen) -> Likely | None:
    now = seen.mean("gpc_clock", "both")
    known = [state for state in seen.states.values() if state.sampled_ns >= FEWEST_ALONE * seen.period_ns]
    best = max((state.p90("gpc_clock") or 0 for state in known), default=0)
    if now is None or now > CLOCK_FELL * best:
        return None
    text = f"power: GPC clock {now / 1000:.2f} GHz while both run, {best / 1000:.2f} GHz at best"
    return Likely("power", "", now, float(best), text)
