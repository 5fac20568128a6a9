from __future__ import annotations

import json
import math
import time
from typing import Any

import pytest
import yaml

from katib.errors import InvalidError
from katib.model.templates import compile_template, render, template_text
from katib.model.templates.check import check_template
from katib.model.templates.render import prepare
from katib.model.templates.source import OFFERED, OFFERED_LABEL, usable_data
from katib.model.types import TrialTemplate
from tests.support.golden import Golden
from tests.support.templates import REFERENCES, assign, dedent, example_job, in_config_map, inline, job

EXAMPLE = assign(lr="0.05", momentum="0.9")


def container_of(obj: dict[str, Any]) -> dict[str, Any]:
    container: dict[str, Any] = obj["spec"]["template"]["spec"]["containers"][0]
    return container


def render_args(*args: str, value: str) -> list[Any]:
    obj = render(inline(job(*args), {"x": "x"}), None, assign(x=value), "t", "n")
    rendered: list[Any] = container_of(obj)["args"]
    return rendered


def render_yaml(text: str, **values: str) -> dict[str, Any]:
    template = in_config_map({name: name for name in values})
    return render(template, dedent(text), assign(**values), "t", "n")


def origins(error: pytest.ExceptionInfo[InvalidError]) -> list[str]:
    return [e.origin for e in error.value.errors]


def check_example(obj: dict[str, Any]) -> None:
    assert obj["metadata"] == {"name": "trial-name", "namespace": "trial-namespace"}
    assert container_of(obj)["args"] == ["--lr=0.05", "--momentum=0.9"]
    assert [entry["value"] for entry in container_of(obj)["env"]] == [
        "trial-name",
        "trial-namespace",
        "Job",
        "batch/v1",
    ]


def test_an_inline_template_gets_its_values_name_and_namespace() -> None:
    obj = render(inline(example_job(), REFERENCES), None, EXAMPLE, "trial-name", "trial-namespace")

    check_example(obj)


@pytest.mark.parametrize("dump", [yaml.safe_dump, json.dumps], ids=["yaml", "json"])
def test_a_config_map_template_renders_to_the_same_object(dump: Any) -> None:
    obj = render(in_config_map(REFERENCES), dump(example_job()), EXAMPLE, "trial-name", "trial-namespace")

    check_example(obj)


@pytest.mark.parametrize(
    "placeholder", ["${trialParameters.x}", "${trialParams.x}", "$<trialParams.x>", "$<trialParameters.x>"]
)
def test_every_form_of_a_placeholder_means_the_same(placeholder: str) -> None:
    assert render_args(f"--x={placeholder}", value="7") == ["--x=7"]


@pytest.mark.parametrize(
    "text",
    [
        "${HOME}",
        "$(VAR)",
        "{{x}}",
        "$x",
        "${trialSpec.Name}",
        "${trialparameters.x}",
        "${ trialParameters.x }",
        "${trialParameters.}",
        "${trialParameters.x",
        "$<trialSpec.Name>",
        "$${HOME}",
    ],
)
def test_whatever_is_no_placeholder_passes_through(text: str) -> None:
    assert render_args(text, "${trialParameters.x}", value="1") == [text, "1"]


@pytest.mark.parametrize(
    "value",
    ['say "hi"', "two\nlines", "back\\slash", "${trialParameters.x}", "a: b # c", "\u0000", "ключ"],
    ids=["quotes", "newline", "backslash", "placeholder", "yaml", "nul", "letters"],
)
def test_no_value_can_break_the_object(value: str) -> None:
    assert render_args("<${trialParameters.x}>", value=value) == [f"<{value}>"]


def test_a_placeholder_stands_in_keys_and_its_value_is_not_replaced_again() -> None:
    spec = job("x")
    spec["metadata"] = {"labels": {"team-${trialParameters.x}": "a"}}

    obj = render(inline(spec, {"x": "x"}), None, assign(x="7"), "t", "n")

    assert obj["metadata"] == {"labels": {"team-7": "a"}, "name": "t", "namespace": "n"}

    template = inline(job("${trialParameters.a}", "${trialParameters.b}"), {"a": "a", "b": "b"})

    obj = render(template, None, assign(a="${trialParameters.b}", b="${trialParameters.a}"), "t", "n")

    assert container_of(obj)["args"] == ["${trialParameters.b}", "${trialParameters.a}"]


def test_an_architecture_fits_into_shell_quotes() -> None:
    value = "[[3], [28, 1]]"
    nas = "{'num_layers': 8, 'input_sizes': [32, 32, 3]}"
    template = inline(job('a --x="${trialParameters.x}" --n="${trialParameters.n}"'), {"x": "x", "n": "n"})

    obj = render(template, None, assign(x=value, n=nas), "t", "n")

    assert container_of(obj)["args"] == [f'a --x="{value}" --n="{nas}"']


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("parallelism", "4", 4),
        ("completions", "-1", -1),
        ("backoffLimit", "0", 0),
        ("suspend", "true", True),
        ("suspend", "False", False),
        ("completionMode", "3", "3"),
        ("unknownField", "3", "3"),
    ],
)
def test_a_bare_placeholder_takes_the_type_of_its_field(field: str, value: str, expected: object) -> None:
    template = inline(job("a", **{field: "${trialParameters.x}"}), {"x": "x"})

    rendered = render(template, None, assign(x=value), "t", "n")["spec"][field]

    assert rendered == expected
    assert type(rendered) is type(expected)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"pytorchReplicaSpecs": {"Worker": {"replicas": "${trialParameters.x}"}}}, 4),
        ({"a": {"ports": [{"containerPort": "${trialParameters.x}"}]}}, 4),
        ({"a": {"httpGet": {"port": "${trialParameters.x}"}}}, 4),
        ({"a": {"supplementalGroups": ["${trialParameters.x}"]}}, 4),
        ({"a": {"onExitCodes": {"values": ["${trialParameters.x}"]}}}, 4),
        ({"a": {"matchExpressions": [{"values": ["${trialParameters.x}"]}]}}, "4"),
        ({"a": {"labels": {"replicas": "${trialParameters.x}"}}}, "4"),
        ({"a": {"limits": {"cpu": "${trialParameters.x}"}}}, "4"),
        ({"a": {"replicas": "0${trialParameters.x}"}}, "04"),
        ({"a": [{"name": "N", "value": "${trialParameters.x}"}]}, "4"),
    ],
    ids=["replicas", "port", "int-or-text", "list", "exit-codes", "match", "label", "limit", "not-bare", "env"],
)
def test_only_the_place_decides_about_the_type(spec: dict[str, Any], expected: object) -> None:
    template = inline({"apiVersion": "v1", "kind": "K", "spec": spec}, {"x": "x"})

    leaf = render(template, None, assign(x="4"), "t", "n")["spec"]
    while isinstance(leaf, dict | list):
        leaf = list(leaf.values())[-1] if isinstance(leaf, dict) else leaf[-1]

    assert leaf == expected
    assert type(leaf) is type(expected)


def test_a_value_that_does_not_fit_its_number_field_names_field_and_parameter(golden: Golden) -> None:
    template = inline(job("a", parallelism="${trialParameters.x}"), {"x": "x"})

    with pytest.raises(InvalidError) as error:
        render(template, None, assign(x="0.5"), "t", "n")

    golden(error.value)


@pytest.mark.parametrize(
    ("written", "value", "expected"),
    [
        ("${trialParameters.x}", "0.5", 0.5),
        ("${trialParameters.x}", "1e-05", 1e-05),
        ("${trialParameters.x}", "4", 4),
        ("${trialParameters.x}", "0x10", 16),
        ("${trialParameters.x}", "010", 10),
        ("${trialParameters.x}", "true", True),
        ("${trialParameters.x}", "null", None),
        ("${trialParameters.x}", "adam", "adam"),
        ("${trialParameters.x}", "12:30", "12:30"),
        ("${trialParameters.x}", "2024-01-01", "2024-01-01"),
        ("${trialParameters.x}", ".nan", ".nan"),
        ("${trialParameters.x}", "[32, 3]", [32, 3]),
        ("${trialParameters.x}", "{'a': 1}", {"a": 1}),
        ("${trialParameters.x}", "a: b", "a: b"),
        ("${trialParameters.x}", "[1", "[1"),
        ("1${trialParameters.x}", "5", 15),
        ("--x=${trialParameters.x}", "5", "--x=5"),
        ("--x=${trialParameters.x}", "a: b # c", "--x=a: b # c"),
        ('"${trialParameters.x}"', "5", "5"),
        ("'${trialParameters.x}'", "true", "true"),
        ("!!str ${trialParameters.x}", "5", "5"),
        ("|-\n  ${trialParameters.x}", "5", "5"),
        ("$<trialParams.x>", "5", 5),
    ],
)
def test_in_yaml_text_the_quoting_of_the_author_decides(written: str, value: str, expected: object) -> None:
    obj = render_yaml(f"apiVersion: v1\nkind: K\nfield: {written}\n", x=value)

    assert obj["field"] == expected
    assert type(obj["field"]) is type(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("field: [${trialParameters.x}, 2]", [5, 2]),
        ("field: {a: ${trialParameters.x}}", {"a": 5}),
        ("field: {${trialParameters.x}: a}", {"5": "a"}),
        ("field:\n  ${trialParameters.x}: a", {"5": "a"}),
    ],
    ids=["flow-list", "flow-map", "flow-key", "key"],
)
def test_a_placeholder_may_be_part_of_the_yaml_syntax(text: str, expected: object) -> None:
    assert render_yaml(f"apiVersion: v1\nkind: K\n{text}\n", x="5")["field"] == expected


def test_unquoted_json_placeholders_are_numbers() -> None:
    assert render_yaml('{"apiVersion": "v1", "kind": "K", "replicas": ${trialParameters.x}}', x="5")["replicas"] == 5


def test_aliases_and_merge_keys_work_in_yaml_text() -> None:
    obj = render_yaml(
        """
        apiVersion: v1
        kind: K
        base: &base {a: 1, b: "${trialParameters.x}"}
        field: {<<: *base, a: 2}
        """,
        x="5",
    )

    assert obj["field"] == {"a": 2, "b": "5"}


@pytest.mark.parametrize(
    "text",
    [
        "- --invalidParameter={'num_layers': 2, 'input_sizes': [32, 32, 3]}",
        "just words",
        "- a list",
        "",
        "a: b\n---\nc: d",
        "a: &a [*a]",
        "a: !custom x\n? [1]\n: 2",
        "{" * 2000,
    ],
    ids=["mapping-in-plain", "scalar", "list", "empty", "documents", "endless", "complex-key", "deep"],
)
def test_text_that_is_no_object_says_so(text: str) -> None:
    with pytest.raises(InvalidError) as error:
        render(in_config_map({}), text, [], "t", "n")

    assert origins(error) == ["template-not-an-object"]
    assert "\n" not in str(error.value)


def test_a_value_that_breaks_flow_text_says_so() -> None:
    with pytest.raises(InvalidError) as error:
        render_yaml("field: [${trialParameters.x}]", x="]: {")

    assert origins(error) == ["template-not-an-object"]


@pytest.mark.parametrize("value", [math.nan, math.inf, {1, 2}], ids=["nan", "inf", "set"])
def test_what_json_cannot_express_is_refused_where_it_stands(value: object) -> None:
    with pytest.raises(InvalidError) as error:
        render(inline(job("a", odd=value), {}), None, [], "t", "n")

    assert origins(error) == ["template-not-encodable"]
    assert error.value.errors[0].path == "spec.trialTemplate.trialSpec.spec.odd"


def test_a_reference_without_assignment_and_an_assignment_without_reference_are_both_reported(golden: Golden) -> None:
    with pytest.raises(InvalidError) as error:
        render(inline(example_job(), REFERENCES), None, assign(learning="1", momentum="0.9"), "t", "n")

    assert origins(error) == ["template-reference-unassigned", "template-assignment-unused"]
    golden(str(error.value).splitlines()[0])


@pytest.mark.parametrize(
    ("reference", "origin"),
    [
        ("${trialSpec.Image}", "template-metadata-reference"),
        ("${trialSpec.Labels}", "template-metadata-reference"),
        ("${trialSpec.Owner[x]}", "template-metadata-reference"),
        ("${trialSpec.Labels[team]}", "template-metadata-missing"),
        ("${trialSpec.Annotations[team]}", "template-metadata-missing"),
    ],
)
def test_a_metadata_reference_must_lead_somewhere(reference: str, origin: str) -> None:
    with pytest.raises(InvalidError) as error:
        render(inline(job("${trialParameters.x}"), {"x": reference}), None, [], "t", "n")

    assert origins(error) == [origin]


@pytest.mark.parametrize("text", [None, "yaml"], ids=["inline", "config-map"])
def test_labels_and_annotations_come_from_the_template_itself(text: str | None) -> None:
    spec = job("${trialParameters.l}", "${trialParameters.a}")
    spec["metadata"] = {"labels": {"team": "red"}, "annotations": {"a.io/b": "blue"}}
    references = {"l": "${trialSpec.Labels[team]}", "a": "${trialSpec.Annotations[a.io/b]}"}
    template = in_config_map(references) if text else inline(spec, references)

    obj = render(template, yaml.safe_dump(spec) if text else None, [], "t", "n")

    assert container_of(obj)["args"] == ["red", "blue"]


@pytest.mark.parametrize(
    ("own", "given", "expected"),
    [
        pytest.param({}, {"pbt.suggestion.katib.kubeflow.org/parent": "demo-1"}, "demo-1", id="given"),
        pytest.param({}, {}, "", id="not-given"),
        pytest.param({"pbt.suggestion.katib.kubeflow.org/parent": "none"}, {}, "none", id="the-templates"),
    ],
)
def test_a_label_of_the_algorithm_comes_from_the_trial(
    own: dict[str, str], given: dict[str, str], expected: str
) -> None:
    reference = "${trialSpec.Labels[pbt.suggestion.katib.kubeflow.org/parent]}"
    obj = {**job("--parent=${trialParameters.p}"), "metadata": {"labels": own}}
    template = inline(obj, {"p": reference})

    assert check_template(template, ()) == []
    rendered = compile_template(template).render((), "demo-2", "default", given)
    assert container_of(rendered)["args"] == [f"--parent={expected}"]


def test_a_placeholder_that_nobody_fills_stops_the_template(golden: Golden) -> None:
    with pytest.raises(InvalidError) as error:
        compile_template(inline(job("${trialParameters.learnRate}"), {"learningRate": "lr"}))

    golden(error.value)


def test_rendering_twice_shares_nothing() -> None:
    template = inline(job("${trialParameters.x}"), {"x": "x"})
    compiled = compile_template(template)

    container_of(compiled.render(assign(x="1"), "a", "n"))["args"].append("changed")

    assert container_of(compiled.render(assign(x="2"), "b", "n"))["args"] == ["2"]
    assert template == inline(job("${trialParameters.x}"), {"x": "x"})


@pytest.mark.parametrize(
    ("data", "origin"),
    [(None, "template-config-map-missing"), ({"other.yaml": "a: b"}, "template-key-missing")],
    ids=["no-config-map", "no-key"],
)
def test_a_missing_config_map_and_a_missing_key_are_told_apart(data: dict[str, str] | None, origin: str) -> None:
    with pytest.raises(InvalidError) as error:
        template_text(in_config_map({}), lambda _namespace, _name: data)

    assert origins(error) == [origin]


def test_the_text_is_read_from_the_named_place() -> None:
    read = {("kubeflow", "templates"): {"job.yaml": "a: b"}}

    assert template_text(in_config_map({}), lambda namespace, name: read.get((namespace, name))) == "a: b"
    assert template_text(inline({}, {}), lambda _namespace, _name: None) is None


@pytest.mark.parametrize(
    ("namespace", "labels", "usable"),
    [
        pytest.param("team", None, True, id="the experiment's own"),
        pytest.param("kubeflow", {OFFERED_LABEL: OFFERED}, True, id="offered by another"),
        pytest.param("kubeflow", {OFFERED_LABEL: "controller"}, False, id="another component's"),
        pytest.param("kube-system", None, False, id="none of its business"),
    ],
)
def test_a_config_map_of_another_namespace_is_used_only_if_it_is_offered(
    namespace: str, labels: dict[str, str] | None, *, usable: bool
) -> None:
    metadata = {"namespace": namespace, "name": "templates", "labels": labels}
    found = usable_data({"metadata": metadata, "data": {"job.yaml": "a: b"}}, "team")

    assert found == ({"job.yaml": "a: b"} if usable else None)


def test_rendering_without_the_text_of_the_config_map_says_that_it_is_not_found() -> None:
    with pytest.raises(InvalidError) as error:
        render(in_config_map({}), None, [], "t", "n")

    assert origins(error) == ["template-config-map-missing"]


@pytest.mark.parametrize("metadata", ["text", ["a"], 5])
def test_metadata_that_is_no_mapping_is_refused(metadata: object) -> None:
    with pytest.raises(InvalidError) as error:
        render(inline({**job("a"), "metadata": metadata}, {}), None, [], "t", "n")

    assert origins(error) == ["template-not-an-object"]


def test_a_trial_costs_little_to_render() -> None:
    """Ten thousand trials render from one compiled template. Time of the processor: other programs do not count."""
    compiled = compile_template(inline(example_job(), REFERENCES))

    start = time.thread_time()
    for _ in range(200):
        compiled.render(EXAMPLE, "trial-name", "trial-namespace")
    mean_seconds = (time.thread_time() - start) / 200

    assert mean_seconds < 0.001


def test_what_is_no_template_is_refused() -> None:
    with pytest.raises(InvalidError):
        compile_template(TrialTemplate())

    levels = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]

    with pytest.raises(InvalidError) as error:
        render(in_config_map({}), "\n".join(["a0: &a0 [x]", *levels]), [], "t", "n")

    assert origins(error) == ["template-not-an-object"]


def test_checks_see_the_placeholders_of_flow_text() -> None:
    text = '{"apiVersion": "batch/v1", "kind": "Job", "spec": {"parallelism": ${trialParameters.n}}}'

    _, source = prepare(in_config_map({"n": "n"}), text)

    assert source["spec"] == {"parallelism": "$<trialParams.n>"}


def test_words_of_a_command_in_yaml_text_are_text_however_they_are_written() -> None:
    text = "apiVersion: v1\nkind: K\nargs: [${trialParameters.x}, 3.10, on, 010, '1']\ndefaultMode: 0644\n"

    obj = render_yaml(text, x="3.10")

    assert (obj["args"], obj["defaultMode"]) == (["3.10", "3.10", "on", "010", "1"], 0o644)

    obj = render_yaml("apiVersion: v1\nkind: K\nargs: ${trialParameters.x}\n", x="[off, 1.0]")

    assert obj["args"] == ["off", "1.0"]
