"""Earlier trials of an experiment file: of other experiments, of a table, or as `katib trials -o json` prints them.

A table is CSV with a header, or a JSON list of objects, with one column for each parameter and each metric. Columns of
other names are passed over, so that the export of another program can be read as it is; an empty cell is no value.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from katib.errors import invalid
from katib.model.loading import OPTIMIZATION_JOB, FileText
from katib.model.trials import metric_text
from katib.model.types import ExperimentSpec, ObjectiveSpec, Observation, Trial
from katib.service.tuning.reading import texts_of

Json = dict[str, Any]
Row = Mapping[str, Any]


def with_earlier_trials(file: FileText, table: str, table_source: str) -> FileText:
    """Return an experiment file to which the trials of another file were added, as `spec.warmStart.trials`.

    Raises:
        InvalidError: One of the two cannot be read, or the trials have no parameter or no metric of the experiment.
    """
    return _with_more(
        file,
        "trials",
        lambda spec: earlier_trials(
            read_rows(table, table_source), ExperimentSpec.decode(_readable(spec)), table_source
        ),
    )


def with_earlier_experiments(file: FileText, names: Sequence[str]) -> FileText:
    """Return an experiment file to which experiments were added to learn from, as `spec.warmStart.experiments`."""
    return _with_more(file, "experiments", lambda _spec: names)


def _with_more(file: FileText, field: str, more: Callable[[Json], Sequence[Any]]) -> FileText:
    """Return the file with the additions of `more` at the end of a field of its warm start."""
    experiment = next((loaded for loaded in file.documents if loaded.kind == "Experiment"), None)
    if any(loaded.kind == OPTIMIZATION_JOB for loaded in file.documents):
        cause, remedy = "an OptimizationJob has no warm start", "write it as an Experiment"
        raise invalid(file.source, cause, remedy, "optimization-job")
    spec = experiment.data.get("spec") if experiment is not None else None
    if experiment is None or not isinstance(spec, dict):
        return file  # what is wrong with it is reported when it is submitted
    start = spec.get("warmStart") or {}
    listed = start.get(field) or []
    start = {**start, field: [*listed, *(one for one in more(spec) if one not in listed)]}
    changed = replace(experiment, data={**experiment.data, "spec": {**spec, "warmStart": start}})
    return FileText.of([changed if loaded is experiment else loaded for loaded in file.documents], file.source)


def _readable(spec: Json) -> Json:
    """Return the part of a spec that names the columns; the rest may be wrong."""
    parameters = [{"name": p.get("name", "")} for p in spec.get("parameters") or () if isinstance(p, dict)]
    objective = spec.get("objective")
    return {"parameters": parameters, "objective": objective if isinstance(objective, dict) else None}


def read_rows(text: str, source: str) -> list[Row]:
    """Return the rows of a table. Raises InvalidError."""
    if text.lstrip()[:1] in ("[", "{"):
        return _json_rows(text, source)
    reader = csv.reader(io.StringIO(text))
    try:
        header = [name.strip() for name in next(reader, [])]
        rows = [(reader.line_num, cells) for cells in reader if cells]
    except csv.Error as error:
        remedy = "save it as CSV with a header"
        raise invalid(f"{source}: line {reader.line_num}", str(error), remedy, "csv-syntax") from error
    twice = next((name for name in header if name and header.count(name) > 1), None)
    if twice is not None:
        raise invalid(f"{source}: line 1", f'two columns are named "{twice}"', "rename one", "csv-column")
    for line, cells in rows:
        if len(cells) != len(header):
            cause = f"it has {len(cells)} cells where the header has {len(header)}"
            raise invalid(f"{source}: line {line}", cause, "give each row one cell per column", "csv-cells")
    return [dict(zip(header, cells, strict=True)) for _, cells in rows]


def _json_rows(text: str, source: str) -> list[Row]:
    try:
        data = json.loads(text)
    except ValueError as error:
        raise invalid(source, f"it is no JSON: {error}", "give a list of objects", "json-syntax") from error
    items = data.get("items") if isinstance(data, dict) and "items" in data else data
    rows: list[Any] = items if isinstance(items, list) else [items]
    for i, row in enumerate(rows):
        if not isinstance(row, dict):
            raise invalid(f"{source}: [{i}]", "it is no object", "give one object per trial", "json-row")
    return [_of_trial(Trial.read(row)) if row.get("kind") == "Trial" else row for row in rows]


def _of_trial(trial: Trial) -> Row:
    spec, observation = trial.spec, trial.status.observation or Observation()
    values = {metric.name: metric_text(spec.objective, observation, metric.name) for metric in observation.metrics}
    return {**texts_of(spec.parameter_assignments), **values}


def earlier_trials(rows: Sequence[Row], spec: ExperimentSpec, source: str) -> list[Json]:
    """Return the entries of `spec.warmStart.trials` for rows.

    Raises:
        InvalidError: There is no row, or no column for a parameter or for the objective.
    """
    if not rows:
        raise invalid(source, "there are no trials in it", "give one row per trial", "earlier-empty")
    objective = spec.objective or ObjectiveSpec()
    columns = list(dict.fromkeys(name for row in rows for name in row))
    parameters = [p.name for p in spec.parameters]
    _check_columns(columns, parameters, "a parameter of the experiment", source)
    _check_columns(columns, [objective.objective_metric_name], "the objective of the experiment", source)
    return [
        {
            "parameterAssignments": _values(row, parameters),
            "metrics": _values(row, objective.metric_names),
        }
        for row in rows
    ]


def _values(row: Row, names: Iterable[str]) -> list[Json]:
    texts = {name: _text(row.get(name)) for name in names}
    return [{"name": name, "value": text} for name, text in texts.items() if text]


def _text(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value).strip()


def _check_columns(columns: Sequence[str], wanted: Sequence[str], what: str, source: str) -> None:
    if not set(columns) & set(wanted):
        cause = f"no column is {what}; there are {', '.join(columns) or 'none'}"
        raise invalid(source, cause, f"name a column {' or '.join(wanted)}", "earlier-columns")
