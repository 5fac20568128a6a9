"""Several objectives and constraints for real: from a function or a file to what the commands show."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import katib
from katib.doors.cli import main
from katib.errors import InvalidError
from katib.model.pareto import front
from tests.support.cli import process_state_kept
from tests.support.golden import Golden
from tests.support.refusals import refused

SPACE = {"x": katib.search.double(0, 1), "y": katib.search.double(0, 1)}
OBJECTIVES = {"accuracy": "maximize", "seconds": "minimize"}


def tuned(tmp_path: Path, **options: Any) -> katib.TuneResult:
    def train(x: float, y: float) -> dict[str, float]:  # here, so that trials import nothing of the tests
        return {"accuracy": 1 - (x - 0.3) ** 2 - y / 10, "seconds": 1 + 5 * x + (1 - y) ** 2, "memory": 10 * y}

    usual: dict[str, Any] = {"max_trials": 12, "parallel": 2, "name": "two", "data_dir": tmp_path, "verbose": False}
    return katib.tune(train, SPACE, objectives=OBJECTIVES, **{**usual, **options})


def shown(capsys: pytest.CaptureFixture[str], tmp_path: Path, *args: str, code: int = 0) -> str:
    capsys.readouterr()
    with process_state_kept():
        assert main([*args, "--data-dir", str(tmp_path)]) == code
    captured = capsys.readouterr()
    return captured.out + captured.err


def test_a_function_of_two_objectives_and_a_constraint_is_tuned_and_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = tuned(tmp_path, constraints={"memory": (None, 8)})

    fit = [trial for trial in result.trials if trial.parameters["y"] <= 0.8]
    costs = [(-trial.values["accuracy"], trial.values["seconds"]) for trial in fit]  # type: ignore[operator]  # read
    expected = [fit[i].name for i in front(costs)]  # type: ignore[arg-type]
    assert len(result.trials) == 12
    assert [trial.name for trial in result.pareto] == expected
    assert result.best.name == expected[0]

    status = json.loads(shown(capsys, tmp_path, "get", "two", "-o", "json"))["status"]
    assert status["currentOptimalTrial"]["bestTrialName"] == expected[0]
    assert [trial["bestTrialName"] for trial in status["paretoSet"]["trials"]] == expected
    assert status["paretoSet"]["trialCount"] == len(expected)
    assert status["paretoSet"]["hypervolume"] > 0
    assert status.get("trialsInfeasible", 0) == 12 - len(fit)

    lines = shown(capsys, tmp_path, "best", "two").splitlines()
    rows = list(csv.DictReader(io.StringIO(shown(capsys, tmp_path, "best", "two", "-o", "csv"))))
    assert lines[0].startswith(f"Pareto set: {len(expected)} trial")
    assert [line.split()[0] for line in lines[2:]] == expected
    assert [row["trial"] for row in rows] == expected
    assert float(rows[0]["accuracy"]) == result.best.value
    assert json.loads(shown(capsys, tmp_path, "best", "two", "-o", "json")) == status["paretoSet"]
    assert "Pareto set so far" in shown(capsys, tmp_path, "why", "two")
    assert "with memory <= 8" in shown(capsys, tmp_path, "describe", "two")


def test_the_experiment_ends_when_one_trial_reaches_all_goals(tmp_path: Path) -> None:
    result = tuned(tmp_path, goals={"accuracy": 0.1, "seconds": 7}, max_trials=50)

    assert len(result.trials) < 50
    assert "goal has reached" in result.reason


def test_when_no_trial_satisfies_the_constraints_it_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    with golden.raises(katib.TuneError):
        tuned(tmp_path, constraints={"memory": (None, -1)}, max_trials=3)

    for command in ("best", "why", "describe"):
        assert "memory <= -1" in shown(capsys, tmp_path, command, "two", code=1 if command == "best" else 0)


def test_a_trial_without_one_of_the_objectives_has_no_metrics_and_says_which(tmp_path: Path) -> None:
    def forgetful(x: float) -> dict[str, float]:
        return {"accuracy": x}

    with pytest.raises(katib.TuneError, match='"seconds"'):
        katib.tune(forgetful, {"x": SPACE["x"]}, objectives=OBJECTIVES, max_trials=1, data_dir=tmp_path, verbose=False)


def test_an_algorithm_of_one_objective_and_goals_of_others_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidError) as caught:
        tuned(tmp_path, algorithm="bayesianoptimization")

    (error,) = caught.value.errors
    assert (error.path, "nsga2" in error.remedy) == ("algorithm", True)

    with refused("goal-name"):
        tuned(tmp_path, goals={"loss": 1.0})


def test_a_service_of_the_user_that_does_not_know_several_objectives_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service is Katib-like: it validates nothing and names no features."""
    monkeypatch.chdir(tmp_path)
    service = tmp_path / "service.py"
    service.write_text(_FOREIGN_SERVICE)
    Path("katib-config.yaml").write_text(
        yaml.safe_dump(
            {"algorithms": [{"name": "foreign", "settings": [], "command": ["{python}", str(service), "{address}"]}]}
        )
    )
    document = {
        "apiVersion": "kubeflow.org/v1beta1",
        "kind": "Experiment",
        "metadata": {"name": "two"},
        "spec": {
            "objective": {"objectives": [{"name": name, "type": type_} for name, type_ in OBJECTIVES.items()]},
            "algorithm": {"algorithmName": "foreign"},
            "maxTrialCount": 1,
            "parallelTrialCount": 1,
            "parameters": [{"name": "x", "parameterType": "double", "feasibleSpace": {"min": 0, "max": 1}}],
            "trialTemplate": {
                "primaryContainerName": "main",
                "trialParameters": [{"name": "x", "reference": "x"}],
                "trialSpec": {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "spec": {
                        "template": {
                            "spec": {
                                "restartPolicy": "Never",
                                "containers": [
                                    {"name": "main", "image": "x", "command": ["echo", "${trialParameters.x}"]}
                                ],
                            }
                        }
                    },
                },
            },
        },
    }
    Path("two.yaml").write_text(yaml.safe_dump(document))

    told = shown(capsys, tmp_path / "data", "run", "two.yaml", "--config", "katib-config.yaml", code=1)

    assert "spec.algorithm.algorithmName: foreign " in told


_FOREIGN_SERVICE = """
import sys
from concurrent.futures import ThreadPoolExecutor
import grpc
from katib.wire.rpc._generated import api_pb2
from katib.wire.rpc.services import add_servicer


class Foreign:
    def ValidateAlgorithmSettings(self, request, context):
        return api_pb2.ValidateAlgorithmSettingsReply()


server = grpc.server(ThreadPoolExecutor(2))
add_servicer(server, Foreign(), api_pb2)
server.add_insecure_port(sys.argv[1])
server.start()
server.wait_for_termination()
"""
