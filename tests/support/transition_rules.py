"""What an API server with rules in CEL would say of a write: a small evaluator of the rules that we give it.

It knows just the operators that our rules use. Where CEL compares values by their types, this compares them byte for
byte, which is never less strict.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from katib.engine.runtime.objects import Object
from katib.model.validation.update import OBJECT_RULES, SPEC_RULES

_TOKEN = re.compile(r"\s*(has\(|self|oldSelf|\.[A-Za-z]\w*|==|&&|\|\||!|\(|\))")
_ABSENT = object()


def broken_rules(stored: Object, written: Object) -> list[str]:
    """Return the messages of all rules that refuse a write, as the API server would show them."""
    found = [rule["message"] for rule in OBJECT_RULES if not holds(rule["rule"], stored, written)]
    if "spec" in stored and "spec" in written:  # a rule about a change is only asked where there was something
        specs = stored["spec"], written["spec"]
        found += [rule["message"] for rule in SPEC_RULES if not holds(rule["rule"], *specs)]
    return found


def holds(rule: str, old: Any, new: Any) -> bool:
    """Return what a rule says of a change.

    Raises:
        ValueError: The rule is not of the part of CEL that is known here.
    """
    reader = _Reader(rule, {"self": new, "oldSelf": old})
    value = reader.any_of()
    if reader.tokens or not isinstance(value, bool):
        raise ValueError(f"not understood: {rule}")
    return value


class _Reader:
    """Reads a rule from left to right: `||` binds least, then `&&`, then `==`, then `!`."""

    def __init__(self, rule: str, names: dict[str, Any]) -> None:
        self.tokens = list(_tokens(rule))
        self._names = names

    def any_of(self) -> Any:
        values = [self._all_of()]
        while self._take("||"):
            values.append(self._all_of())
        return values[0] if len(values) == 1 else any(values)

    def _all_of(self) -> Any:
        values = [self._equal()]
        while self._take("&&"):
            values.append(self._equal())
        return values[0] if len(values) == 1 else all(values)

    def _equal(self) -> Any:
        left = self._term()
        return _same(left, self._term()) if self._take("==") else left

    def _term(self) -> Any:
        if self._take("!"):
            return not self._term()
        if self._take("has("):
            value = self._value()
            self._expect(")")
            return value is not _ABSENT
        if self._take("("):
            value = self.any_of()
            self._expect(")")
            return value
        return self._value()

    def _value(self) -> Any:
        value = self._names[self.tokens.pop(0)]
        while self.tokens and self.tokens[0].startswith("."):
            value = value.get(self.tokens.pop(0)[1:], _ABSENT)
        return value

    def _take(self, token: str) -> bool:
        if not self.tokens or self.tokens[0] != token:
            return False
        self.tokens.pop(0)
        return True

    def _expect(self, token: str) -> None:
        if not self._take(token):
            raise ValueError(f"{token} is missing")


def _tokens(rule: str) -> Iterator[str]:
    at = 0
    while at < len(rule):
        found = _TOKEN.match(rule, at)
        if found is None:
            raise ValueError(f"not understood: {rule[at:]}")
        yield found[1]
        at = found.end()


def _same(left: Any, right: Any) -> bool:
    if left is _ABSENT or right is _ABSENT:
        return left is right
    return json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)
