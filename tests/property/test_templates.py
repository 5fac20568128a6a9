"""Laws of templates and condition paths that hold for any input, also where parameters may be absent."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from katib.errors import InvalidError
from katib.model.templates import check_template, find_placeholders, parse, render
from katib.model.templates.absence import prevents_rendering
from katib.model.types import FeasibleSpace, ParameterCondition, ParameterSpec, TrialParameterSpec, TrialTemplate
from tests.support.templates import assign, dedent, in_config_map, inline, job, space

WORDS = st.sampled_from(["status", "conditions", "type", "Complete", "True", "0", "1", "a"])
PIECES = st.sampled_from(
    ["#(", ")", ")#", "|", ".", "[@this]", "==", "!=", "<", ">=", "%", "!%", '"', "\\", "~", "*", "@", " ", "-1e5"]
)
PATHS = st.one_of(st.text(max_size=40), st.lists(st.one_of(WORDS, PIECES), max_size=20).map("".join))
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=10), WORDS)
OBJECTS = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4), max_leaves=20
)
VALUES = st.text(max_size=20)


@given(path=PATHS, obj=OBJECTS)
@settings(max_examples=400)
def test_no_path_and_no_object_make_a_condition_fail(path: str, obj: Any) -> None:
    try:
        parsed = parse(path)
    except InvalidError:
        return
    parsed.evaluate(obj)


@given(step=st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=3), obj=OBJECTS)
def test_well_formed_paths_never_fail(step: list[tuple[str, str]], obj: Any) -> None:
    path = "|".join(f'[@this].#({key}=="{value}")#.{key}' for key, value in step)

    parse(path).evaluate(obj)


@given(x=VALUES, y=VALUES)
def test_a_value_arrives_exactly_as_it_was_assigned(x: str, y: str) -> None:
    spec = job("${trialParameters.x}", "$<trialParams.y>-${trialParams.x}", "${HOME}")
    before = copy.deepcopy(spec)

    obj = render(inline(spec, {"x": "a", "y": "b"}), None, assign(a=x, b=y), "t", "n")

    assert obj["spec"]["template"]["spec"]["containers"][0]["args"] == [x, f"{y}-{x}", "${HOME}"]
    assert spec == before


@given(x=VALUES)
def test_quoted_yaml_text_carries_any_value(x: str) -> None:
    text = dedent("""
        apiVersion: v1
        kind: K
        a: "<${trialParameters.x}>"
        b: '${trialParameters.x}'
        c: |-
          ${trialParameters.x}
    """)

    obj = render(in_config_map({"x": "a"}), text, assign(a=x), "t", "n")

    assert (obj["a"], obj["b"], obj["c"]) == (f"<{x}>", x, x)


@given(x=VALUES)
def test_unquoted_yaml_text_never_breaks_on_a_value(x: str) -> None:
    obj = render(
        in_config_map({"x": "a"}), "apiVersion: v1\nkind: K\na: ${trialParameters.x}\nb: --x=${trialParameters.x}\n",
        assign(a=x), "t", "n",
    )  # fmt: skip

    assert obj["b"] == f"--x={x}"


@given(text=st.text(alphabet=st.sampled_from("ab:{}[]$<>.-#&*! \n\"'|\t${trialParameters.x}"), max_size=60))
def test_any_text_of_a_config_map_renders_or_says_why_not(text: str) -> None:
    template = in_config_map({"x": "a"})

    errors = check_template(template, space("a"), text)
    try:
        obj = render(template, text, assign(a="1"), "t", "n")
    except InvalidError:
        obj = {}

    assert errors or obj["metadata"]["name"] == "t"


@given(obj=OBJECTS)
def test_placeholders_are_found_wherever_they_stand(obj: Any) -> None:
    assert find_placeholders([obj, {"k": ["${trialParameters.needle}"]}])[-1] == "needle"


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
TRIALS = ({"root": "b"}, {"root": "a", "child": "b"}, {"root": "a", "child": "a", "grandchild": "b"})
TEXTS = st.sampled_from(["x", "--flag", *(f"${{trialParameters.{name}}}" for name in NAMES)])
ARGUMENTS = st.lists(TEXTS, max_size=3).map("".join)
WITH_PLACEHOLDERS = st.recursive(
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


@given(WITH_PLACEHOLDERS, st.dictionaries(st.sampled_from(NAMES[1:]), st.sampled_from(["", "none"])))
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


@given(WITH_PLACEHOLDERS)
def test_what_has_no_conditional_parameter_is_the_same_as_without_conditions(tree: Any) -> None:
    template = template_of(tree, {})
    free = [structs.replace(spec, when=None) for spec in SPACE]
    whole = TRIALS[-1]
    if not any(map(prevents_rendering, check_template(template, SPACE))):
        assert render(template, None, assign(**whole), "t", "n", SPACE) == render(
            template, None, assign(**whole), "t", "n", free
        )
