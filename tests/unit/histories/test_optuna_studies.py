"""Studies of Optuna, made by Optuna."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import optuna
import pytest
from optuna.storages import JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend

from katib.errors import InvalidError
from katib.service.histories.reading import read_source
from katib.service.histories.records import TrialSource, history_of
from tests.support.refusals import refused

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")


def objective(trial: optuna.Trial) -> float:
    x = trial.suggest_float("x", 1e-4, 1e-1, log=True)
    kind = trial.suggest_categorical("kind", ["a", "b", None])
    momentum = trial.suggest_float("momentum", 0, 0.9, step=0.3) if kind == "b" else 0.0
    for step in range(3):
        trial.report(x + momentum + step, step)
    if trial.number == 1:
        raise optuna.TrialPruned
    if trial.number == 2:
        raise ValueError
    return x + momentum


def read(path: Path | str, study: str = "") -> TrialSource:
    return read_source(str(path), study=study, objectives=(), parameters=())


@pytest.fixture(params=["database", "journal"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Callable[[], optuna.storages.BaseStorage]]:
    """A file, and what opens it."""
    if request.param == "database":
        return tmp_path / "study.db", lambda: RDBStorage(f"sqlite:///{tmp_path}/study.db")
    return tmp_path / "journal.log", lambda: JournalStorage(JournalFileBackend(str(tmp_path / "journal.log")))


def test_a_study_has_its_space_its_states_and_its_curves(
    storage: tuple[Path, Callable[[], optuna.storages.BaseStorage]],
) -> None:
    path, opened = storage
    sampler = optuna.samplers.RandomSampler(seed=1)
    study = optuna.create_study(storage=opened(), study_name="Digits", direction="minimize", sampler=sampler)
    study.optimize(objective, n_trials=30, catch=(ValueError,))
    study.ask()
    source = read(path)
    history = history_of(source, {}, [], str(path))

    assert (source.title, source.unfinished, len(source.records)) == ('the Optuna study "Digits"', 1, 30)
    assert history.spec["parameters"] == [
        {
            "name": "x",
            "parameterType": "double",
            "feasibleSpace": {"min": "0.0001", "max": "0.1", "distribution": "logUniform"},
        },
        {"name": "kind", "parameterType": "categorical", "feasibleSpace": {"list": ["a", "b", "None"]}},
        {
            "name": "momentum",
            "parameterType": "double",
            "feasibleSpace": {"min": "0.0", "max": "0.9", "step": "0.3"},
            "when": {"parameter": "kind", "values": ["b"]},
        },
    ]
    assert history.spec["objective"]["objectiveMetricName"] == "objective"
    assert not history.left_out
    by_id = {trial.id: trial for trial in history.trials}
    assert (by_id["1"].stopped, by_id["2"].failure) == (True, "it failed in Optuna")
    assert by_id["0"].values == {"objective": repr(study.trials[0].value)}
    assert [(one.step, one.name) for one in by_id["0"].readings] == [(k, "objective") for k in range(3)]
    assert by_id["0"].ended - by_id["0"].began == study.trials[0].duration


def test_objectives_have_the_names_of_the_study_or_of_the_user(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    study = optuna.create_study(storage=f"sqlite:///{path}", directions=["minimize", "maximize"])
    study.set_metric_names(["loss", "accuracy"])
    study.optimize(lambda trial: (trial.suggest_int("n", 1, 4), 0.5), n_trials=3)
    source = read(path)

    assert source.objectives == {"loss": "minimize", "accuracy": "maximize"}
    renamed = history_of(source, {"error": "minimize", "hits": "maximize"}, [], "-")
    assert set(renamed.trials[0].values) == {"error", "hits"}
    with refused("import-objective"):
        history_of(source, {"loss": "maximize"}, [], "-")


def test_a_loop_over_a_suggested_count_is_a_condition(tmp_path: Path) -> None:
    def looping(trial: optuna.Trial) -> float:
        count = trial.suggest_int("layers", 1, 3)
        trial.suggest_int("depth", 1, 100)
        return sum(trial.suggest_float(f"units_{i}", 0, 1) for i in range(count))

    path = tmp_path / "study.db"
    sampler = optuna.samplers.RandomSampler(seed=1)
    optuna.create_study(storage=f"sqlite:///{path}", sampler=sampler).optimize(looping, n_trials=20)
    history = history_of(read(path), {}, [], "-")

    assert (len(history.trials), history.left_out) == (20, [])
    assert {one["name"]: one.get("when") for one in history.spec["parameters"]} == {
        "layers": None,
        "depth": None,
        "units_0": None,
        "units_1": {"parameter": "layers", "values": ["2", "3"]},
        "units_2": {"parameter": "layers", "values": ["3"]},
    }


def test_bounds_that_changed_are_joined(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    study = optuna.create_study(storage=f"sqlite:///{path}")
    study.optimize(lambda trial: trial.suggest_int("n", 1, 4), n_trials=2)
    study.optimize(lambda trial: trial.suggest_int("n", 3, 9), n_trials=2)

    assert history_of(read(path), {}, [], "-").spec["parameters"] == [
        {"name": "n", "parameterType": "int", "feasibleSpace": {"min": "1", "max": "9"}}
    ]


def test_what_cannot_be_read_is_said_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    for name in ("one", "two"):
        optuna.create_study(storage=f"sqlite:///{path}", study_name=name)
    with refused("import-study"):
        read(path)
    with refused("import-empty"):
        history_of(read(path, "one"), {}, [], "-")
    (tmp_path / "journal.log").write_text('{"op_code": "none"}\n')
    with pytest.raises(InvalidError, match="Optuna cannot read it"):
        read(tmp_path / "journal.log")
    with pytest.raises(InvalidError, match="it does not exist"):
        read(tmp_path / "gone.db")
    (tmp_path / "train.py").write_text("import optuna, time")
    with refused("import-unknown"):
        read(tmp_path / "train.py")
    (tmp_path / "binary").write_bytes(b"\xff\x00")
    with refused("import-unknown"):
        read(tmp_path / "binary")
