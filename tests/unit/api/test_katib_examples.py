"""The experiments that Katib's users know: each is accepted as it stands, except those that Katib itself refuses.

`simple-pbt` allows three failed trials of two in all, which breaks Katib's own rule V5.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from katib.api.algorithms import AlgorithmCatalog
from katib.api.types import Experiment
from katib.api.validation import find_warnings
from katib.errors import InvalidError
from katib.local import open_catalog
from tests.support.experiments import load_experiment
from tests.support.gate import KATIB_CATALOG, admit_submission

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

    warnings = [warning.path for warning in find_warnings(experiment.spec, open_catalog())]
    assert warnings == (["spec.algorithm.algorithmSettings[2].value"] if name == "hp-tuning/hyperband" else [])
    assert Experiment.decode(experiment.encode()) == experiment


@pytest.mark.parametrize("name", [name for name in ALL if name not in REJECTED])
def test_our_own_algorithms_take_the_settings_of_an_example(name: str) -> None:
    assert admitted(name, open_catalog()) is not None


@pytest.mark.parametrize("name", REJECTED)
def test_an_example_that_katib_refuses_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(InvalidError) as failure:
        admitted(name)

    assert [(error.path, error.origin) for error in failure.value.errors] == REJECTED[name]
