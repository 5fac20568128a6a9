"""Architecture searches at submission, with the algorithms as this installation offers them."""

from __future__ import annotations

from typing import Any

import pytest

from katib.engine.algorithm_services.catalog import Catalog
from tests.support.experiments import a_template, an_experiment
from tests.support.gate import admitted, broken_rules, errors_of
from tests.support.golden import Golden

CATALOG = Catalog()
GRAPH, FIRST = "spec.nasConfig.graphConfig", "spec.nasConfig.operations[0]"
SPACE = f"{FIRST}.parameters[0].feasibleSpace"
FULL_GRAPH = {"numLayers": 1, "inputSizes": [32, 32, 3], "outputSizes": [10]}
CHOICE = {"name": "size", "parameterType": "categorical", "feasibleSpace": {"list": ["3"]}}

REFERENCES = {"enas": ("architecture", "nn_config"), "darts": ("algorithm-settings", "search-space", "num-layers")}


def a_template_of(*references: str) -> dict[str, Any]:
    names = {f"p{i}": reference for i, reference in enumerate(references)}
    return a_template("echo " + " ".join(f"${{trialParameters.{name}}}" for name in names), names)


def a_search(
    algorithm_name: str = "enas",
    *,
    graph: dict[str, Any] | None = None,
    parameter: dict[str, Any] | None = None,
    **fields: Any,
) -> dict[str, Any]:
    operation = {"operationType": "conv", "parameters": [parameter or CHOICE], **fields.pop("operation", {})}
    nas = {"graphConfig": FULL_GRAPH if graph is None else graph, "operations": [operation]}
    return an_experiment(
        **{
            "parameters": None,
            "nasConfig": nas,
            "algorithm": {"algorithmName": algorithm_name},
            "trialTemplate": a_template_of(*REFERENCES.get(algorithm_name, ("architecture",))),
            **fields,
        }
    )


def with_setting(algorithm: str, **setting: str) -> dict[str, Any]:
    pairs = [{"name": name, "value": value} for name, value in setting.items()]
    return {"algorithmName": algorithm, "algorithmSettings": pairs}


def without(field: str) -> dict[str, Any]:
    return {name: value for name, value in FULL_GRAPH.items() if name != field}


def a_parameter(kind: str, **space: Any) -> dict[str, Any]:
    return {"name": "size", "parameterType": kind, "feasibleSpace": space}


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(a_search(), id="enas"),
        pytest.param(a_search("darts"), id="darts"),
        pytest.param(a_search("darts", graph={"numLayers": 2}), id="darts-without-sizes"),
        pytest.param(a_search(parameter=a_parameter("int", min="1", max="3")), id="int"),
        pytest.param(a_search(parameter=a_parameter("double", min="0.1", max="0.3", step="0.1")), id="double"),
        pytest.param(a_search("darts", algorithm=with_setting("darts", my_own="7")), id="settings-of-the-training"),
        pytest.param(a_search(algorithm=with_setting("enas", controller_temperature="None")), id="none"),
    ],
)
def test_an_architecture_search_is_accepted(raw: dict[str, Any]) -> None:
    assert admitted(raw, catalog=CATALOG).spec.nas_config is not None


@pytest.mark.parametrize(
    ("raw", "path", "origin"),
    [
        pytest.param(a_search(graph=without("inputSizes")), f"{GRAPH}.inputSizes", "graph-incomplete", id="input"),
        pytest.param(a_search(graph=without("outputSizes")), f"{GRAPH}.outputSizes", "graph-incomplete", id="output"),
        pytest.param(a_search(graph=without("numLayers")), f"{GRAPH}.numLayers", "graph-incomplete", id="layers"),
        pytest.param(
            a_search("darts", graph=without("numLayers")), f"{GRAPH}.numLayers", "graph-incomplete", id="darts"
        ),
        pytest.param(
            a_search(nasConfig={"graphConfig": FULL_GRAPH, "operations": []}),
            "spec.nasConfig.operations",
            "operations-missing",
            id="no-operations",
        ),
        pytest.param(
            a_search(operation={"operationType": ""}), f"{FIRST}.operationType", "operation-type-missing", id="type"
        ),
        pytest.param(
            a_search(operation={"parameters": []}), f"{FIRST}.parameters", "operation-parameters-missing", id="empty"
        ),
        pytest.param(
            a_search(parameter=a_parameter("double", min="1", max="2")),
            f"{SPACE}.step",
            "operation-step-missing",
            id="no-step",
        ),
        pytest.param(
            a_search(parameter=a_parameter("double", min="1", max="2", step="0")),
            f"{SPACE}.step",
            "step-not-positive",
            id="step-zero",
        ),
        pytest.param(a_search(parameter=a_parameter("categorical")), SPACE, "feasible-space-empty", id="no-list"),
        pytest.param(
            a_search(parameter={**CHOICE, "name": ""}),
            f"{FIRST}.parameters[0].name",
            "parameter-name-missing",
            id="name",
        ),
        pytest.param(
            a_search(algorithm=with_setting("enas", controller_temperature="0")),
            "spec.algorithm.algorithmSettings[0].value",
            "setting-range",
            id="setting",
        ),
    ],
)
def test_what_a_search_lacks_is_said_once(raw: dict[str, Any], path: str, origin: str) -> None:
    assert broken_rules(raw, catalog=CATALOG) == [(path, origin)]


def test_the_template_takes_what_the_algorithm_assigns(golden: Golden) -> None:
    template = a_template_of("architecture", "nn_confg", "${trialSpec.Name}")

    golden(errors_of(a_search(trialTemplate=template), catalog=CATALOG))


@pytest.mark.parametrize("algorithm", ["enas", "darts"])
def test_an_architecture_search_does_not_take_parameters(algorithm: str, golden: Golden) -> None:
    (error,) = errors_of(an_experiment(algorithm={"algorithmName": algorithm}), catalog=CATALOG)

    golden(error)


@pytest.mark.parametrize("algorithm", ["random", "tpe", "auto"])
def test_other_algorithms_do_not_take_architectures(algorithm: str, golden: Golden) -> None:
    (error,) = errors_of(a_search(algorithm), catalog=CATALOG)

    golden(error)


def test_a_search_of_nothing_says_what_to_list(golden: Golden) -> None:
    (error,) = errors_of(a_search(nasConfig={"graphConfig": FULL_GRAPH}), catalog=CATALOG)

    golden(error)
