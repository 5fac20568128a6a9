"""Axes of parameters and metrics: scale, ticks, and a place for absent values.

Notation: a *value* is an entry of a table's column; its *place* is its position on the axis: the value itself, log10 of
it on a logarithmic axis, the index of its choice on a categorical one. Trials without a conditional parameter have a
place of their own below all others.

Source of the outliers: [Tukey1977] Exploratory data analysis, section 2C (outer fences).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from katib.figures.style import html_safe, new_figure
from katib.figures.trials import Floats, ParameterInfo, Rows, TrialTable
from katib.model.types import ParameterType
from katib.model.wording import number_text
from katib.service.tuning.reading import shortened

if TYPE_CHECKING:
    from plotly import graph_objects as go

LINEAR, LOG, CATEGORICAL = "linear", "log", "categorical"

ABSENT = "absent"
"""Tick text of trials without the parameter."""

_ABSENT_SHARE = 0.15
"""Distance of the place for absent values below the others, as a share of the axis."""
_CLEAR_SHARE = 0.25
_MARGIN = 0.04
_MOST_TICKS = 12
_FEW_TICKS = 6
_LONGEST_TICK = 24
"""Characters of a choice on an axis; architectures have hundreds."""
_WIDE = 1_000.0
"""Ratio of the largest to the smallest positive value from which only a logarithmic axis distinguishes them."""
_FEW_DECADES = 2.5


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis.

    Attributes:
        scale: `linear`, `log` or `categorical`.
        low: The lowest place of a value.
        high: The highest place of a value.
        choices: Choices of a categorical axis; the place of each is its index.
        absent: The place of trials without a value; None if all have one.
        whole: Whether all values are integers.
        listed: The only values on it, in order, if they are few; empty otherwise.
        ends: The lowest and the highest place of all values, if some are beyond.
    """

    name: str
    scale: str
    low: float
    high: float
    choices: tuple[str, ...] = ()
    absent: float | None = None
    whole: bool = False
    listed: tuple[float, ...] = ()
    beyond: int = 0
    ends: tuple[float, float] | None = None

    @property
    def range(self) -> tuple[float, float]:
        """The drawn range, in places."""
        margin = 0.5 if self.scale == CATEGORICAL else _MARGIN * (self.high - self.low)
        return (self.low if self.absent is None else self.absent) - margin, self.high + margin

    def places(self, values: Floats) -> Floats:
        """Return the places of values; NaN for an absent one without a place."""
        places = np.log10(np.where(values > 0, values, np.nan)) if self.scale == LOG else values.astype(np.float64)
        return places if self.absent is None else np.where(np.isnan(values), self.absent, places)

    def value(self, place: float) -> float:
        """Return the value at a place: the inverse of `places` for present values."""
        return 10.0**place if self.scale == LOG else place

    def ticks(self, most: int = _MOST_TICKS) -> tuple[list[float], list[str]]:
        """Return places and texts of ticks, from the bottom up: at most `most`, and one for absent values.

        The texts are not escaped: most of Plotly's axes read HTML, those of parallel coordinates do not.
        """
        marks = [] if self.absent is None else [(self.absent, ABSENT)]
        if self.scale == CATEGORICAL:
            marks += [(float(i), shown(self.choices[i])) for i in _spread(len(self.choices), most)]
        else:
            values = self._tick_values(min(most, _FEW_TICKS))
            marks += [(math.log10(value) if self.scale == LOG else value, number(value)) for value in values]
        return [place for place, _ in marks], [text for _, text in marks]

    def coordinates(self, values: Floats) -> Floats:
        """Return the coordinates for the axis of `layout`, which takes logarithms itself."""
        places = self.places(values)
        return np.power(10.0, places) if self.scale == LOG else places

    def layout(self, most_ticks: int = _MOST_TICKS) -> dict[str, Any]:
        """Return Plotly's horizontal or vertical axis, with its title."""
        ticks, texts = self.ticks(most_ticks)
        form: dict[str, Any] = {
            "title": {"text": html_safe([self.name])[0]},
            "type": "log" if self.scale == LOG else "linear",
            "range": list(self.range),
            "zeroline": False,
        }
        if self.scale != CATEGORICAL and self.absent is None and not self.listed:
            power = {"exponentformat": "power"} | ({"dtick": 1} if self.high - self.low > _FEW_DECADES else {})
            return form | (power if self.scale == LOG else {"nticks": most_ticks})
        if self.scale != CATEGORICAL and self.absent is not None:  # no number beside the text of absent values
            clear = self.absent + _CLEAR_SHARE * (self.high - self.absent)
            kept = [i for i, place in enumerate(ticks) if place <= self.absent or place >= clear]
            ticks, texts = [ticks[i] for i in kept], [texts[i] for i in kept]
        places = [10.0**place for place in ticks] if self.scale == LOG else ticks
        return form | {"tickvals": places, "ticktext": html_safe(texts)}

    def _tick_values(self, most: int) -> Sequence[float]:
        if self.listed:
            return [self.listed[i] for i in _spread(len(self.listed), most)]
        if self.scale == LOG:
            return _log_ticks(self.low, self.high, most)
        rough = (self.high - self.low) / max(most - 1, 1)
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * (1 - 1e-9))
        if self.whole:
            step = max(1.0, math.ceil(step))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [float(f"{i * step:.12g}") for i in range(first, last + 1)]


def parameter_axis(trials: TrialTable, name: str, rows: Rows) -> Axis:
    """Return the axis of a parameter, from bound to bound, extended to values beyond the bounds."""
    parameter, values = trials.parameter(name), trials.values[name][rows]
    has_absent = bool(np.isnan(values).any())
    if parameter.is_categorical:
        top = float(max(len(parameter.choices) - 1, 0))
        return Axis(name, CATEGORICAL, 0.0, top, parameter.choices, absent=-1.0 if has_absent else None)
    return _number_axis(parameter, values, LOG if parameter.log else LINEAR, has_absent=has_absent)


def metric_axis(name: str, values: Floats, *, maximize: bool | None = None) -> Axis:
    """Return the axis of a metric, with the scale and without the outliers of `value_axis`."""
    axis = value_axis(values, maximize=maximize)
    has_absent = not np.isfinite(values).all()
    whole = _number_axis(ParameterInfo(name, ParameterType.DOUBLE), values, axis.scale, has_absent=has_absent)
    if not axis.beyond:
        return whole
    low, high, beyond = axis.views[axis.scale]
    absent = low - _ABSENT_SHARE * (high - low) if has_absent else None
    return replace(whole, low=low, high=high, absent=absent, beyond=beyond, ends=(whole.low, whole.high))


def _number_axis(parameter: ParameterInfo, values: Floats, scale: str, *, has_absent: bool) -> Axis:
    found = values[np.isfinite(values) & ((values > 0) | (scale != LOG))]
    bounds = [bound for bound in (parameter.low, parameter.high) if math.isfinite(bound)]
    low = min((*bounds, found.min())) if len(found) else min(bounds, default=1.0)
    high = max((*bounds, found.max())) if len(found) else max(bounds, default=1.0)
    whole = parameter.type == ParameterType.INT
    listed: tuple[float, ...] = ()
    if parameter.type == ParameterType.DISCRETE:
        distinct = np.unique(found)
        listed = tuple(map(float, distinct)) if len(distinct) <= _FEW_TICKS else ()
    low, high = (math.log10(low), math.log10(high)) if scale == LOG else (float(low), float(high))
    if high <= low:  # one value: it is drawn in the middle
        room = abs(low) * 0.1 or 0.5
        low, high = low - room, high + room
    absent = low - _ABSENT_SHARE * (high - low) if has_absent else None
    return Axis(parameter.name, scale, low, high, absent=absent, whole=whole, listed=listed)


def number(value: float) -> str:
    """Format a number for an axis or a label: `0.001`, `50k`, `1e-05`."""
    thousand, most = 1_000, 1e6
    if abs(value) >= 10 * thousand and abs(value) < most and value % thousand == 0:
        return f"{value / thousand:.0f}k"
    text = f"{value:.4g}"
    return text if "e+" not in text and (float(text) == value or not math.isfinite(value)) else number_text(value, 4)


def single(values: Floats) -> Floats | npt.NDArray[np.float32]:
    """Return numbers in single precision, which is finer than a screen, if they fit: JSON of half the size."""
    if _has_long(values):
        return values
    with np.errstate(over="ignore", under="ignore"):
        rounded = values.astype(np.float32)
    same = np.isfinite(rounded) == np.isfinite(values)
    return rounded if (same & ((rounded != 0) == (values != 0))).all() else values


def shown(choice: str) -> str:
    """Return the text of a choice on an axis, without its middle if it is long."""
    return shortened(choice, _LONGEST_TICK)


def _spread(count: int, most: int) -> list[int]:
    """Return at most `most` indices below a count, evenly spaced from the first one."""
    return list(range(0, count, max(1, -(-count // most))))


def _log_ticks(low: float, high: float, most: int) -> list[float]:
    """Return round numbers between two powers of ten: decades, or 1, 2 and 5 of each if there are few decades."""
    for mantissas in ((1, 2, 5), (1, 3), (1,)) if high - low <= _FEW_DECADES else ((1,),):
        ticks = [
            mantissa * 10.0**decade
            for decade in range(math.floor(low), math.ceil(high) + 1)
            for mantissa in mantissas
            if low - 1e-9 <= decade + math.log10(mantissa) <= high + 1e-9
        ]
        if len(ticks) <= most and len(ticks) > 1:
            return ticks
    if len(ticks) > 1:
        every = math.ceil(len(ticks) / most)
        return ticks[::every]
    return [10.0**low, 10.0**high]


_FEWEST = 8
"""Minimum number of values to recognize outliers."""
_FENCE = 3.0
"""Values farther from the middle half than this multiple of its length are far out [Tukey1977]."""
_MOST_BEYOND = 0.05
"""Maximum share of trials beyond an axis: more of them are no outliers."""
_WORTH_HIDING = 2.0
"""An axis ends before outliers if they would make it this many times as long."""
_VALUE_MARGIN = 0.08
_LONG = 1e6
"""The smallest integer of more than six digits."""
_LARGEST_SINGLE = 1e30
_SMALLEST_SINGLE = 1e-30
_LARGEST_OF_SPREAD = 1e4
"""Numbers keep all digits if they are this many times as large as their differences."""

_UNITS = (("days", 86_400.0), ("hours", 3_600.0), ("minutes", 60.0))
_FEWEST_OF_A_UNIT = 3.0


class Ordinary(NamedTuple):
    """The values of an axis that are no outliers."""

    low: float
    high: float
    beyond: int


@dataclass(frozen=True, slots=True)
class ValueAxis:
    """The axis of a figure's values.

    Attributes:
        scale: `linear` or `log`, as it is drawn first.
        views: The ordinary values for each possible scale, in places.
    """

    scale: str
    views: Mapping[str, Ordinary]

    @property
    def layout(self) -> dict[str, Any]:
        """Plotly's settings."""
        form: dict[str, Any] = {"type": "log", "exponentformat": "power"} if self.scale == LOG else {}
        return form | ({"range": self.range_of(self.scale)} if self.beyond else {})

    @property
    def beyond(self) -> int:
        """Number of values beyond the axis as it is drawn first."""
        return self.views[self.scale].beyond if self.views else 0

    def range_of(self, scale: str) -> list[float]:
        low, high, _ = self.views[scale]
        margin = _VALUE_MARGIN * (high - low)
        return [low - margin, high + margin]

    @property
    def note(self) -> str:
        """The values beyond it, in a sentence; empty if there are none."""
        count = self.beyond
        return f"{count:,} {'values lie' if count != 1 else 'value lies'} beyond the axis" if count else ""

    def meta(self, *axes: str, name: str = "") -> dict[str, Any]:
        """Return the possible views for the page, an entry of `values` in `layout.meta`.

        Args:
            axes: Plotly's names of the axes: `yaxis`.
            name: Name for a reader, if the figure has more axes than two.
        """
        views = {
            scale: {"beyond": view.beyond, "range": self.range_of(scale) if view.beyond or name else None}
            for scale, view in self.views.items()
        }
        return {"axes": list(axes), "scale": self.scale, "views": views, **({"name": name} if name else {})}


class TimeUnit(NamedTuple):
    """The unit of a duration: `minutes`, of 60 seconds."""

    name: str
    seconds: float


def value_axis(
    values: Floats, *, maximize: bool | None = None, total: int = 0, scales: Sequence[str] = (LINEAR, LOG)
) -> ValueAxis:
    """Return an axis on which values can be distinguished: the rule of all figures.

    Outliers, such as values of diverged trainings, would flatten the rest: the axis ends before them, never on the
    better side, and the note counts them. It is logarithmic if the other values differ a thousandfold.

    Args:
        values: The drawn values; non-finite ones are ignored.
        maximize: Whether larger is better; None: no direction, and both sides may have outliers.
        total: Number of trials, if the values are a selection of them.
    """
    finite = values[np.isfinite(values)]
    if not len(finite):
        return ValueAxis(LINEAR, {})
    views = {LINEAR: _ordinary(finite, maximize, total)}
    scale = LINEAR
    if LOG in scales and finite.min() > 0:
        views[LOG] = _ordinary(np.log10(finite), maximize, total)
        low, high, _ = views[LINEAR]
        scale = LOG if high / low >= _WIDE else LINEAR
    return ValueAxis(scale, views)


def scales_of(axis: Axis, values: Floats) -> ValueAxis:
    """Return the scales that a parameter's axis can have; none for choices, and beside a place for absent values."""
    if axis.scale == CATEGORICAL or axis.absent is not None:
        return ValueAxis(axis.scale, {})
    finite = values[np.isfinite(values)]
    views = {scale: Ordinary(*_ends(finite, scale), 0) for scale in value_axis(finite).views}
    return ValueAxis(axis.scale, views)


def _ends(values: Floats, scale: str) -> tuple[float, float]:
    places = np.log10(values) if scale == LOG else values
    return float(places.min()), float(places.max())


def pairs_figure(side: int, title: str) -> go.Figure:
    """Return an empty figure of each pair of `side + 1` quantities: parts below a diagonal, with shared axes."""
    from plotly.subplots import make_subplots

    figure: go.Figure = make_subplots(
        rows=side,
        cols=side,
        shared_xaxes=True,
        shared_yaxes=True,
        specs=[[{} if column <= line else None for column in range(side)] for line in range(side)],
        horizontal_spacing=0.02,
        vertical_spacing=0.03,
        figure=new_figure(title=title),
    )
    return figure


def axes_of(place: int, side: int) -> list[str]:
    """Return Plotly's names of the axes of a quantity in such a figure: of its column, and of its row."""
    cells = [("x", line, place) for line in range(place, side)] + [("y", place - 1, i) for i in range(place)]
    numbers = [(letter, line * (line + 1) // 2 + column + 1) for letter, line, column in cells]
    return [f"{letter}axis{number if number > 1 else ''}" for letter, number in numbers]


def _ordinary(places: Floats, maximize: bool | None, total: int) -> Ordinary:
    """Return the places within the outer fences, unless they leave too many or too little out. Source: [Tukey1977]."""
    smallest, largest = float(places.min()), float(places.max())
    everything = Ordinary(smallest, largest, 0)
    if len(places) < _FEWEST:
        return everything
    lower, upper = np.percentile(places, (25, 75))
    reach = _FENCE * (upper - lower)
    top = np.inf if maximize is True else upper + reach
    bottom = -np.inf if maximize is False else lower - reach
    common = places[(places >= bottom) & (places <= top)]
    beyond = len(places) - len(common)
    low, high = float(common.min()), float(common.max())
    if beyond > _MOST_BEYOND * max(total, len(places)) or largest - smallest < _WORTH_HIDING * (high - low):
        return everything
    return Ordinary(low, high, beyond) if reach and high > low else everything


def time_unit(seconds: float) -> TimeUnit:
    """Return the unit for a duration: the largest of which it has three."""
    for name, length in _UNITS:
        if seconds >= _FEWEST_OF_A_UNIT * length:
            return TimeUnit(name, length)
    return TimeUnit("seconds", 1.0)


def compact(values: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.floating[Any]]:
    """Return numbers in half the space if the difference is invisible in a picture."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return values.astype(np.float32)
    if _has_long(finite):
        return values
    sizes = np.abs(finite[finite != 0])
    spread = float(finite.max() - finite.min())
    out_of_range = len(sizes) and (sizes.max() > _LARGEST_SINGLE or sizes.min() < _SMALLEST_SINGLE)
    if out_of_range or (spread and float(np.abs(finite).max()) > _LARGEST_OF_SPREAD * spread):
        return values
    return values.astype(np.float32)


def hovered(axis: str, values: npt.NDArray[np.floating[Any]]) -> str:
    """Return Plotly's format of the hovered number: with six digits, or with all if integers have more.

    Args:
        axis: `x`, `y` or `z`.
    """
    return f"%{{{axis}:{hover_format(values)}}}"


def hover_format(values: npt.NDArray[np.floating[Any]]) -> str:
    """Return the format of hovered numbers, as `hovered` uses it."""
    return ".16~g" if _has_long(values) else ".6g"


def _has_long(values: npt.NDArray[np.floating[Any]]) -> bool:
    """Whether integers of more than six digits are among these, such as seeds and sizes in bytes."""
    sizes = np.abs(values[np.isfinite(values)])
    return bool(((sizes >= _LONG) & (sizes == np.round(sizes))).any())
