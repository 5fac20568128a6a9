"""Results of Ray Tune: a directory with one directory for each trial."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from katib.model.metrics import MetricLog
from katib.service.histories.records import Record, TrialSource, moment, parsed
from katib.service.tuning.earlier_files import read_rows

PARAMETERS, RESULTS, TABLE = "params.json", "result.json", "progress.csv"

_OF_RAY = frozenset(
    [
        "checkpoint_dir_name",
        "config",
        "date",
        "done",
        "episodes_total",
        "experiment_id",
        "experiment_tag",
        "hostname",
        "iterations_since_restore",
        "node_ip",
        "pid",
        "should_checkpoint",
        "time_since_restore",
        "time_this_iter_s",
        "time_total_s",
        "timestamp",
        "timesteps_since_restore",
        "timesteps_total",
        "training_iteration",
        "trial_id",
        "warmup_time",
    ]
)
"""Fields that Ray writes beside the metrics of a trial."""


def is_results(directory: Path) -> bool:
    """Whether a directory holds results of Ray Tune."""
    return next(_trial_directories(directory), None) is not None


def read_results(directory: Path) -> TrialSource:
    """Read the trials of a result directory; a truncated last line is ignored.

    Raises:
        InvalidError: A table cannot be read.
    """
    found = [_record(trial) for trial in sorted(_trial_directories(directory))]
    records = [record for record in found if record is not None]
    name = directory.resolve().name
    return TrialSource(f'the Ray Tune results "{name}"', name, records, unfinished=len(found) - len(records))


def _trial_directories(directory: Path) -> Iterator[Path]:
    return (path.parent for path in directory.glob(f"**/{PARAMETERS}") if path.is_file())


def _record(trial: Path) -> Record | None:
    """Read a trial; None if it neither reported anything nor failed."""
    rows = list(_rows(trial))
    failure = _failure(trial)
    if not rows and failure is None:
        return None
    last: Mapping[str, Any] = rows[-1] if rows else {}
    try:
        config = json.loads((trial / PARAMETERS).read_text())
    except ValueError:
        config = last.get("config", {})
    ended = moment(_number(last.get("timestamp")), moment((trial / PARAMETERS).stat().st_mtime))
    lasted = _number(last.get("time_total_s")) or 0.0
    began = moment(ended.timestamp() - lasted)
    curve = [
        MetricLog(
            moment(began.timestamp() + (_number(row.get("time_total_s")) or 0.0)),
            name,
            repr(value),
            int(_number(row.get("training_iteration")) or position),
        )
        for position, row in enumerate(rows)
        for name, value in _metrics(row)
    ]
    return Record(
        id=str(last.get("trial_id") or trial.name),
        parameters=dict(_flat(config)),
        values=dict(_metrics(last)) if failure is None else {},
        began=began,
        ended=ended,
        failure=failure,
        curve=tuple(curve),
    )


def _rows(trial: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the reports of a trial, one row for each iteration."""
    results, table = trial / RESULTS, trial / TABLE
    if results.is_file() and results.stat().st_size:
        for line in results.read_text(errors="replace").splitlines():
            try:
                row = json.loads(line)
            except ValueError:  # truncated
                return
            if isinstance(row, dict):
                yield dict(_flat(row)) | {"config": row.get("config", {})}
    elif table.is_file():
        for row in read_rows(table.read_text(errors="replace"), str(table)):
            yield {name: parsed(text) for name, text in row.items() if text != ""}


def _failure(trial: Path) -> str | None:
    error = trial / "error.txt"
    if not error.is_file():
        return None
    lines = [line.strip() for line in error.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it failed in Ray Tune"


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield values by name, those of nested mappings as `outer/inner`, as in Ray."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}/")
        else:
            yield f"{before}{name}", json.dumps(value) if isinstance(value, list) else value


def _metrics(row: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in row.items():
        if name.partition("/")[0] not in _OF_RAY and (number := _number(value)) is not None:
            yield name, number


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return math.nan if value != value else float(value)  # noqa: PLR0124 - NaN
