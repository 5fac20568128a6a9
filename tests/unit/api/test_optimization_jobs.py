"""The rules of OptimizationJobs, and the Experiment that is made of one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from katib.errors import InvalidError
from katib.model.job_kinds import status_readings
from katib.model.metrics import PROGRESS, MetricLog
from katib.model.optimization_jobs import experiment_of, read_optimization_job, settled

Json = dict[str, Any]

NOW = datetime(2026, 8, 1, tzinfo=UTC)


def a_job(**spec: Any) -> Json:
    """Return a job in the form of the definition."""
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "OptimizationJob",
        "metadata": {"name": "demo", "namespace": "default"},
        "spec": {
            "objectives": [{"metric": "loss", "direction": "Minimize"}],
            "parameters": [{"name": "lr", "searchSpace": {"logUniform": {"min": "1e-4", "max": "0.1"}}}],
            "numTrials": 4,
            "parallelTrials": 2,
            "trainJobTemplate": {"spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"command": ["a"]}}},
            **spec,
        },
    }


def space(**fields: Any) -> list[Json]:
    return [{"name": "lr", "searchSpace": fields}]


def uniform(**fields: Any) -> list[Json]:
    return space(uniform=fields)


PARAMETER = "spec.parameters[0].searchSpace"


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"objectives": []}, "spec.objectives"),
        ({"objectives": [{"metric": "a"}, {"metric": "b"}]}, "spec.objectives"),
        ({"objectives": [{"metric": "a", "direction": "up"}]}, "spec.objectives[0].direction"),
        ({"objectives": [{"metric": "m" * 65}]}, "spec.objectives[0].metric"),
        ({"searchAlgorithm": {}}, "spec.searchAlgorithm"),
        ({"searchAlgorithm": {"random": {}, "grid": {}}}, "spec.searchAlgorithm"),
        ({"searchAlgorithm": {"grid": {}}}, PARAMETER),
        ({"parameters": []}, "spec.parameters"),
        ({"parameters": [*space(categorical={"choices": ["a"]})] * 2}, "spec.parameters[1].name"),
        ({"parameters": space()}, PARAMETER),
        ({"parameters": space(categorical={"choices": ["a", "a"]})}, f"{PARAMETER}.categorical.choices[1]"),
        ({"parameters": space(categorical={"choices": []})}, f"{PARAMETER}.categorical.choices"),
        ({"parameters": uniform(min="1", max="1")}, f"{PARAMETER}.uniform.min"),
        ({"parameters": uniform(min="01", max="2")}, f"{PARAMETER}.uniform.min"),
        ({"parameters": uniform(min="1", max="1e400")}, f"{PARAMETER}.uniform.max"),
        ({"parameters": uniform(min="1.5", max="8", type="Int")}, f"{PARAMETER}.uniform.min"),
        ({"parameters": uniform(min="1", max="1e300", type="Int")}, f"{PARAMETER}.uniform.max"),
        ({"parameters": uniform(min="1", max="2", type="Double")}, f"{PARAMETER}.uniform.type"),
        ({"parameters": space(logUniform={"min": "-1", "max": "2"})}, f"{PARAMETER}.logUniform.min"),
        ({"numTrials": 0}, "spec.numTrials"),
        ({"numTrials": 101}, "spec.numTrials"),
        ({"numTrials": 1}, "spec.parallelTrials"),
        ({"trainJobTemplate": {}}, "spec.trainJobTemplate.spec"),
        ({"trainJobTemplate": {"spec": {"trainer": "a"}}}, "spec.trainJobTemplate.spec.trainer"),
        ({"trainJobTemplate": {"metadata": {"name": "a"}, "spec": {}}}, "spec.trainJobTemplate.metadata.name"),
        (
            {"trainJobTemplate": {"spec": {"trainer": {"env": [{"name": "KUBEFLOW_TRAINER_OPT_LR"}]}}}},
            "spec.parameters[0].name",
        ),
    ],
)
def test_a_broken_rule_is_named_with_its_place(spec: Json, path: str) -> None:
    with pytest.raises(InvalidError) as caught:
        read_optimization_job(a_job(**spec))

    assert path in [error.path for error in caught.value.errors]


@pytest.mark.parametrize("bounds", [("1", "8"), ("1.0", "8.0"), ("1e2", "1e3"), ("-8", "-1")], ids="..".join)
def test_whole_numbers_may_be_written_in_any_way(bounds: tuple[str, str]) -> None:
    job, _ = read_optimization_job(a_job(parameters=uniform(min=bounds[0], max=bounds[1], type="Int")))

    (parameter,) = experiment_of(job)["spec"]["parameters"]
    assert parameter["parameterType"] == "int"
    assert [float(parameter["feasibleSpace"][name]) for name in ("min", "max")] == list(map(float, bounds))
    assert parameter["feasibleSpace"]["min"].lstrip("-").isdigit()


def test_what_the_text_of_the_design_says_is_accepted_with_notices() -> None:
    raw = a_job(objectives=[{"direction": "maximize"}], searchAlgorithm={"random": {"randomState": -1}})
    before = copy.deepcopy(raw)
    job, unknown = read_optimization_job(raw)
    spec = experiment_of(job)["spec"]

    assert len(settled(raw)[1]) == 3
    assert raw == before
    assert unknown == ()
    assert (spec["objective"]["type"], spec["objective"]["objectiveMetricName"]) == ("maximize", "loss")
    assert spec["algorithm"]["algorithmSettings"] == [{"name": "random_state", "value": str(2**32 - 1)}]


def test_an_annotation_names_the_algorithm() -> None:
    raw = a_job()
    raw["metadata"]["annotations"] = {
        "katib.kubeflow.org/algorithm": "tpe",
        "katib.kubeflow.org/algorithm-settings": "seed=3, gamma = 0.2",
        "katib.kubeflow.org/early-stopping": "medianstop",
    }
    spec = experiment_of(read_optimization_job(raw)[0])["spec"]

    assert spec["algorithm"]["algorithmName"] == "tpe"
    assert [tuple(one.values()) for one in spec["algorithm"]["algorithmSettings"]] == [("seed", "3"), ("gamma", "0.2")]
    assert spec["earlyStopping"] == {"algorithmName": "medianstop"}


MALFORMED: list[Callable[[Json], Any]] = [
    lambda job: job.update(spec=None),
    lambda job: job.update(spec=[1]),
    lambda job: job["spec"].update(objectives={"a": 1}),
    lambda job: job["spec"].update(parameters=[None, 3]),
    lambda job: job["spec"].update(searchAlgorithm="random"),
    lambda job: job["spec"].update(trainJobTemplate={"spec": [], "metadata": 3}),
    lambda job: job["spec"].update(trainJobTemplate={"spec": {"trainer": {"env": {"a": 1}}}}),
]


@pytest.mark.parametrize("spoil", MALFORMED)
def test_malformed_input_is_refused_in_lines(spoil: Callable[[Json], Any]) -> None:
    job = a_job()
    spoil(job)

    with pytest.raises(InvalidError) as caught:
        read_optimization_job(job)
    assert all(error.path.startswith("spec") and error.remedy for error in caught.value.errors)


@pytest.mark.parametrize(
    ("at", "time"), [("2024-01-01T01:00:00Z", datetime(2024, 1, 1, 1, tzinfo=UTC)), ("soon", NOW), (None, NOW)]
)
def test_the_status_of_a_train_job_is_read_whatever_it_holds(at: object, time: datetime) -> None:
    metrics = [
        {"name": "loss", "value": "0.5"},
        {"name": "other", "value": "1"},
        {"name": "loss", "value": "soon"},
        {"name": "loss", "value": 3},
        {"name": "loss"},
        None,
    ]
    read = [status_readings({"status": {"trainerStatus": found}}, ["loss"], NOW) for found in ({"metrics": metrics}, 3)]

    steps = {"metrics": [metrics[0], {"name": "current_step", "value": "7"}], "progressPercentage": 40}
    posted = status_readings({"status": {"trainerStatus": {**steps, "lastUpdatedTime": at}}}, ["loss"], NOW)

    assert read == [[MetricLog(NOW, "loss", "0.5")], []]
    assert posted == [MetricLog(time, "loss", "0.5", 7), MetricLog(time, PROGRESS, "40", 7)]
    assert status_readings({"status": {"trainerStatus": {"metrics": {"a": 1}}}}, ["loss"], NOW) == []
