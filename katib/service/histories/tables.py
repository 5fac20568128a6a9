"""Tables with one row for each trial: CSV or JSON, of this program, of Optuna's `trials_dataframe`, or of any other."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from katib.service.histories.records import Record, TrialSource, parsed
from katib.service.tuning.earlier_files import read_rows

_PREFIX = "params_"
_NAMES = ("trial", "number", "trial_id", "run_id", "name", "id")
_STATES = ("state", "status")
_BEGAN, _ENDED = ("started", "datetime_start", "created"), ("ended", "datetime_complete")
_STOPPED = {"earlystopped", "pruned"}
_FAILED = {"failed", "fail", "killed", "metricsunavailable", "crashed", "error"}
_UNFINISHED = {"running", "waiting", "pending", "created", "submitted"}


def read_table(path: Path, text: str, objectives: Collection[str], parameters: Collection[str]) -> TrialSource:
    """Read the trials of a table.

    Args:
        objectives: Names of its columns with metrics.
        parameters: Names of those with parameters; empty: the columns `params_NAME`, if any.

    Raises:
        InvalidError: The table cannot be read.
    """
    records, unfinished = [], 0
    for number, row in enumerate(read_rows(text, str(path))):
        given = {name: parsed(value) for name, value in row.items() if value not in (None, "")}
        state = str(_first(given, _STATES) or "").lower()
        if state in _UNFINISHED:
            unfinished += 1
            continue
        chosen = {name: given[name] for name in parameters if name in given}
        prefixed = {
            name.removeprefix(_PREFIX): value
            for name, value in given.items()
            if name.startswith(_PREFIX) and (not parameters or name.removeprefix(_PREFIX) in parameters)
        }
        values = {name: float(given[name]) for name in objectives if isinstance(given.get(name), int | float)}
        began = _time(_first(given, _BEGAN))
        failure = f"its state is {state}" if state in _FAILED else None
        records.append(
            Record(
                id=str(_first(given, _NAMES) if _first(given, _NAMES) is not None else number),
                parameters=prefixed | chosen,
                values={} if failure else values,
                began=began,
                ended=_time(_first(given, _ENDED), began),
                failure=failure,
                stopped=state in _STOPPED,
            )
        )
    return TrialSource(f"the table {path.name}", path.stem, records, unfinished)


def _first(row: Mapping[str, Any], names: Collection[str]) -> Any:
    return next((row[name] for name in names if name in row), None)


def _time(text: Any, default: datetime | None = None) -> datetime:
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return default or datetime.now(UTC)
    return found.astimezone(UTC)
