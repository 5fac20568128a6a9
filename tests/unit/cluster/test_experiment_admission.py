from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from katib.engine.controllers.kinds import EXPERIMENT
from katib.engine.runtime.objects import Key, Kind
from katib.errors import InvalidError, UnavailableError
from katib.model.defaults import with_defaults
from katib.model.types import Experiment
from katib.places.cluster.admission.reviews import AdmissionResponse, AdmissionReview
from katib.places.cluster.webhooks.experiments import INJECTION_LABEL, ExperimentAdmission
from tests.support.experiments import a_choice, a_double, a_template, an_experiment
from tests.support.faulty_store import FaultyStore
from tests.support.gate import CATALOG, KATIB_CATALOG, Catalog
from tests.support.golden import Golden
from tests.support.memory_store import MemoryStore

EXAMPLES = Path(__file__).parents[2] / "support" / "katib_examples"
REJECTED = {"hp-tuning/simple-pbt": ["max-failed-above-max"], "tekton/pipeline-run": ["template-placeholder-missing"]}
ENDLESS = {
    f"kubeflow-training-operator/{name}"
    for name in ("mpijob-horovod", "pytorchjob-mnist", "tfjob-mnist-with-summaries", "xgboostjob-lightgbm")
}
"""Restarted forever when their program fails."""
TEMPLATES = Path(__file__).parents[3] / "manifests" / "components" / "config" / "trial-templates.yaml"
"""As an installation has it."""
ALL = sorted(str(path.relative_to(EXAMPLES).with_suffix("")) for path in EXAMPLES.rglob("*.yaml"))


class World:
    """A cluster with a namespace `team`, whose configuration the test may change."""

    def __init__(self) -> None:
        self.store = MemoryStore({EXPERIMENT})
        self.catalog: Catalog = CATALOG
        self.collectors: list[str] = ["StdOut", "File", "TensorFlowEvent"]
        self.volumes: set[str] = set()
        self.admission = ExperimentAdmission(
            self.store,
            catalog=lambda: self.catalog,
            collectors=lambda: self.collectors,
            has_volume=lambda algorithm: algorithm in self.volumes,
        )
        self.add_namespace("team")

    def add_namespace(self, name: str, **labels: str) -> None:
        labels = labels or {INJECTION_LABEL: "enabled"}
        self.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})

    def create(self, raw: dict[str, Any], namespace: str = "team") -> AdmissionResponse:
        """Go through both webhooks as an API server does."""
        review = AdmissionReview("u", "CREATE", namespace, raw["metadata"].get("name", ""), raw)
        return self.admission.validate(AdmissionReview("u", "CREATE", namespace, review.name, self.defaulted(review)))

    def update(self, old: dict[str, Any], new: dict[str, Any]) -> AdmissionResponse:
        review = AdmissionReview("u", "UPDATE", "team", "demo", new, old)
        return self.admission.validate(AdmissionReview("u", "UPDATE", "team", "demo", self.defaulted(review), old))

    def defaulted(self, review: AdmissionReview) -> dict[str, Any]:
        verdict = self.admission.default(review)
        assert verdict.allowed
        return dict(review.object if verdict.patched is None else verdict.patched)

    def defaults(self, raw: dict[str, Any]) -> dict[str, Any]:
        return self.defaulted(AdmissionReview("u", "CREATE", "team", "demo", raw))


@pytest.fixture
def world() -> World:
    return World()


def refusal(action: Callable[[], AdmissionResponse]) -> InvalidError:
    with pytest.raises(InvalidError) as failure:
        action()
    return failure.value


def origins(action: Callable[[], AdmissionResponse]) -> list[str]:
    return [error.origin for error in refusal(action).errors]


def stored(**spec: Any) -> dict[str, Any]:
    """Return an experiment as an API server holds it."""
    raw = World().defaults(an_experiment(namespace="team", **spec))
    return {**raw, "metadata": {**raw["metadata"], "uid": "x", "resourceVersion": "7"}, "status": {}}


# --- defaults ---------------------------------------------------------------------------------------------------------


def test_defaults_are_those_of_every_home(world: World) -> None:
    raw = an_experiment(namespace="team", parallelTrialCount=None)

    found = world.defaults(raw)

    assert Experiment.decode(found) == with_defaults(Experiment.decode(raw))
    assert world.defaults(found) == found


def test_a_new_one_for_auto_says_which_ended_experiments_it_learns_from(world: World) -> None:
    best = {"parameterAssignments": [{"name": "lr", "value": "0.02"}]}
    ended = {"conditions": [{"type": "Succeeded", "status": "True"}], "completionTime": "2026-01-01T00:00:00Z"}
    status = {**ended, "trialsSucceeded": 10, "currentOptimalTrial": best}
    before = world.store.create(an_experiment(name="before", namespace="team"))
    world.store.update_status({**before, "status": status})
    raw = an_experiment(namespace="team", algorithm={"algorithmName": "auto"})

    assert world.defaults(raw)["metadata"]["annotations"] == {"katib.kubeflow.org/learns-from": "before"}
    assert world.create(raw).allowed


@pytest.mark.parametrize("name", ALL)
def test_an_example_gets_every_default_and_keeps_what_it_says(world: World, name: str) -> None:
    raw, *_ = yaml.safe_load_all((EXAMPLES / f"{name}.yaml").read_text())

    found = world.defaults(raw)

    assert Experiment.decode(found) == with_defaults(Experiment.decode(raw))
    assert_holds(found, raw)


def test_what_was_written_stays_as_it_was_written(world: World) -> None:
    trial_spec = {**a_template()["trialSpec"], "x": [None, {"empty": {}}, 1.0, "", []]}
    raw = an_experiment(
        parameters=[{**a_double("lr"), "note": "mine"}, {**a_double("wd"), "feasibleSpace": {"min": 1, "max": 2.5}}],
        trialTemplate={**a_template(), "trialSpec": trial_spec, "retain": False, "unknown": {"a": 1}},
        extra="kept",
    )
    raw["metadata"]["managedFields"] = [{"manager": "kubectl"}]
    before = copy.deepcopy(raw)

    found = world.defaults(raw)

    assert raw == before
    assert_holds(found, raw)
    assert found["spec"]["trialTemplate"]["trialSpec"] == trial_spec
    assert found["spec"]["parameters"][1]["feasibleSpace"] == {"min": 1, "max": 2.5, "distribution": "uniform"}


def test_nulls_count_as_not_given(world: World) -> None:
    raw = an_experiment(objective={"type": "minimize", "objectiveMetricName": "loss", "metricStrategies": None})
    raw["spec"] |= {"parallelTrialCount": None, "metricsCollectorSpec": None}

    spec = world.defaults(raw)["spec"]

    assert spec["parallelTrialCount"] == 3
    assert spec["metricsCollectorSpec"] == {"collector": {"kind": "StdOut"}}
    assert spec["objective"]["metricStrategies"] == [{"name": "loss", "value": "min"}]


def test_a_value_that_cannot_be_read_is_not_replaced_by_a_default_but_reported(world: World) -> None:
    raw = an_experiment(parallelTrialCount="many")

    assert world.defaults(raw) == raw
    assert origins(lambda: world.create(raw)) == ["value-type"]


@pytest.mark.parametrize("spec", [None, [], "text", 3])
def test_a_spec_that_is_none_is_left_to_the_validator(world: World, spec: object) -> None:
    raw = {**an_experiment(), "spec": spec}

    assert refusal(lambda: world.create(raw)).errors


# --- creating ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_examples_are_accepted_but_for_those_that_katib_refuses(world: World, name: str) -> None:
    world.catalog = KATIB_CATALOG
    raw = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
    namespace = raw["metadata"]["namespace"]
    world.add_namespace(namespace)
    world.store.create(yaml.safe_load(TEMPLATES.read_text()))

    if name in REJECTED:
        assert origins(lambda: world.create(raw, namespace)) == REJECTED[name]
    else:
        lines = world.create(raw, namespace).warnings
        assert [line.partition(": ")[0].rpartition(".")[2] for line in lines] == ["restartPolicy"] * (name in ENDLESS)


def test_all_errors_come_at_once_one_in_a_line(world: World) -> None:
    world.add_namespace("bare", other="label")
    raw = an_experiment(name="Demo", maxTrialCount=0, algorithm={"algorithmName": "randm"})

    error = refusal(lambda: world.create(raw, "bare"))

    assert [line.partition(": ")[0] for line in str(error).splitlines()] == [
        "metadata.namespace",
        "metadata.name",
        "spec.maxTrialCount",
        "spec.algorithm.algorithmName",
    ]


@pytest.mark.parametrize("labels", [{"other": "x"}, {INJECTION_LABEL: "disabled"}])
def test_a_namespace_without_the_label_is_refused_with_the_command_that_gives_it(
    world: World, labels: dict[str, str], golden: Golden
) -> None:
    world.add_namespace("bare", **labels)

    golden(refusal(lambda: world.create(an_experiment(namespace="bare"), "bare")))


def test_a_namespace_that_cannot_be_read_now_is_no_fault_of_the_experiment(world: World) -> None:
    away = FaultyStore(world.store, lambda _call: UnavailableError("the API server does not answer"))
    world.admission = replace(world.admission, store=away)

    with pytest.raises(UnavailableError):
        world.create(an_experiment())


def test_algorithms_and_collectors_are_those_configured_now(world: World) -> None:
    raw = an_experiment(
        algorithm={"algorithmName": "mine"}, metricsCollectorSpec={"collector": {"kind": "PrometheusMetric"}}
    )
    assert origins(lambda: world.create(raw)) == ["algorithm-unknown", "collector-not-offered"]

    world.catalog, world.collectors = Catalog("mine"), ["PrometheusMetric"]

    assert world.create(raw).allowed
    assert origins(lambda: world.create(an_experiment())) == ["algorithm-unknown", "collector-not-offered"]


@pytest.mark.parametrize("collector", [{"kind": "Push"}, {"kind": "Custom", "customCollector": {"name": "c"}}])
def test_collectors_without_an_image_of_ours_are_always_offered(world: World, collector: dict[str, Any]) -> None:
    world.collectors = []

    assert world.create(an_experiment(metricsCollectorSpec={"collector": collector})).allowed


def with_config_map(namespace: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return an experiment whose template is in a ConfigMap, and the ConfigMap."""
    template = a_template()
    text = yaml.safe_dump(template.pop("trialSpec"))
    place = {"configMapName": "templates", "configMapNamespace": namespace, "templatePath": "job.yaml"}
    conditions = {"successCondition": "status.succeeded", "failureCondition": "status.failed"}
    raw = an_experiment(namespace="team", trialTemplate={**template, **conditions, "configMap": place})
    metadata = {"namespace": namespace, "name": "templates"}
    return raw, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"job.yaml": text}}


def test_a_template_in_a_config_map_has_to_be_there_and_of_the_namespace_or_offered(world: World) -> None:
    """The controller may read every ConfigMap; who creates an experiment may not."""
    raw, config_map = with_config_map("team")
    foreign, foreign_map = with_config_map("kube-system")
    assert origins(lambda: world.create(raw)) == ["template-config-map-missing"]
    world.store.create(config_map)
    stored = world.store.create(foreign_map)

    assert world.create(raw).allowed
    assert origins(lambda: world.create(foreign)) == ["template-config-map-missing"]
    labels = {"katib.kubeflow.org/component": "trial-templates"}
    world.store.update({**stored, "metadata": {**stored["metadata"], "labels": labels}})
    assert world.create(foreign).allowed


def test_a_field_that_no_type_knows_is_worth_a_warning(world: World, golden: Golden) -> None:
    golden(world.create(an_experiment(maxTrialCont=5)).warnings)


def test_a_volume_of_an_earlier_experiment_blocks_its_name(world: World) -> None:
    raw = an_experiment(namespace="team", resumePolicy="FromVolume")
    metadata = {"name": "demo-random-team"}
    world.store.create({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata})
    assert world.create(raw).allowed

    world.volumes = {"random"}

    assert origins(lambda: world.create(raw)) == ["volume-exists"]
    assert world.create(an_experiment(name="other", resumePolicy="FromVolume")).allowed
    assert world.create({**raw, "metadata": {"generateName": "demo-"}}).allowed
    assert world.create(an_experiment()).allowed


# --- updating ---------------------------------------------------------------------------------------------------------


def test_what_is_fixed_is_named_with_both_values(world: World, golden: Golden) -> None:
    golden(refusal(lambda: world.update(stored(), stored(algorithm={"algorithmName": "grid"}))))


def test_an_experiment_that_ended_goes_on_only_if_its_policy_lets_it(world: World) -> None:
    ended = {"type": "Succeeded", "status": "True", "reason": "ExperimentMaxTrialsReached"}
    status = {"trials": 3, "conditions": [ended]}

    assert origins(lambda: world.update({**stored(), "status": status}, stored(maxTrialCount=9))) == [
        "update-not-restartable"
    ]
    old = {**stored(resumePolicy="LongRunning"), "status": status}
    assert world.update(old, stored(resumePolicy="LongRunning", maxTrialCount=9)).allowed


@pytest.mark.parametrize("deleted", [False, True])
def test_a_finalizer_can_be_removed_whatever_has_changed_around_the_experiment(world: World, deleted: bool) -> None:
    world.catalog, world.collectors = Catalog(), []
    world.store.delete(Kind("v1", "Namespace"), Key("", "team"))
    old = stored(maxTrialCount=0, algorithm={"algorithmName": "gone"}, unknown=[1])
    old["metadata"]["finalizers"] = ["update-prometheus-metrics"]
    if deleted:
        old["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    new = copy.deepcopy(old)
    new["metadata"]["finalizers"] = []

    assert world.update(old, new) == AdmissionResponse(allowed=True)
    assert world.admission.default(AdmissionReview("u", "UPDATE", "team", "demo", new, old)).patched is None


@pytest.mark.parametrize(
    "old",
    [stored(), an_experiment(namespace="team", parallelTrialCount=None), {**stored(), "status": {"trials": "many"}}],
    ids=["as it should be", "stored without defaults", "a status that cannot be read"],
)
def test_the_budget_may_be_raised(world: World, old: dict[str, Any]) -> None:
    assert world.update(old, stored(parallelTrialCount=old["spec"].get("parallelTrialCount"), maxTrialCount=9)).allowed


@pytest.mark.parametrize(("operation", "subresource"), [("UPDATE", "status"), ("DELETE", ""), ("CONNECT", "")])
def test_other_requests_are_none_of_our_business(world: World, operation: str, subresource: str) -> None:
    review = AdmissionReview("u", operation, "team", "demo", {"spec": 1}, {"spec": 2}, subresource=subresource)

    assert world.admission.default(review) == world.admission.validate(review) == AdmissionResponse(allowed=True)


def assert_holds(found: Any, given: Any) -> None:
    """Check that a value is there, with everything in it, in the type it was given."""
    if isinstance(given, dict):
        for key, value in given.items():
            assert_holds(found[key], value)
    elif isinstance(given, list):
        assert len(found) >= len(given)
        for left, right in zip(found, given, strict=False):
            assert_holds(left, right)
    else:
        assert type(found) is type(given)
        assert found == given


def test_an_experiment_whose_trials_would_be_no_jobs_is_refused(world: World, golden: Golden) -> None:
    raw = an_experiment(namespace="team")
    template = raw["spec"]["trialTemplate"]
    template["trialSpec"]["spec"]["template"]["spec"]["volumes"] = {"name": "data"}
    assert origins(lambda: world.create(raw)) == ["job-field-type"]
    template["trialSpec"] = {**template["trialSpec"], "apiVersion": "v1", "kind": "PersistentVolume"}
    template["successCondition"] = template["failureCondition"] = "status.phase"

    error = refusal(lambda: world.create(raw))

    assert "job-kind" in [found.origin for found in error.errors]
    golden(error)


# --- conditional parameters -------------------------------------------------------------------------------------------


def with_momentum(parent: str, **entry: str) -> dict[str, Any]:
    """Return an experiment whose label holds a parameter that is absent from some trials."""
    template = a_template("echo ${trialParameters.optimizer}", {"optimizer": "optimizer"})
    template["trialParameters"].append({"name": "momentum", "reference": "momentum", **entry})
    template["trialSpec"]["metadata"] = {"labels": {"momentum": "${trialParameters.momentum}"}}
    momentum = {**a_double("momentum"), "when": {"parameter": parent, "values": ["sgd"]}}
    parameters = [a_choice("optimizer", ["adam", "sgd"]), momentum]
    return an_experiment(namespace="team", parameters=parameters, trialTemplate=template)


def test_conditional_parameters_are_judged_before_anything_is_stored(world: World) -> None:
    assert world.create(with_momentum("optimizer", otherwise="")).allowed
    assert origins(lambda: world.create(with_momentum("optimiser", otherwise=""))) == ["condition-parameter-unknown"]
    assert origins(lambda: world.create(with_momentum("optimizer"))) == ["template-otherwise-missing"]
