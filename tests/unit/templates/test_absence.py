"""What stands in a trial's object where a parameter has no value."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import structs

from katib.errors import FieldError
from katib.model.templates import check_template, compile_template
from katib.model.templates.absence import variants
from katib.model.types import ParameterCondition, ParameterSpec, TrialParameterSpec, TrialTemplate
from tests.support.golden import Golden
from tests.support.refusals import refused
from tests.support.templates import assign, in_config_map, inline, job, space


def conditional(**conditions: tuple[str, ...]) -> list[ParameterSpec]:
    """Return the parameters optimizer, lr and those that are given with their parent and its values."""
    children = [
        structs.replace(spec, when=ParameterCondition(parameter=parent, values=values))
        for spec, (parent, *values) in zip(space(*conditions), conditions.values(), strict=True)
    ]
    return [*space("optimizer", "lr"), *children]


MOMENTUM = conditional(momentum=("optimizer", "sgd"))
NESTED = conditional(momentum=("optimizer", "sgd"), nesterov=("momentum", "0.9"))


def template(body: dict[str, Any], names: str, **otherwise: str) -> TrialTemplate:
    """Return a template whose trial parameters have the names of the parameters."""
    whole = inline(body, {name: name for name in names.split()})
    return with_otherwise(whole, **otherwise)


def with_otherwise(whole: TrialTemplate, **otherwise: str) -> TrialTemplate:
    entries = tuple(
        TrialParameterSpec(name=e.name, reference=e.reference, otherwise=otherwise.get(e.name))
        for e in whole.trial_parameters or ()
    )
    return structs.replace(whole, trial_parameters=entries)


def container(obj: dict[str, Any]) -> dict[str, Any]:
    [one] = obj["spec"]["template"]["spec"]["containers"]
    return dict(one)


def errors_of(given: TrialTemplate, parameters: list[ParameterSpec], text: str | None = None) -> list[FieldError]:
    return list(check_template(given, parameters, text))


FULL = job(
    "--optimizer=${trialParameters.optimizer}",
    "--lr=${trialParameters.lr}",
    "--momentum=${trialParameters.momentum}",
    "--verbose",
    env={"MOMENTUM": "${trialParameters.momentum}", "HOME": "/"},
)


@pytest.mark.parametrize("in_text", [False, True], ids=["inline", "config-map"])
def test_the_list_element_around_an_absent_parameter_is_left_out(*, in_text: bool) -> None:
    names = "optimizer lr momentum"
    given, text = template(FULL, names), None
    if in_text:
        given, text = in_config_map({name: name for name in names.split()}), json.dumps(FULL)

    assert errors_of(given, MOMENTUM, text) == []

    compiled = compile_template(given, text, MOMENTUM)
    without = container(compiled.render(assign(optimizer="adam", lr="0.1"), "a", "default"))
    assert without["args"] == ["--optimizer=adam", "--lr=0.1", "--verbose"]
    assert without["env"] == [{"name": "HOME", "value": "/"}]

    whole = container(compiled.render(assign(optimizer="sgd", lr="0.1", momentum="0.9"), "b", "default"))
    assert whole["args"] == ["--optimizer=sgd", "--lr=0.1", "--momentum=0.9", "--verbose"]
    assert whole["env"] == [{"name": "MOMENTUM", "value": "0.9"}, {"name": "HOME", "value": "/"}]


def test_otherwise_stands_wherever_the_parameter_would() -> None:
    body = job("--momentum", "${trialParameters.momentum}", "${trialParameters.optimizer} ${trialParameters.lr}")
    body["metadata"] = {"labels": {"momentum": "${trialParameters.momentum}"}}
    given = template(body, "optimizer lr momentum", momentum="none")

    assert errors_of(given, MOMENTUM) == []

    obj = compile_template(given, None, MOMENTUM).render(assign(optimizer="adam", lr="1"), "a", "default")
    assert container(obj)["args"] == ["--momentum", "none", "adam 1"]
    assert obj["metadata"]["labels"] == {"momentum": "none"}


def test_otherwise_may_be_empty_and_gets_the_type_of_its_field() -> None:
    given = template(job("a${trialParameters.momentum}b"), "momentum", momentum="")

    assert container(compile_template(given, None, MOMENTUM).render([], "a", "n"))["args"] == ["ab"]

    given = template(job("a", parallelism="${trialParameters.momentum}"), "momentum", momentum="2")

    assert compile_template(given, None, MOMENTUM).render([], "a", "n")["spec"]["parallelism"] == 2


def test_otherwise_in_text_that_is_only_yaml_when_filled_is_part_of_the_syntax(golden: Golden) -> None:
    text = "{apiVersion: batch/v1, kind: Job, spec: {parallelism: ${trialParameters.momentum}}}"
    references = {"momentum": "momentum"}

    golden(errors_of(in_config_map(references), MOMENTUM[2:], text))

    given = with_otherwise(in_config_map(references), momentum="3")
    assert compile_template(given, text, MOMENTUM).render([], "a", "n")["spec"]["parallelism"] == 3


def test_only_the_innermost_element_is_left_out_and_nothing_that_is_always_there() -> None:
    body = job("a")
    body["spec"]["steps"] = [{"name": "one", "run": ["x", "${trialParameters.momentum}"]}, [["${trialParameters.lr}"]]]
    given = template(body, "lr momentum")
    obj = compile_template(given, None, MOMENTUM).render(assign(lr="1"), "a", "default")

    assert obj["spec"]["steps"] == [{"name": "one", "run": ["x"]}, [["1"]]]

    with refused("template-reference-unassigned"):
        compile_template(template(FULL, "optimizer lr momentum"), None, MOMENTUM).render(
            assign(optimizer="adam"), "a", "default"
        )


@pytest.mark.parametrize(
    ("body", "place", "why"),
    [
        pytest.param(
            {**job("a"), "metadata": {"labels": {"m": "${trialParameters.momentum}"}}},
            "metadata.labels.m",
            "not in a list, from which it could be left out",
            id="outside-of-lists",
        ),
        pytest.param(
            {**job("a"), "spec": {"containers": [{"name": "training", "image": "i:${trialParameters.momentum}"}]}},
            "spec.containers[0].image",
            "part of a container",
            id="container",
        ),
        pytest.param(
            {**job("a"), "${trialParameters.momentum}": 1},
            '["${trialParameters.momentum}"]',
            "not in a list, from which it could be left out",
            id="key",
        ),
    ],
)
def test_where_nothing_can_be_left_out_otherwise_is_needed(body: dict[str, Any], place: str, why: str) -> None:
    given = template(body, "momentum")
    dot = "" if place.startswith("[") else "."
    expected = (
        "spec.trialTemplate.trialParameters[0].otherwise: momentum has no value in some trials, and at "
        f"spec.trialTemplate.trialSpec{dot}{place} it is {why}; say what stands there in these trials"
    )

    assert [str(error) for error in errors_of(given, MOMENTUM[2:])] == [expected]
    with refused("template-otherwise-missing"):
        compile_template(given, None, MOMENTUM)
    assert errors_of(with_otherwise(given, momentum="none"), MOMENTUM[2:]) == []


@pytest.mark.parametrize(
    ("args", "before", "also"),
    [
        pytest.param(
            ("--momentum", "${trialParameters.momentum}"), "--momentum", "write both as one element, or ", id="flag"
        ),
        pytest.param(("-c", "train --momentum=${trialParameters.momentum}"), "-c", "", id="script"),
    ],
)
def test_the_value_of_a_flag_is_not_left_out_without_its_flag(
    args: tuple[str, str], before: str, also: str, golden: Golden
) -> None:
    golden(errors_of(template(job("x", *args), "momentum"), MOMENTUM[2:]))


@pytest.mark.parametrize("before", ["--lr=1", "train.py"])
def test_what_follows_another_argument_may_be_left_out(before: str) -> None:
    assert errors_of(template(job(before, "--momentum=${trialParameters.momentum}"), "momentum"), MOMENTUM[2:]) == []


def test_an_element_does_not_take_the_value_of_another_parameter_with_it(golden: Golden) -> None:
    given = template(job("lr=${trialParameters.lr} momentum=${trialParameters.momentum}"), "lr momentum")

    golden(errors_of(given, MOMENTUM[1:]))


@pytest.mark.parametrize(
    ("parameters", "names"),
    [
        pytest.param(NESTED[2:], "momentum nesterov", id="parent-and-child"),
        pytest.param(
            conditional(a=("optimizer", "sgd"), b=("optimizer", "sgd"))[2:], "a b", id="of-the-same-condition"
        ),
    ],
)
def test_parameters_that_come_together(parameters: list[ParameterSpec], names: str) -> None:
    """A child may share the element of its parent only where the parent has another place: it outlives the child."""
    first, second = names.split()
    shared = job(
        f"${{trialParameters.{first}}},${{trialParameters.{second}}}", f"--{first}=${{trialParameters.{first}}}"
    )

    assert errors_of(template(shared, names), parameters) == []


def test_a_parent_alone_with_its_child_would_be_lost(golden: Golden) -> None:
    given = template(job("${trialParameters.momentum},${trialParameters.nesterov}"), "momentum nesterov")

    golden(errors_of(given, NESTED[2:]))


def test_otherwise_that_does_not_fit_is_refused(golden: Golden) -> None:
    given = template(job("${trialParameters.lr}"), "lr", lr="0")

    golden(errors_of(given, space("lr")))

    given = template(job("a", parallelism="${trialParameters.momentum}"), "momentum", momentum="none")

    golden(errors_of(given, MOMENTUM[2:]))


def test_variants_are_the_objects_that_lack_elements_with_what_depends_on_them() -> None:
    body = job("--momentum=${trialParameters.momentum}", "--nesterov=${trialParameters.nesterov}", "--lr=1")
    seen = [container(dict(one))["args"] for one in variants(template(body, "momentum nesterov"), NESTED, body)]

    assert seen == [["--lr=1"], ["--momentum=${trialParameters.momentum}", "--lr=1"]]
