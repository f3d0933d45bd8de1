"""Colours: Okabe and Ito's, which colour-blind people tell apart, on light and on dark ground.

Nothing is told by colour alone, for print in grey too: waits are hatched, marks that stand for many are pale with an
outline, rows and marks are labelled.
"""

from __future__ import annotations

from analyzers.causes.table import CAUSE_TABLE
from analyzers.common.records import Record

BLUE, ORANGE, GREEN, VERMILLION, PURPLE, SKY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"
FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
BLACK, WHITE = "#111111", "#FFFFFF"


class Theme(Record, frozen=True):
    """Ground, text, lines, and (fill, text on it) of each group of roles; of causes, of each `Cause.hue`."""

    name: str
    ground: str
    band: str
    text: str
    faint: str
    grid: str
    fill: dict[str, tuple[str, str]]


LIGHT = Theme(
    name="light",
    ground=WHITE,
    band="#F4F6F8",
    text="#1B1F24",
    faint="#57606A",
    grid="#D8DEE4",
    fill={
        "a": (BLUE, WHITE),
        "b": (ORANGE, BLACK),
        "other": ("#A9AFB6", BLACK),
        "overlap": (GREEN, WHITE),
        "sync": (VERMILLION, WHITE),
        "race": ("#B00020", WHITE),
        "host blocked": (VERMILLION, WHITE),
        "host busy": (PURPLE, BLACK),
        "stream order": ("#F0E442", BLACK),
        "stream order, early": ("#C9B83A", BLACK),
        "event": ("#7A52C7", WHITE),
        "other work": ("#8C5A2B", WHITE),
        "hardware queue": ("#2F7F79", WHITE),
        "room": ("#44546A", WHITE),
        "late rank": ("#B7A98B", BLACK),
        "unknown": ("#D0D4D9", BLACK),
    },
)
DARK = Theme(
    name="dark",
    ground="#0D1117",
    band="#161B22",
    text="#E6EDF3",
    faint="#9DA7B1",
    grid="#30363D",
    fill={
        **LIGHT.fill,
        "a": (SKY, BLACK),
        "other": ("#6E7681", WHITE),
        "race": ("#FF6B81", BLACK),
        "event": ("#9A7BE0", BLACK),
        "other work": ("#A8743F", WHITE),
        "hardware queue": ("#4FB3AB", BLACK),
        "room": ("#9FB3C8", BLACK),
        "unknown": ("#57606A", WHITE),
    },
)
THEMES = {theme.name: theme for theme in (LIGHT, DARK)}


def group(role: str) -> str:
    """The group whose colour a role has.

    >>> [group(role) for role in ("a-wait", "launch-b", "range-other", "held-host-sync", "sync-end")]
    ['a', 'b', 'other', 'host-sync', 'other']
    """
    kind, _, rest = role.partition("-")
    if kind in ("held", "early"):
        return rest
    return "other" if role == "sync-end" else rest if kind in ("launch", "range") else kind


def fill_of(role: str, theme: Theme) -> tuple[str, str]:
    """The colour of a role, and of text on it."""
    named = group(role)
    return theme.fill[next((cause.hue for cause in CAUSE_TABLE if cause.name == named), named)]


def link_color(kind: str, theme: Theme) -> str:
    """A launch has the text's colour, what an event orders that of its cause, a missing wait that of races."""
    return theme.text if kind == "launch" else theme.fill["race" if kind == "race" else "event"][0]


def link_colors() -> str:
    """The links' colours in each theme of a page, as variables of its style."""
    return "\n".join(
        f':root[data-theme="{name}"] {{ --event: {link_color("event", one)}; --race: {link_color("race", one)}; }}'
        for name, one in THEMES.items()
    )


def pale(color: str, ground: str, share: float = 0.4) -> str:
    """A colour thinned with its ground's.

    >>> pale("#000000", "#FFFFFF")
    '#999999'
    """
    mixed = [
        round(share * int(color[at : at + 2], 16) + (1 - share) * int(ground[at : at + 2], 16)) for at in (1, 3, 5)
    ]
    return "#" + "".join(f"{value:02X}" for value in mixed)
