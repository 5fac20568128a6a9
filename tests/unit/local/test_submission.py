"""Collectors that one machine runs, and those of a user that it cannot."""

from __future__ import annotations

from typing import Any

import pytest

from katib.api.defaults import with_defaults
from katib.api.types import Experiment
from katib.local.admission import HostCapacity
from katib.local.jobs.kinds import job_kinds
from katib.local.jobs.replicated.pytorchjob import PyTorchJob
from katib.local.submission import custom_collector_errors, peer_name_errors
from tests.support.experiments import an_experiment
from tests.support.training_jobs import replica, training_job

PLACE = "spec.metricsCollectorSpec.collector.customCollector"
COMMAND = ["python", "collect.py"]


def found(**custom: Any) -> list[str]:
    spec = {"collector": {"kind": "Custom", "customCollector": {"name": "mine", "image": "mine:1", **custom}}}
    raw = an_experiment(metricsCollectorSpec=spec)
    experiment = with_defaults(Experiment.decode(raw))
    source = raw["spec"]["trialTemplate"]["trialSpec"]
    errors = custom_collector_errors(source, experiment.spec, HostCapacity.detect(), job_kinds())
    return [error.path.removeprefix(PLACE) for error in errors]


def test_a_collector_with_a_command_runs_here() -> None:
    assert found(command=COMMAND) == []


@pytest.mark.parametrize(
    ("custom", "place"),
    [
        pytest.param({}, ".command", id="no command"),
        pytest.param({"command": COMMAND, "lifecycle": {"preStop": {}}}, ".lifecycle", id="field without effect"),
        pytest.param({"command": COMMAND, "name": "training"}, ".name", id="name taken"),
    ],
)
def test_one_that_cannot_is_refused_where_it_is_described(custom: dict[str, Any], place: str) -> None:
    assert found(**custom) == [place]


@pytest.mark.parametrize(
    ("collector", "fields", "count"),
    [("StdOut", {}, 0), ("None", {}, 0), ("PrometheusMetric", {}, 2), ("PrometheusMetric", {"hostNetwork": True}, 0)],
    ids=["printed", "none", "called", "found by the job's own check"],
)
def test_names_of_pods_lead_nowhere_where_the_collector_needs_the_network_of_the_machine(
    collector: str, fields: dict[str, Any], count: int
) -> None:
    worker = {"name": "pytorch", "image": "none", "command": ["x", "demo-worker-0:80", "demo-worker-0.ns.svc:80"]}
    source = training_job(PyTorchJob(), Worker=replica(2, worker, **fields))
    raw = an_experiment(metricsCollectorSpec={"collector": {"kind": collector}})
    spec = with_defaults(Experiment.decode(raw)).spec

    errors = peer_name_errors(source, "t", spec, job_kinds())

    place = "t.spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].command"
    assert [error.path for error in errors] == [f"{place}[1]", f"{place}[2]"][:count]
