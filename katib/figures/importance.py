"""Parameter importances: how much worse a forest predicts trials when it is given another trial's value of a parameter.

Notation: n trials, p parameters, X (n, c) their columns, y (n,) ranks of the objective, scaled to 0 to 1.
Source: [Breiman2001] Random Forests, Machine Learning 45, section 10: permutation importance of each tree on the trials
that it was not grown on.
Differs from the source: the columns of the choices of one parameter are permuted together; importances are shares of
their sum, negative ones 0. Ranks take the place of values, so that a few diverged trials do not decide everything.
A trial that does not have a parameter has a value of its own below all others.

The same trials give the same importances: lots and forest have fixed seeds.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from katib.errors import invalid
from katib.figures.axes import shown
from katib.figures.data import Choice, ExperimentData
from katib.figures.style import BLUE, GREY, add_note, html_safe, new_figure
from katib.figures.targets import Target, sampled, target_of
from katib.figures.trials import Floats, Rows, TrialTable

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from sklearn.ensemble import RandomForestRegressor

FEWEST_TRIALS = 10
_MOST_TRIALS = 2_000
_MOST_CELLS = 40_000
"""Of X: spaces of many columns are judged by fewer trials, so that the time is bounded."""
_TREES = 64
_LEAF = 2
_MOST_COLUMNS = 12
"""A parameter with more choices is one column, in the order of its choices."""
_MOST_BARS = 30
LITTLE = 0.25
"""A forest that explains a smaller share of the variance has not found out what matters."""


@dataclass(frozen=True, slots=True)
class Importances:
    """What a forest says about parameters.

    Attributes:
        names: Of the parameters, the most important first.
        shares: Of each, in 0 to 1; they add up to 1, or are all 0.
        errors: Standard error of each over the trees.
        explained: Share of the variance of ranks that the forest explains, of trials that a tree has not seen. Below 0
            when it is worse than the mean.
        trials: How many trials it rests on.
        measured: How many there are.
    """

    names: tuple[str, ...]
    shares: tuple[float, ...]
    errors: tuple[float, ...]
    explained: float
    trials: int
    measured: int

    @property
    def is_telling(self) -> bool:
        """Whether the forest explains enough to be believed."""
        return self.explained >= LITTLE and any(self.shares)


def importance_obstacle(data: ExperimentData) -> str:
    """Return what is missing for importances."""
    return _obstacle(data.trials, target_of(data.trials))


def varying(trials: TrialTable, target: Target) -> tuple[str, ...]:
    """Return the parameters that do not have the same value in all measured trials."""
    return tuple(
        name
        for name, column in trials.values.items()
        if len(np.unique(np.nan_to_num(column[target.rows], nan=-1e300))) > 1
    )


def importances_of(trials: TrialTable, metric: str = "") -> Importances:
    """Return how important each parameter is for a metric. Takes about a second.

    Args:
        trials: With ten measured ones at least.
        metric: Its name; empty: the objective.
    """
    target = target_of(trials, metric)
    names = varying(trials, target)
    groups = [_columns(trials, name, target.rows) for name in names]
    width = sum(group.shape[1] for group in groups)
    rows = np.sort(sampled(target, min(_MOST_TRIALS, max(FEWEST_TRIALS, _MOST_CELLS // max(width, 1))), 0))
    kept = np.searchsorted(target.rows, rows)
    x = np.concatenate([group[kept] for group in groups], axis=1)
    y = _ranks(target.values[rows])
    worse, explained = _permuted(_forest(x, y), x, y, [group.shape[1] for group in groups])
    means, errors = worse.mean(axis=0), worse.std(axis=0) / np.sqrt(len(worse))
    total = float(np.sum(np.maximum(means, 0.0)))
    scale = 1.0 / total if total > 0 else 0.0
    order = sorted(range(len(names)), key=lambda i: -means[i])
    return Importances(
        tuple(names[i] for i in order),
        tuple(float(max(means[i], 0.0) * scale) for i in order),
        tuple(float(errors[i] * scale) for i in order),
        explained,
        len(rows),
        len(target.rows),
    )


def draw_importances(data: ExperimentData, choice: Choice) -> go.Figure:
    """Return a bar for the importance of each parameter, the most important on top, with what they rest on.

    Raises:
        InvalidError: Too few trials have a value of the chosen metric.
    """
    target = target_of(data.trials, choice.metric)
    if obstacle := _obstacle(data.trials, target):
        cause = f"for {target.name}, {obstacle[:1].lower()}{obstacle[1:].removesuffix('.')}"
        raise invalid(
            "figure importances", cause, "choose another metric, or wait for more trials", "figure-impossible"
        )
    found = importances_of(data.trials, choice.metric)
    names = found.names[:_MOST_BARS][::-1]
    shares, errors = found.shares[:_MOST_BARS][::-1], found.errors[:_MOST_BARS][::-1]
    longest = max(share + error for share, error in zip(shares, errors, strict=True))
    figure = new_figure(
        title=f"{html_safe([data.name])[0]}: importances for {html_safe([target.name])[0]}", x="share of the importance"
    )
    figure.add_bar(
        x=shares,
        y=list(range(len(names))),
        orientation="h",
        error_x={"type": "data", "array": errors, "thickness": 1.2, "color": GREY},
        marker={"color": BLUE if found.is_telling else GREY},
        text=[f"{share:.0%}" for share in shares],
        textposition="auto",
        insidetextanchor="start",
        customdata=html_safe(names),
        hovertemplate="%{customdata}: %{x:.1%} ± %{error_x.array:.1%}<extra></extra>",
        showlegend=False,
    )
    labels = html_safe([shown(name) for name in names])
    figure.update_layout(
        xaxis={"tickformat": ".0%", "range": [0, 1.05 * longest or 1.0]},
        yaxis={
            "tickvals": list(range(len(names))),
            "ticktext": labels,
            "automargin": True,
            "showgrid": False,
            "zeroline": False,
        },
        height=max(_LEAST_HEIGHT, _BAR_HEIGHT * len(names) + 150),
    )
    add_note(figure, basis_of(found))
    return figure


_LEAST_HEIGHT, _BAR_HEIGHT = 320, 26


def basis_of(found: Importances) -> str:
    """Return in a sentence what importances rest on, and whether they mean something."""
    of = f" of {found.measured:,}" if found.trials < found.measured else ""
    explained = f"explains {max(found.explained, 0.0):.0%} of the variance of ranks (out of bag)"
    verdict = "" if found.is_telling else ": too little to mean much; wait for more trials"
    return f"Random forest on {found.trials:,}{of} trials, {explained}{verdict}"


def _obstacle(trials: TrialTable, target: Target) -> str:
    if len(target.rows) < FEWEST_TRIALS:
        return f"It takes {FEWEST_TRIALS} trials with a value; there are {len(target.rows)}."
    if len(varying(trials, target)) < 2:  # noqa: PLR2004 - one parameter is all that matters
        return "It takes two parameters that vary."
    return ""


def _columns(trials: TrialTable, name: str, rows: Rows) -> Floats:
    """Return the columns of X that stand for a parameter."""
    parameter, values = trials.parameter(name), trials.values[name][rows]
    present = ~np.isnan(values)
    if parameter.is_categorical and len(parameter.choices) <= _MOST_COLUMNS:
        return np.stack([values == choice for choice in range(len(parameter.choices))], axis=1).astype(np.float64)
    if parameter.log:
        present &= values > 0
        values = np.log10(np.where(present, values, 1.0))
    lowest = values[present].min() if present.any() else 0.0
    span = float(np.ptp(values[present])) if present.any() else 0.0
    return np.where(present, values, lowest - (span or 1.0))[:, None]


def _ranks(values: Floats) -> Floats:
    """Return ranks from 0 to 1, the same for equal values."""
    ordered = np.sort(values)
    ranks = (np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right") - 1) / 2
    return np.asarray(ranks / max(len(values) - 1, 1), dtype=np.float64)


def _forest(x: Floats, y: Floats) -> RandomForestRegressor:
    from sklearn.ensemble import RandomForestRegressor

    forest = RandomForestRegressor(
        _TREES, min_samples_leaf=_LEAF, max_features=max(1, x.shape[1] // 2), random_state=0, n_jobs=1
    )
    return forest.fit(x, y)


def _permuted(forest: RandomForestRegressor, x: Floats, y: Floats, widths: list[int]) -> tuple[Floats, float]:
    """Return how much the squared error of each tree grows for each parameter, shape (trees, p), and what is explained.

    The trees are asked about the trials that they were not grown on, all permutations of them at once.
    """
    starts = np.concatenate(([0], np.cumsum(widths)))
    lots = np.random.default_rng(1)
    grown = np.full((len(forest.estimators_), len(widths)), np.nan)
    sums, counts = np.zeros(len(y)), np.zeros(len(y))
    for number, (tree, sample) in enumerate(zip(forest.estimators_, forest.estimators_samples_, strict=True)):
        unseen = np.setdiff1d(np.arange(len(y)), sample)
        if len(unseen) < 2:  # noqa: PLR2004 - nothing to exchange
            continue
        asked = np.tile(x[unseen], (len(widths) + 1, 1)).astype(np.float32)
        for i, (first, end) in enumerate(pairwise(starts), start=1):
            block = slice(i * len(unseen), (i + 1) * len(unseen))
            asked[block, first:end] = x[lots.permutation(unseen), first:end]
        said = tree.tree_.predict(asked).reshape(len(widths) + 1, len(unseen))
        errors = np.mean((said - y[unseen]) ** 2, axis=1)
        grown[number] = errors[1:] - errors[0]
        sums[unseen] += said[0]
        counts[unseen] += 1
    asked_once = counts > 0
    rest = np.sum((sums[asked_once] / counts[asked_once] - y[asked_once]) ** 2)
    total = np.sum((y[asked_once] - y[asked_once].mean()) ** 2)
    judged = grown[~np.isnan(grown).any(axis=1)]
    return judged if len(judged) else np.zeros((1, len(widths))), float(1 - rest / total) if total > 0 else 0.0
