"""The ConfigMap of the manifests on one machine: there to read, behind a user's own of its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from katib.errors import InvalidError
from katib.model.types import Experiment
from katib.places.machine import open_engine, validate_document
from katib.places.machine.engine import Engine
from katib.service.tuning.states import is_completed
from tests.support.experiments import a_job, an_experiment

EXAMPLE = Path(__file__).parents[1] / "support" / "katib_examples" / "trial-template" / "trial-configmap-source.yaml"
MANIFEST = Path(__file__).parents[2] / "manifests" / "components" / "config" / "trial-templates.yaml"
PLACE = ("kubeflow", "trial-templates")
KEY = "defaultTrialTemplate.yaml"
OWN = "echo Validation-accuracy=${trialParameters.learningRate} # ${trialParameters.numberLayers} "
OWN += "${trialParameters.optimizer}"


@pytest.fixture
def engine(tmp_path: Path) -> Any:
    with open_engine(tmp_path) as engine:
        engine.start()
        yield engine


def an_own_one() -> dict[str, Any]:
    config_map: dict[str, Any] = yaml.safe_load(MANIFEST.read_text())
    text = yaml.safe_dump(a_job(OWN)).replace("name: training", "name: training-container")
    return {**config_map, "data": {KEY: text}}


def output_of(engine: Engine, *documents: str) -> set[str]:
    """Return what the trials of an experiment printed, without the numbers."""
    submission = engine.service.submit("---\n".join(documents), source="file")
    namespace, name = submission.experiment.namespace, submission.experiment.name
    for change in engine.service.changes(namespace, name, timeout_seconds=60):
        if isinstance(change.object, Experiment) and is_completed(change.object):
            break
    trials = engine.service.trials(namespace, name).items
    texts = [b"".join(engine.service.logs(namespace, trial.name)).decode() for trial in trials]
    return {text.partition("=")[0].split()[0] for text in texts}


def a_third_of(example: str, name: str) -> str:
    return example.replace("maxTrialCount: 10", "maxTrialCount: 3").replace(
        "name: trial-configmap-source", f"name: {name}"
    )


def test_an_experiment_of_katib_that_refers_to_it_is_valid_and_runs(engine: Engine) -> None:
    example = EXAMPLE.read_text()

    assert validate_document(example, source="file") == ()
    assert output_of(engine, a_third_of(example, "first")) == {"epoch"}


def test_one_of_the_same_name_comes_before_it_in_the_file_and_afterwards(engine: Engine) -> None:
    example, own = EXAMPLE.read_text(), yaml.safe_dump(an_own_one())

    assert output_of(engine, a_third_of(example, "shipped")) == {"epoch"}
    assert output_of(engine, a_third_of(example, "beside"), own) == {"Validation-accuracy"}
    assert output_of(engine, a_third_of(example, "stored")) == {"Validation-accuracy"}


def test_it_is_listed_and_read_only_until_there_is_an_own_one(engine: Engine) -> None:
    templates = engine.service.templates  # type: ignore[attr-defined]
    expected = (
        "updatedConfigMapName: ConfigMap kubeflow/trial-templates came with Katib and is read only here; "
        "put one of your own of this name into the file of an experiment and apply that"
    )

    assert templates.all() == [yaml.safe_load(MANIFEST.read_text())]
    with pytest.raises(InvalidError) as of_put:
        templates.put(*PLACE, "mine", "kind: Job")
    with pytest.raises(InvalidError) as of_removal:
        templates.remove(*PLACE, KEY)
    assert {str(of_put.value), str(of_removal.value)} == {expected}

    engine.service.submit("---\n".join([yaml.safe_dump(an_experiment()), yaml.safe_dump(an_own_one())]), source="file")
    templates.put(*PLACE, "mine", "kind: Job")

    [found] = templates.all()
    assert found["data"].keys() == {KEY, "mine"}
