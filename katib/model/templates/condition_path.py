"""Success and failure conditions: paths in the subset of the GJSON grammar that conditions of jobs need.

    path   = step { ("." | "|") step }
    step   = key | index | "[@this]" | "#(" query ")" | "#(" query ")#"
    query  = [path] [ ("=" | "==" | "!=" | "<" | "<=" | ">" | ">=" | "%" | "!%") value ]

`#(query)` is the first matching element, `#(query)#` the list of all; after the latter, "." continues with each element
and "|" with the list. `[@this]` wraps the value in a list. A backslash escapes a character. A condition is satisfied by
an object or by a list whose first element is an object; a text, a number, a boolean or an empty list does not satisfy
it. As in GJSON, a query compares by the type of the value found, and a right side that is not a number counts as 0
against a number.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from katib.errors import FieldError, InvalidError, invalid

MAX_DEPTH: Final = 8
MAX_STEPS: Final = 64

_MISSING: Final = object()
_OPERATORS: Final = ("==", "!=", "<=", ">=", "!%", "=", "<", ">", "%")
_NUMBER = re.compile(r"[-+]?(?:[0-9]{1,400}\.?[0-9]{0,400}|\.[0-9]{1,400})(?:[eE][-+]?[0-9]{1,9})?")


@dataclass(frozen=True, slots=True)
class SatisfiedCondition:
    """A condition that holds, with reason and message of the satisfying object."""

    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class _Query:
    path: tuple[_Step, ...]
    operator: str = ""
    value: str = ""


@dataclass(frozen=True, slots=True)
class _Step:
    """One step: a key, a query for the first or for all elements, or (neither key nor query) wrapping in a list.

    Attributes:
        piped: Whether it follows a "|".
        each: For a query for all elements: the steps applied to each of them.
    """

    key: str | None = None
    query: _Query | None = None
    all: bool = False
    piped: bool = False
    each: tuple[_Step, ...] = ()


@dataclass(frozen=True, slots=True)
class ConditionPath:
    """A parsed path. Immutable; evaluating it never fails, for any object."""

    text: str
    steps: tuple[_Step, ...]

    def evaluate(self, obj: Any) -> SatisfiedCondition | None:
        """Return reason and message of the object that satisfies the condition, None if it is not satisfied."""
        if not self.steps:
            return None
        value = _walk(self.steps, obj)
        if isinstance(value, list):
            value = value[0] if value else None
        if not isinstance(value, dict):
            return None
        reason, message = value.get("reason"), value.get("message")
        return SatisfiedCondition(
            reason if isinstance(reason, str) else "", message if isinstance(message, str) else ""
        )


@lru_cache(maxsize=256)
def parse(path: str) -> ConditionPath:
    """Parse a path; the empty path is never satisfied.

    Raises:
        InvalidError: Not in the grammar.
    """
    return ConditionPath(path, _Parser(path).parse() if path else ())


def check_condition(text: str, path: str) -> list[FieldError]:
    """Return the errors of a condition; `path` names its field, such as `spec.trialTemplate.successCondition`."""
    try:
        parse(text)
    except InvalidError as error:
        return [FieldError(path, e.cause, e.remedy, e.origin) for e in error.errors]
    return []


_ENDED: Final = {
    "status": {
        **dict.fromkeys(("active", "ready", "succeeded", "failed", "terminating", "restarts"), 1),
        **dict.fromkeys(("startTime", "completionTime", "lastReconcileTime", "terminalState"), "text"),
        "conditions": [
            dict.fromkeys(("reason", "message", "lastTransitionTime"), "text") | {"type": type_, "status": "True"}
            for type_ in ("Complete", "Completed", "Succeeded", "Failed")
        ],
    }
}
"""The fields that the jobs of all known kinds have in common at their end."""


def scalar_notices(text: str, path: str, known: str) -> list[str]:
    """Return a notice for a condition that can never hold, since its path leads to a text or a number."""
    value = _walk(parse(text).steps, _ENDED) if text else None
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, str | int):
        return []
    remedy = f"write a path to an object, such as {known}" if known else "write a path to an object"
    return [f"{path}: {text} leads to a text or a number, which satisfies no condition; {remedy}"]


class _Parser:
    """Recursive descent over one path; queries contain paths of their own."""

    def __init__(self, text: str, whole: str = "", depth: int = 0) -> None:
        self._text = text
        self._whole = whole or text
        self._at = 0
        self._depth = depth

    def parse(self) -> tuple[_Step, ...]:
        if self._depth > MAX_DEPTH:
            raise self._error("queries are nested too deeply")
        steps = [self._step(piped=False)]
        while self._at < len(self._text):
            separator = self._text[self._at]
            if separator not in ".|":
                raise self._error(f'"{self._text[self._at :]}" is not expected here')
            self._at += 1
            steps.append(self._step(piped=separator == "|"))
            if len(steps) > MAX_STEPS:
                raise self._error(f"it has more than {MAX_STEPS} steps")
        # Every query for all elements includes the steps up to the next pipe.
        found: tuple[_Step, ...] = ()
        until_pipe = 0  # how many of the found steps a preceding one includes
        for step in reversed(steps):
            found = (replace(step, each=found[:until_pipe]) if step.all else step, *found)
            until_pipe = 0 if step.piped else until_pipe + 1
        return found

    def _step(self, *, piped: bool) -> _Step:
        rest = self._text[self._at :]
        if rest.startswith("[@this]"):
            self._at += len("[@this]")
            return _Step(piped=piped)
        if rest.startswith("#("):
            return self._query_step(piped=piped)
        if rest[:1] in tuple("#@[{!"):
            raise self._error(f'"{rest}" is not supported')
        key = ""
        while self._at < len(self._text) and self._text[self._at] not in ".|":
            char = self._text[self._at]
            if char in "*?":
                raise self._error(f'the wildcard "{char}" is not supported')
            if char == "\\":
                self._at += 1
                char = self._text[self._at : self._at + 1]
            key += char
            self._at += 1
        if not key:
            raise self._error("a key is missing")
        return _Step(key=key, piped=piped)

    def _query_step(self, *, piped: bool) -> _Step:
        start = self._at + len("#(")
        end, operator_at = self._scan_query(start)
        self._at = end + 1
        every = self._text[self._at : self._at + 1] == "#"
        self._at += every
        query = self._query(self._text[start:operator_at].strip(), self._text[operator_at:end].strip())
        return _Step(query=query, all=every, piped=piped)

    def _scan_query(self, start: int) -> tuple[int, int]:
        """Return the positions of the closing parenthesis and of the operator (of the parenthesis if there is none)."""
        operator_at, depth, at = 0, 1, start
        while at < len(self._text):
            char = self._text[at]
            if char == "\\":
                at += 1
            elif char == '"':
                at = self._closing_quote(at)
            elif char in "([":
                depth += 1
            elif char in ")]":
                depth -= 1
                if depth == 0:
                    return at, operator_at or at
            elif char in "=!<>%" and depth == 1 and not operator_at:
                operator_at = at
            at += 1
        raise self._error("a query is not closed")

    def _closing_quote(self, at: int) -> int:
        at += 1
        while at < len(self._text) and self._text[at] != '"':
            at += 2 if self._text[at] == "\\" else 1
        if at >= len(self._text):
            raise self._error("a quote is not closed")
        return at

    def _query(self, left: str, comparison: str) -> _Query:
        path = _Parser(left, self._whole, self._depth + 1).parse() if left else ()
        if not comparison:
            if not path:
                raise self._error("a query is empty")
            return _Query(path)
        word = next((word for word in _OPERATORS if comparison.startswith(word)), "")
        value = comparison[len(word) :].strip()
        if not word or value.startswith("~"):
            raise self._error(f'"{comparison}" is not supported')
        return _Query(path, word.replace("==", "="), _unquote(value))

    def _error(self, cause: str) -> InvalidError:
        remedy = 'write a path such as status.conditions.#(type=="Complete")#|#(status=="True")#'
        text = f"{self._whole} {cause}"
        shown = f'"{self._whole}": {cause}' if text.isprintable() else f"{self._whole!r}: {cause!r}"
        return invalid("condition", shown, remedy, "condition-path")


def _unquote(value: str) -> str:
    if len(value) > 1 and value[0] == '"' == value[-1]:
        return re.sub(r"\\(.)", r"\1", value[1:-1], flags=re.DOTALL)
    return value


def _walk(steps: tuple[_Step, ...], value: Any) -> Any:
    for i, step in enumerate(steps):
        if step.key is not None:
            value = value.get(step.key, _MISSING) if isinstance(value, dict) else _element(value, step.key)
        elif step.query is None:
            value = [] if value is _MISSING else [value]
        elif not isinstance(value, list):
            value = _MISSING
        elif step.all:
            found = []
            for item in value:
                if _is_match(step.query, item):
                    reached = _walk(step.each, item) if step.each else item
                    if reached is not _MISSING:
                        found.append(reached)
            rest = steps[i + 1 + len(step.each) :]
            return _walk(rest, found) if rest else found
        else:
            value = _first_match(step.query, value)
    return value


def _element(value: Any, key: str) -> Any:
    if isinstance(value, list) and key.isascii() and key.isdigit() and len(key) < 10:  # noqa: PLR2004  # an index
        return value[int(key)] if int(key) < len(value) else _MISSING
    return _MISSING


def _first_match(query: _Query, items: list[Any]) -> Any:
    for item in items:
        if _is_match(query, item):
            return item
    return _MISSING


def _is_match(query: _Query, item: Any) -> bool:
    if query.path and not isinstance(item, dict | list):
        return False
    value = item
    if query.path:
        key = query.path[0].key
        is_field = key is not None and len(query.path) == 1 and isinstance(item, dict)
        value = item.get(key, _MISSING) if is_field else _walk(query.path, item)
    if value is _MISSING or not query.operator:
        return value is not _MISSING
    if isinstance(value, str) and (comparison := _COMPARISONS.get(query.operator)) is not None:
        return comparison(value, query.value)
    return _compare(query, value)


def _compare(query: _Query, value: Any) -> bool:
    if isinstance(value, bool):
        if query.operator in ("=", "!="):
            return (query.value == str(value).lower()) == (query.operator == "=")
        opposite = query.value == str(not value).lower()
        strict, loose = (">", ">=") if value else ("<", "<=")
        return query.operator == loose or (query.operator == strict and opposite)
    if isinstance(value, str):  # by a pattern
        return _is_like(value, query.value) == (query.operator == "%")
    if isinstance(value, int | float):
        number = float(query.value) if _NUMBER.fullmatch(query.value) else 0.0
        comparison = _COMPARISONS.get(query.operator)  # none for a pattern, which only texts have
        return comparison is not None and comparison(value, number)
    return False


_COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _is_like(text: str, pattern: str) -> bool:
    """Match a whole text: `*` is any text, `?` one character. Takes at most len(text) * len(pattern) steps."""
    tokens = re.findall(r"\\.|.", pattern, flags=re.DOTALL)
    at = token = 0
    star, resume = -1, 0
    while at < len(text):
        if token < len(tokens) and tokens[token] == "*":
            star, resume = token, at
            token += 1
        elif token < len(tokens) and (tokens[token] == "?" or tokens[token][-1] == text[at]):
            at, token = at + 1, token + 1
        elif star >= 0:
            resume += 1
            at, token = resume, star + 1
        else:
            return False
    return all(rest == "*" for rest in tokens[token:])
