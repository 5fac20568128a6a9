"""Constraints on parameters: comparisons that every trial satisfies, such as `layers * units <= 4096`.

Grammar, in which `+`, `-`, `*`, `/`, unary minus and parentheses have their usual meaning:

    constraint = both ("or" both)*
    both       = comparison ("and" comparison)*
    comparison = sum (("<" | "<=" | ">" | ">=" | "==" | "!=") sum)+

An atom is a number, the name of a parameter (in backquotes if it is not a plain word), or a value of a list, in quotes
or not. The longest name counts: `a-b` is the parameter of that name if there is one.

Laws: a comparison that names an absent parameter holds; one that cannot be computed, as after a division by zero, does
not. Numbers that differ by a billionth of their size are equal, so that 3 * 0.1 <= 0.3 holds.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from katib.errors import FieldError, InvalidError
from katib.model.metrics import is_usable
from katib.model.types import ParameterSpec, ParameterType
from katib.model.wording import closest, did_you_mean, one_of, shown

PATH: Final = "spec.parameterConstraints"
_MOST_CHARACTERS = 500  # a sum of as many terms is as many calls deep
_MOST_NESTED = 50
_CLOSE = 1e-9  # relative, as the tolerance of parameters
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<text>'[^']*'|\"[^\"]*\")|`(?P<quoted>[^`]+)`"
    r"|(?P<word>[^\W\d][\w.-]*)|(?P<sign><=|>=|==|!=|[<>=+*/()-]))"
)

_Value = float | int | str
_Point = Mapping[str, _Value]
_Number = Callable[[_Point], float]
_Test = Callable[[_Point], bool]

_EXACT: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_INCLUSIVE = ("<=", ">=", "==")
_SUMS: Final[Mapping[str, Callable[[float, float], float]]] = {"+": operator.add, "-": operator.sub}
_PRODUCTS: Final[Mapping[str, Callable[[float, float], float]]] = {"*": operator.mul, "/": operator.truediv}


@dataclass(frozen=True, slots=True)
class Constraint:
    """A constraint on the parameters of one experiment."""

    text: str
    names: frozenset[str]
    _holds: _Test

    def holds(self, point: _Point) -> bool:
        """Return whether a point satisfies it; absent parameters have no value in the point.

        Values may be texts.
        """
        return self._holds(point)


def parse_constraint(text: str, specs: Sequence[ParameterSpec], path: str = PATH) -> Constraint:
    """Return the constraint of a text.

    Raises:
        InvalidError: It has a fault; one error, with the position if that is known.
    """
    try:
        return _Parser(text, specs).constraint()
    except _Fault as fault:
        place = f" at character {fault.position + 1}" if fault.position is not None else ""
        error = FieldError(path, f"{shown(text)}{place}: {fault.cause}", fault.remedy, fault.origin)
        raise InvalidError([error]) from None


@lru_cache(maxsize=256)
def build_constraints(texts: tuple[str, ...], specs: tuple[ParameterSpec, ...]) -> tuple[Constraint, ...]:
    """Return the constraints of texts. Raises InvalidError with all their errors."""
    found: list[Constraint] = []
    errors: list[FieldError] = []
    for i, text in enumerate(texts):
        try:
            found.append(parse_constraint(text, specs, f"{PATH}[{i}]"))
        except InvalidError as error:
            errors += error.errors
    if errors:
        raise InvalidError(errors)
    return tuple(found)


class _Fault(Exception):  # noqa: N818 - it becomes an error of a field
    def __init__(self, origin: str, cause: str, remedy: str, position: int | None = None) -> None:
        super().__init__(cause)
        self.origin, self.cause, self.remedy, self.position = origin, cause, remedy, position


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    position: int


_END: Final = "end"
_WANTED = "write a comparison, such as layers * units <= 4096"


@dataclass(frozen=True, slots=True)
class _Operand:
    """A side of a comparison, or a part of one.

    Attributes:
        position: Its first character.
        number: Its value as a number; None for text.
        name: The parameter whose text it is; empty for a number or a literal.
        literal: The text; None for a parameter.
    """

    position: int
    number: _Number | None = None
    name: str = ""
    literal: str | None = None


class _Parser:
    def __init__(self, text: str, specs: Sequence[ParameterSpec]) -> None:
        if not text.strip():
            raise _Fault("where-syntax", "it is empty", _WANTED)
        if len(text) > _MOST_CHARACTERS:
            raise _Fault("where-syntax", f"it has more than {_MOST_CHARACTERS:,} characters", "divide it")
        self._text, self._at, self._depth = text, 0, 0
        self._specs = {spec.name: spec for spec in specs}
        self._words = {value for spec in specs for value in spec.feasible_space.list}
        self._names: set[str] = set()
        self._token = self._next()

    def constraint(self) -> Constraint:
        holds = self._any()
        if self._token.kind != _END:
            raise self._unexpected("an operator or the end")
        if not self._names:
            raise _Fault("where-syntax", "it names no parameter", _WANTED)
        return Constraint(self._text, frozenset(self._names), holds)

    # --- tokens -------------------------------------------------------------------------------------------------------

    def _next(self) -> _Token:
        if not self._text[self._at :].strip():
            return _Token(_END, "", len(self._text))
        found = _TOKEN.match(self._text, self._at)
        if found is None:
            self._at += len(self._text[self._at :]) - len(self._text[self._at :].lstrip())
            odd = self._text[self._at]
            unclosed = odd in "'\"`"
            cause = "a quote is not closed" if unclosed else f"{shown(odd)} has no meaning here"
            raise _Fault("where-syntax", cause, "close it" if unclosed else _WANTED, self._at)
        kind = found.lastgroup or ""
        text, start = found[kind], found.start(kind)
        if kind == "word":
            text = self._known_part(text)
        self._at = start + len(text) if kind != "quoted" else found.end()
        return _Token("name" if kind == "quoted" else kind, text, start)

    def _known_part(self, word: str) -> str:
        """Return the name at the beginning of a word such as `a-b`, which may be a difference."""
        if word in self._specs or word in self._words:
            return word
        ends = [i for i, letter in enumerate(word) if letter == "-"]
        return next((word[:end] for end in reversed(ends) if word[:end] in self._specs), word)

    def _take(self) -> _Token:
        token, self._token = self._token, self._next()
        return token

    def _unexpected(self, wanted: str) -> _Fault:
        token = self._token
        if token.text == "=":
            return _Fault("where-syntax", "= compares nothing", "write ==", token.position)
        found = "the end" if token.kind == _END else shown(token.text)
        return _Fault("where-syntax", f"{wanted} is expected, not {found}", _WANTED, token.position)

    # --- grammar ------------------------------------------------------------------------------------------------------

    def _any(self) -> _Test:
        return self._joined("or", lambda: self._joined("and", self._comparison, all), any)

    def _joined(self, word: str, part: Callable[[], _Test], join: Callable[[Sequence[bool]], bool]) -> _Test:
        tests = [part()]
        while self._token.kind == "word" and self._token.text.lower() == word:
            self._take()
            tests.append(part())
        return tests[0] if len(tests) == 1 else lambda point: join([test(point) for test in tests])

    def _comparison(self) -> _Test:
        sides, signs = [self._sum()], list[str]()
        while self._token.text in _EXACT and self._token.kind == "sign":
            signs.append(self._take().text)
            sides.append(self._sum())
        if not signs:
            raise self._unexpected("a comparison (<, <=, >, >=, == or !=)")
        tests = [_guarded(self._test(*pair)) for pair in zip(sides, signs, sides[1:], strict=False)]
        return tests[0] if len(tests) == 1 else lambda point: all(test(point) for test in tests)

    def _test(self, left: _Operand, sign: str, right: _Operand) -> _Test:
        compare = _EXACT[sign]
        if left.number is not None and right.number is not None:
            first, second, is_inclusive = left.number, right.number, sign in _INCLUSIVE

            def test(point: _Point) -> bool:
                a, b = first(point), second(point)
                if math.isnan(a) or math.isnan(b):
                    return False
                return is_inclusive if math.isclose(a, b, rel_tol=_CLOSE) else compare(a, b)

            return test
        texts = [side for side in (left, right) if side.number is None]
        odd = texts[0]
        if sign not in ("==", "!=") or len(texts) == 1 or not (left.name or right.name):
            what = odd.name or shown(odd.literal)
            cause, remedy = f"{what} is not a number", "compare a choice with one of its values, by == or !="
            raise _Fault("where-type", cause, remedy, odd.position)
        for side, other in ((left, right), (right, left)):
            values = self._specs[side.name].feasible_space.list if side.name else ()
            if side.name and other.literal is not None and other.literal not in values:
                cause = f"{shown(other.literal)} is not a value of {side.name}"
                raise _Fault("where-value", cause, did_you_mean(other.literal, values), other.position)
        return lambda point: compare(_text(left, point), _text(right, point))  # type: ignore[arg-type]  # == and !=

    def _sum(self) -> _Operand:
        return self._chain(_SUMS, lambda: self._chain(_PRODUCTS, self._signed))

    def _chain(self, signs: Mapping[str, Callable[[float, float], float]], part: Callable[[], _Operand]) -> _Operand:
        left = part()
        while self._token.kind == "sign" and self._token.text in signs:
            join = signs[self._take().text]
            left = _Operand(left.position, _combined(join, self._number(left), self._number(part())))
        return left

    def _signed(self) -> _Operand:
        position, negates = self._token.position, False
        while self._token.kind == "sign" and self._token.text == "-":
            self._take()
            negates = not negates
        found = self._atom()
        if not negates:
            return found
        number = self._number(found)
        return _Operand(position, lambda point: -number(point))

    def _number(self, operand: _Operand) -> _Number:
        if operand.number is None:
            cause = f"{operand.name or shown(operand.literal)} is not a number"
            raise _Fault("where-type", cause, "compute with numeric parameters only", operand.position)
        return operand.number

    def _atom(self) -> _Operand:
        token = self._token
        if token.kind == "sign" and token.text == "(":
            return self._group()
        if token.kind == "number":
            self._take()
            value = float(token.text)
            if math.isinf(value):
                raise _Fault("where-syntax", f"{token.text} is too large", "write a smaller number", token.position)
            return _Operand(token.position, lambda _: value)
        if token.kind == "text":
            self._take()
            return _Operand(token.position, literal=token.text[1:-1])
        if token.kind in ("word", "name"):
            return self._named(self._take())
        raise self._unexpected("a parameter or a number")

    def _group(self) -> _Operand:
        opening = self._take()
        self._depth += 1
        if self._depth > _MOST_NESTED:
            raise _Fault("where-syntax", "the parentheses are nested too deeply", "divide it", opening.position)
        inner = self._sum()
        if self._token.text != ")":
            raise self._unexpected(") or an operator")
        self._take()
        self._depth -= 1
        return inner

    def _named(self, token: _Token) -> _Operand:
        name, spec = token.text, self._specs.get(token.text)
        if spec is None:
            if token.kind == "word" and name in self._words:
                return _Operand(token.position, literal=name)
            near = closest(name, self._specs) or closest(name, self._words)
            remedy = f"{f'did you mean {near}? ' if near else ''}{one_of(self._specs)}"
            raise _Fault("where-unknown", f"{shown(name)} is not a parameter", remedy, token.position)
        self._names.add(name)
        values = spec.feasible_space.list
        if spec.parameter_type in (ParameterType.DOUBLE, ParameterType.INT) or all(map(is_usable, values)):
            return _Operand(token.position, lambda point: float(point[name]))
        return _Operand(token.position, name=name)


def _guarded(test: _Test) -> _Test:
    def holds(point: _Point) -> bool:
        try:
            return test(point)
        except KeyError:  # a parameter is absent
            return True
        except (ZeroDivisionError, OverflowError, ValueError):
            return False

    return holds


def _combined(join: Callable[[float, float], float], left: _Number, right: _Number) -> _Number:
    return lambda point: join(left(point), right(point))


def _text(operand: _Operand, point: _Point) -> _Value:
    return operand.literal if operand.literal is not None else point[operand.name]
