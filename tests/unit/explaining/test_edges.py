"""Best trials at an end of a parameter's range."""

from __future__ import annotations

from typing import Any

import pytest

from katib.model.types import Experiment
from katib.service.explaining.edges import edge_sentences
from tests.support.tuning import make_experiment, patched

LOG = {"min": "0.0001", "max": "0.1", "distribution": "logUniform"}
STEPS = {"min": "16", "max": "256", "step": "16"}


def best(kind: str, space: dict[str, Any], value: str, *, measured: int = 12) -> Experiment:
    optimum = {"bestTrialName": "demo-1", "parameterAssignments": [{"name": "lr", "value": value}]}
    made = make_experiment(trialsSucceeded=measured, currentOptimalTrial=optimum)
    return patched(made, spec={"parameters": [{"name": "lr", "parameterType": kind, "feasibleSpace": space}]})


@pytest.mark.parametrize(
    ("experiment", "end"),
    [
        pytest.param(best("double", LOG, "0.099"), "upper end of its range, 0.1: larger", id="upper"),
        pytest.param(best("double", LOG, "0.000102"), "lower end of its range, 0.0001: smaller", id="lower"),
        pytest.param(best("double", LOG, "0.002"), "", id="on-a-logarithmic-scale-inside"),
        pytest.param(best("int", STEPS, "16"), "lower end of its range, 16: smaller", id="first-step"),
        pytest.param(best("int", STEPS, "32"), "", id="second-step"),
        pytest.param(best("int", {"min": "1", "max": "3"}, "3"), "", id="few-values"),
        pytest.param(best("categorical", {"list": ["0.1", "0.2"]}, "0.1"), "", id="a-choice"),
        pytest.param(best("double", LOG, "0.1", measured=9), "", id="few-trials"),
        pytest.param(best("double", LOG, "0.2"), "", id="outside"),
        pytest.param(best("int", STEPS, "many"), "", id="no-number"),
    ],
)
def test_a_best_value_at_an_end_of_its_range_is_said(experiment: Experiment, end: str) -> None:
    assert edge_sentences(experiment) == ([f"The best lr is at the {end} values may be better."] if end else [])


def test_without_a_best_trial_there_is_nothing_to_say() -> None:
    assert edge_sentences(make_experiment(trialsSucceeded=12)) == []
