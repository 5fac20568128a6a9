"""Several objectives: the Pareto front, and its hypervolume.

The front is that of `katib.model.pareto`, computed with arrays because it may be of 100,000 trials. For all costs lower
is better. A front of more than 2,000 trials is thinned during its computation: its outline stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from katib.errors import invalid
from katib.figures.axes import ValueAxis, hovered, value_axis
from katib.figures.data import ExperimentData, FigureOptions
from katib.figures.style import BLUE, GREEN, GREY, RED, add_note, html_safe, new_figure, places, spaced
from katib.figures.trials import Floats, Objective, Rows, TrialTable
from katib.model.pareto import REFERENCE_TRIALS, hypervolume, reference_point

if TYPE_CHECKING:
    import plotly.graph_objects as go

Flags = npt.NDArray[np.bool_]

_MOST_FRONT = 2_000
_CHUNK = 1_000
_DRAWN_FRONT, _DRAWN_OTHERS = 500, 1_000
_LOTS = 7_121
_STEPS = 120
"""Maximum number of trials joining the front at which the hypervolume is computed."""
_EXACT = 3
_DRAWS = 20_000
_SPACE = 3


@dataclass(frozen=True, slots=True)
class _Front:
    """The data of the picture.

    Attributes:
        costs: In the axes, shape (n trials, m); infinity for trials that may not be in the front.
        outline: Trials of the front of the axes.
        rows: Trials of the front of all objectives.
        beaten: Measured trials that another dominates.
        infeasible: Measured infeasible trials.
    """

    objectives: tuple[Objective, ...]
    costs: Floats
    outline: Rows
    rows: Rows
    beaten: Rows
    infeasible: Rows


def pareto_obstacle(data: ExperimentData) -> str:
    """Return an obstacle if there is only one objective, or no trial with values of all."""
    trials = data.trials
    if len(trials.objectives) < 2:  # noqa: PLR2004 - one has a best trial
        return "It takes two objectives; this experiment has one."
    measured = np.isfinite(_columns(trials, trials.objectives)).all(axis=1) & trials.in_states(
        "Succeeded", "EarlyStopped"
    )
    return "" if measured.any() else "No trial has values of all objectives yet."


def hypervolume_obstacle(data: ExperimentData) -> str:
    """Return an obstacle if there is only one objective, or no feasible trial."""
    if obstacle := pareto_obstacle(data):
        return obstacle
    counts = np.isfinite(costs_of(data.trials, data.trials.objectives)).all(axis=1)
    return "" if counts.any() else "No trial is within the constraints yet."


def draw_pareto(data: ExperimentData, choice: FigureOptions) -> go.Figure:
    """Draw the front over two or three objectives: its trials, dominated ones, and infeasible ones.

    If the experiment has more objectives than axes, marks distinguish the front of all of them, and the line is the
    front of the axes alone: a trial away from the line is better in another objective.
    """
    trials = data.trials
    objectives = chosen_objectives(trials, choice)
    front = _front_of(trials, objectives)
    figure = new_figure(title=f"{html_safe([data.name])[0]}: Pareto front")
    columns = _columns(trials, objectives)
    axes = [
        value_axis(column, maximize=objective.maximize) for objective, column in zip(objectives, columns.T, strict=True)
    ]
    groups = (
        (f"beaten by another ({len(front.beaten):,})", _by_lot(front.beaten), GREY, "circle-open", 6),
        (f"infeasible ({len(front.infeasible):,})", _by_lot(front.infeasible), RED, "square-open", 6),
        (f"not beaten ({len(front.rows):,})", _along(front.costs, front.rows), BLUE, "circle", 9),
    )
    for name, rows, colour, symbol, size in groups:
        if len(rows):
            mark = {"color": colour, "symbol": symbol, "size": size if len(objectives) < _SPACE else size * 0.6}
            _add_marks(figure, trials, objectives, rows, name, mark)
    if len(axes) < _SPACE:
        _add_outline(figure, front, columns)
        titled = {"xaxis": _titled(axes[0], objectives[0]), "yaxis": _titled(axes[1], objectives[1])}
        figure.update_layout(
            titled, meta={"values": [axis.meta(name) for axis, name in zip(axes, titled, strict=True)]}
        )
    else:
        scene = {
            f"{letter}axis": _titled(*pair)
            for letter, pair in zip("xyz", zip(axes, objectives, strict=True), strict=True)
        }
        figure.update_layout(
            scene=scene | {"aspectmode": "cube", "camera": {"eye": {"x": 1.5, "y": 1.5, "z": 1.1}}}, height=560
        )
    drawn = sum(len(rows) for _, rows, *_ in groups)
    total = len(front.rows) + len(front.beaten) + len(front.infeasible)
    notes = [f"{drawn:,} of {total:,} trials drawn"] if drawn < total else []
    if len(objectives) < len(trials.objectives):
        line = ", the line of these two" if len(objectives) < _SPACE else ""
        notes.append(f"the front is of all {len(trials.objectives)} objectives{line}")
    add_note(
        figure,
        "; ".join(notes),
        *(axis.note and f"{axis.note} of {o.name}" for axis, o in zip(axes, objectives, strict=True)),
    )
    return figure


def draw_hypervolume(data: ExperimentData, choice: FigureOptions) -> go.Figure:
    """Draw the hypervolume of the front, after each trial that joined it."""
    trials = data.trials
    objectives = chosen_objectives(trials, choice) if choice.objectives else trials.objectives
    rows, volumes = volumes_of(trials, objectives)
    figure = new_figure(title=f"{html_safe([data.name])[0]}: hypervolume", x="trial", y="hypervolume")
    figure.add_scatter(
        x=np.append(rows + 1, len(trials)),
        y=np.append(volumes, volumes[-1]),
        mode="lines+markers" if len(rows) < _STEPS else "lines",
        line={"shape": "hv", "color": GREEN, "width": 2},
        name="hypervolume",
        showlegend=False,
        hovertemplate="%{y:.6g} after trial %{x}<extra></extra>",
    )
    figure.update_layout(yaxis={"rangemode": "tozero"})
    names = ", ".join(html_safe([objective.name for objective in objectives]))
    how = "" if len(objectives) <= _EXACT else "; estimated"
    add_note(figure, f"Of {names}, from a point a little worse than the first {REFERENCE_TRIALS} trials{how}")
    return figure


def chosen_objectives(trials: TrialTable, choice: FigureOptions) -> tuple[Objective, ...]:
    """Return the axes: the chosen objectives, or the first three.

    Raises:
        InvalidError: Fewer than two or more than three are chosen.
    """
    known = {objective.name: objective for objective in trials.objectives}
    names = tuple(dict.fromkeys(choice.objectives)) or tuple(known)[:_SPACE]
    if not 2 <= len(names) <= _SPACE:  # noqa: PLR2004 - a plane or a space
        raise invalid("objectives", f"{len(names)} are chosen", "choose two or three", "figure-objective")
    return tuple(known[name] for name in names)


def costs_of(trials: TrialTable, objectives: tuple[Objective, ...]) -> Floats:
    """Return the costs of trials, shape (n, m); infinity for trials that cannot be in the front."""
    signs = np.array([-1.0 if objective.maximize else 1.0 for objective in objectives])
    costs = _columns(trials, objectives) * signs
    counts = _all_finite(costs) & trials.may_be_best
    return np.where(counts[:, None], costs, np.inf)


def front_of(trials: TrialTable) -> Rows:
    return front_rows(costs_of(trials, trials.objectives))


def front_rows(costs: Floats) -> Rows:
    """Return the rows that no other row dominates, in order; all of equal ones.

    Args:
        costs: Shape (n, m). Non-finite rows are left out.
    """
    left = _complete(costs)
    left = left[np.lexsort(costs[left].T[::-1])]
    kept = left[:0]
    for first in range(0, len(left), _CHUNK):
        chunk = left[first : first + _CHUNK]
        chunk = chunk[~_dominated(costs[chunk], costs[kept])]
        chunk = chunk[~_dominated(costs[chunk], costs[chunk])]
        kept = spaced(np.concatenate((kept, chunk)), _MOST_FRONT)
    return np.sort(kept)


def volumes_of(trials: TrialTable, objectives: tuple[Objective, ...]) -> tuple[Rows, Floats]:
    """Return the trials that increase the hypervolume, and the volume after each; non-decreasing.

    The reference point is that of the experiment's status. Up to three objectives the volumes are exact.
    """
    costs = costs_of(trials, objectives)
    rows = _complete(costs)
    reference = reference_point(list(map(tuple, costs[rows[:REFERENCE_TRIALS]].tolist())))
    joins = _joining(costs, rows)
    steps = spaced(joins, _STEPS)
    if len(objectives) > _EXACT:
        volumes = _estimated(costs, joins, steps, np.array(reference))
    else:
        fronts = (costs[joins[joins <= step][-_MOST_FRONT:]].tolist() for step in steps)
        volumes = np.array([hypervolume(list(map(tuple, front)), reference) for front in fronts])
    return steps, np.maximum.accumulate(volumes)


def _complete(costs: Floats) -> Rows:
    return places(_all_finite(costs))


def _all_finite(columns: Floats) -> Flags:
    return np.asarray(np.isfinite(columns).all(axis=1), dtype=np.bool_)


def _estimated(costs: Floats, joins: Rows, steps: Rows, reference: Floats) -> Floats:
    """Return the share of points, drawn once, that are covered after each step, times the volume that holds them."""
    best = np.minimum(costs[joins].min(axis=0), reference)
    drawn = best + np.random.default_rng(_LOTS).random((_DRAWS, costs.shape[1])) * (reference - best)
    covered = np.zeros(_DRAWS, dtype=np.bool_)
    shares = {}
    for row in joins:
        covered[~covered] = (drawn[~covered] >= costs[row]).all(axis=1)
        shares[int(row)] = covered.mean()
    return np.array([shares[int(step)] for step in steps]) * float(np.prod(reference - best))


def _joining(costs: Floats, rows: Rows) -> Rows:
    """Return the trials not dominated by an earlier one, which therefore changed the front."""
    front, joins = rows[:0], []
    for first in range(0, len(rows), _CHUNK):
        chunk = rows[first : first + _CHUNK]
        chunk = chunk[~_dominated(costs[chunk], costs[front])]
        earlier = np.tri(len(chunk), k=-1, dtype=np.bool_)
        chunk = chunk[~_dominated(costs[chunk], costs[chunk], earlier)]
        joins.append(chunk)
        both = np.concatenate((front, chunk))
        front = spaced(both[~_dominated(costs[both], costs[both])], _MOST_FRONT)
    return np.concatenate(joins) if joins else front


def _dominated(points: Floats, others: Floats, compared: Flags | None = None) -> Flags:
    """Return the mask of points dominated by one of some others.

    Args:
        points: Shape (n, m).
        others: Shape (k, m).
        compared: Shape (n, k): mask of the pairs that count; None: all.
    """
    if not len(points) or not len(others):
        return np.zeros(len(points), dtype=np.bool_)
    no_worse = np.ones((len(points), len(others)), dtype=np.bool_) if compared is None else compared.copy()
    better = np.zeros((len(points), len(others)), dtype=np.bool_)
    for mine, theirs in zip(points.T, others.T, strict=True):
        no_worse &= theirs[None, :] <= mine[:, None]
        better |= theirs[None, :] < mine[:, None]
    return np.asarray((no_worse & better).any(axis=1), dtype=np.bool_)


def _columns(trials: TrialTable, objectives: tuple[Objective, ...]) -> Floats:
    return np.stack([trials.metrics[objective.name] for objective in objectives], axis=1)


def _front_of(trials: TrialTable, objectives: tuple[Objective, ...]) -> _Front:
    costs = costs_of(trials, objectives)
    rows = front_of(trials)
    measured = _all_finite(_columns(trials, trials.objectives)) & trials.in_states("Succeeded", "EarlyStopped")
    beaten = np.setdiff1d(places(measured & trials.feasible), rows)
    return _Front(objectives, costs, front_rows(costs), rows, beaten, places(measured & ~trials.feasible))


def _by_lot(rows: Rows) -> Rows:
    if len(rows) <= _DRAWN_OTHERS:
        return rows
    lots = np.random.default_rng(_LOTS).random(int(rows.max()) + 1)[rows]
    return np.sort(rows[np.argsort(lots)[:_DRAWN_OTHERS]])


def _along(costs: Floats, rows: Rows) -> Rows:
    """Return trials of the front in the order of the first objective, at most 500 of them."""
    return spaced(rows[np.lexsort(costs[rows].T[::-1])], _DRAWN_FRONT)


def _add_marks(
    figure: go.Figure,
    trials: TrialTable,
    objectives: tuple[Objective, ...],
    rows: Rows,
    name: str,
    mark: dict[str, Any],
) -> None:
    columns = _columns(trials, objectives)
    common: dict[str, Any] = {
        "mode": "markers",
        "name": name,
        "marker": mark,
        "customdata": html_safe(list(trials.names[rows])),
        "ids": rows.astype(np.int32),
    }
    parts = zip("xyz", objectives, columns[rows].T, strict=False)
    lines = [f"{html_safe([one.name])[0]}: {hovered(letter, column)}" for letter, one, column in parts]
    common["hovertemplate"] = "<br>".join(["%{customdata}", *lines]) + "<extra></extra>"
    values = {letter: column[rows] for letter, column in zip("xyz", columns.T, strict=False)}
    if len(objectives) < _SPACE:
        figure.add_scatter(**values, **common)
    else:
        figure.add_scatter3d(**values, **common)


def _add_outline(figure: go.Figure, front: _Front, columns: Floats) -> None:
    """Add the border of the dominated region, as steps."""
    rows = _along(front.costs, front.outline)
    if len(rows):
        figure.add_scatter(
            x=columns[rows, 0],
            y=columns[rows, 1],
            mode="lines",
            line={"shape": "hv", "color": BLUE, "width": 1.5},
            name="front",
            showlegend=False,
            hoverinfo="skip",
        )


def _titled(axis: ValueAxis, objective: Objective) -> dict[str, Any]:
    title = f"{html_safe([objective.name])[0]} ({'maximize' if objective.maximize else 'minimize'})"
    return {"title": {"text": title}, "zeroline": False, **axis.layout}
