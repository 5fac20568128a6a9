"""Results of Ray Tune and runs of MLflow: files as those programs write them, and by the programs where installed."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

from katib.errors import InvalidError
from katib.service.histories.reading import read_source
from katib.service.histories.records import ImportedTrials, TrialSource, history_of
from tests.support.refusals import refused


def read(path: Path, study: str = "") -> TrialSource:
    return read_source(str(path), study=study, objectives=(), parameters=())


def put_result(top: Path, number: int, *, error: str = "", table: bool = False) -> None:
    trial = top / f"train_1234_{number:05d}"
    trial.mkdir(parents=True)
    config = {"lr": 10.0 ** -(number + 1), "opt": "adam", "model": {"width": number + 1}}
    (trial / "params.json").write_text(json.dumps(config))
    if error:
        (trial / "error.txt").write_text(f"Traceback\n{error}\n")
        (trial / "result.json").touch()
        return
    rows = [
        {
            "accuracy": 0.5 + 0.1 * step,
            "done": step == 2,
            "training_iteration": step + 1,
            "trial_id": f"1234_{number:05d}",
            "timestamp": 1_700_000_000 + step,
            "time_total_s": step + 1.0,
            "config": config,
        }
        for step in range(3)
    ]
    if table:
        names = [name for name in rows[0] if name != "config"]
        lines = [",".join(names), *(",".join(str(row[name]) for name in names) for row in rows)]
        (trial / "progress.csv").write_text("\n".join(lines))
    else:
        (trial / "result.json").write_text("\n".join(map(json.dumps, rows)) + '\n{"accuracy": 0.')


def test_results_of_ray_tune(tmp_path: Path) -> None:
    top = tmp_path / "exp"
    put_result(top, 0)
    put_result(top, 1, table=True)
    put_result(top, 2, error="ValueError: boom")
    found = history_of(read(top), {"accuracy": "maximize"}, [], "exp")

    assert [one["name"] for one in found.spec["parameters"]] == ["lr", "model/width"]
    assert [one.failure for one in found.trials] == [None, None, "ValueError: boom"]
    for trial in found.trials[:2]:
        assert trial.values == {"accuracy": "0.7"}
        assert [(one.step, one.value) for one in trial.readings] == [(1, "0.5"), (2, "0.6"), (3, "0.7")]
        assert (trial.ended - trial.began).total_seconds() == 3
    assert [one.id for one in history_of(read(tmp_path), {"accuracy": "maximize"}, [], "-").trials] == [
        one.id
        for one in found.trials  # as the same trials of the directory above
    ]


def put_run(experiment: Path, number: int, status: int) -> None:
    run = experiment / f"run{number}"
    for kind in ("params", "metrics"):
        (run / kind).mkdir(parents=True)
    meta = f"start_time: {1_700_000_000_000 + number}\nend_time: {1_700_000_060_000 + number}\nstatus: {status}\n"
    (run / "meta.yaml").write_text(f"{meta}lifecycle_stage: active\n")
    (run / "params" / "lr").write_text(str(0.1 * (number + 1)))
    (run / "params" / "opt").write_text("adam" if number else "sgd")
    (run / "metrics" / "loss").write_text(f"1700000000000 0.{9 - number} 0\n1700000001000 0.{5 - number} 1\n")


def checked(found: ImportedTrials) -> None:
    assert [one["name"] for one in found.spec["parameters"]] == ["lr", "opt"]
    assert [one.values for one in found.trials] == [{"loss": "0.5"}, {"loss": "0.4"}, {}]
    assert [(one.step, one.value) for one in found.trials[0].readings] == [(0, "0.9"), (1, "0.5")]
    assert found.trials[2].failure == "it failed in MLflow"


def test_runs_of_mlflow_in_files(tmp_path: Path) -> None:
    experiment = tmp_path / "123"
    experiment.mkdir()
    (experiment / "meta.yaml").write_text("name: digits\n")
    for number, status in enumerate((3, 3, 4, 1)):
        put_run(experiment, number, status)
    source = read(tmp_path)

    checked(history_of(source, {"loss": "minimize"}, [], "mlruns"))
    assert source.unfinished == 1
    with refused("import-study"):
        read(tmp_path, "other")


def test_a_trial_that_was_exported_to_mlflow_keeps_how_it_ended(tmp_path: Path) -> None:
    experiment = tmp_path / "123"
    experiment.mkdir()
    (experiment / "meta.yaml").write_text("name: digits\n")
    for number, (status, state, failure) in enumerate(
        ((3, "EarlyStopped", ""), (3, "Succeeded", ""), (4, "Failed", "boom"), (4, "Failed", ""))
    ):
        put_run(experiment, number, status)
        (experiment / f"run{number}" / "tags").mkdir()
        (experiment / f"run{number}" / "tags" / "katib.state").write_text(state)
        (experiment / f"run{number}" / "tags" / "katib.failure").write_text(failure)

    trials = history_of(read(tmp_path), {"loss": "minimize"}, [], "mlruns").trials

    assert [(one.stopped, one.failure) for one in trials] == [
        (True, None),
        (False, None),
        (False, "boom"),
        (False, "it failed in MLflow"),
    ]


def test_a_tracking_server_that_does_not_answer_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class MlflowException(Exception):  # noqa: N818 - its name
        pass

    class Client:
        def __init__(self, uri: str) -> None:
            self.uri = uri

        def search_experiments(self) -> None:
            raise MlflowException(f"request to {self.uri} failed\nmore")

    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    for name, member in (("mlflow", Client), ("mlflow.exceptions", MlflowException)):
        module = ModuleType(name)
        setattr(module, "MlflowClient" if member is Client else member.__name__, member)
        monkeypatch.setitem(sys.modules, name, module)
    with pytest.raises(InvalidError) as caught:
        read_source("http://a", study="", objectives=(), parameters=())

    assert str(caught.value) == (
        "http://a: MLflow cannot read it: request to http://a failed; check the address, and that the server runs"
    )


WITH_MLFLOW = """
import sys, mlflow
mlflow.set_tracking_uri(sys.argv[1])
mlflow.set_experiment("digits")
for number in range(3):
    run = mlflow.start_run()
    mlflow.log_params({"lr": 0.1 * (number + 1), "opt": "adam" if number else "sgd"})
    for step in range(2):
        mlflow.log_metric("loss", [0.9 - number / 10, 0.5 - number / 10][step], step=step)
    mlflow.end_run("FAILED" if number == 2 else "FINISHED")
"""


@pytest.mark.slow
@pytest.mark.skipif(find_spec("mlflow") is None, reason="mlflow is not installed")
def test_runs_that_mlflow_made(tmp_path: Path) -> None:
    database = tmp_path / "mlflow.db"
    subprocess.run([sys.executable, "-c", WITH_MLFLOW, f"sqlite:///{database}"], check=True, cwd=tmp_path)

    checked(history_of(read(database), {"loss": "minimize"}, [], "mlflow.db"))


WITH_RAY = """
import sys
import ray
from ray import tune
ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
def train(config):
    for step in range(3):
        if config["x"] == 2:
            raise RuntimeError("boom")
        tune.report({"accuracy": config["x"] + 0.1 * step})
tune.Tuner(
    train,
    param_space={"x": tune.grid_search([1, 2, 3])},
    tune_config=tune.TuneConfig(metric="accuracy", mode="max"),
    run_config=tune.RunConfig(storage_path=sys.argv[1], name="exp", verbose=0),
).fit()
"""


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed")
def test_results_that_ray_tune_made(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", WITH_RAY, str(tmp_path)], check=True, cwd=tmp_path)
    found = history_of(read(tmp_path / "exp"), {"accuracy": "maximize"}, [], "exp")

    by_x = {one.assignments["x"]: one for one in found.trials}
    assert {x: one.values.get("accuracy") for x, one in by_x.items()} == {"1": "1.2", "2": None, "3": "3.2"}
    assert by_x["2"].failure
    assert len(by_x["3"].readings) == 3
