"""`katib import`: from the database of a study to an experiment that continues, in a data directory and on a server."""

from __future__ import annotations

from pathlib import Path

import optuna

import katib
from katib.doors.rest.server import Server
from katib.places.machine import open_engine
from tests.support.cli import katib as run
from tests.support.cli import katib_json


def optimize(directory: Path, count: int) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = f"sqlite:///{directory}/study.db"
    study = optuna.create_study(storage=storage, study_name="Digits", load_if_exists=True)
    study.optimize(lambda trial: trial.suggest_float("x", -1, 1) ** 2, n_trials=count)
    return study


def test_a_study_becomes_an_experiment_that_goes_on(tmp_path: Path) -> None:
    study = optimize(tmp_path, 6)
    done = run("import", "study.db", "--more", "2", cwd=tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    assert "experiment/digits: 6 trials " in done.stdout
    found = katib.open("digits", data_dir=tmp_path / ".katib")
    assert found.best.value == study.best_value
    assert found.best.parameters == study.best_params
    with found.resume() as experiment:
        for trial in experiment.ask_until_done():
            trial.tell(trial.parameters["x"] ** 2)
        assert len(experiment.result().trials) == 8
    study = optimize(tmp_path, 3)
    again = run("import", "study.db", cwd=tmp_path)
    assert "experiment/digits: 3 trials" in again.stdout
    assert "it has 11 now" in again.stdout
    (experiment,) = katib_json("get", cwd=tmp_path)["items"]
    assert experiment["status"]["trialsSucceeded"] == experiment["spec"]["maxTrialCount"] == 11


def test_a_server_takes_it_too(tmp_path: Path) -> None:
    optimize(tmp_path, 3)
    with (
        open_engine(data_dir=tmp_path / "elsewhere", own_process=False) as engine,
        Server(engine.service, host="127.0.0.1", port=0, token="secret") as server,
    ):
        engine.start()
        done = run("import", "study.db", "mine", "--server", server.url, cwd=tmp_path, KATIB_TOKEN="secret")
        assert (done.returncode, done.stderr) == (0, "")
        assert engine.service.trials("default", "mine").total == 3


def test_what_is_printed_is_a_valid_experiment_and_nothing_is_stored(tmp_path: Path) -> None:
    optimize(tmp_path, 3)

    (tmp_path / "mine.yaml").write_text(run("import", "study.db", "--dry-run", cwd=tmp_path).stdout)
    assert run("validate", "mine.yaml", cwd=tmp_path).returncode == 0
    assert not (tmp_path / ".katib").exists()


def test_an_experiment_of_jobs_is_left_alone(tmp_path: Path) -> None:
    optimize(tmp_path, 3)
    line = ("-p", "x=0..1", "--minimize", "loss", "--trials", "1", "--name", "digits")
    assert run("tune", *line, "--", "echo", "loss={x}", cwd=tmp_path).returncode == 0
    done = run("import", "study.db", cwd=tmp_path)

    assert done.returncode == 2
    assert "import under another name" in done.stderr
