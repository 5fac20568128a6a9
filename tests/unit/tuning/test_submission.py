from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from katib.engine.controllers.kinds import EXPERIMENT
from katib.errors import FieldError, InvalidError
from katib.model.names import WORKSPACE_ANNOTATION
from katib.model.types import CollectorKind, Experiment
from katib.service.tuning.submission import Admitted, FindObject, Gate, Home, StoredObjects, workspace_of
from tests.support.experiments import a_choice, a_double, a_template, an_experiment
from tests.support.gate import CATALOG
from tests.support.memory_store import MemoryStore

TOO_LARGE = FieldError("spec.trialTemplate", "it is too large", "shrink it", "too-large")


class NotingHome(Home):
    """Notes what it is asked."""

    def __init__(self, collectors: Sequence[str] = tuple(CollectorKind)) -> None:
        self.collectors = collectors
        self.seen: list[tuple[str, str, Path | None]] = []
        self.algorithms: list[str] = []
        self.found: list[FieldError] = []

    def prewarm(self, algorithm: str) -> None:
        self.algorithms.append(algorithm)

    def check(
        self, source: Mapping[str, Any], path: str, experiment: Experiment, _find: FindObject
    ) -> tuple[Sequence[FieldError], Sequence[str]]:
        self.seen.append((source["kind"], path, workspace_of(experiment)))
        return self.found, ["it will be slow"]


class World:
    """A gate whose home notes what it is asked."""

    def __init__(self, home: NotingHome | None = None) -> None:
        self.store = MemoryStore({EXPERIMENT})
        self.home = home or NotingHome()
        self.gate = Gate(CATALOG, self.home, StoredObjects(self.store, knows_experiments=False))

    def admit(self, raw: dict[str, Any], source: str = "body") -> Admitted:
        return self.gate.admit(self.gate.load(yaml.safe_dump(raw), source=source, namespace="team"))

    def origins(self, raw: dict[str, Any]) -> list[str]:
        with pytest.raises(InvalidError) as failure:
            self.admit(raw)
        return [error.origin for error in failure.value.errors]


def from_config_map() -> dict[str, Any]:
    template = a_template()
    template.pop("trialSpec")
    place = {"configMapName": "templates", "configMapNamespace": "team", "templatePath": "job.yaml"}
    conditions = {"successCondition": "status.succeeded", "failureCondition": "status.failed"}
    return an_experiment(namespace="team", trialTemplate={**template, **conditions, "configMap": place})


def test_an_experiment_passes_with_defaults_and_with_what_the_home_has_to_say() -> None:
    world = World()

    admitted = world.admit(an_experiment())

    assert admitted.experiment.spec.resume_policy == "Never"
    assert admitted.notices == ("it will be slow",)
    assert world.home.seen == [("Job", "spec.trialTemplate.trialSpec", None)]
    assert world.home.algorithms == ["random"]


def test_the_service_of_an_experiment_without_an_algorithm_is_that_of_the_default() -> None:
    world = World()

    admitted = world.admit(an_experiment(algorithm=None))

    assert world.home.algorithms == ["auto"]
    assert admitted.experiment.spec.algorithm is not None
    assert admitted.experiment.spec.algorithm.algorithm_name == "auto"


def test_errors_of_the_home_and_of_the_job_come_together() -> None:
    world = World(NotingHome(("File",)))
    world.home.found = [TOO_LARGE]

    assert world.origins(an_experiment(maxTrialCount=0)) == [
        "max-trials-not-positive",
        "too-large",
        "collector-not-offered",
    ]

    template = a_template()
    template["trialSpec"]["spec"]["templte"] = {}

    assert World().origins(an_experiment(trialTemplate=template)) == ["job-field-unknown"]


def test_a_template_in_a_stored_config_map_is_looked_at_as_one_inline() -> None:
    world = World()
    text = yaml.safe_dump(a_template()["trialSpec"])
    metadata = {"namespace": "team", "name": "templates"}
    assert world.origins(from_config_map()) == ["template-config-map-missing"]

    world.store.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"job.yaml": text}})

    world.admit(from_config_map())
    assert world.home.seen == [("Job", "spec.trialTemplate.configMap", None)]


@pytest.mark.parametrize("in_the_file", [False, True], ids=["stored", "in the same file"])
def test_a_refusal_tells_nothing_of_a_config_map_that_is_not_for_the_experiment(in_the_file: bool) -> None:
    """Who may create experiments could otherwise ask the controller what there is, and which keys it has."""
    raw = from_config_map()
    raw["spec"]["trialTemplate"]["configMap"] |= {"configMapNamespace": "kube-system", "templatePath": "guess"}
    secret = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": "kube-system", "name": "templates"},
        "data": {"ca.pem": "x"},
    }
    absent, present = World(), World()
    documents = [raw, secret] if in_the_file else [raw]
    if not in_the_file:
        present.store.create(secret)

    def refusal(world: World, *objects: dict[str, Any]) -> str:
        with pytest.raises(InvalidError) as failure:
            world.gate.admit(world.gate.load(yaml.safe_dump_all(objects), source="body", namespace="team"))
        return str(failure.value)

    assert refusal(present, *documents) == refusal(absent, raw)
    assert "ConfigMap kube-system/templates is not found" in refusal(absent, raw)


def test_a_template_that_another_namespace_offers_is_used() -> None:
    world = World()
    raw = from_config_map()
    raw["spec"]["trialTemplate"]["configMap"]["configMapNamespace"] = "kubeflow"
    labels = {"katib.kubeflow.org/component": "trial-templates"}
    metadata = {"namespace": "kubeflow", "name": "templates", "labels": labels}
    text = yaml.safe_dump(a_template()["trialSpec"])
    world.store.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"job.yaml": text}})

    world.admit(raw)

    assert world.home.seen == [("Job", "spec.trialTemplate.configMap", None)]


def test_a_file_is_its_trials_workspace(tmp_path: Path) -> None:
    world = World()
    file = tmp_path / "experiment.yaml"
    file.touch()

    admitted = world.admit(an_experiment(), str(file))

    assert admitted.experiment.metadata.annotations[WORKSPACE_ANNOTATION] == str(tmp_path)
    assert world.home.seen[0][2] == tmp_path


def test_an_update_is_judged_by_what_it_changes() -> None:
    world = World()
    old = world.admit(an_experiment()).experiment
    submission = world.gate.load(yaml.safe_dump(an_experiment(maxTrialCount=9)), source="body", namespace="team")

    assert world.gate.admit_update(submission, old).spec.max_trial_count == 9


def test_the_object_is_looked_at_with_and_without_the_elements_that_may_be_left_out() -> None:
    template = a_template("echo 1", {"momentum": "momentum"})
    container = template["trialSpec"]["spec"]["template"]["spec"]["containers"][0]
    container["args"] = ["--momentum=${trialParameters.momentum}"]
    momentum = {**a_double("momentum"), "when": {"parameter": "optimizer", "values": ["sgd"]}}
    template["trialParameters"].append({"name": "optimizer", "reference": "optimizer"})
    container["env"] = [{"name": "OPTIMIZER", "value": "${trialParameters.optimizer}"}]
    raw = an_experiment(parameters=[a_choice("optimizer", ["sgd", "adam"]), momentum], trialTemplate=template)
    seen: list[list[str]] = []

    class Strict(NotingHome):
        def check(
            self, source: Mapping[str, Any], path: str, experiment: Experiment, _find: FindObject
        ) -> tuple[Sequence[FieldError], Sequence[str]]:
            [one] = source["spec"]["template"]["spec"]["containers"]
            seen.append(one["args"])
            return ([] if one["args"] else [TOO_LARGE]), []

    assert World(Strict()).origins(raw) == ["too-large"]
    assert seen == [["--momentum=${trialParameters.momentum}"], []]
