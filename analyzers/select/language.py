"""The words users pick GPU ops with: `nvtx:DP Embedding`, `comm+!stream:7`, `kernel:~gemm|conv`.

A selector is atoms joined by `,` (or), `+` (and, binds tighter) and `!` (not); parentheses group. An atom is a bare
word (`comm`, `compute`, `memcpy`, `memset`, `graph`, `migration`) or `kind:text`. A text that holds `,` or `+` stands
in double quotes, with `\\` before a quote inside. `kind:~pattern` searches by regular expression; elsewhere `*` stands
for anything. Ranges, operators, collectives, process groups and copies are named whole, kernels by any part of their
name.
In names of ranges and operators `#` stands for a whole number, or for itself: `nvtx:fwd #` picks `fwd 3`, `fwd 12` and
`fwd #`. A whole number ends where its digits end, so `nvtx:ProfilerStep#3` picks that one step and no `ProfilerStep13`.
`group:` also takes `group:size=4` and `group:ranks=0-3`.
`migration` is a page of unified memory that the driver moved, which is no `memcpy`: `migration:fault`,
`migration:prefetch` and `migration:HtoD` pick by any part of what it is called.
`copy` is another word for `memcpy`, and `queue` for `stream`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from analyzers.common.errors import TracevizError
from analyzers.trace.numbered import NUMBER

BARE = ("comm", "compute", "memcpy", "copy", "memset", "graph", "migration")
SELECTOR_KINDS = (
    "nvtx",
    "kernel",
    "stream",
    "queue",
    "op",
    "hlo",
    "collective",
    "group",
    "memcpy",
    "copy",
    "migration",
)
SAME = {"copy": "memcpy", "queue": "stream"}  # words for one thing
NUMBERED = ("nvtx", "op", "hlo")  # kinds in whose texts `#` stands for a number
_BARE_WORDS = {
    "comm": "communication",
    "memcpy": "copies",
    "memset": "memsets",
    "graph": "CUDA graphs",
    "migration": "page migrations",
}
_KIND_WORDS = {
    "stream": "stream {}",
    "queue": "queue {}",
    "group": "{} communication",
    "memcpy": "{} copies",
    "migration": "{} page migrations",
}
EXAMPLES = "nvtx:DP Embedding, kernel:~gemm, stream:35, op:aten::embedding_bag, comm, compute, collective:all_reduce"


class Atom(msgspec.Struct, frozen=True):
    """One condition on an op; `text` is "" for a bare word."""

    kind: str
    text: str = ""
    regex: bool = False

    @property
    def meaning(self) -> str:
        """The kind, whichever of its words was used."""
        return SAME.get(self.kind, self.kind)

    def __str__(self) -> str:
        escaped = self.text.replace("\\", "\\\\").replace('"', '\\"')
        text = f'"{escaped}"' if re.search(r'^[\s~"]|[,+)]|\s$', self.text) else self.text
        return f"{self.kind}:{'~' if self.regex else ''}{text}" if self.text else self.kind

    def matcher(self, *, whole: bool) -> Callable[[str], bool]:
        """A test of names: all of the name (`whole`), or any part of it, has to fit the text."""
        if self.regex:
            return lambda name: re.search(self.text, name) is not None
        if "*" in self.text or self.of_numbers:
            pattern = self._pattern()
            fits = pattern.fullmatch if whole else pattern.search
            return lambda name: fits(name) is not None
        return (lambda name: name == self.text) if whole else (lambda name: self.text in name)

    @property
    def of_numbers(self) -> bool:
        """Whether the text may name a family: `#` in it may stand for a number."""
        return self.kind in NUMBERED and "#" in self.text and not self.regex

    def numbers(self, name: str) -> tuple[int, ...]:
        """The numbers for which `#` stands in a name; none where it is written out there, or the name does not fit.

        >>> Atom("nvtx", "## forward # ##").numbers("## forward 12 ##")
        (12,)
        """
        found = self._pattern().fullmatch(name) if self.of_numbers else None
        return tuple(int(text) for text in found.groups() if text != "#") if found else ()

    def _pattern(self) -> re.Pattern[str]:
        stand_for = {"*": ".*", "#": f"(#|{NUMBER})"} if self.of_numbers else {"*": ".*"}
        parts = re.split("([*#])", self.text)
        return re.compile("".join(stand_for.get(part, re.escape(part)) for part in parts), re.DOTALL)


class Not(msgspec.Struct, frozen=True):
    """What its part does not pick."""

    part: Selector

    def __str__(self) -> str:
        return f"!{self.part}" if isinstance(self.part, Atom) else f"!({self.part})"


class And(msgspec.Struct, frozen=True):
    """What all parts pick."""

    parts: tuple[Selector, ...]

    def __str__(self) -> str:
        return "+".join(f"({part})" if isinstance(part, (And, Or)) else str(part) for part in self.parts)


class Or(msgspec.Struct, frozen=True):
    """What any part picks."""

    parts: tuple[Selector, ...]

    def __str__(self) -> str:
        return ",".join(f"({part})" if isinstance(part, Or) else str(part) for part in self.parts)


Selector = Atom | Not | And | Or


def parse(text: str) -> Selector:
    """Read a selector.

    >>> parse("nvtx:MP Embedding+!comm, stream:35")
    Or(parts=(And(parts=(Atom(kind='nvtx', text='MP Embedding', regex=False), \
Not(part=Atom(kind='comm', text='', regex=False)))), Atom(kind='stream', text='35', regex=False)))

    Raises
    ------
    TracevizError : the text is no selector; says where.
    """
    if not isinstance(text, str):
        raise TracevizError(f"A selector is a text, and this is {text!r:.60}.", hint=f"Examples: {EXAMPLES}.")
    parser = _Parser(text)
    try:
        return parser.whole()
    except RecursionError as error:
        raise TracevizError("The selector is nested too deeply.", hint=f"Examples: {EXAMPLES}.") from error


def in_plain_words(selector: Selector) -> str:
    """What people call what a selector picks: the name alone where it is a plain one, else the selector in quotes.

    >>> in_plain_words(parse("nvtx:DP Embedding")), in_plain_words(parse("comm")), in_plain_words(parse("stream:7"))
    ('DP Embedding', 'communication', 'stream 7')
    >>> in_plain_words(parse("nvtx:backward+!comm")), in_plain_words(parse("memcpy:DtoH"))
    ("'nvtx:backward+!comm'", 'DtoH copies')
    >>> in_plain_words(parse("nvtx:lookup+comm"))
    'communication of lookup'
    """
    if isinstance(selector, And) and len(selector.parts) == 2:
        place, what = selector.parts
        if isinstance(place, Atom) and isinstance(what, Atom) and not what.text:
            return f"{in_plain_words(what)} of {in_plain_words(place)}"
    if not isinstance(selector, Atom) or selector.regex:
        return f"'{selector}'"
    if not selector.text:
        return _BARE_WORDS.get(selector.meaning, selector.kind)
    return _KIND_WORDS.get(selector.kind, _KIND_WORDS.get(selector.meaning, "{}")).format(selector.text)


def names_of(a: str, b: str) -> tuple[str, str]:
    """What people call two sides; the selectors in quotes where both would be called the same."""
    names = in_plain_words(parse(a)), in_plain_words(parse(b))
    return names if names[0] != names[1] else (f"'{a}'", f"'{b}'")


def atoms(selector: Selector, *, positive: bool = True) -> list[Atom]:
    """The atoms of a selector that pick ops (`positive`), or those that take ops out."""
    if isinstance(selector, Atom):
        return [selector] if positive else []
    if isinstance(selector, Not):
        return atoms(selector.part, positive=not positive)
    return [atom for part in selector.parts for atom in atoms(part, positive=positive)]


class _Parser:
    # or := and (',' and)* ; and := factor ('+' factor)* ; factor := '!' factor | '(' or ')' | atom

    def __init__(self, text: str) -> None:
        self.text, self.at, self.inside = text, 0, 0

    def whole(self) -> Selector:
        selector = self._joined(",", lambda: self._joined("+", self._factor, And), Or)
        if self.at < len(self.text):
            raise self._bad(f"{self.text[self.at :]!r} is left over")
        return selector

    def _joined(self, mark: str, part: Callable[[], Selector], join: type[And] | type[Or]) -> Selector:
        parts = [part()]
        while self._take(mark):
            parts.append(part())
        return parts[0] if len(parts) == 1 else join(tuple(parts))

    def _factor(self) -> Selector:
        if self._take("!"):
            return Not(self._factor())
        if self._take("("):
            self.inside += 1
            selector = self._joined(",", lambda: self._joined("+", self._factor, And), Or)
            self.inside -= 1
            if not self._take(")"):
                raise self._bad("a parenthesis is not closed")
            return selector
        return self._atom()

    def _atom(self) -> Atom:
        start = self.at
        word = self._until(":,+)" if self.inside else ":,+")
        if not self._take(":"):
            if word in BARE:
                return Atom(word)
            raise self._bad(
                f"{word!r} is not one of {', '.join(BARE)}, or {':…, '.join(SELECTOR_KINDS)}:…"
                if word
                else "a part of it is empty"
            )
        if word not in SELECTOR_KINDS:
            raise self._bad(f"{self.text[start : self.at]!r} is not one of {':…, '.join(SELECTOR_KINDS)}:…")
        regex = self._take("~")
        text = self._text()
        if not text:
            raise self._bad(f"nothing follows {word!r}")
        if SAME.get(word, word) == "stream" and (regex or not re.fullmatch(r"-?\d{1,18}", text)):
            raise self._bad(f"a {word} is a number, not {'~' * regex + text!r}")
        if regex:
            try:
                re.compile(text)
            except (re.error, OverflowError, RecursionError) as error:
                raise self._bad(f"{text!r} is no regular expression ({error})") from error
        return Atom(word, text, regex)

    def _text(self) -> str:
        if not self._take('"'):
            return self._until(",+)" if self.inside else ",+")
        quoted = re.compile(r'((?:[^"\\]|\\.)*)"').match(self.text, self.at)
        if quoted is None:
            raise self._bad("a double quote is not closed")
        self.at = quoted.end()
        return re.sub(r'\\(["\\])', r"\1", quoted[1])

    def _take(self, mark: str) -> bool:
        while self.text[self.at : self.at + 1].isspace():
            self.at += 1
        found = self.text.startswith(mark, self.at)
        self.at += len(mark) * found
        return found

    def _until(self, marks: str) -> str:
        start = self.at
        while self.at < len(self.text) and self.text[self.at] not in marks:
            self.at += 1
        return self.text[start : self.at].strip()

    def _bad(self, why: str) -> TracevizError:
        return TracevizError(f"{self.text!r} is not a selector: {why}.", hint=f"Examples: {EXAMPLES}.")
