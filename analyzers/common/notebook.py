"""Results as small HTML tables, for notebooks; what they show is a part of `to_frame()`, with units.

Colours are the notebook's own, but for the verdict's: white on a dark tone, which reads on light and dark ground.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from analyzers.common.errors import TraceWarning
from analyzers.common.wording import in_one_unit

# Names come from other people's traces: no control character of theirs may reach a terminal or a page.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_MOODS = {"good": "#1a7f4b", "middle": "#8a6100", "bad": "#b3352b", "": "#57606a"}
MOST_ROWS = 16
MOST_NOTES = 6


def card(
    word: str,
    sentence: str,
    headers: Sequence[str] = (),
    rows: Sequence[Sequence[object]] = (),
    *,
    mood: str = "",
    texts: Sequence[str] = (),
    lines: Sequence[str] = (),
    notes: Sequence[str] = (),
    warnings: Sequence[TraceWarning] = (),
) -> str:
    """HTML of a coloured word, a sentence, a table and what to mind.

    Parameters
    ----------
    mood : "good", "middle", "bad" or "".
    texts : headers of the columns that are set to the left.
    lines : what to say first, each in its own line. notes : what to mind before the warnings.
    """
    badge = f"background:{_MOODS[mood]};color:#fff;padding:1px 8px;border-radius:4px;font-weight:600"
    parts = [f'<p style="margin:.3em 0"><span style="{badge}">{shown(word)}</span> {shown(sentence)}</p>']
    if lines:
        parts.append(f'<p style="margin:.2em 0">{"<br>".join(map(shown, lines))}</p>')
    if headers:
        parts.append(_table(headers, in_one_unit([[*map(_text, row)] for row in rows]), texts))
    more = len(rows) - MOST_ROWS
    if more > 0:
        parts.append(f'<p style="margin:.2em 0;opacity:.75">… and {more:,} more rows; to_frame() has all</p>')
    caveats = [shown(text) for text in (*notes, *(one.message for one in warnings))]
    if len(caveats) > MOST_NOTES:
        caveats = [*caveats[:MOST_NOTES], f"… and {len(caveats) - MOST_NOTES} more"]
    if caveats:
        parts.append(f'<p style="margin:.2em 0;opacity:.75">Caveats: {"<br>".join(caveats)}</p>')
    return f'<div class="traceviz">{"".join(parts)}</div>'


def _text(cell: object) -> str:
    return cell if isinstance(cell, str) else str(cell)


def shown(text: object) -> str:
    """A text as HTML shows it: no markup, no control character.

    >>> shown("<b>x</b>\u202e&")
    '&lt;b&gt;x&lt;/b&gt;\N{REPLACEMENT CHARACTER}&amp;'
    """
    import html  # which no command needs that prints text

    return html.escape(plain(str(text)))


def plain(text: str) -> str:
    """A text without control characters, which could move a cursor or change what the reader sees."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def _table(headers: Sequence[str], rows: Sequence[Sequence[object]], texts: Sequence[str]) -> str:
    styles = ["text-align:left" if each in texts else "text-align:right" for each in headers]
    head = "".join(f'<th style="{style}">{shown(each)}</th>' for each, style in zip(headers, styles, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f'<td style="{style}">{shown(cell)}</td>' for cell, style in zip(row, styles, strict=True))
        + "</tr>"
        for row in rows[:MOST_ROWS]
    )
    style = "margin:.3em 0;font-variant-numeric:tabular-nums"
    return f'<table style="{style}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
