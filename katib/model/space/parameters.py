"""Parameters as values that cannot be illegal: built once from a checked specification.

A parameter is an interval (every float between two bounds), a grid (numbers at equal distances; every int is one) or a
choice (a list of texts). All three have the same operations, so an algorithm distinguishes them only to exploit their
structure.

Laws: `parse(format(v)) == v`; `from_unit(u)` is feasible for every u in [0, 1]; `from_unit(to_unit(v)) == v` on grids
and choices of up to about a million values, and up to rounding on intervals.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from random import Random
from typing import cast

from typing_extensions import override

from katib.model.types import Distribution

_SIGMAS = 3.0  # from the middle of the axis to either bound
_TAIL = 0.5 * math.erfc(_SIGMAS / math.sqrt(2.0))  # probability below the lower bound, before cutting


@dataclass(frozen=True, slots=True)
class Spread:
    """A distribution between two finite bounds, `low < high`; both are positive if it is logarithmic."""

    low: float
    high: float
    distribution: Distribution = Distribution.UNIFORM

    @property
    def logarithmic(self) -> bool:
        """Whether equal ratios, not equal differences, have equal distances."""
        return self.distribution in (Distribution.LOG_UNIFORM, Distribution.LOG_NORMAL)

    @property
    def bell(self) -> bool:
        """Whether the middle is more likely than the ends."""
        return self.distribution in (Distribution.NORMAL, Distribution.LOG_NORMAL)

    def value(self, u: float) -> float:
        """Return the quantile: the value with cumulative probability u."""
        t = _bell_quantile(u) if self.bell else u
        if self.logarithmic:
            x = math.exp(math.log(self.low) * (1.0 - t) + math.log(self.high) * t)
        else:
            x = self.low * (1.0 - t) + self.high * t  # this form cannot overflow, low + t * (high - low) can
        return min(max(x, self.low), self.high)

    def share(self, x: float) -> float:
        """Return the cumulative probability of a value; values outside count as the nearest bound."""
        x = min(max(x, self.low), self.high)
        if self.logarithmic:
            t = (math.log(x) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        else:
            t = (x / 2 - self.low / 2) / (self.high / 2 - self.low / 2)  # halves: the difference cannot overflow
        t = min(max(t, 0.0), 1.0)
        return _bell_share(t) if self.bell else t


def _bell_share(t: float) -> float:
    z = (2.0 * t - 1.0) * _SIGMAS
    below = 0.5 * math.erfc(-z / math.sqrt(2.0))
    return min(max((below - _TAIL) / (1.0 - 2.0 * _TAIL), 0.0), 1.0)


def _bell_quantile(u: float) -> float:
    z = _standard_normal().inv_cdf(_TAIL + u * (1.0 - 2.0 * _TAIL))  # type: ignore[attr-defined]  # see below
    return min(max((float(z) / _SIGMAS + 1.0) / 2.0, 0.0), 1.0)


@cache
def _standard_normal() -> object:
    from statistics import NormalDist  # late: most searches have no normal parameter, and the module is not small

    return NormalDist()


Value = float | int | str

_TOLERANCE = 1e-9  # relative; other programs write fewer digits than a float has
_STEP_TOLERANCE = 1e-6  # of a step: twelve digits of a value are enough for a million steps
_MAX_EXACT = 2**53


@dataclass(frozen=True, slots=True)
class Parameter(ABC):
    """One dimension of the search space. Immutable and thread-safe."""

    name: str

    @property
    @abstractmethod
    def size(self) -> int | None:
        """Number of feasible values; None if infinite."""

    @abstractmethod
    def parse(self, text: str) -> Value:
        """Return the feasible value of a text.

        Raises:
            ValueError: There is none; the message has the cause.
        """

    @abstractmethod
    def nearest(self, text: str) -> Value:
        """Return the feasible value closest to a text's, for values from a coarser or finer grid.

        Raises:
            ValueError: The text has no value between the bounds.
        """

    @abstractmethod
    def at(self, index: int) -> Value:
        """Return the index-th feasible value, counting from 0 in natural order; only for a parameter with a size."""

    @abstractmethod
    def index_of(self, value: Value) -> int:
        """Return the index of a feasible value; only for a parameter with a size."""

    @abstractmethod
    def to_unit(self, value: Value) -> float:
        """Return the position of a feasible value in [0, 1], on a scale with uniform probability."""

    @abstractmethod
    def from_unit(self, u: float) -> Value:
        """Return the feasible value at a position in [0, 1]."""

    def format(self, value: Value) -> str:
        """Return the text of an assignment: ints as ints, floats in the shortest form that parses back the same."""
        return value if isinstance(value, str) else repr(value)

    def contains(self, text: str) -> bool:
        """Return whether a text has a feasible value."""
        try:
            self.parse(text)
        except ValueError:
            return False
        return True

    def sample(self, random: Random) -> Value:
        """Draw a value from the distribution, with one number of the random source."""
        return self.from_unit(random.random())


@dataclass(frozen=True, slots=True)
class Interval(Parameter):
    """Every float between two different bounds."""

    spread: Spread

    @property
    @override
    def size(self) -> int | None:
        return None

    @override
    def parse(self, text: str) -> float:
        low, high = self.spread.low, self.spread.high
        x = finite_number(text)
        slack = _TOLERANCE * max(abs(low), abs(high)) if not low <= x <= high else 0.0
        if not low - slack <= x <= high + slack:
            raise ValueError(f"{text} is not between {low!r} and {high!r}")
        return min(max(x, low), high)

    nearest = parse

    @override
    def at(self, index: int) -> float:
        raise IndexError(f"{self.name} has no {index}-th value: it is continuous")

    @override
    def index_of(self, value: Value) -> int:
        raise IndexError(f"{self.name} has no index of {value}: it is continuous")

    @override
    def to_unit(self, value: Value) -> float:
        return self.spread.share(float(value))

    @override
    def from_unit(self, u: float) -> float:
        return self.spread.value(u) + 0.0  # turns -0.0 into 0.0


@dataclass(frozen=True, slots=True)
class Grid(Parameter):
    """The numbers `low + k * step` for k = 0 .. count - 1, all of them ints or all floats.

    Attributes:
        spread: Distribution over the user's bounds; None for equal weights. A logarithmic one extends half a step
            beyond both ends, so that the end points get their full weight; a bell's ends are cut at the bounds.
    """

    low: Fraction
    step: Fraction
    count: int
    whole: bool
    spread: Spread | None = None

    @property
    @override
    def size(self) -> int | None:
        return self.count

    @override
    def parse(self, text: str) -> Value:
        k, distance = self._locate(text)
        # Far from zero two floats may be further apart than the tolerance.
        if distance > max(_STEP_TOLERANCE, 2 * math.ulp(float(self._number(k))) / float(self.step)):
            raise ValueError(f"{text} is not {self._number(0)!r} plus a multiple of {self._as_number(self.step)!r}")
        return self._number(k)

    @override
    def nearest(self, text: str) -> Value:
        return self._number(self._locate(text)[0])

    @override
    def at(self, index: int) -> Value:
        if not 0 <= index < self.count:
            raise IndexError(f"{self.name} has {self.count} values, there is none at {index}")
        return self._number(index)

    @override
    def index_of(self, value: Value) -> int:
        exact = _exact(value if self.whole else float(value))
        return min(max(round((exact - self.low) / self.step), 0), self.count - 1)

    @override
    def to_unit(self, value: Value) -> float:
        if self.spread is None:
            return float(Fraction(2 * self.index_of(value) + 1, 2 * self.count))
        return self.spread.share(float(value))

    @override
    def from_unit(self, u: float) -> Value:
        if self.spread is None:
            k = int(u * self.count) if self.count < _MAX_EXACT else int(Fraction(u) * self.count)
            return self._number(min(k, self.count - 1))
        return self._number(self.index_of(self.spread.value(u) if not self.whole else round(self.spread.value(u))))

    def _locate(self, text: str) -> tuple[int, float]:
        """Return the nearest index and the distance from it, in steps."""
        x = whole_number(text) if self.whole else _exact(finite_number(text))
        place = (x - self.low) / self.step
        slack = Fraction(_TOLERANCE)
        if not -slack <= place <= (self.count - 1) + slack:
            last = self._number(self.count - 1)
            # A grid that does not reach the upper bound still accepts another program's values below the bound.
            if place < 0 or place >= self.count:
                raise ValueError(f"{text} is not between {self._number(0)!r} and {last!r}")
        k = min(max(round(place), 0), self.count - 1)
        return k, float(abs(place - k))

    def _number(self, k: int) -> Value:
        return self._as_number(self.low + k * self.step)

    def _as_number(self, exact: Fraction) -> Value:
        return int(exact) if self.whole else float(exact)


@dataclass(frozen=True, slots=True)
class ValueList(Parameter):
    """A list of texts. An *ordered* one (discrete, all numbers) has its values in numeric order in `values`.

    Texts are returned as given; equal texts count once.
    """

    values: tuple[str, ...]
    ordered: bool = False
    _index: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_index", {text: i for i, text in enumerate(self.values)})

    @property
    @override
    def size(self) -> int | None:
        return len(self.values)

    @override
    def parse(self, text: str) -> str:
        if text in self._index:
            return text
        if self.ordered:
            x = finite_number(text)
            for value in self.values:
                if math.isclose(x, float(value), rel_tol=_TOLERANCE):
                    return value
        raise ValueError(f'"{text}" is not one of {", ".join(self.values)}')

    @override
    def nearest(self, text: str) -> str:
        return self.parse(text)

    @override
    def at(self, index: int) -> str:
        if not 0 <= index < len(self.values):
            raise IndexError(f"{self.name} has {len(self.values)} values, there is none at {index}")
        return self.values[index]

    @override
    def index_of(self, value: Value) -> int:
        return self._index[cast("str", value)]

    @override
    def to_unit(self, value: Value) -> float:
        return (self.index_of(value) + 0.5) / len(self.values)

    @override
    def from_unit(self, u: float) -> str:
        return self.values[min(int(u * len(self.values)), len(self.values) - 1)]


def finite_number(text: str) -> float:
    """Return the number of a text; ValueError if it is not one, NaN or infinite."""
    try:
        x = float(text)
    except ValueError:
        raise ValueError(f'"{text}" is not a number') from None
    if not math.isfinite(x):
        raise ValueError(f"{text} is not a finite number")
    return x


def whole_number(text: str) -> int:
    """Return the whole number of a text; `3.0` and `1e3` are whole."""
    try:
        return int(text)
    except ValueError:
        x = finite_number(text)
    if x != int(x):
        raise ValueError(f"{text} is not a whole number")
    return int(x)


def exact_number(text: str) -> Fraction:
    """Return a decimal text as an exact fraction, so that 0.1 + 2 * 0.1 is 0.3.

    Parsing the shortest text of the float bounds the exponent: `1e-999999999` would exhaust the memory.
    """
    return _exact(finite_number(text))


def _exact(x: float | str) -> Fraction:
    return Fraction(x) if isinstance(x, int) else Fraction(repr(float(x)))


def uniform_or(distribution: str) -> Distribution:
    """Return the distribution of that name; `unknown` and the empty text mean uniform."""
    if distribution in ("", Distribution.UNKNOWN):
        return Distribution.UNIFORM
    return Distribution(distribution)
