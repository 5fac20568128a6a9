"""The best trial compared with that of the defaults."""

from __future__ import annotations

from typing import Any

import pytest

from katib.model.default_trial import default_trial_of
from katib.model.types import Experiment, Trial
from tests.support.experiments import an_experiment
from tests.support.golden import Golden


def a_spec(**objective: Any) -> Any:
    document = an_experiment(objective={"type": "maximize", "objectiveMetricName": "score", **objective})
    for parameter in document["spec"]["parameters"]:
        parameter["default"] = (parameter["feasibleSpace"].get("list") or [parameter["feasibleSpace"]["min"]])[0]
    return document["spec"]


def a_trial(name: str, spec: Any, state: str = "Succeeded", message: str = "", **values: float) -> Trial:
    metrics = [{"name": key, "min": str(v), "max": str(v), "latest": str(v)} for key, v in values.items()]
    names = [term["name"] for term in spec["objective"].get("objectives", ())] or ["score", *values]
    objective = {**spec["objective"], "metricStrategies": [{"name": one, "value": "latest"} for one in names]}
    return Trial.decode(
        {
            "metadata": {"name": name},
            "spec": {"objective": objective},
            "status": {
                "conditions": [{"type": state, "status": "True", "message": message}],
                "observation": {"metrics": metrics} if metrics else None,
            },
        }
    )


def compared(spec: Any, default: Trial, best: Trial | None, *pareto: Trial) -> str:
    found = default_trial_of(Experiment.decode({"spec": spec}).spec, default, best, pareto)
    assert found is not None
    assert found.trial_name == default.name
    return found.comparison


@pytest.mark.parametrize(
    ("objective", "before", "after", "words"),
    [
        ({}, 0.9645, 0.9815, "1.7 points above your configuration (0.9645)"),
        ({}, 20, 30, "50% above your configuration (20)"),
        ({"type": "minimize"}, 0.4, 0.3, "25% below your configuration (0.4)"),
        ({"type": "minimize"}, -1.5, -2, "0.5 below your configuration (-1.5)"),
        ({}, 0.9, 0.9, "no other trial is better than your configuration (0.9)"),
    ],
)
def test_the_gain_is_in_points_percent_or_absolute(
    objective: dict[str, Any], before: float, after: float, words: str
) -> None:
    spec = a_spec(**objective)

    assert compared(spec, a_trial("a", spec, score=before), a_trial("b", spec, score=after)) == words


def test_a_configuration_without_a_value_is_told_as_such(golden: Golden) -> None:
    spec = a_spec()
    best = a_trial("b", spec, score=1)

    golden(compared(spec, a_trial("a", spec, "Failed", "Trial has failed: exit code 1"), best))
    golden(compared(spec, a_trial("a", spec, "MetricsUnavailable"), best))
    golden(compared(spec, a_trial("a", spec, "Killed"), best))


def test_a_bounded_metric_is_told_of(golden: Golden) -> None:
    spec = a_spec(constraints=[{"metricName": "ms", "max": 30}])
    default = a_trial("a", spec, score=0.99, ms=40)

    golden(compared(spec, default, a_trial("b", spec, score=0.9, ms=20)))


def test_with_several_objectives_dominating_trials_are_counted(golden: Golden) -> None:
    terms = [{"name": "loss", "type": "minimize"}, {"name": "ms", "type": "minimize"}]
    spec = a_spec(objectives=terms, objectiveMetricName="loss", type="minimize")
    default, fast, good = (a_trial(n, spec, loss=x, ms=y) for n, x, y in (("a", 3, 3), ("b", 4, 1), ("c", 1, 2)))

    golden(compared(spec, default, good, fast, good))
    golden(compared(spec, default, fast, fast, default))


def test_a_part_of_the_defaults_is_not_called_a_configuration(golden: Golden) -> None:
    spec = a_spec()
    del spec["parameters"][0]["default"]
    spec["parameters"].append({**spec["parameters"][0], "name": "other", "default": "0.01"})

    golden(compared(spec, a_trial("a", spec, score=20), a_trial("b", spec, score=30)))


def test_there_is_none_before_its_end() -> None:
    spec = a_spec()

    assert default_trial_of(Experiment.decode({"spec": spec}).spec, None, None) is None
    assert default_trial_of(Experiment.decode({"spec": spec}).spec, a_trial("a", spec, "Running"), None) is None
