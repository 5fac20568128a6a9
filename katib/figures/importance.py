"""Parameter importances: fANOVA, the share of the objective's variance that each parameter explains.

Notation: n trials, p parameters, x (c, n) their columns, y (n,) ranks of the objective, scaled to 0 to 1. f is the mean
of a forest's trees, V its variance if each parameter is drawn independently. A parameter explains alone the variance of
the mean of f given its value, and with others its additional part in interactions: together the variance that remains
when the others are known.
Source: [Hutter2014] An Efficient Approach for Assessing Hyperparameter Importance, ICML 31. [Geurts2006] Extremely
Randomized Trees, Machine Learning 63: a node is split at the best of one random cut for each column. [Jansen1999]
Analysis of variance designs for model output, Computer Physics Communications 117: both shares from pairs of points.
Differs from the sources: points are drawn instead of integrating over the leaves, and each value from those of the
trials instead of the whole space, so importance is measured in the searched region. Each tree is grown on two thirds of
the trials. Ranks replace values: a few diverged trials do not dominate, and the scale does not matter. The columns of
the choices of one parameter are drawn together. Trials without a parameter have a separate value below all others.

The same trials give the same importances: the random generator has a fixed seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from katib.errors import invalid
from katib.figures.axes import shown
from katib.figures.data import ExperimentData, FigureOptions
from katib.figures.style import BLUE, GREY, add_note, html_safe, new_figure
from katib.figures.targets import RankingMetric, sampled, target_of
from katib.figures.trials import Floats, Rows, TrialTable

if TYPE_CHECKING:
    import plotly.graph_objects as go

FEWEST_TRIALS = 10
_MOST_TRIALS = 2_000
_MOST_CELLS = 40_000
"""Limit of the entries of x: spaces of many columns use fewer trials, so that the time is bounded."""
_TREES, _GROUPS = 64, 8
"""Groups of trees, whose means give the standard errors."""
_ASKED, _FEWEST_DRAWN = 14_000, 200
"""Points evaluated by each tree, for all parameters, and the minimum number of points."""
_GROWN_ON = 2 / 3
_LEAF = 2
_MOST_COLUMNS = 12
"""A parameter with more choices is one column, in the order of its choices."""
_MOST_BARS = 30
LITTLE = 0.25
"""A forest that explains a smaller share of the variance is not conclusive."""


@dataclass(frozen=True, slots=True)
class Importances:
    """Importances of parameters according to a forest.

    Attributes:
        names: The parameters, the most important first.
        shares: Share of the variance that each explains, alone and with others, in 0 to 1; a joint part counts for
            each of them.
        alone: Share that each explains alone.
        errors: Standard error of each share over the trees.
        explained: Share of the variance of ranks that the forest explains, of trials that a tree has not seen. Below 0
            if it is worse than the mean.
    """

    names: tuple[str, ...]
    shares: tuple[float, ...]
    alone: tuple[float, ...]
    errors: tuple[float, ...]
    explained: float
    trials: int
    measured: int

    @property
    def is_telling(self) -> bool:
        """Whether the forest explains enough to be conclusive."""
        return self.explained >= LITTLE and any(self.shares)


def importance_obstacle(data: ExperimentData) -> str:
    """Return an obstacle if there is too little data for importances."""
    return _obstacle(data.trials, target_of(data.trials))


def varying(trials: TrialTable, target: RankingMetric) -> tuple[str, ...]:
    """Return the parameters with more than one value in the measured trials."""
    return tuple(
        name
        for name, column in trials.values.items()
        if len(np.unique(np.nan_to_num(column[target.rows], nan=-1e300))) > 1
    )


def importances_of(trials: TrialTable, metric: str = "") -> Importances:
    """Return the importance of each parameter for a metric. Takes about a second.

    Args:
        trials: Ten measured ones at least.
        metric: The metric; empty: the objective.
    """
    target = target_of(trials, metric)
    names = varying(trials, target)
    groups = [_columns(trials, name, target.rows) for name in names]
    widths = [len(group) for group in groups]
    rows = np.sort(sampled(target, min(_MOST_TRIALS, max(FEWEST_TRIALS, _MOST_CELLS // max(sum(widths), 1))), 0))
    x = np.concatenate(groups)[:, np.searchsorted(target.rows, rows)]
    shares, alone, explained = _shares(x, _ranks(target.values[rows]), np.repeat(np.arange(len(names)), widths))
    errors = shares[1:].std(axis=0) / np.sqrt(_GROUPS)
    order = np.argsort(-shares[0], kind="stable").tolist()
    return Importances(
        tuple(names[i] for i in order),
        tuple(shares[0, order].tolist()),
        tuple(alone[order].tolist()),
        tuple(errors[order].tolist()),
        explained,
        len(rows),
        len(target.rows),
    )


def draw_importances(data: ExperimentData, choice: FigureOptions) -> go.Figure:
    """Draw a bar for the importance of each parameter, the most important on top, with a note on their basis.

    Raises:
        InvalidError: Too few trials have a value of the chosen metric.
    """
    from plotly.subplots import make_subplots

    target = target_of(data.trials, choice.metric)
    if obstacle := _obstacle(data.trials, target):
        cause = f"for {target.name}, {obstacle[:1].lower()}{obstacle[1:].removesuffix('.')}"
        raise invalid(
            "figure importances", cause, "choose another metric, or wait for more trials", "figure-impossible"
        )
    found = importances_of(data.trials, choice.metric)
    names = found.names[:_MOST_BARS][::-1]
    shares, alone, errors = (column[:_MOST_BARS][::-1] for column in (found.shares, found.alone, found.errors))
    longest = max(share + error for share, error in zip(shares, errors, strict=True))
    figure = make_subplots(
        cols=2,
        shared_yaxes=True,
        column_widths=[0.7, 0.3],
        horizontal_spacing=0.08,
        figure=new_figure(title=f"{html_safe([data.name])[0]}: importances for {html_safe([target.name])[0]}"),
    )
    common: dict[str, Any] = {
        "y": list(range(len(names))),
        "orientation": "h",
        "customdata": html_safe(names),
        "marker": {"color": BLUE if found.is_telling else GREY},
    }
    figure.add_bar(
        x=alone, name="alone", hovertemplate="%{customdata} alone: %{x:.1%}<extra></extra>", **common, **_LEFT
    )
    together = [share - own for share, own in zip(shares, alone, strict=True)]
    figure.add_bar(
        x=together,
        name="with others",
        opacity=0.45,
        error_x={"type": "data", "array": errors, "thickness": 1.2, "color": GREY},
        hovertemplate="%{customdata} with others: %{x:.1%}<extra></extra>",
        **common,
        **_LEFT,
    )
    figure.add_bar(
        x=[rank_correlation(data.trials, name, target) for name in names],
        name="rank correlation",
        showlegend=False,
        hovertemplate=f"%{{customdata}} with {html_safe([target.name])[0]}: %{{x:.2f}}<extra></extra>",
        **common | {"marker": {"color": GREY}},
        row=1,
        col=2,
    )
    labels = [
        f"{label}  <b>{share:.0%}</b>" for label, share in zip(html_safe(list(map(shown, names))), shares, strict=True)
    ]
    figure.update_layout(
        barmode="stack",
        legend_traceorder="normal",
        xaxis={
            "title": {"text": "share of variance", "font": {"size": 12}},
            "tickformat": ".0%",
            "nticks": 4,
            "tickangle": 0,
            "range": [0, 1.05 * longest or 1.0],
        },
        xaxis2={
            "title": {"text": "correlation", "font": {"size": 12}},
            "range": [-1, 1],
            "tickvals": [-1, 0, 1],
            "tickangle": 0,
            "zeroline": True,
        },
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
_LEFT = {"row": 1, "col": 1}


def rank_correlation(trials: TrialTable, name: str, target: RankingMetric) -> float | None:
    """Return Spearman's rank correlation of a parameter with the metric; None for choices, and a constant.

    Trials without the parameter are left out. Source: [Spearman1904] The proof and measurement of association between
    two things, American Journal of Psychology 15.
    """
    column = trials.values[name][target.rows]
    known = np.isfinite(column)
    ranks = [_ranks(values[known]) for values in (column, target.values[target.rows])]
    if trials.parameter(name).is_categorical or not known.any() or min(map(np.ptp, ranks)) == 0:
        return None
    one, other = (values - values.mean() for values in ranks)
    return float(one @ other / np.sqrt((one @ one) * (other @ other)))


def basis_of(found: Importances) -> str:
    """Return a sentence on the basis of importances, and whether they are conclusive."""
    of = f" of {found.measured:,}" if found.trials < found.measured else ""
    explained = f"explains {max(found.explained, 0.0):.0%} of the variance of ranks (out of bag)"
    verdict = "" if found.is_telling else ": too little to mean much; wait for more trials"
    return f"Random forest (fANOVA) on {found.trials:,}{of} trials, {explained}{verdict}"


def _obstacle(trials: TrialTable, target: RankingMetric) -> str:
    if len(target.rows) < FEWEST_TRIALS:
        return f"It takes {FEWEST_TRIALS} trials with a value; there are {len(target.rows)}."
    if len(varying(trials, target)) < 2:  # noqa: PLR2004 - one parameter is all that matters
        return "It takes two parameters that vary."
    return ""


def _columns(trials: TrialTable, name: str, rows: Rows) -> Floats:
    """Return the columns of a parameter, shape (columns, n)."""
    parameter, values = trials.parameter(name), trials.values[name][rows]
    if parameter.is_categorical and len(parameter.choices) <= _MOST_COLUMNS:
        return np.array([values == choice for choice in range(len(parameter.choices))], dtype=np.float64)
    return _ranks(np.nan_to_num(values, nan=-np.inf))[None]


def _ranks(values: Floats) -> Floats:
    """Return ranks from 0 to 1, the same for equal values."""
    ordered = np.sort(values)
    ranks = (np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right") - 1) / 2
    return np.asarray(ranks / max(len(values) - 1, 1), dtype=np.float64)


def _shares(x: Floats, y: Floats, owners: Rows) -> tuple[Floats, Floats, float]:
    """Return the shares of the variance of parameters, their shares alone, and the forest's.

    Of the shares, shape (1 + groups, p), the first are those of the forest, the others those of groups of its trees.

    Args:
        owners: The index of the parameter of each column.
    """
    lots = np.random.default_rng(1)
    p, n = int(owners[-1]) + 1, len(y)
    drawn = max(_FEWEST_DRAWN, _ASKED // (1 + 2 * p))
    points, others = (x[np.arange(len(x))[:, None], lots.integers(0, n, (p, drawn))[owners]] for _ in range(2))
    # The points, then those with one value of the others, then the others with one value of the points.
    is_own = (owners[:, None] == np.arange(p))[:, :, None]
    swapped = np.where(is_own, others[:, None], points[:, None])
    shared = np.where(is_own, points[:, None], others[:, None])
    asked = np.concatenate((points, swapped.reshape(len(x), -1), shared.reshape(len(x), -1)), axis=1)
    answers = np.zeros((_GROUPS, asked.shape[1]))
    sums, counts = np.zeros(n), np.zeros(n)
    for number in range(_TREES):
        grown_on, unseen = np.split(lots.permutation(n), [round(_GROWN_ON * n)])
        found = _predicted(x[:, grown_on], y[grown_on], np.concatenate((asked, x[:, unseen]), axis=1), lots)
        answers[number % _GROUPS] += found[: asked.shape[1]] / (_TREES // _GROUPS)
        sums[unseen] += found[asked.shape[1] :]
        counts[unseen] += 1
    judged = counts > 0
    rest = np.sum((sums[judged] / counts[judged] - y[judged]) ** 2)
    total = np.sum((y[judged] - y[judged].mean()) ** 2)

    f = np.concatenate((answers.mean(axis=0)[None], answers)).reshape(1 + _GROUPS, 1 + 2 * p, drawn)
    variance = np.maximum(f[:, :1].var(axis=2), 1e-300)
    halves = ((f[:, 1:] - f[:, :1]) ** 2).mean(axis=2) / 2 / variance
    shares = np.clip(halves[:, :p], 0.0, 1.0)
    alone = np.clip(1 - halves[0, p:], 0.0, shares[0])
    return shares, alone, float(1 - rest / total) if total > 0 else 0.0


def _predicted(x: Floats, y: Floats, asked: Floats, lots: np.random.Generator) -> Floats:
    """Grow a tree on x and y, level by level, and return its predictions for the columns of `asked`.

    The trials of a node are contiguous. Trials and asked points store the index of their node in its level.
    """
    predicted = np.empty(asked.shape[1])
    waiting = np.arange(len(predicted))
    node, node_of_asked = np.zeros(len(y), np.intp), np.zeros(len(predicted), np.intp)
    while len(waiting):
        starts = np.flatnonzero(np.diff(node, prepend=-1))
        sizes = np.diff(starts, append=len(y))
        means = np.add.reduceat(y, starts) / sizes
        low, high = np.minimum.reduceat(x, starts, axis=1), np.maximum.reduceat(x, starts, axis=1)
        cuts = low + (high - low) * lots.random(low.shape)
        above = x > np.repeat(cuts, sizes, axis=1)
        count = np.add.reduceat(above, starts, axis=1, dtype=np.float64)
        excess = np.add.reduceat(above * (y - np.repeat(means, sizes)), starts, axis=1)
        allowed = np.minimum(count, sizes - count) >= _LEAF
        gains = np.where(allowed, excess**2 / np.maximum(count * (sizes - count), 1), 0.0)
        best = gains.argmax(axis=0)
        cut = np.take_along_axis(cuts, best[None], axis=0)[0]
        splits = gains.max(axis=0) > 0
        first_child = 2 * np.cumsum(splits) - 2

        ends = ~splits[node_of_asked]
        predicted[waiting[ends]] = means[node_of_asked[ends]]
        waiting, node_of_asked = waiting[~ends], node_of_asked[~ends]
        is_above = asked[best[node_of_asked], waiting] > cut[node_of_asked]
        node_of_asked = first_child[node_of_asked] + is_above

        goes_on = np.flatnonzero(splits[node])
        node = first_child[node[goes_on]] + above[best[node[goes_on]], goes_on]
        order = np.argsort(node, kind="stable")
        x, y, node = x[:, goes_on[order]], y[goes_on[order]], node[order]
    return predicted
