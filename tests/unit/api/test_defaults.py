"""The fourteen defaulting rules of Katib, D1 to D14."""

from __future__ import annotations

from typing import Any

import pytest

from katib.model.defaults import with_defaults
from katib.model.types import Experiment, ExperimentSpec, TrialTemplate
from tests.support.experiments import a_choice, a_double, a_template, an_experiment


def defaulted(**spec: Any) -> ExperimentSpec:
    return with_defaults(Experiment.decode(an_experiment(**spec))).spec


def template_of(trial_spec: dict[str, Any], **fields: Any) -> TrialTemplate:
    template = defaulted(trialTemplate=a_template(trialSpec=trial_spec, **fields)).trial_template
    assert template is not None
    return template


def strategies_of(**objective: Any) -> list[tuple[str, str]]:
    spec = defaulted(objective={"objectiveMetricName": "loss", **objective})
    assert spec.objective is not None
    return [(strategy.name, strategy.value) for strategy in spec.objective.metric_strategies]


def collector_of(**fields: Any) -> dict[str, Any]:
    spec = defaulted(metricsCollectorSpec=fields or None).metrics_collector_spec
    assert spec is not None
    return spec.encode()


def holds(condition: str) -> str:
    return f'status.conditions.#(type=="{condition}")#|#(status=="True")#'


def test_three_trials_run_at_once_and_nothing_is_kept_for_resuming() -> None:
    assert defaulted(parallelTrialCount=None).parallel_trial_count == 3
    assert defaulted(parallelTrialCount=0).parallel_trial_count == 0

    assert defaulted().resume_policy == "Never"
    assert defaulted(resumePolicy="LongRunning").resume_policy == "LongRunning"


@pytest.mark.parametrize(
    ("direction", "strategy"), [("minimize", "min"), ("maximize", "max"), ("", "latest")], ids=["min", "max", "other"]
)
def test_d3_and_d4_the_direction_decides_which_reading_counts(direction: str, strategy: str) -> None:
    assert strategies_of(type=direction, additionalMetricNames=["accuracy"]) == [
        ("loss", strategy),
        ("accuracy", strategy),
    ]


def test_further_metrics_are_averaged_as_the_objective_is() -> None:
    given = [{"name": "loss", "value": "mean(3)"}]

    assert strategies_of(additionalMetricNames=["auc"], metricStrategies=given) == [
        ("loss", "mean(3)"),
        ("auc", "mean(3)"),
    ]


def test_what_wilcoxon_compares_is_the_value_of_a_trial() -> None:
    objective = defaulted(earlyStopping={"algorithmName": "wilcoxon"}).objective

    assert objective is not None
    assert objective.strategy_of(objective.objective_metric_name) == "mean"


def test_d5_given_strategies_keep_their_place_in_front() -> None:
    given = [{"name": "f1", "value": "latest"}]

    assert strategies_of(type="minimize", additionalMetricNames=["auc", "f1"], metricStrategies=given) == [
        ("f1", "latest"),
        ("loss", "min"),
        ("auc", "min"),
    ]

    assert defaulted(objective=None).objective is None


@pytest.mark.parametrize("api_version", ["batch/v1", "test/v1"])
def test_d6_a_job_ends_with_complete_or_failed(api_version: str) -> None:
    template = template_of({"apiVersion": api_version, "kind": "Job"})

    assert (template.success_condition, template.failure_condition) == (holds("Complete"), holds("Failed"))
    assert template.primary_pod_labels == {}


@pytest.mark.parametrize("kind", ["TFJob", "PyTorchJob", "XGBoostJob", "MPIJob"])
def test_d7_a_training_job_ends_with_succeeded_or_failed(kind: str) -> None:
    template = template_of({"kind": kind})

    assert (template.success_condition, template.failure_condition) == (holds("Succeeded"), holds("Failed"))
    assert template.primary_pod_labels == {"training.kubeflow.org/job-role": "master"}


def test_d8_a_train_job_ends_with_complete_or_failed() -> None:
    template = template_of({"kind": "TrainJob"})

    assert (template.success_condition, template.failure_condition) == (holds("Complete"), holds("Failed"))
    assert template.primary_pod_labels == {
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
        "batch.kubernetes.io/job-completion-index": "0",
    }


@pytest.mark.parametrize(
    ("reference", "replicated_job"),
    [
        ({"name": "deepspeed-distributed"}, "launcher"),
        ({"name": "mlx-distributed", "kind": "ClusterTrainingRuntime"}, "launcher"),
        ({"name": "deepspeed-distributed", "kind": "TrainingRuntime"}, "node"),
        ({"name": "torch-distributed"}, "node"),
        ({"name": ["deepspeed-distributed"]}, "node"),
        ("deepspeed-distributed", "node"),
    ],
)
def test_of_a_train_job_with_mpi_the_launcher_is_primary(reference: Any, replicated_job: str) -> None:
    template = template_of({"kind": "TrainJob", "spec": {"runtimeRef": reference}})

    assert template.primary_pod_labels["jobset.sigs.k8s.io/replicatedjob-name"] == replicated_job


ROLE = "training.kubeflow.org/job-role"
WORKER_0 = {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": "0"}


@pytest.mark.parametrize(
    ("job", "success", "labels"),
    [
        pytest.param({"kind": "JAXJob", "spec": {"jaxReplicaSpecs": {}}}, "Succeeded", {ROLE: "master"}, id="JAXJob"),
        pytest.param({"kind": "PaddleJob"}, "Succeeded", WORKER_0, id="an empty PaddleJob"),
        pytest.param(
            {"kind": "PaddleJob", "spec": {"paddleReplicaSpecs": {"Worker": {"replicas": 2}}}},
            "Succeeded",
            WORKER_0,
            id="a PaddleJob of workers",
        ),
        pytest.param(
            {"kind": "PaddleJob", "spec": {"paddleReplicaSpecs": {"master": {}, "worker": {}}}},
            "Succeeded",
            {ROLE: "master"},
            id="a PaddleJob with a master",
        ),
        pytest.param(
            {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob"},
            "Succeeded",
            {ROLE: "launcher"},
            id="an MPIJob of the MPI operator",
        ),
        pytest.param({"kind": "JobSet"}, "Completed", {}, id="JobSet"),
    ],
)
def test_kinds_that_katib_does_not_know_have_defaults_too(
    job: dict[str, Any], success: str, labels: dict[str, str]
) -> None:
    template = template_of(job)

    assert (template.success_condition, template.failure_condition) == (holds(success), holds("Failed"))
    assert template.primary_pod_labels == labels


@pytest.mark.parametrize("spec", [None, [], "x", {"paddleReplicaSpecs": 5}, {"paddleReplicaSpecs": {5: None}}])
def test_defaults_are_found_whatever_the_form_of_a_job(spec: object) -> None:
    assert template_of({"kind": "PaddleJob", "spec": spec}).primary_pod_labels == WORKER_0


def test_d6_to_d8_keep_what_is_given() -> None:
    template = template_of({"kind": "TFJob"}, successCondition="a", primaryPodLabels={"role": "chief"})

    assert (template.success_condition, template.failure_condition) == ("a", holds("Failed"))
    assert template.primary_pod_labels == {"role": "chief"}


@pytest.mark.parametrize("kind", ["Workflow", 5, None, ["Job"]])
def test_d9_other_kinds_have_no_conditions(kind: object) -> None:
    template = template_of({"kind": kind})

    assert (template.success_condition, template.failure_condition) == ("", "")


def test_d9_a_template_in_a_config_map_has_no_conditions() -> None:
    source = {"configMapName": "a", "configMapNamespace": "b", "templatePath": "c"}
    template = defaulted(trialTemplate=a_template(trialSpec=None, configMap=source)).trial_template

    assert template is not None
    assert (template.success_condition, template.failure_condition) == ("", "")


COLLECTORS = {
    "D10 nothing": ({}, {"collector": {"kind": "StdOut"}}),
    "D10 only a filter": (
        {"source": {"filter": {"metricsFormat": ["(a)(b)"]}}},
        {"source": {"filter": {"metricsFormat": ["(a)(b)"]}}, "collector": {"kind": "StdOut"}},
    ),
    "D10 a collector without kind stays so": ({"collector": {"customCollector": {"name": "x"}}},) * 2,
    "D11 Prometheus": (
        {"collector": {"kind": "PrometheusMetric"}},
        {"source": {"httpGet": {"path": "/metrics", "port": 8080}}, "collector": {"kind": "PrometheusMetric"}},
    ),
    "D11 port 0 is none": (
        {"collector": {"kind": "PrometheusMetric"}, "source": {"httpGet": {"port": "0", "host": "h"}}},
        {
            "source": {"httpGet": {"path": "/metrics", "port": 8080, "host": "h"}},
            "collector": {"kind": "PrometheusMetric"},
        },
    ),
    "D11 given": ({"collector": {"kind": "PrometheusMetric"}, "source": {"httpGet": {"port": "web", "path": "/m"}}},)
    * 2,
    "D12 File": (
        {"collector": {"kind": "File"}},
        {
            "source": {"fileSystemPath": {"path": "/var/log/katib/metrics.log", "kind": "File", "format": "TEXT"}},
            "collector": {"kind": "File"},
        },
    ),
    "D12 given": (
        {
            "source": {"fileSystemPath": {"path": "/x", "kind": "Directory", "format": "JSON"}},
            "collector": {"kind": "File"},
        },
    )
    * 2,
    "D13 TensorFlow events": (
        {"collector": {"kind": "TensorFlowEvent"}},
        {
            "source": {"fileSystemPath": {"path": "/var/log/katib/tfevent/", "kind": "Directory"}},
            "collector": {"kind": "TensorFlowEvent"},
        },
    ),
    "D13 the format stays": (
        {
            "source": {"fileSystemPath": {"path": "/x", "kind": "File", "format": "JSON"}},
            "collector": {"kind": "TensorFlowEvent"},
        },
    )
    * 2,
    "other kinds": ({"collector": {"kind": "Push"}},) * 2,
}


@pytest.mark.parametrize(("given", "expected"), COLLECTORS.values(), ids=COLLECTORS)
def test_d10_to_d13_metrics_are_read_somewhere(given: dict[str, Any], expected: dict[str, Any]) -> None:
    assert collector_of(**given) == expected


def test_d14_values_are_spread_uniformly_but_not_those_of_operations() -> None:
    parameters = [a_double("a"), a_choice("b", ["x"]), a_double("c", distribution="normal"), {"name": "d"}]

    spaces = [parameter.feasible_space for parameter in defaulted(parameters=parameters).parameters]

    assert [space.distribution for space in spaces] == ["uniform", "uniform", "normal", "uniform"]

    nas_config = {"operations": [{"operationType": "conv", "parameters": [a_double("a")]}]}
    spec = defaulted(parameters=None, nasConfig=nas_config)

    assert spec.nas_config is not None
    assert spec.nas_config.operations[0].parameters[0].feasible_space.distribution == ""


@pytest.mark.parametrize("given", [None, {}, {"algorithmName": ""}], ids=["none", "empty", "unnamed"])
def test_an_experiment_without_an_algorithm_is_searched_by_auto(given: dict[str, Any] | None) -> None:
    algorithm = defaulted(algorithm=given).algorithm

    assert algorithm is not None
    assert algorithm.algorithm_name == "auto"


def test_settings_without_a_name_are_those_of_auto_and_defaults_are_applied_once() -> None:
    settings = [{"name": "random_state", "value": "7"}]
    algorithm = defaulted(algorithm={"algorithmSettings": settings}).algorithm

    assert algorithm is not None
    assert algorithm.encode() == {"algorithmName": "auto", "algorithmSettings": settings}

    assert defaulted(algorithm=None, parameters=None, nasConfig={}).algorithm is None

    experiment = with_defaults(Experiment.decode(an_experiment()))

    assert with_defaults(experiment) == experiment


def test_what_is_left_out_beside_objectives_comes_from_the_first() -> None:
    document = an_experiment(
        objective={
            "objectives": [
                {"name": "accuracy", "type": "maximize", "goal": 0.9},
                {"name": "seconds", "type": "minimize"},
            ],
            "constraints": [{"metricName": "memory", "max": 8}, {"metricName": "seconds", "max": 60}],
            "additionalMetricNames": ["f1"],
        }
    )

    objective = with_defaults(Experiment.decode(document)).spec.objective

    assert objective is not None
    assert (objective.type, objective.objective_metric_name, objective.goal) == ("maximize", "accuracy", 0.9)
    assert [(s.name, s.value) for s in objective.metric_strategies] == [
        ("accuracy", "max"),
        ("f1", "max"),
        ("seconds", "min"),
        ("memory", "latest"),
    ]
