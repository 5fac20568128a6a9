"""Detection of the program that wrote a file or a directory, and reading it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection
from contextlib import closing
from pathlib import Path

from katib.errors import invalid
from katib.service.histories.records import TrialSource

_SQLITE = b"SQLite format 3\0"
_PROGRAMS = (".py", ".yaml", ".yml")
_REMEDY = (
    "name the database or the journal of an Optuna study, a result directory of Ray Tune, a database or a directory "
    "mlruns of MLflow, or a table as CSV or JSON"
)


def read_source(path: str, *, study: str, objectives: Collection[str], parameters: Collection[str]) -> TrialSource:
    """Read the trials of another program.

    Args:
        path: A file, a directory or a URL.
        study: Name of the study or MLflow experiment; empty: the only one.
        objectives: Columns of a table that are metrics.
        parameters: Columns of a table that are parameters.

    Raises:
        InvalidError: No trials can be read.
    """
    if path.startswith(("http://", "https://")):
        from katib.service.histories.mlflow_runs import read_server

        return read_server(path, study)
    if "://" in path and not path.startswith("sqlite:///"):
        from katib.service.histories.optuna_studies import read_study

        return read_study(path, study, journal=False)
    file = Path(path.removeprefix("sqlite:///"))
    if not file.exists():
        raise invalid(path, "it does not exist", _REMEDY, "file-missing")
    return _read_directory(file, study) if file.is_dir() else _read_file(file, study, objectives, parameters)


def _read_directory(directory: Path, study: str) -> TrialSource:
    from katib.service.histories.mlflow_runs import read_directory
    from katib.service.histories.ray_results import is_results, read_results

    if any(directory.glob("*/meta.yaml")):
        return read_directory(directory, study)
    if is_results(directory):
        return read_results(directory)
    raise invalid(str(directory), "it holds no trials that can be read", _REMEDY, "import-unknown")


def _read_file(file: Path, study: str, objectives: Collection[str], parameters: Collection[str]) -> TrialSource:
    from katib.service.histories.mlflow_runs import read_database
    from katib.service.histories.optuna_studies import read_study
    from katib.service.histories.tables import read_table

    if file.suffix in _PROGRAMS:
        raise invalid(str(file), "it holds no trials", _REMEDY, "import-unknown")
    data = file.read_bytes()
    if data.startswith(_SQLITE):
        tables = _tables(file)
        if {"studies", "trials"} <= tables:
            return read_study(f"sqlite:///{file}", study, journal=False)
        if {"experiments", "runs"} <= tables:
            return read_database(file, study)
        raise invalid(str(file), "this database is neither Optuna's nor MLflow's", _REMEDY, "import-unknown")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise invalid(str(file), "it is not text", _REMEDY, "import-unknown") from error
    if _is_journal(text):
        return read_study(str(file), study, journal=True)
    return read_table(file, text, objectives, parameters)


def _tables(file: Path) -> set[str]:
    try:
        with closing(sqlite3.connect(f"file:{file.absolute()}?mode=ro", uri=True)) as database:
            return {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except sqlite3.Error as error:
        raise invalid(
            str(file), f"it cannot be read: {error}", "check that it is whole", "import-unreadable"
        ) from error


def _is_journal(text: str) -> bool:
    try:
        first = json.loads(text.partition("\n")[0])
    except ValueError:
        return False
    return isinstance(first, dict) and "op_code" in first
