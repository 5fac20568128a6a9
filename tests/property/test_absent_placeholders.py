"""Laws of templates whose parameters may be absent, for any object."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from katib.api.types import FeasibleSpace, ParameterCondition, ParameterSpec, TrialParameterSpec, TrialTemplate
from katib.templates import check_template, find_placeholders, render
from katib.templates.absence import prevents_rendering
from tests.support.templates import assign, job

NAMES = ("root", "child", "grandchild")
PARENTS = {"child": "root", "grandchild": "child"}
SPACE = [
    ParameterSpec(
        name=name,
        parameter_type="categorical",
        feasible_space=FeasibleSpace(list=("a", "b")),
        when=ParameterCondition(parameter=PARENTS[name], values=("a",)) if name in PARENTS else None,
    )
    for name in NAMES
]
TRIALS = (
    {"root": "b"},
    {"root": "a", "child": "b"},
    {"root": "a", "child": "a", "grandchild": "b"},
)
TEXTS = st.sampled_from(["x", "--flag", *(f"${{trialParameters.{name}}}" for name in NAMES)])
ARGUMENTS = st.lists(TEXTS, max_size=3).map("".join)
OBJECTS = st.recursive(
    st.one_of(ARGUMENTS, st.integers(), st.booleans(), st.none()),
    lambda children: st.one_of(
        st.lists(children, max_size=4), st.dictionaries(st.sampled_from(["k", "env", "args"]), children, max_size=3)
    ),
    max_leaves=12,
)


def template_of(tree: Any, otherwise: dict[str, str]) -> TrialTemplate:
    entries = [TrialParameterSpec(name=name, reference=name, otherwise=otherwise.get(name)) for name in NAMES]
    return TrialTemplate(
        trial_spec={**job(*(f"--{name}=${{trialParameters.{name}}}" for name in NAMES)), "data": tree},
        trial_parameters=tuple(entries),
        primary_container_name="training",
    )


@given(OBJECTS, st.dictionaries(st.sampled_from(NAMES[1:]), st.sampled_from(["", "none"])))
def test_a_template_that_is_accepted_can_be_filled_for_every_trial(tree: Any, otherwise: dict[str, str]) -> None:
    template = template_of(tree, otherwise)
    if any(map(prevents_rendering, check_template(template, SPACE))):
        return
    for trial in TRIALS:
        obj = render(template, None, assign(**trial), "t", "default", SPACE)
        [container] = obj["spec"]["template"]["spec"]["containers"]
        shown = {**otherwise, **trial}

        assert find_placeholders(obj) == ()
        assert container["args"] == [f"--{name}={shown[name]}" for name in NAMES if name in shown]


@given(OBJECTS)
def test_what_has_no_conditional_parameter_is_the_same_as_without_conditions(tree: Any) -> None:
    template = template_of(tree, {})
    free = [structs.replace(spec, when=None) for spec in SPACE]
    whole = TRIALS[-1]
    if not any(map(prevents_rendering, check_template(template, SPACE))):
        assert render(template, None, assign(**whole), "t", "n", SPACE) == render(
            template, None, assign(**whole), "t", "n", free
        )
