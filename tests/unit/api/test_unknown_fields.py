from __future__ import annotations

from typing import Any

import pytest

from katib.api.decoding import unknown_fields
from katib.api.types import Experiment
from tests.support.experiments import an_experiment


def with_field(path: str, value: object = 1) -> dict[str, Any]:
    """Return a valid experiment with one more field, at a dotted path in which numbers are indices."""
    raw = an_experiment()
    *parents, key = path.split(".")
    node: Any = raw
    for part in parents:
        node = node[int(part)] if part.isdigit() else node.setdefault(part, {})
    node[key] = value
    return raw


UNKNOWN = {
    "near a known name": (
        "spec.maxTrialcount",
        'spec.maxTrialcount: spec has no field "maxTrialcount"; did you mean maxTrialCount?',
    ),
    "in snake case": (
        "spec.max_trial_count",
        'spec.max_trial_count: spec has no field "max_trial_count"; did you mean maxTrialCount?',
    ),
    "one level too high": (
        "spec.goal",
        'spec.goal: spec has no field "goal"; move it to spec.objective.goal',
    ),
    "at the top": (
        "parameters",
        'parameters: the document has no field "parameters"; move it to spec.parameters',
    ),
    "nothing like it": (
        "spec.objective.xyz",
        (
            'spec.objective.xyz: objective has no field "xyz"; remove it, or use one of type, goal, '
            "objectiveMetricName, additionalMetricNames, metricStrategies, objectives, constraints"
        ),
    ),
    "in a list": (
        "spec.parameters.0.feasibleSpace.mim",
        'spec.parameters[0].feasibleSpace.mim: feasibleSpace has no field "mim"; did you mean min?',
    ),
    "in metadata": ("metadata.lables", 'metadata.lables: metadata has no field "lables"; did you mean labels?'),
    "with a line break": (
        "spec.a\nb",
        (
            'spec["a\\nb"]: spec has no field "a\\nb"; remove it, or use one of parameters, objective, algorithm, '
            "earlyStopping, trialTemplate, parallelTrialCount, maxTrialCount, maxFailedTrialCount, "
            "metricsCollectorSpec, nasConfig, resumePolicy, warmStart, initialTrials"
        ),
    ),
    "deep in the collector": (
        "spec.metricsCollectorSpec.source.fileSystemPath.pth",
        'spec.metricsCollectorSpec.source.fileSystemPath.pth: fileSystemPath has no field "pth"; did you mean path?',
    ),
}


@pytest.mark.parametrize(("path", "line"), UNKNOWN.values(), ids=UNKNOWN)
def test_an_unknown_field_is_named_with_what_was_meant(path: str, line: str) -> None:
    assert [str(error) for error in unknown_fields(with_field(path), Experiment)] == [line]


OPAQUE = [
    "spec.trialTemplate.trialSpec.anything",
    "spec.trialTemplate.primaryPodLabels.anything",
    "spec.metricsCollectorSpec.source.httpGet.anything",
    "spec.metricsCollectorSpec.collector.customCollector.anything",
    "metadata.annotations.anything",
    "metadata.labels.anything",
    "metadata.managedFields",
    "metadata.selfLink",
    "metadata.uid",
    "status.anything",
]


@pytest.mark.parametrize("path", OPAQUE)
def test_what_belongs_to_somebody_else_is_not_judged(path: str) -> None:
    assert unknown_fields(with_field(path), Experiment) == []


def test_values_of_the_wrong_type_are_left_to_the_type_check() -> None:
    raw = {**an_experiment(), "metadata": [{"x": 1}], "spec": {"parameters": {"x": 1}, "objective": [{"x": 1}]}}

    assert unknown_fields(raw, Experiment) == []


def test_every_unknown_field_is_reported() -> None:
    raw = with_field("spec.a")
    raw["spec"]["b"] = raw["c"] = 1

    assert {error.path for error in unknown_fields(raw, Experiment)} == {"spec.a", "spec.b", "c"}
