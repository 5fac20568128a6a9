"""Several experiments or trials side by side. Pure: objects in, values for a template out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from katib.api.metrics import is_usable
from katib.errors import invalid
from katib.figures.trials import Objective, number_of, objectives_of
from katib.tuning.reading import (
    Json,
    assignments_of,
    best_value,
    completed_count,
    duration_of,
    metric_values,
    name_of,
    namespace_of,
    objective_values,
    objective_words,
    short,
    shortened,
    state_of,
    status_of,
)
from katib.tuning.service import DEFAULT_NAMESPACE
from katib.ui.trial_views import experiment_name, reason_of

MOST_COMPARED = 14
"""Beside each other: more have no room, neither in a table nor as lines in one axis."""
_ABSENT = "-"
_LONGEST = 200
"""Of a text; architectures have hundreds of characters."""


@dataclass(frozen=True, slots=True)
class Reference:
    """An experiment or a trial by name, as it stands in an address: `default/digits`."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def references(field: str, texts: Iterable[str]) -> list[Reference]:
    """Return what is to be compared, each once.

    Args:
        field: Name of the question's field, for errors.
        texts: `NAMESPACE/NAME`, or a name in the namespace `default`; blank ones are left out.

    Raises:
        InvalidError: One is neither, or there are too many.
    """
    found: dict[Reference, None] = {}
    for text in filter(None, map(str.strip, texts)):
        namespace, _, name = text.rpartition("/")
        if not name or "/" in namespace:
            raise invalid(field, f'"{text}" is not NAMESPACE/NAME', "write it like default/digits", "compare-name")
        found[Reference(namespace or DEFAULT_NAMESPACE, name)] = None
    if len(found) > MOST_COMPARED:
        cause = f"{len(found)} are named, and {MOST_COMPARED} have room"
        raise invalid(field, cause, "leave some out", "compare-count")
    return list(found)


@dataclass(frozen=True, slots=True)
class Cell:
    """What one of the compared has of something.

    Attributes:
        text: Short.
        exact: With every digit.
        link: Where it leads; empty: nowhere.
        is_best: Whether it is the best of its row.
    """

    text: str
    exact: str = ""
    link: str = ""
    is_best: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """Something that all of the compared may have.

    Attributes:
        title: What it is.
        cells: One for each of the compared.
        differs: Whether they differ in it.
    """

    title: str
    cells: tuple[Cell, ...]
    differs: bool


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that belong together."""

    title: str
    rows: tuple[Row, ...]


def experiment_groups(experiments: Sequence[Json]) -> list[Group]:
    """Return the settings and the results of experiments, a cell for each of them."""
    settings = [
        _row("Objective", experiments, objective_words),
        _row("Algorithm", experiments, lambda e: str((e["spec"].get("algorithm") or {}).get("algorithmName", ""))),
        *_rows_of_all(experiments, lambda e: _settings(e["spec"].get("algorithm")), prefix="Setting "),
        _row("Early stopping", experiments, lambda e: _algorithm(e["spec"].get("earlyStopping"))),
        _row("Trials at once", experiments, lambda e: str(e["spec"].get("parallelTrialCount", ""))),
        _row("Budget of trials", experiments, lambda e: str(e["spec"].get("maxTrialCount") or "none")),
    ]
    objectives = {(o.name, o.maximize): o for o in (objectives_of(e)[0] for e in experiments)}
    shared = next(iter(objectives.values())) if len(objectives) == 1 else None
    results = [
        _row("State", experiments, state_of),
        _marked(_row("Best value", experiments, lambda e: best_value(e) or ""), shared),
        _linked_row("Best trial", experiments, lambda e: str(_best(e).get("bestTrialName", "")), "trials"),
        *_rows_of_all(experiments, lambda e: assignments_of({"spec": _best(e)}), prefix="Best "),
        _row("Trials ended", experiments, lambda e: str(completed_count(e))),
        _row("Failed", experiments, lambda e: str(status_of(e).get("trialsFailed") or 0)),
        _row("Stopped early", experiments, lambda e: str(status_of(e).get("trialsEarlyStopped") or 0)),
        _row("Duration", experiments, duration_of),
    ]
    space = _rows_of_all(
        experiments, lambda e: {str(spec.get("name", "")): _axis(spec) for spec in e["spec"].get("parameters") or ()}
    )
    return [Group("Results", tuple(results)), Group("Settings", tuple(settings)), Group("Search space", tuple(space))]


def why_no_history(experiments: Sequence[Json]) -> str:
    """Return in a sentence why the best so far of experiments cannot stand in one picture; empty when it can."""
    if len(experiments) < 2:  # noqa: PLR2004 - one alone has its history on its own page
        return "Add another experiment for a picture of both."
    objectives = {name_of(e): objectives_of(e)[0] for e in experiments}
    words = {name: f"{'maximizes' if one.maximize else 'minimizes'} {one.name}" for name, one in objectives.items()}
    (first, reference), *others = words.items()
    for name, other in others:
        if other != reference:
            return f"{first} {reference}, but {name} {other}: their values cannot stand in one picture."
    if all(best_value(e) is None for e in experiments):
        return "No trial of them has a value yet."
    return ""


def trial_groups(trials: Sequence[Json]) -> list[Group]:
    """Return the parameters and the metrics of trials, a cell for each of them."""
    facts = [
        _row("State", trials, state_of),
        _row("Reason", trials, reason_of),
        _linked_row("Experiment", trials, experiment_name, "experiments"),
        _row("Duration", trials, duration_of),
    ]
    parameters = _rows_of_all(trials, assignments_of)
    objectives = {objective.name: objective for trial in trials for objective in objectives_of(trial)}
    metrics = [
        _marked(row, objectives.get(row.title))
        for row in _rows_of_all(trials, lambda trial: dict([*objective_values(trial), *metric_values(trial)]))
    ]
    return [
        Group("Trials", tuple(facts)),
        Group("Metrics", tuple(metrics)),
        Group("Parameters", tuple(parameters)),
    ]


def shared_metrics(trials: Sequence[Json], names: Callable[[Json], Iterable[str]]) -> list[str]:
    """Return the metrics that can be drawn of trials, those of the first ones first."""
    return list(dict.fromkeys(name for trial in trials for name in names(trial)))


def _row(title: str, objects: Sequence[Json], read: Callable[[Json], str]) -> Row:
    return _row_of(title, [read(obj) for obj in objects])


def _row_of(title: str, texts: Sequence[str | None]) -> Row:
    shown = [short(text) if text and is_usable(text) else shortened(text or _ABSENT, _LONGEST) for text in texts]
    cells = tuple(Cell(one, text or "") for one, text in zip(shown, texts, strict=True))
    return Row(title, cells, differs=len(set(texts)) > 1)


def _rows_of_all(objects: Sequence[Json], read: Callable[[Json], dict[str, str]], prefix: str = "") -> list[Row]:
    """Return a row for everything that any of them has."""
    found = [read(obj) for obj in objects]
    names = dict.fromkeys(name for one in found for name in one)
    return [_row_of(f"{prefix}{name}", [one.get(name) for one in found]) for name in names]


def _linked_row(title: str, objects: Sequence[Json], read: Callable[[Json], str], kind: str) -> Row:
    names = [read(obj) for obj in objects]
    cells = tuple(
        Cell(name or _ABSENT, name, f"{kind}/{namespace_of(obj)}/{name}" if name else "")
        for name, obj in zip(names, objects, strict=True)
    )
    return Row(title, cells, differs=len(set(names)) > 1)


def _marked(row: Row, objective: Objective | None) -> Row:
    if objective is None or len(row.cells) < 2:  # noqa: PLR2004 - one alone is not the best of several
        return row
    numbers = [number_of(cell.exact) for cell in row.cells]
    known = [number for number in numbers if math.isfinite(number)]
    if not known or not row.differs:
        return row
    best = max(known) if objective.maximize else min(known)
    cells = (
        Cell(cell.text, cell.exact, cell.link, number == best) for cell, number in zip(row.cells, numbers, strict=True)
    )
    return Row(row.title, tuple(cells), row.differs)


def _settings(algorithm: Any) -> dict[str, str]:
    settings = (algorithm or {}).get("algorithmSettings") or ()
    return {str(setting.get("name", "")): str(setting.get("value", "")) for setting in settings}


def _algorithm(algorithm: Any) -> str:
    if not algorithm:
        return ""
    settings = ", ".join(f"{name}={value}" for name, value in _settings(algorithm).items())
    return f"{algorithm.get('algorithmName', '')}{f' ({settings})' if settings else ''}"


def _best(experiment: Json) -> Json:
    return status_of(experiment).get("currentOptimalTrial") or {}


def _axis(spec: Json) -> str:
    space = spec.get("feasibleSpace") or {}
    listed = space.get("list")
    values = ", ".join(map(str, listed)) if listed else f"{space.get('min', '')} to {space.get('max', '')}"
    more = [f"step {space['step']}"] if space.get("step") else []
    more += [str(space["distribution"])] if space.get("distribution") else []
    return " ".join([str(spec.get("parameterType", "")), values, *more])


def titles(objects: Sequence[Json], kind: str) -> list[dict[str, str]]:
    """Return the heads of the columns: name, link and state of each."""
    return [
        {
            "name": name_of(obj),
            "reference": f"{namespace_of(obj)}/{name_of(obj)}",
            "link": f"{kind}/{namespace_of(obj)}/{name_of(obj)}",
            "state": state_of(obj),
        }
        for obj in objects
    ]
