"""Collectors that one machine runs, and those of a user that it cannot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from katib.engine.algorithm_services.catalog import Catalog
from katib.engine.runtime.objects import Key, Kind, Object
from katib.errors import InvalidError
from katib.model.algorithms import AlgorithmCatalog, AlgorithmInfo
from katib.model.defaults import with_defaults
from katib.model.types import Experiment
from katib.places.machine.admission import HostCapacity
from katib.places.machine.jobs.kinds import nothing_stored
from katib.places.machine.jobs.replicated.frameworks import PyTorchJob
from katib.places.machine.jobs.replicated.mpijob import MPIJob
from katib.places.machine.submission import LocalHome
from katib.service.tuning.submission import Gate, StoredObjects
from tests.support.experiments import a_choice, a_template, an_experiment, an_int
from tests.support.gate import CATALOG
from tests.support.training_jobs import replica, training_job


def a_search(name: str, **settings: str) -> dict[str, Any]:
    given = [{"name": key, "value": value} for key, value in settings.items()]
    return {"algorithmName": name, "algorithmSettings": given}


PLACE = "spec.metricsCollectorSpec.collector.customCollector"
COMMAND = ["python", "collect.py"]


def found(**custom: Any) -> list[str]:
    spec = {"collector": {"kind": "Custom", "customCollector": {"name": "mine", "image": "mine:1", **custom}}}
    raw = an_experiment(metricsCollectorSpec=spec)
    experiment = with_defaults(Experiment.decode(raw))
    source = raw["spec"]["trialTemplate"]["trialSpec"]
    errors, _ = LocalHome(HostCapacity.detect()).check(source, "t", experiment, nothing_stored)
    return [error.path.removeprefix(PLACE) for error in errors if error.path.startswith(PLACE)]


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
    [("StdOut", {}, 0), ("None", {}, 0), ("PrometheusMetric", {}, 2), ("PrometheusMetric", {"hostNetwork": True}, 2)],
    ids=["printed", "none", "called", "found by the job's own check, once"],
)
def test_names_of_pods_lead_nowhere_where_the_collector_needs_the_network_of_the_machine(
    collector: str, fields: dict[str, Any], count: int
) -> None:
    worker = {"name": "pytorch", "image": "none", "command": ["x", "demo-worker-0:80", "demo-worker-0.ns.svc:80"]}
    source = training_job(PyTorchJob(), Worker=replica(2, worker, **fields))
    raw = an_experiment(metricsCollectorSpec={"collector": {"kind": collector}})
    host = replace(HostCapacity.detect(), runs_images=True, names_pods=True)

    errors, _ = LocalHome(host).check(source, "t", with_defaults(Experiment.decode(raw)), nothing_stored)

    place = "t.spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].command"
    assert [error.path for error in errors if error.path.startswith(place)] == [f"{place}[1]", f"{place}[2]"][:count]


OWN = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata: {name: mine}
spec:
  mlPolicy: {numNodes: 2, POLICY: {}}
  template:
    spec:
      replicatedJobs:
        - name: node
          template: {spec: {template: {spec: {containers: [{name: node, command: [sleep, inf]}]}}}}
        - name: starter
          template:
            metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
            spec: {template: {spec: {containers: [{name: node, command: [echo]}]}}}
"""
STARTER = {"jobset.sigs.k8s.io/replicatedjob-name": "starter"}
FIRST = {"batch.kubernetes.io/job-completion-index": "0"}


@pytest.mark.parametrize(
    ("policy", "given", "expected"),
    [
        pytest.param("mpi", {}, STARTER, id="the launcher"),
        pytest.param("torch", {}, {**STARTER, **FIRST}, id="the first node that trains"),
        pytest.param("mpi", FIRST, FIRST, id="what the user says"),
    ],
)
@pytest.mark.parametrize("is_stored", [True, False], ids=["stored", "in the same file"])
def test_which_pod_prints_the_metrics_of_a_train_job_follows_from_the_runtime(
    policy: str, given: dict[str, str], expected: dict[str, str], is_stored: bool
) -> None:
    runtime = OWN.replace("POLICY", policy)
    kept = {"default/mine": yaml.safe_load(runtime)} if is_stored else {}

    class Kept(StoredObjects):
        def find(self, _kind: Kind, key: Key) -> Object | None:
            return kept.get(f"{key.namespace}/{key.name}")

    gate = Gate(CATALOG, LocalHome(HostCapacity.detect()), Kept(None))
    job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "spec": {
            "runtimeRef": {"name": "mine", "kind": "TrainingRuntime"},
            "trainer": {"command": ["echo", "${trialParameters.learningRate}"]},
        },
    }
    template = a_template() | {"trialSpec": job, "primaryContainerName": "node", "primaryPodLabels": given}
    text = yaml.safe_dump(an_experiment(trialTemplate=template))

    loaded = gate.load(text if is_stored else f"{text}---{runtime}", source="file", namespace="default")
    admitted = gate.admit(loaded)

    assert admitted.experiment.spec.trial_template is not None
    assert admitted.experiment.spec.trial_template.primary_pod_labels == expected
    assert gate.admit_update(loaded, admitted.experiment) == admitted.experiment


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({"algorithm": {"algorithmName": "bayesianoptimization"}}, set(), id="installed"),
        pytest.param(
            {"algorithm": {"algorithmName": "grid"}, "parameters": [a_choice("lr", "ab")], "maxTrialCount": 60},
            {("spec.maxTrialCount", "grid-size")},
            id="grid",
        ),
        pytest.param(
            {"algorithm": a_search("bayesianoptimization", acq_optimizer="lbfgs", base_estimator="RF")},
            {("spec.algorithm.algorithmSettings", "setting-conflict")},
            id="settings",
        ),
        pytest.param(
            {"earlyStopping": a_search("asha", min_resource="9", max_resource="3")},
            {("spec.earlyStopping.algorithmSettings[1].value", "setting-range")},
            id="early stopping",
        ),
        pytest.param(
            {
                "earlyStopping": a_search("wilcoxon"),
                "objective": {
                    "type": "minimize",
                    "objectiveMetricName": "loss",
                    "metricStrategies": [{"name": "loss", "value": "latest"}],
                },
            },
            {("spec.objective.metricStrategies[0].value", "strategy-wilcoxon")},
            id="one reading with wilcoxon",
        ),
        pytest.param(
            {
                "algorithm": a_search("hyperband", resource_name="lr", r_l="9"),
                "parameters": [an_int("lr", low="20", high="20")],
            },
            set(),
            id="a resource of one value",
        ),
    ],
)
def test_what_the_service_of_an_algorithm_refuses_is_refused_at_submission(
    spec: dict[str, Any], expected: set[tuple[str, str]]
) -> None:
    assert refused(spec) == expected


def test_a_missing_package_is_said_at_submission(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)

    assert refused({"algorithm": {"algorithmName": "bayesianoptimization"}}) == {
        ("spec.algorithm.algorithmName", "algorithm-not-installed")
    }


def test_a_service_of_the_user_s_own_decides_by_itself() -> None:
    mine = Catalog((AlgorithmInfo("grid"),))

    assert not refused({"algorithm": {"algorithmName": "grid"}, "parameters": [a_choice("lr", "ab")]}, mine)


def refused(spec: dict[str, Any], catalog: AlgorithmCatalog | None = None) -> set[tuple[str, str]]:
    gate = Gate(catalog or Catalog(), LocalHome(HostCapacity.detect()), StoredObjects(None))
    try:
        gate.check(yaml.safe_dump(an_experiment(**spec)), source="file", namespace="default")
    except InvalidError as error:
        return {(one.path, one.origin) for one in error.errors}
    return set()


def test_labels_that_no_pod_will_have_are_refused() -> None:
    template = a_template(primaryPodLabels={"foo": "bar"})

    assert refused({"trialTemplate": template}) == {("spec.trialTemplate.primaryPodLabels", "primary-pod-labels")}


def test_half_a_card_is_refused_before_the_launcher_takes_it_over() -> None:
    """Two workers that only wait would make one whole card of it."""
    worker = {"name": "mpi", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "0.5"}}}
    launcher = {"name": "mpi", "image": "none", "command": ["sh", "-c", "echo ${trialParameters.learningRate}"]}
    template = a_template() | {
        "trialSpec": training_job(MPIJob(), Launcher=replica(1, launcher), Worker=replica(2, worker)),
        "primaryContainerName": "mpi",
    }
    gate = Gate(CATALOG, LocalHome(replace(HostCapacity.detect(), gpus=1)), StoredObjects(None))

    with pytest.raises(InvalidError) as raised:
        gate.check(yaml.safe_dump(an_experiment(trialTemplate=template)), source="file", namespace="default")

    place = "spec.trialTemplate.trialSpec.spec.mpiReplicaSpecs.Worker.template.spec.containers[0]"
    assert [e.path for e in raised.value.errors if e.origin == "device-part"] == [
        f'{place}.resources.limits["nvidia.com/gpu"]'
    ]


def test_half_a_card_of_a_runtime_or_a_collector_is_refused_too() -> None:
    half = {"resources": {"limits": {"nvidia.com/gpu": "0.5"}}}
    runtime = yaml.safe_load(OWN.replace("POLICY", "torch"))
    job = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]
    job["template"]["spec"]["containers"][0] |= half

    assert [error.origin for error in LocalHome(HostCapacity.detect()).check_runtime(runtime, "")] == ["device-part"]
    assert '.resources.limits["nvidia.com/gpu"]' in found(command=COMMAND, **half)


@pytest.mark.parametrize(
    ("gpus", "in_images", "limits", "expected"),
    [
        pytest.param(2, False, {}, "trials share those that no trial has leased", id="processes"),
        pytest.param(2, True, {}, "trials see none", id="images"),
        pytest.param(2, False, {"nvidia.com/gpu": 1}, "", id="requested"),
        pytest.param(0, False, {}, "", id="no cards"),
    ],
)
def test_a_template_without_cards_is_told_how_to_lease_one(
    gpus: int, in_images: bool, limits: dict[str, int], expected: str
) -> None:
    host = replace(HostCapacity.detect(), gpus=gpus, runs_images=in_images)
    gate = Gate(CATALOG, LocalHome(host), StoredObjects(None))

    def notices(limits: dict[str, int]) -> list[str]:
        template = a_template()
        template["trialSpec"]["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": limits}
        text = yaml.safe_dump(an_experiment(trialTemplate=template))
        admitted = gate.check(text, source="file", namespace="default")
        assert admitted is not None
        return [notice for notice in admitted.notices if "GPU" in notice]

    told = notices(limits)

    assert [expected in notice for notice in told] == ([True] if expected else [])
    # what it says to write is what ends it
    assert not told or "resources.limits of a container with nvidia.com/gpu: 1" in told[0]
    assert notices({"nvidia.com/gpu": 1} if gpus else {}) == []
