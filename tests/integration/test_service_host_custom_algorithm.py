"""`examples/custom-algorithm`, run as its README says."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from katib.engine.algorithm_services.catalog import Catalog
from katib.engine.algorithm_services.config import ServicesConfig, read_config
from katib.errors import InvalidError
from katib.model.algorithms import check_settings
from katib.model.types import Experiment, Trial
from katib.places.machine.processes.client import Processes
from katib.places.machine.services.host import ServiceHost
from katib.wire.rpc._generated import api_pb2
from katib.wire.rpc.clients import ServiceClient
from tests.support.waiting import eventually

EXAMPLE = Path(__file__).parents[2] / "examples" / "custom-algorithm"
EXPERIMENT = Experiment.decode(yaml.safe_load((EXAMPLE / "experiment.yaml").read_text()))


@pytest.fixture(scope="module")
def config() -> ServicesConfig:
    return read_config(EXAMPLE / "katib.yaml")


@pytest.fixture(scope="module")
def client(config: ServicesConfig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceClient]:
    processes = Processes()
    processes.start()
    logs = tmp_path_factory.mktemp("logs")
    host = ServiceHost(processes, logs, plans=config.plans(EXAMPLE), catalog=Catalog(config.infos()))
    yield eventually(lambda: host.service_for(EXPERIMENT), "the example's service")
    host.close()
    processes.stop()


def a_trial(x: str, y: str, loss: str) -> Trial:
    return Trial.decode(
        {
            "metadata": {"name": f"t{x}{y}"},
            "spec": {
                "objective": {"objectiveMetricName": "loss", "metricStrategies": [{"name": "loss", "value": "min"}]},
                "parameterAssignments": [{"name": "x", "value": x}, {"name": "y", "value": y}],
            },
            "status": {
                "conditions": [{"type": "Succeeded", "status": "True"}],
                "observation": {"metrics": [{"name": "loss", "min": loss, "max": loss, "latest": loss}]},
            },
        }
    )


def suggest(client: ServiceClient, *trials: Trial, count: int = 8) -> list[tuple[float, float]]:
    future = client.get_suggestions(EXPERIMENT, trials, current_request=count, total_request=count + len(trials))
    answers = [{a.name: float(a.value) for a in s.parameter_assignments} for s in future.result(60).assignments]
    return [(answer["x"], answer["y"]) for answer in answers]


def test_the_service_has_fewer_than_sixty_lines_and_the_stubs_of_the_proto() -> None:
    assert len((EXAMPLE / "service.py").read_text().splitlines()) < 60

    program = "import api_pb2, sys; sys.stdout.buffer.write(api_pb2.DESCRIPTOR.serialized_pb)"

    done = subprocess.run([sys.executable, "-c", program], cwd=EXAMPLE, capture_output=True, check=True)

    assert done.stdout == api_pb2.DESCRIPTOR.serialized_pb


def test_the_experiment_is_accepted(client: ServiceClient, config: ServicesConfig) -> None:
    info = Catalog(config.infos()).find("hill-climber")
    algorithm = EXPERIMENT.spec.algorithm

    assert info is not None
    assert algorithm is not None
    assert check_settings(info, algorithm.algorithm_settings, "spec.algorithm.algorithmSettings") == []
    assert client.validate(EXPERIMENT).result(60) is None


def test_an_unknown_setting_is_refused_in_the_words_of_the_service(client: ServiceClient) -> None:
    raw = yaml.safe_load((EXAMPLE / "experiment.yaml").read_text())
    raw["spec"]["algorithm"]["algorithmSettings"] = [{"name": "momentum", "value": "1"}]

    with pytest.raises(InvalidError) as caught:
        client.validate(Experiment.decode(raw)).result(60)

    assert str(caught.value).startswith("spec.algorithm: ")
    assert "momentum" in str(caught.value)


def test_suggestions_lie_in_the_space_repeat_and_climb(client: ServiceClient) -> None:
    points = suggest(client)

    assert len(set(points)) == 8
    assert all(-5 <= x <= 5 and y in range(-5, 6) for x, y in points)
    assert suggest(client) == points

    trials = (a_trial("4.5", "5", "42.0"), a_trial("2.1", "-1", "0.01"), a_trial("-4", "-4", "nan"))

    points = suggest(client, *trials)

    assert sum(abs(x - 2.1) < 2.5 and abs(y + 1) <= 3 for x, y in points) >= 6
