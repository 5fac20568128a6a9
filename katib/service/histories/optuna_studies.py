"""Studies of Optuna: in a database, or in a journal file."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from katib.errors import invalid
from katib.model.metrics import MetricLog
from katib.service.histories.records import Record, TrialSource, value_text
from katib.service.tuning.service import Json

if TYPE_CHECKING:
    from collections.abc import Iterator

    import optuna

_FAILED = "it failed in Optuna"


def read_study(storage: str, name: str, *, journal: bool) -> TrialSource:
    """Read a study.

    Args:
        storage: The URL of a database, or the path of a journal file.
        name: Name of the study; empty: the only one.
        journal: Whether it is a journal file.

    Raises:
        InvalidError: The storage cannot be read, or has no such study.
    """
    import optuna
    from optuna.storages.journal import JournalFileBackend
    from optuna.trial import TrialState

    with _explained(storage):
        where: Any = storage
        if journal:
            where = optuna.storages.JournalStorage(JournalFileBackend(storage))
        names = optuna.get_all_study_names(where)
        if name not in names and (name or len(names) != 1):
            cause = f'there is no study "{name}"' if name else f"{len(names)} studies are there"
            remedy = f"choose one with --study: {', '.join(names)}" if names else "check the path"
            raise invalid(storage, cause, remedy, "import-study")
        study = optuna.load_study(study_name=name or names[0], storage=where)
        trials, metric_names = study.get_trials(deepcopy=False), study.metric_names
        directions = [direction.name.lower() for direction in study.directions]
    single = ["objective"] if len(directions) == 1 else [f"objective_{i}" for i in range(len(directions))]
    objectives = dict(zip(metric_names or single, directions, strict=True))
    ended = [one for one in trials if one.state in (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)]
    return TrialSource(
        title=f'the Optuna study "{study.study_name}"',
        name=study.study_name,
        records=[_record(one, list(objectives)) for one in ended],
        unfinished=len(trials) - len(ended),
        objectives=objectives,
        parameters=_parameters(trials),
    )


@contextmanager
def _explained(storage: str) -> Iterator[None]:
    """Convert errors of the libraries to one line."""
    from katib.errors import KatibError

    try:
        yield
    except KatibError:
        raise
    except Exception as error:
        cause = f"Optuna cannot read it: {str(error).strip().splitlines()[0] if str(error).strip() else type(error)}"
        remedy = "name the URL of a database or a journal file that Optuna made"
        raise invalid(storage, cause, remedy, "import-unreadable") from error


def _record(trial: optuna.trial.FrozenTrial, objectives: Sequence[str]) -> Record:
    state = trial.state.name
    began = _utc(trial.datetime_start) or _utc(trial.datetime_complete) or datetime.now(UTC)
    ended = _utc(trial.datetime_complete) or began
    curve = [
        MetricLog(began, objectives[0], repr(value), max(step, 0)) for step, value in trial.intermediate_values.items()
    ]
    return Record(
        id=str(trial.number),
        parameters=trial.params,
        values=dict(zip(objectives, trial.values or (), strict=False)) if state == "COMPLETE" else {},
        began=began,
        ended=ended,
        failure=_FAILED if state == "FAIL" else None,
        stopped=state == "PRUNED",
        curve=tuple(sorted(curve, key=lambda one: one.step or 0)),
    )


def _utc(time: datetime | None) -> datetime | None:
    """Convert a time of Optuna, which is local and naive, to UTC."""
    return None if time is None else time.astimezone(UTC)


def _parameters(trials: Sequence[optuna.trial.FrozenTrial]) -> list[Json]:
    """Return the search space: the union of the distributions of all trials."""
    found: dict[str, list[Any]] = {}
    for trial in trials:
        for name, distribution in trial.distributions.items():
            if distribution not in found.setdefault(name, []):
                found[name].append(distribution)
    return [{"name": name, **_space(distributions)} for name, distributions in found.items()]


def _space(distributions: Sequence[Any]) -> Json:
    first = distributions[0]
    if hasattr(first, "choices"):
        texts = dict.fromkeys(value_text(choice) for one in distributions for choice in getattr(one, "choices", ()))
        return {"parameterType": "categorical", "feasibleSpace": {"list": list(texts)}}
    space: Json = {
        "min": value_text(min(one.low for one in distributions)),
        "max": value_text(max(one.high for one in distributions)),
    }
    steps = {one.step for one in distributions}
    if len(distributions) == 1 and first.step not in (None, 1):
        space["step"] = value_text(first.step)
    elif steps == {None} and all(one.log for one in distributions):
        space["distribution"] = "logUniform"
    whole = all(isinstance(one.low, int) for one in distributions)
    if whole and all(one.log for one in distributions):
        space["distribution"] = "logUniform"
    return {"parameterType": "int" if whole else "double", "feasibleSpace": space}
