"""Which finished experiments `auto` learns from by itself."""

from __future__ import annotations

from typing import Any

import pytest

from katib.model.learned_experiments import found_experiments, learned_experiments, looks_for_experiments
from katib.model.names import CONFIRMS_LABEL, LEARNS_FROM_ANNOTATION
from katib.model.space import check_assignments
from katib.model.types import Experiment
from tests.support.experiments import a_double, an_experiment, an_int

AUTO = {"algorithmName": "auto"}


def new(**spec: Any) -> Experiment:
    return Experiment.decode(an_experiment(algorithm=AUTO, **spec))


def ended(
    name: str, *, at: int = 0, lr: str = "0.02", trials: int = 12, state: str = "Succeeded", **spec: Any
) -> dict[str, Any]:
    raw = an_experiment(name=name, **spec)
    best = [{"name": "lr", "value": lr}, {"name": "extra", "value": "1"}]
    condition = {"type": state, "status": "True", "reason": "", "message": ""}
    raw["status"] = {
        "completionTime": f"2026-01-01T00:00:{at:02}Z",
        "conditions": [condition],
        "trialsSucceeded": trials,
        "currentOptimalTrial": {"parameterAssignments": best},
    }
    return raw


def test_the_newest_that_have_ended_are_found() -> None:
    others = [ended(f"e{i}", at=i, state="Failed" if i % 2 else "Succeeded") for i in range(7)]

    assert found_experiments(new(), others, check_assignments) == ("e6", "e5", "e4", "e3", "e2")


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(ended("demo"), id="the experiment itself"),
        pytest.param(ended("old", trials=9), id="few trials"),
        pytest.param(ended("old", trials=1_001), id="too many trials"),
        pytest.param(ended("old", state="Running"), id="still running"),
        pytest.param(ended("old", parameters=[a_double("rate")]), id="another name"),
        pytest.param(ended("old", parameters=[an_int("lr")]), id="another type"),
        pytest.param(ended("old", lr="0.5"), id="other bounds"),
        pytest.param(ended("old", objective={"type": "maximize", "objectiveMetricName": "loss"}), id="direction"),
        pytest.param(ended("old", objective={"type": "minimize", "objectiveMetricName": "cost"}), id="metric"),
        pytest.param({**ended("old"), "metadata": {"name": "old", "labels": {CONFIRMS_LABEL: "e"}}}, id="confirms"),
        pytest.param({**ended("old"), "spec": {"parameters": 3}}, id="cannot be read"),
    ],
)
def test_what_is_not_alike_is_passed_over(other: dict[str, Any]) -> None:
    wider = ended("wider", parameters=[a_double("lr", low="0.0001"), an_int("extra")])

    assert found_experiments(new(), [other, wider], check_assignments) == ("wider",)


@pytest.mark.parametrize(
    ("experiment", "looks"),
    [
        pytest.param(new(), True, id="auto"),
        pytest.param(Experiment.decode(an_experiment(algorithm=None)), True, id="auto by default"),
        pytest.param(Experiment.decode(an_experiment()), False, id="random"),
        pytest.param(new(warmStart={"experiments": ["one"]}), False, id="it names some"),
        pytest.param(
            Experiment.decode(
                an_experiment(algorithm={**AUTO, "algorithmSettings": [{"name": "random_state", "value": "1"}]})
            ),
            False,
            id="it has a seed",
        ),
    ],
)
def test_only_auto_looks_for_experiments(experiment: Experiment, looks: bool) -> None:
    assert looks_for_experiments(experiment) is looks


@pytest.mark.parametrize(
    ("noted", "names"), [("none", ("named",)), ("a, b,named,demo", ("named", "a", "b")), ("", ("named",))]
)
def test_an_annotation_names_experiments_beside_those_of_the_warm_start(noted: str, names: tuple[str, ...]) -> None:
    raw = an_experiment(algorithm=AUTO, warmStart={"experiments": ["named"]})
    raw["metadata"]["annotations"] = {LEARNS_FROM_ANNOTATION: noted}
    experiment = Experiment.decode(raw)

    assert learned_experiments(experiment) == names
    assert not looks_for_experiments(experiment)
