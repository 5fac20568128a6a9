"""The description of REST: no more is allowed than the server takes, and a client made from it works."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest

from katib.doors.rest.server import Server
from katib.model.types import API_VERSION
from katib.places.machine import open_engine

TOKEN = "correct horse"
BASE = "/api/v1/namespaces/default"
ASKED = {
    "apiVersion": API_VERSION,
    "kind": "Experiment",
    "metadata": {"name": "mine"},
    "spec": {
        "objective": {"type": "minimize", "objectiveMetricName": "loss"},
        "algorithm": {"algorithmName": "random"},
        "maxTrialCount": 3,
        "parameters": [{"name": "lr", "parameterType": "double", "feasibleSpace": {"min": "0", "max": "1"}}],
    },
}

CLIENT = """
import sys
import httpx
from katib_client import AuthenticatedClient, models
from katib_client.api.algorithms import list_algorithms
from katib_client.api.experiments import ask_for_trial, edit_experiment, get_experiment, list_trials, submit_experiment
from katib_client.api.trials import end_trial, list_metrics, report_readings

url, token, document = sys.argv[1:]
client = AuthenticatedClient(base_url=url, token=token, raise_on_unexpected_status=True, timeout=httpx.Timeout(120))
assert "tpe" in [one.name for one in list_algorithms.sync(client=client).items]
submitted = submit_experiment.sync(client=client, body=models.Experiment.from_dict(__import__("json").loads(document)))
where = submitted.experiment.metadata.namespace, submitted.experiment.metadata.name
request = models.TrialRequest(request_id="one", wait_seconds=60)
trial = ask_for_trial.sync(*where, client=client, body=request).trial.metadata.name
values = models.ReportedReadingsValues.from_dict({"loss": 0.5})
report_readings.sync(where[0], trial, client=client, body=models.ReportedReadings(values=values, step=1))
end = models.TrialEnd(values=models.TrialEndValues.from_dict({"loss": 0.25}))
state = end_trial.sync(where[0], trial, client=client, body=end).state
edit_experiment.sync(*where, client=client, body=models.ExperimentEdit(max_trial_count=7, tags=["generated"]))
readings = [(one.name, one.value) for one in list_metrics.sync(where[0], trial, client=client).items]
count = get_experiment.sync(*where, client=client).spec.max_trial_count
print(state, list_trials.sync(*where, client=client).total, count, readings)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with open_engine(data_dir=tmp_path_factory.mktemp("data"), own_process=False) as engine:
        engine.start()
        with Server(engine.service, host="127.0.0.1", port=0, token=TOKEN) as made:
            yield made


@pytest.fixture(scope="module")
def http(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, auth=("katib", TOKEN), timeout=120, trust_env=False) as client:
        yield client


@pytest.fixture(scope="module")
def schemas(http: httpx.Client) -> dict[str, Any]:
    return {"components": http.get("/openapi.json").json()["components"]}


@pytest.fixture(scope="module")
def trial(http: httpx.Client) -> str:
    """A trial that a caller evaluates."""
    http.post("/api/v1/experiments", json=ASKED).raise_for_status()
    asked = http.post(f"{BASE}/experiments/mine/ask", json={"requestId": "once", "waitSeconds": 60}).json()
    return str(asked["trial"]["metadata"]["name"])


_SPEC = {"objective": {"objectiveMetricName": "loss"}, "parameters": []}
_ENDED = {"id": "1", "assignments": {"lr": "0.1"}, "began": "2030-01-01T00:00:00Z", "ended": "2030-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("path", "model", "body"),
    [
        ("experiments/mine/ask", "TrialRequest", {"requestId": ""}),
        ("experiments/mine/ask", "TrialRequest", {"requestId": "-"}),
        ("experiments/mine/ask", "TrialRequest", {"requestId": "a", "leaseSeconds": 0}),
        ("experiments/mine/ask", "TrialRequest", {"requestId": "a", "leaseSeconds": 1e6}),
        ("trials/t/report", "ReportedReadings", {"values": {}}),
        ("trials/t/report", "ReportedReadings", {"values": {"loss": "low"}}),
        ("trials/t/report", "ReportedReadings", {"values": {"": 1}}),
        ("trials/t/report", "ReportedReadings", {"values": {" loss": 1}}),
        ("trials/t/report", "ReportedReadings", {"values": {"loss": 1}, "step": 2**63}),
        ("trials/t/tell", "TrialEnd", {"values": {"loss": "1e"}}),
        ("experiments/mine/ended-trials", "EndedTrials", {"trials": [_ENDED | {"values": {"loss": "low"}}]}),
        ("experiments/mine", "ExperimentEdit", {"tags": [","]}),
        ("experiments/mine", "ExperimentEdit", {"tags": ["x"] * 31}),
        ("experiments/mine", "ExperimentEdit", {"project": "a\nb"}),
        ("experiments/mine", "ExperimentEdit", {"notes": "x" * 4_001}),
        ("trials/t", "TrialEdit", {"project": "x"}),
        ("experiments/mine/trials", "ChosenTrial", {"parameterAssignments": []}),
        ("experiments", "NewExperiment", {"apiVersion": API_VERSION, "kind": "Experiment", "metadata": {}, "spec": {}}),
        (
            "experiments",
            "NewExperiment",
            {"apiVersion": API_VERSION, "kind": "Experiment", "metadata": {"name": "x"}, "spec": _SPEC},
        ),
    ],
    ids=str,
)
def test_what_the_server_refuses_its_description_does_not_allow(
    http: httpx.Client, schemas: dict[str, Any], trial: str, path: str, model: str, body: dict[str, Any]
) -> None:
    method = "PATCH" if model.endswith("Edit") else "POST"
    answer = http.request(method, f"{BASE}/{path.replace('trials/t', f'trials/{trial}')}", json=body)

    assert answer.status_code == 422, answer.text
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(body, schemas | {"$ref": f"#/components/schemas/{model}"})


@pytest.mark.parametrize(
    ("path", "model", "body"),
    [
        ("trials/t/report", "ReportedReadings", {"values": {"val loss": "NaN", "loss": 1}, "step": 2**53}),
        ("trials/t/report", "ReportedReadings", {"values": {"loss": ".5e-3"}}),
        ("experiments/mine", "ExperimentEdit", {"tags": ["a b", "ä"], "notes": "a\nb"}),
        ("trials/t", "TrialEdit", {"tags": [], "notes": "x"}),
        ("validate", "NewExperiment", ASKED),
    ],
    ids=str,
)
def test_what_the_server_takes_its_description_allows(
    http: httpx.Client, schemas: dict[str, Any], trial: str, path: str, model: str, body: dict[str, Any]
) -> None:
    method = "PATCH" if model.endswith("Edit") else "POST"
    base = "/api/v1" if path == "validate" else BASE

    jsonschema.validate(body, schemas | {"$ref": f"#/components/schemas/{model}"})
    assert http.request(method, f"{base}/{path.replace('trials/t', f'trials/{trial}')}", json=body).is_success


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("openapi_python_client") is None,
    reason="openapi-python-client is missing: `make test-doors` installs it",
)
def test_a_client_that_is_generated_from_the_description_runs_an_experiment(
    http: httpx.Client, server: Server, tmp_path: Path
) -> None:
    description = tmp_path / "openapi.json"
    description.write_bytes(http.get("/openapi.json").content)
    generate = "from openapi_python_client.cli import app; app()"
    options = ("--path", str(description), "--output-path", str(tmp_path / "katib_client"), "--meta", "none")
    made = subprocess.run(
        [sys.executable, "-c", generate, "generate", *options], capture_output=True, text=True, check=True
    )
    document = json.dumps({**ASKED, "metadata": {"name": "generated"}})
    used = subprocess.run(
        [sys.executable, "-c", CLIENT, server.url, TOKEN, document],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert "Unable to parse" not in made.stdout
    assert (used.stdout, used.stderr) == ("Succeeded 1 7 [('loss', '0.5'), ('loss', '0.25')]\n", "")
