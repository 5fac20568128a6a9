"""What a newer version stored survives an older one; Katib's own examples and templates of their files are accepted."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import structs

from katib.engine.controllers.kinds import with_status
from katib.errors import InvalidError
from katib.model.algorithms import AlgorithmCatalog
from katib.model.conditions import set_condition
from katib.model.types import Experiment, Resource, Suggestion, Trial
from katib.model.validation import find_warnings
from katib.places.machine import open_catalog
from tests.support.experiments import a_job, a_template, an_experiment, load_experiment
from tests.support.gate import KATIB_CATALOG, admit_submission

NEWS = {"fromTheFuture": {"a": [1, None]}}
CONDITIONS = [
    {"type": "Created", "status": "True", "reason": "r", "message": "m", **NEWS},
    {"type": "Running", "status": "True", "reason": "r", "message": "m", **NEWS},
]
METRICS = {"metrics": [{"name": "loss", "latest": "1", **NEWS}], **NEWS}


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (Trial, {"conditions": CONDITIONS, "observation": METRICS, **NEWS}),
        (Experiment, {"conditions": CONDITIONS, "currentOptimalTrial": {"observation": METRICS, **NEWS}, **NEWS}),
        (Suggestion, {"conditions": CONDITIONS, "suggestions": [{"name": "t", **NEWS}], **NEWS}),
    ],
)
def test_unknown_fields_of_a_status_and_of_its_entries_are_kept_by_a_write(
    kind: type[Resource], status: dict[str, Any]
) -> None:
    read: Any = kind.decode({"metadata": {"name": "a"}, "status": status})
    now = datetime(2030, 1, 1, tzinfo=UTC)
    ended = set_condition(read.status.conditions, "Running", "Ended", "over", now, holds=False)
    written = with_status(read, structs.replace(read.status, conditions=ended))["status"]

    assert {**written, "conditions": []} == {**status, "conditions": []}
    assert [condition["fromTheFuture"] for condition in written["conditions"]] == [NEWS["fromTheFuture"]] * 2
    assert written["conditions"][1]["status"] == "False"


def test_what_others_stored_is_read_as_far_as_it_fits_and_encoded_as_it_was() -> None:
    stored = {
        "apiVersion": "kubeflow.org/v1beta1",
        "kind": "Trial",
        "metadata": {"name": "t", "creationTimestamp": "yesterday", "labels": {"a": 1, "b": "2"}, "managedFields": []},
        "spec": {"objective": None, "parameterAssignments": [3, {"name": "x", "value": 1}], **NEWS},
        "status": {"startTime": "2030-01-01T00:00:00Z", "conditions": None, **NEWS},
    }

    read = Trial.read(stored)

    assert (read.name, read.metadata.creation_timestamp, read.metadata.labels) == ("t", None, {"b": "2"})
    assert [(pair.name, pair.value) for pair in read.spec.parameter_assignments] == [("", ""), ("x", "1")]
    assert read.status.start_time == datetime(2030, 1, 1, tzinfo=UTC)
    assert read.encode() == stored
    assert structs.replace(read, kind="Trial").encode() != stored


READ_AT_ONCE = """
import sys, threading
from katib.model.types import Experiment, Suggestion, Trial

def read(kind):
    start.wait()
    kind.decode({"metadata": {"name": "a"}})

sys.setswitchinterval(1e-6)
start = threading.Barrier(8)
threads = [threading.Thread(target=read, args=(kind,)) for kind in (Trial, Experiment, Suggestion, Trial) * 2]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_threads_that_read_the_first_object_at_once_do_not_crash_the_interpreter() -> None:
    """Without the lock of `prepare` half of these processes are ended by a segmentation fault."""
    for _ in range(6):
        assert subprocess.run([sys.executable, "-c", READ_AT_ONCE], check=False).returncode == 0


EXAMPLES = Path(__file__).parents[2] / "support" / "katib_examples"
REJECTED = {
    "hp-tuning/simple-pbt": [("spec.maxFailedTrialCount", "max-failed-above-max")],
    "tekton/pipeline-run": [("spec.trialTemplate.trialParameters[0].name", "template-placeholder-missing")],
}
ALL = sorted(str(path.relative_to(EXAMPLES).with_suffix("")) for path in EXAMPLES.rglob("*.yaml"))


def admitted(name: str, catalog: AlgorithmCatalog = KATIB_CATALOG) -> Experiment:
    text = (EXAMPLES / f"{name}.yaml").read_text()
    return admit_submission(load_experiment(text, name, "default"), catalog=catalog)


def test_all_examples_are_here() -> None:
    assert len(ALL) == 33
    assert set(REJECTED) < set(ALL)


@pytest.mark.parametrize("name", [name for name in ALL if name not in REJECTED])
def test_an_example_is_accepted_and_survives_a_round_trip(name: str) -> None:
    experiment = admitted(name)

    assert list(find_warnings(experiment.spec, open_catalog())) == []
    assert Experiment.decode(experiment.encode()) == experiment


@pytest.mark.parametrize("name", [name for name in ALL if name not in REJECTED])
def test_our_own_algorithms_take_the_settings_of_an_example(name: str) -> None:
    assert admitted(name, open_catalog()) is not None


@pytest.mark.parametrize("name", REJECTED)
def test_an_example_that_katib_refuses_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(InvalidError) as failure:
        admitted(name)

    assert [(error.path, error.origin) for error in failure.value.errors] == REJECTED[name]


SOURCE = {"configMapName": "templates", "configMapNamespace": "default", "templatePath": "job.yaml"}


def lines_of(template: str | None, *, key: str = "job.yaml", name: str = "templates") -> list[str]:
    raw = an_experiment(
        trialTemplate=a_template(trialSpec=None, configMap=SOURCE, successCondition="ok", failureCondition="bad")
    )
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {key: template}}
    text = yaml.safe_dump_all([config_map, raw])
    try:
        admit_submission(load_experiment(text, "exp.yaml", "default"))
    except InvalidError as error:
        return str(error).split("\n")
    return []


def test_a_template_of_the_same_file_is_found_or_what_is_missing_is_named() -> None:
    assert lines_of(yaml.safe_dump(a_job())) == []

    [line] = lines_of(yaml.safe_dump(a_job()), name="others")

    assert line.startswith("spec.trialTemplate.configMap.configMapName: ConfigMap default/templates is not found; ")

    [line] = lines_of(yaml.safe_dump(a_job()), key="pod.yaml")

    assert line.startswith("spec.trialTemplate.configMap.templatePath: ")
    assert line.endswith("pod.yaml")


@pytest.mark.parametrize("template", ["", "- ${trialParameters.learningRate}", "a: b: ${trialParameters.learningRate}"])
def test_a_template_that_is_no_object_is_refused(template: str) -> None:
    assert any(line.startswith("spec.trialTemplate.configMap") for line in lines_of(template))
