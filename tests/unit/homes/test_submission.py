from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from katib.controllers.kinds import EXPERIMENT
from katib.errors import FieldError, InvalidError
from katib.homes.submission import WORKSPACE_ANNOTATION, Admitted, ConfigMaps, Gate
from katib.stores.memory import MemoryStore
from tests.support.experiments import a_template, an_experiment
from tests.support.gate import CATALOG

TOO_LARGE = FieldError("spec.trialTemplate", "it is too large", "shrink it", "too-large")


class World:
    """A gate that notes what it is asked."""

    def __init__(self, **options: Any) -> None:
        self.store = MemoryStore({EXPERIMENT})
        self.seen: list[tuple[str, str, Path | None]] = []
        self.algorithms: list[str] = []
        self.found: list[FieldError] = []
        self.gate = Gate(
            CATALOG,
            ConfigMaps(self.store).find,
            check_object=self._check,
            on_algorithm=self.algorithms.append,
            **options,
        )

    def _check(
        self, source: Mapping[str, Any], path: str, workspace: Path | None
    ) -> tuple[list[FieldError], list[str]]:
        self.seen.append((source["kind"], path, workspace))
        return self.found, ["it will be slow"]

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
    return an_experiment(trialTemplate={**template, **conditions, "configMap": place})


def test_an_experiment_passes_with_defaults_and_with_what_the_home_has_to_say() -> None:
    world = World()

    admitted = world.admit(an_experiment())

    assert admitted.experiment.spec.resume_policy == "Never"
    assert admitted.notices == ("it will be slow",)
    assert world.seen == [("Job", "spec.trialTemplate.trialSpec", None)]
    assert world.algorithms == ["random"]


def test_errors_of_the_home_come_together_with_all_others() -> None:
    world = World(collectors=("File",))
    world.found = [TOO_LARGE]

    assert world.origins(an_experiment(maxTrialCount=0)) == [
        "max-trials-not-positive",
        "too-large",
        "collector-not-offered",
    ]


def test_a_job_has_to_have_the_structure_of_one() -> None:
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
    assert world.seen == [("Job", "spec.trialTemplate.configMap", None)]


def test_a_file_is_its_trials_workspace(tmp_path: Path) -> None:
    world = World()
    file = tmp_path / "experiment.yaml"
    file.touch()

    admitted = world.admit(an_experiment(), str(file))

    assert admitted.experiment.metadata.annotations[WORKSPACE_ANNOTATION] == str(tmp_path)
    assert world.seen[0][2] == tmp_path


def test_an_update_is_judged_by_what_it_changes() -> None:
    world = World()
    old = world.admit(an_experiment()).experiment
    submission = world.gate.load(yaml.safe_dump(an_experiment(maxTrialCount=9)), source="body", namespace="team")

    assert world.gate.admit_update(submission, old).spec.max_trial_count == 9
