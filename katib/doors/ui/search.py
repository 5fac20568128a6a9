"""The language of all search fields: `lr<0.01 optimizer=adam state:failed "out of memory"`. Pure.

A text is words, and all of them have to hold. A word is a comparison of a column, such as `loss<=0.3`, `lr:0.001..0.1`,
`optimizer=adam|sgd`, `state!=failed` or `loss=none` for rows without a value; any other word is looked for in names and
other texts, in any case. Quotes hold words together. `search.js` is the same language for a page without a server.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

_WORD = re.compile(r'(?:[^\s"]|"[^"]*"?)+')
_COMPARISON = re.compile(r"([^<>=!:]+)(<=|>=|!=|=|<|>|:)(.+)", re.DOTALL)
NONE = "none"

ORDERS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Term(NamedTuple):
    """One word of a search.

    Attributes:
        text: The word, in lower case and without quotes.
        name: The compared column; empty for a text.
        sign: `<`, `<=`, `>`, `>=`, `=` or `!=`.
        value: The value to compare with.
    """

    text: str
    name: str = ""
    sign: str = ""
    value: str = ""

    @property
    def choices(self) -> list[str]:
        """The alternatives of its value, in lower case."""
        return self.value.casefold().split("|")

    @property
    def span(self) -> tuple[float, float] | None:
        """The range of its value, `0.001..0.1` with an end that may be missing; None if it is not one."""
        low, dots, high = self.value.partition("..")
        try:
            return (float(low or -math.inf), float(high or math.inf)) if dots else None
        except ValueError:
            return None


def terms_of(text: str) -> Iterator[Term]:
    """Yield the words of a search."""
    for word in _WORD.findall(text):
        plain = word.replace('"', "")
        found = None if word.startswith('"') else _COMPARISON.fullmatch(plain)
        if found is None:
            yield Term(plain.casefold())
        else:
            name, sign, value = found.groups()
            yield Term(plain.casefold(), name, "=" if sign == ":" else sign, value)
