"""Names of metrics in lines of text: the words before a `=` or `:`, back to a separator.

`train loss: 0.05, val loss: 0.99` has the names `train loss` and `val loss`. Separators are

- the beginning of the line, tabs, two blanks, brackets, quotes, and signs such as `,`, `;`, `|`, `=`, `:`;
- words without a letter, such as `-` and `│`, and words that begin with a digit, such as numbers and times;
- words that are not part of a name: levels of a log, values such as `nan`, numbered ones such as `epoch3`, conjunctions
  (`and`, `with`), a word that ends a sentence, and one that is attached to the `=` or `:` before it, a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_REACH = 160
"""Bytes before a name that are searched for its other words."""

_SIGNS = b'\t\n\r\f\v,;|()[]{}<>"`=:!?*#&~^$\\'
_SEPARATED = bytes.maketrans(_SIGNS, b"\n" * len(_SIGNS))
_BLANK = 0x20

_WORD = re.compile(r"[^\W\d][\w@./%+'-]*(?<![.'])")
_NO_PART = re.compile(
    r"(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL)"
    r"|(?i:nan|inf|infinity|none|null|true|false|and|or|with|to|at|the|is|has)"
    r"|(?i:epoch|step|iter|iteration|batch|round|rank|worker|gpu|fold|trial)[-_]?\d+"
)

_PRINTED = re.compile(
    r"""(?<![\w/.@-])(?P<name>[^\W\d](?:[\w/.@%-]|'\w)*+)['"]?\s*+[=:]\s*+(?:(?:np\.float\d+|(?:torch\.)?tensor)\()?
        (?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[Ee][+-]?\d+)?|[+-]?(?i:nan|inf(?:inity)?)\b)""",
    re.VERBOSE,
)


def qualifier(text: bytes, start: int) -> str:
    """Return the words before a position that belong to the name, with the blank or sign after them; often empty."""
    before = text[max(0, start - _REACH) : start]
    words = before.translate(_SEPARATED).rpartition(b"\n")[2]
    if not words.strip():
        return ""
    is_value = len(words) < len(before) and before[-len(words) - 1] in b"=:" and words[0] != _BLANK
    found: list[str] = []
    glued = not words.endswith(b" ")
    parts = words.decode(errors="replace").removesuffix(" ").split(" ")
    for place in range(len(parts) - 1, -1, -1):
        word, is_glued = parts[place], glued and place == len(parts) - 1
        bare = word.rstrip("./@'") if is_glued else word
        if (is_value and not place) or not _WORD.fullmatch(bare) or _NO_PART.fullmatch(bare):
            break
        found.append(word if is_glued else f"{word} ")
    return "".join(reversed(found))


def printed_metrics(line: str) -> Iterator[tuple[str, str]]:
    """Yield the whole name of each number that a line names by `=` or `:`, and the text of both."""
    data = line.encode(errors="replace")
    for match in _PRINTED.finditer(line):
        words = qualifier(data, len(line[: match.start()].encode(errors="replace")))
        yield words + match["name"], words + match.group()
