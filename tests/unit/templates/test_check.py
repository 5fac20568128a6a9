"""What a template must be, and which devices its pods want."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from msgspec import structs

from katib.errors import FieldError
from katib.model.templates import check_template
from katib.model.templates.devices import device_errors
from katib.model.types import TrialTemplate
from tests.support.golden import Golden
from tests.support.templates import REFERENCES, example_job, in_config_map, inline, job, space

SPACE = space("lr", "momentum")


def found(template: TrialTemplate, *names: str, text: str | None = None) -> list[tuple[str, str]]:
    """Return path, below `spec.`, and origin of every error."""
    errors = check_template(template, space(*names), text)
    return [(e.path.removeprefix("spec."), e.origin) for e in errors]


def test_a_good_template_has_no_errors() -> None:
    assert check_template(inline(example_job(), REFERENCES), SPACE) == []

    assert check_template(in_config_map(REFERENCES), SPACE, yaml.safe_dump(example_job())) == []


def test_metadata_references_need_no_parameter_of_the_space() -> None:
    spec = job("${trialParameters.a} ${trialParameters.l} ${trialParameters.n}")
    spec["metadata"] = {"labels": {"test-label": "a"}, "annotations": {"test-annotation": "b"}}
    references = {
        "n": "${trialSpec.Name}",
        "a": "${trialSpec.Annotations[test-annotation]}",
        "l": "${trialSpec.Labels[test-label]}",
    }

    assert check_template(inline(spec, references), []) == []


@pytest.mark.parametrize(
    ("references", "names", "expected"),
    [
        ([("a", "")], [], [("[0].reference", "trial-parameter-incomplete")]),
        ([("", "x")], ["x"], [("[0].name", "trial-parameter-incomplete")]),
        ([("{a}", "x")], ["x"], [("[0].name", "trial-parameter-name")]),
        ([("a", "x"), ("a", "y")], ["x", "y"], [("[1].name", "trial-parameter-duplicate")]),
        ([("a", "x"), ("b", "x")], ["x"], [("[1].reference", "trial-parameter-reference-duplicate")]),
        ([("a", "wrong-ref")], ["x"], [("[0].reference", "trial-parameter-reference-unknown")]),
        ([("a", "wrong-ref")], [], []),
        ([("a", "${trialSpec.Image}")], [], [("[0].reference", "template-metadata-reference")]),
        ([("a", "${trialSpec.Labels[x]}")], [], [("[0].reference", "template-metadata-missing")]),
    ],
    ids=[
        "no-reference",
        "no-name",
        "braces",
        "name-twice",
        "reference-twice",
        "unknown",
        "architecture-search",
        "metadata-key",
        "no-label",
    ],
)
def test_each_broken_trial_parameter_is_named(
    references: list[tuple[str, str]], names: list[str], expected: list[tuple[str, str]]
) -> None:
    spec = job(*(f"${{trialParameters.{name}}}" for name, _ in references if name and "{" not in name))
    whole = inline(spec, {})
    entries = [inline(spec, {name: reference}).trial_parameters for name, reference in references]
    template = structs.replace(whole, trial_parameters=tuple(e for entry in entries for e in entry or ()))

    errors = found(template, *names)

    own = [(p.removeprefix("trialTemplate.trialParameters"), o) for p, o in errors if "trialParameters" in p]
    assert own == expected


def test_a_parameter_of_the_space_that_never_reaches_the_trial_is_an_error(golden: Golden) -> None:
    golden(check_template(inline(job("${trialParameters.x}"), {"x": "lr"}), SPACE))


def test_a_misspelled_placeholder_is_reported_from_both_sides(golden: Golden) -> None:
    template = inline(job("${trialParameters.learnRate}"), {"learningRate": "lr"})

    golden(check_template(template, space("lr")))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"metadata": {"name": "a"}}, [("metadata.name", "template-metadata-fixed")]),
        ({"metadata": {"namespace": ""}}, [("metadata.namespace", "template-metadata-fixed")]),
        ({"metadata": "a"}, [("metadata", "template-metadata")]),
        ({"apiVersion": ""}, [("apiVersion", "template-kind-missing")]),
        ({"kind": None}, [("kind", "template-kind-missing")]),
        ({"apiVersion": None, "kind": 5}, [("apiVersion", "template-kind-missing"), ("kind", "template-kind-missing")]),
        ({"kind": "CustomKind"}, []),
        ({"metadata": None}, []),
    ],
    ids=["name", "namespace", "metadata", "api-version", "kind", "both", "custom", "no-metadata"],
)
def test_the_object_needs_a_kind_and_no_name(change: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    prefix = "trialTemplate.trialSpec."

    assert found(inline({**job("a"), **change}, {})) == [(prefix + path, origin) for path, origin in expected]


def test_text_of_a_config_map_is_checked_like_any_other() -> None:
    assert found(in_config_map({}), text="- a") == [("trialTemplate.configMap", "template-not-an-object")]

    assert found(in_config_map({})) == [("trialTemplate.configMap.configMapName", "template-config-map-missing")]

    text = '{"apiVersion": "v1", "kind": "K", "metadata": {"name": "a"}, "replicas": ${trialParameters.n}}'

    assert found(in_config_map({"n": "x"}), "x", text=text) == [
        ("trialTemplate.configMap.metadata.name", "template-metadata-fixed")
    ]


def test_the_primary_container_must_be_in_the_template(golden: Golden) -> None:
    golden(check_template(inline(job("a"), {}, primary="main"), []))


@pytest.mark.parametrize(
    "spec",
    [
        {"tfReplicaSpecs": {"Worker": {"template": {"spec": {"containers": [{"name": "main"}]}}}}},
        {"trainer": {"numNodes": 1}},
        {"template": {"spec": {"containers": [{"name": "${trialParameters.x}"}]}}},
    ],
    ids=["replicas", "no-pod-template", "placeholder"],
)
def test_the_primary_container_is_looked_for_where_the_kind_has_pod_templates(spec: dict[str, Any]) -> None:
    template = inline({"apiVersion": "v1", "kind": "K", "spec": spec}, {"x": "x"}, primary="main")

    assert "template-primary-container" not in [origin for _, origin in found(template, "x")]


def test_what_is_not_known_yet_is_not_checked() -> None:
    both = structs.replace(inline(job("a"), {}), config_map=in_config_map({}).config_map)

    assert found(TrialTemplate()) == []
    assert found(both) == []

    spec = job("a", parallelism="${trialParameters.x}") | {"${trialParameters.x}": "odd"}

    assert found(inline(spec, {"x": "x"}), "x") == []


PLACE = "spec.containers[0].resources"


def errors_of(**resources: Any) -> list[FieldError]:
    return list(device_errors({"spec": {"containers": [{"resources": resources}]}}, "t"))


@pytest.mark.parametrize("value", ["0.5", 0.5, "500m", "1500m", "1e-1"])
@pytest.mark.parametrize("name", ["nvidia.com/gpu", "amd.com/gpu", "rdma/hca", "example.com/tpu"])
def test_a_part_of_a_device_is_refused(name: str, value: object, golden: Golden) -> None:
    golden(errors_of(limits={name: value}))


@pytest.mark.parametrize(
    "resources",
    [
        {"limits": {"nvidia.com/gpu": 1}},
        {"limits": {"nvidia.com/gpu": "2000m"}, "requests": {"nvidia.com/gpu": "2"}},
        {"limits": {"nvidia.com/gpu": "${trialParameters.cards}"}, "requests": {"nvidia.com/gpu": 1}},
        {"limits": {"nvidia.com/gpu": ["wrong"]}, "requests": None},
        {"requests": {"cpu": "500m", "kubernetes.io/batch-cpu": "0.5", "ephemeral-storage": "1.5Gi"}},
    ],
    ids=["limit", "same", "placeholder", "another check's", "no devices"],
)
def test_what_kubernetes_takes_is_fine(resources: dict[str, Any]) -> None:
    assert errors_of(**resources) == []


def test_a_request_needs_the_same_limit(golden: Golden) -> None:
    golden(errors_of(limits={"nvidia.com/gpu": 2}, requests={"nvidia.com/gpu": 1}))
    golden(errors_of(requests={"nvidia.com/gpu": 1}))


def test_a_request_is_at_most_the_limit(golden: Golden) -> None:
    requests = {"cpu": "1.5", "memory": "1Gi", "ephemeral-storage": 1, "hugepages-2Mi": "${trialParameters.pages}"}
    limits = {"cpu": "1500m", "memory": "1000M", "hugepages-2Mi": 1}

    golden(errors_of(limits=limits, requests=requests))


def test_the_limit_of_a_train_job_may_come_from_its_runtime() -> None:
    trainer = {"resourcesPerNode": {"requests": {"nvidia.com/gpu": 1}}}

    assert device_errors({"spec": {"trainer": trainer}}, "t") == []
    trainer["resourcesPerNode"]["requests"]["nvidia.com/gpu"] = "0.5"  # type: ignore[assignment]
    assert [e.path for e in device_errors({"spec": {"trainer": trainer}}, "t")] == [
        't.spec.trainer.resourcesPerNode.requests["nvidia.com/gpu"]'
    ]
