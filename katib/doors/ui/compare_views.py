"""Several experiments or trials side by side. Pure: objects in, values for a template out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from katib.doors.ui.numbers import told_apart
from katib.doors.ui.trial_views import experiment_name
from katib.doors.ui.words import trial_sentence
from katib.engine.runtime.objects import Key
from katib.errors import invalid
from katib.figures.groups import TAG, groups_by_tag, groups_by_value
from katib.figures.style import MOST_LINES, line_look
from katib.figures.trials import Objective, number_of, objectives_of
from katib.model.marks import marks_of
from katib.model.metrics import is_usable
from katib.model.types import Experiment, Trial
from katib.service.tuning.reading import (
    algorithm_of,
    algorithm_words,
    assignments_of,
    duration_of,
    metric_values,
    objective_values,
    objective_words,
    shortened,
    space_words,
    texts_of,
)
from katib.service.tuning.service import DEFAULT_NAMESPACE
from katib.service.tuning.states import best_value, completed_count, state_of

T = TypeVar("T", Experiment, Trial)

MOST_COMPARED = 40
"""Maximum number of compared objects: eight groups of five."""
_ABSENT = "-"
_LONGEST = 200
"""Maximum length of a text; architectures have hundreds of characters."""


def references(field: str, texts: Iterable[str]) -> list[Key]:
    """Return the experiments or trials to compare, each once.

    Args:
        field: Name of the question's field, for errors.
        texts: `NAMESPACE/NAME`, or a name in the namespace `default`; blank ones are left out.

    Raises:
        InvalidError: A reference is malformed, or there are too many.
    """
    found: dict[Key, None] = {}
    for text in filter(None, map(str.strip, texts)):
        namespace, _, name = text.rpartition("/")
        if not name or "/" in namespace:
            raise invalid(field, f'"{text}" is not NAMESPACE/NAME', "write it like default/digits", "compare-name")
        found[Key(namespace or DEFAULT_NAMESPACE, name)] = None
    if len(found) > MOST_COMPARED:
        cause = f"{len(found)} are named, and {MOST_COMPARED} have room"
        raise invalid(field, cause, "leave some out", "compare-count")
    return list(found)


@dataclass(frozen=True, slots=True)
class ComparedCell:
    """A value of one compared object.

    Attributes:
        text: Short form.
        exact: Form with every digit.
        link: Address of a link; empty: none.
        is_best: Whether it is the best of its row.
    """

    text: str
    exact: str = ""
    link: str = ""
    is_best: bool = False


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """A property of the compared objects.

    Attributes:
        title: Its name.
        cells: One for each compared object.
        differs: Whether the objects differ in it.
    """

    title: str
    cells: tuple[ComparedCell, ...]
    differs: bool


@dataclass(frozen=True, slots=True)
class ComparedGroup:
    """Rows that belong together."""

    title: str
    rows: tuple[ComparedRow, ...]


def experiment_groups(experiments: Sequence[Experiment]) -> list[ComparedGroup]:
    """Return the settings and the results of experiments, a cell for each of them."""
    settings = [
        _row("Objective", experiments, objective_words),
        _row("Algorithm", experiments, algorithm_of),
        *_rows_of_all(experiments, _settings, prefix="Setting "),
        _row("Early stopping", experiments, lambda e: algorithm_words(e.spec.early_stopping)),
        _row("Trials at once", experiments, lambda e: str(e.spec.parallel_trial_count or "")),
        _row("Budget of trials", experiments, lambda e: str(e.spec.max_trial_count or "none")),
    ]
    objectives = {(o.name, o.maximize): o for o in (objectives_of(e)[0] for e in experiments)}
    shared = next(iter(objectives.values())) if len(objectives) == 1 else None
    results = [
        _row("State", experiments, state_of),
        _marked(_row("Best value", experiments, lambda e: best_value(e) or ""), shared),
        _linked_row("Best trial", experiments, lambda e: e.status.current_optimal_trial.best_trial_name, "trials"),
        *_rows_of_all(
            experiments, lambda e: texts_of(e.status.current_optimal_trial.parameter_assignments), prefix="Best "
        ),
        _row("Trials ended", experiments, lambda e: str(completed_count(e))),
        _row("Failed", experiments, lambda e: str(e.status.trials_failed)),
        _row("Stopped early", experiments, lambda e: str(e.status.trials_early_stopped)),
        _row("Duration", experiments, duration_of),
    ]
    space = _rows_of_all(experiments, lambda e: {spec.name: space_words(spec) for spec in e.spec.parameters})
    return [
        ComparedGroup("Results", tuple(results)),
        ComparedGroup("Settings", tuple(settings)),
        ComparedGroup("Search space", tuple(space)),
    ]


_GROUPING = ("Settings", "Parameters")
"""Titles of the groups of rows by whose values objects are grouped."""


def group_choices(objects: Sequence[T], rows: Sequence[ComparedGroup]) -> list[str]:
    """Return the rows that divide the objects into groups, and `tag` if any has one."""
    dividing: list[str] = [row.title for group in rows if group.title in _GROUPING for row in group.rows if row.differs]
    return [*dividing, *([TAG] if any(map(_tags, objects)) else [])] if len(objects) > 1 else []


def grouped(objects: Sequence[T], rows: Sequence[ComparedGroup], by: str) -> dict[str, list[int]] | None:
    """Return the indices of objects by the name of their group; None without a choice of groups."""
    if by not in group_choices(objects, rows):
        return None
    if by == TAG:
        return groups_by_tag([_tags(obj) for obj in objects])
    row = next(row for group in rows if group.title in _GROUPING for row in group.rows if row.title == by)
    return groups_by_value([cell.exact for cell in row.cells])


def _tags(obj: Experiment | Trial) -> tuple[str, ...]:
    return marks_of(obj.metadata.annotations).tags


def why_no_history(experiments: Sequence[Experiment], *, is_grouped: bool = False) -> str:
    """Return a sentence why the best so far of experiments cannot be drawn together; empty if it can."""
    if len(experiments) < 2:  # noqa: PLR2004 - one alone has its history on its own page
        return "Add another experiment for a picture of both."
    objectives = {e.name: objectives_of(e)[0] for e in experiments}
    words = {name: f"{'maximizes' if one.maximize else 'minimizes'} {one.name}" for name, one in objectives.items()}
    (first, reference), *others = words.items()
    for name, other in others:
        if other != reference:
            return f"{first} {reference}, but {name} {other}: their values cannot stand in one picture."
    if all(best_value(e) is None for e in experiments):
        return "No trial of them has a value yet."
    if len(experiments) > MOST_LINES and not is_grouped:
        return f"More than {MOST_LINES} lines cannot be told apart; choose groups, or remove some."
    return ""


def trial_groups(trials: Sequence[Trial]) -> list[ComparedGroup]:
    """Return the parameters and the metrics of trials, a cell for each of them."""
    facts = [
        _row("State", trials, state_of),
        _row("Reason", trials, trial_sentence),
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
        ComparedGroup("Trials", tuple(facts)),
        ComparedGroup("Metrics", tuple(metrics)),
        ComparedGroup("Parameters", tuple(parameters)),
    ]


def shared_metrics(trials: Sequence[Trial], names: Callable[[Trial], Iterable[str]]) -> list[str]:
    """Return the drawable metrics of trials, those of the first ones first."""
    return list(dict.fromkeys(name for trial in trials for name in names(trial)))


def _row(title: str, objects: Sequence[T], read: Callable[[T], str]) -> ComparedRow:
    return _row_of(title, [read(obj) for obj in objects])


def _row_of(title: str, texts: Sequence[str | None]) -> ComparedRow:
    numbers = [text for text in texts if text and is_usable(text)]
    apart = dict(zip(numbers, told_apart(numbers), strict=True))
    shown = [apart.get(text or "") or shortened(text or _ABSENT, _LONGEST) for text in texts]
    cells = tuple(ComparedCell(one, text or "") for one, text in zip(shown, texts, strict=True))
    return ComparedRow(title, cells, differs=len(set(texts)) > 1)


def _rows_of_all(objects: Sequence[T], read: Callable[[T], dict[str, str]], prefix: str = "") -> list[ComparedRow]:
    """Return a row for every property that any of them has."""
    found = [read(obj) for obj in objects]
    names = dict.fromkeys(name for one in found for name in one)
    return [_row_of(f"{prefix}{name}", [one.get(name) for one in found]) for name in names]


def _linked_row(title: str, objects: Sequence[T], read: Callable[[T], str], kind: str) -> ComparedRow:
    names = [read(obj) for obj in objects]
    cells = tuple(
        ComparedCell(name or _ABSENT, name, f"{kind}/{obj.namespace}/{name}" if name else "")
        for name, obj in zip(names, objects, strict=True)
    )
    return ComparedRow(title, cells, differs=len(set(names)) > 1)


def _marked(row: ComparedRow, objective: Objective | None) -> ComparedRow:
    if objective is None or len(row.cells) < 2:  # noqa: PLR2004 - one alone is not the best of several
        return row
    numbers = [number_of(cell.exact) for cell in row.cells]
    known = [number for number in numbers if math.isfinite(number)]
    if not known or not row.differs:
        return row
    best = max(known) if objective.maximize else min(known)
    cells = (
        ComparedCell(cell.text, cell.exact, cell.link, number == best)
        for cell, number in zip(row.cells, numbers, strict=True)
    )
    return ComparedRow(row.title, tuple(cells), row.differs)


def _settings(experiment: Experiment) -> dict[str, str]:
    algorithm = experiment.spec.algorithm
    return {} if algorithm is None else {setting.name: setting.value for setting in algorithm.algorithm_settings}


def titles(objects: Sequence[T], kind: str, groups: Mapping[str, Sequence[int]] | None = None) -> list[dict[str, Any]]:
    """Return the heads of the columns: name and link of each, and the looks of its line, or of those of its groups."""
    lines = {"": range(len(objects))} if groups is None else groups
    return [
        {
            "name": obj.name,
            "reference": f"{obj.namespace}/{obj.name}",
            "link": f"{kind}/{obj.namespace}/{obj.name}",
            "looks": [
                {**line_look(place if groups is None else number), "group": name}
                for number, (name, members) in enumerate(lines.items())
                if place in members and len(lines) <= MOST_LINES
            ],
        }
        for place, obj in enumerate(objects)
    ]
