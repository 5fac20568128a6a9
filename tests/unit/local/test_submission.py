"""Collectors that one machine runs, and those of a user that it cannot."""

from __future__ import annotations

from typing import Any

import pytest

from katib.api.defaults import with_defaults
from katib.api.types import Experiment
from katib.local.admission import HostCapacity
from katib.local.jobs.kinds import job_kinds
from katib.local.submission import custom_collector_errors
from tests.support.experiments import an_experiment

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
