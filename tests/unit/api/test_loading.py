"""Documents as they are loaded, and fields in them that there are not."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from katib.errors import InvalidError
from katib.model.decoding import unknown_fields
from katib.model.loading import FileText, decode_experiment, file_of, load_documents
from katib.model.types import Experiment
from tests.support.experiments import an_experiment, load_experiment
from tests.support.golden import Golden
from tests.support.refusals import refused

EXPERIMENT = yaml.safe_dump(an_experiment())
SECOND = yaml.safe_dump(an_experiment(name="second"))
CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: templates}\ndata: {job.yaml: 'kind: Job'}\n"
SECRET = "apiVersion: v1\nkind: Secret\nmetadata: {name: token, namespace: other}\nstringData: {token: abc}\n"


def lines_of(text: str | bytes) -> list[str]:
    with pytest.raises(InvalidError) as failure:
        load_experiment(text, "exp.yaml", "default")
    assert all(error.origin for error in failure.value.errors)
    return str(failure.value).split("\n")


def documents(*texts: str) -> str:
    return "---\n".join(texts)


UNREADABLE = {
    "empty file": "",
    "only a comment": "# later\n---\n",
    "tab as indentation": "spec:\n\tparameters: []\n",
    "NUL byte": b"kind: Exp\n\x00\x01",
    "not UTF-8": b"\xff\xfe\x00",
    "a sentence": "please tune my model",
    "a list": "- kind: Experiment\n",
    "colon in a plain value": "a: b: c\n",
    "no-break spaces": "kind: Experiment\nmetadata:\n\u00a0\u00a0name: x\n",
    "an unseen character": "kind: Experiment\nmetadata:\n  name: x\n \u200b namespace: y\n",
    "a placeholder as a value": "metadata:\n  name: {{ NAME }}\n",
    "a placeholder before a text": "metadata:\n  name: {{NAME}}-x\n",
    "indentation slips": "kind: Experiment\nmetadata:\n  name: x\n namespace: y\n",
    "open bracket": "list: [1, 2\nkind: x\n",
    "open quote": 'name: "x',
    "backquote": "name: `x`",
    "alias of nothing": "name: *x",
    "alias of itself": "a: &x [*x]",
    "foreign tag": "a: !!python/name:os.system x",
    "repeated key": "a: 1\nb: 2\na: 3\n",
    "repeated key in JSON": '{"a": 1,\n "a": 2}',
    "nested flow": "[" * 100_000,
    "nested blocks": "- " * 100_000,
    "nested JSON": '{"a":' * 50_000 + "1" + "}" * 50_000,
    "billion laughs": "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
    + "".join(f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10)),
    "no kind": "apiVersion: kubeflow.org/v1beta1",
    "misspelled kind": "apiVersion: kubeflow.org/v1beta1\nkind: experimnt",
    "kind is a list": "kind: [Experiment]",
    "another kind": "apiVersion: v1\nkind: Pod",
    "a job": "apiVersion: batch/v1\nkind: Job",
    "no apiVersion": "kind: Experiment",
    "old apiVersion": "apiVersion: kubeflow.org/v1alpha3\nkind: Experiment",
    "two experiments": documents(EXPERIMENT, SECOND),
    "no experiment": documents(CONFIG_MAP, SECRET),
    "a Service beside it": documents("apiVersion: v1\nkind: Service\n", EXPERIMENT),
}


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE)
def test_what_cannot_be_read_is_explained_in_one_line(text: str | bytes, golden: Golden) -> None:
    [line] = lines_of(text)

    golden(line)


def test_what_is_too_large_or_too_deep_is_refused(golden: Golden) -> None:
    golden(lines_of("a" * (4 * 2**20 + 1)))

    nested: dict[str, Any] = {}
    for _ in range(100):
        nested = {"a": nested}

    with refused("value-nesting"):
        decode_experiment({**an_experiment(), "spec": nested}, "default")


def test_json_is_read_like_yaml() -> None:
    raw = an_experiment()

    from_json = load_experiment(json.dumps(raw), "exp.json", "default")

    assert from_json.raw == load_experiment(EXPERIMENT, "exp.yaml", "default").raw == raw

    raw = an_experiment()
    raw["metadata"]["annotations"] = {"note": "🎯"}

    assert load_experiment(json.dumps(raw), "exp.json", "default").raw == raw

    text = documents("", EXPERIMENT, "# the end\n")

    assert load_experiment(text, "exp.yaml", "default").raw == an_experiment()


def test_config_maps_and_secrets_of_the_file_come_along() -> None:
    submission = load_experiment(documents(CONFIG_MAP, EXPERIMENT, SECRET), "exp.yaml", "team")

    assert submission.errors == ()
    assert [(c["kind"], c["metadata"]["namespace"]) for c in submission.companions] == [
        ("ConfigMap", "team"),
        ("Secret", "other"),
    ]
    found = submission.config_map("team", "templates")
    assert found is not None
    assert found["data"] == {"job.yaml": "kind: Job"}
    assert submission.config_map("other", "templates") is None
    assert submission.config_map("other", "token") is None


def test_training_runtimes_of_the_file_come_along_in_a_namespace_or_in_none() -> None:
    head = "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: "
    own = f"{head}TrainingRuntime\nmetadata: {{name: mine}}\nspec: {{}}\n"
    for_all = f"{head}ClusterTrainingRuntime\nmetadata: {{name: ours, namespace: x}}\nspec: {{}}\n"

    submission = load_experiment(documents(own, for_all, EXPERIMENT), "exp.yaml", "team")

    assert submission.errors == ()
    assert [c["metadata"] for c in submission.companions] == [{"name": "mine", "namespace": "team"}, {"name": "ours"}]
    assert submission.companion("TrainingRuntime", "team", "mine") is not None
    assert submission.companion("ClusterTrainingRuntime", "", "ours") is not None
    assert submission.companion("TrainingRuntime", "team", "ours") is None


COMPANIONS = {
    "no name": ["data: {}\n"],
    "a name for nobody": ["metadata: {name: My_Map}\n"],
    "a name twice": [
        "metadata: {name: a}\n",
        "metadata: {name: a, namespace: default}\n",
        "metadata: {name: a, namespace: b}\n",
    ],
    "a mapping": ["metadata: {name: a}\ndata: {port: {}}\n"],
    "a list": ["metadata: {name: a}\nbinaryData: []\n"],
}


@pytest.mark.parametrize("config_maps", COMPANIONS.values(), ids=COMPANIONS)
def test_companions_that_cannot_be_used_are_reported_with_their_line(config_maps: list[str], golden: Golden) -> None:
    texts = [f"apiVersion: v1\nkind: ConfigMap\n{rest}" for rest in config_maps]

    golden(load_experiment(documents(*texts, EXPERIMENT), "exp.yaml", "default").errors)


def test_every_document_of_a_wrong_kind_is_named(golden: Golden) -> None:
    golden(lines_of("kind: Trial\n---\nkind: Suggestion\n---\n- 5\n"))


def test_the_default_namespace_fills_a_missing_one_only() -> None:
    raw = an_experiment()

    assert decode_experiment({**raw, "metadata": {"name": "demo"}}, "team").experiment.namespace == "team"
    assert decode_experiment(raw, "team").experiment.namespace == "default"


def test_an_exported_experiment_loses_what_the_server_wrote() -> None:
    raw = an_experiment()
    raw["metadata"] |= {
        "uid": "1",
        "resourceVersion": "7",
        "generation": 2,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "managedFields": [{"manager": "kubectl"}],
        "selfLink": "/x",
        "labels": {"team": "a"},
    }
    raw["status"] = {"trials": 3, "conditions": "garbage"}

    submission = decode_experiment(raw, "default")

    assert submission.errors == ()
    assert (
        submission.experiment
        == decode_experiment(
            {**an_experiment(), "metadata": {"name": "demo", "namespace": "default", "labels": {"team": "a"}}},
            "default",
        ).experiment
    )


def test_null_means_absent_but_inside_a_template() -> None:
    raw = an_experiment(earlyStopping=None)
    raw["spec"] |= {"earlyStopping": None, "parameters": None, "nasConfig": None, "maxFailedTrialCount": None}
    raw["metadata"] |= {"labels": None, "creationTimestamp": None}

    submission = decode_experiment(raw, "default")

    assert submission.errors == ()
    assert submission.experiment.spec.parameters == ()

    raw = an_experiment()
    raw["spec"]["trialTemplate"]["trialSpec"]["spec"]["emptyDir"] = None

    template = decode_experiment(raw, "default").experiment.spec.trial_template

    assert template is not None
    assert template.trial_spec == raw["spec"]["trialTemplate"]["trialSpec"]


def with_spec(**fields: Any) -> dict[str, Any]:
    raw = an_experiment()
    raw["spec"] |= fields
    return raw


WRONG_TYPES = {
    "text for a count": with_spec(maxTrialCount="ten"),
    "quoted count": with_spec(maxTrialCount="10"),
    "truth for a count": with_spec(parallelTrialCount=True),
    "fraction for a count": with_spec(maxTrialCount=2.5),
    "count beyond 32 bits": with_spec(maxTrialCount=2**31),
    "count beyond everything": with_spec(maxTrialCount=10**100),
    "text for the goal": with_spec(objective={"type": "minimize", "objectiveMetricName": "loss", "goal": "low"}),
    "truth for the goal": with_spec(objective={"type": "minimize", "objectiveMetricName": "loss", "goal": True}),
    "number for a name": with_spec(algorithm={"algorithmName": 5}),
    "mapping for a list": with_spec(parameters={"lr": 1}),
    "list for a mapping": with_spec(objective=["minimize"]),
    "text for a template": with_spec(trialTemplate="job.yaml"),
    "null in a list of choices": with_spec(
        parameters=[{"name": "o", "parameterType": "categorical", "feasibleSpace": {"list": ["a", None]}}]
    ),
    "text for truth": with_spec(trialTemplate={**an_experiment()["spec"]["trialTemplate"], "retain": "yes"}),
    "number in labels": {**an_experiment(), "metadata": {"name": "demo", "labels": {"a/b": 1}}},
    "null in labels": {**an_experiment(), "metadata": {"name": "demo", "labels": {"a": None, "b": "c"}}},
    "a number beyond all numbers": with_spec(objective={**an_experiment()["spec"]["objective"], "goal": 10**400}),
    "metadata is text": {**an_experiment(), "metadata": "demo"},
}


@pytest.mark.parametrize("raw", WRONG_TYPES.values(), ids=WRONG_TYPES)
def test_a_value_of_the_wrong_type_is_shown_with_its_path(raw: dict[str, Any], golden: Golden) -> None:
    golden(decode_experiment(raw, "default").errors)


def test_what_is_right_beside_a_wrong_value_is_kept() -> None:
    raw = with_spec(maxTrialCount="ten", parameters=["lr", an_experiment()["spec"]["parameters"][0]])

    submission = decode_experiment(raw, "default")

    assert [error.path for error in submission.errors] == ["spec.parameters[0]", "spec.maxTrialCount"]
    assert [parameter.name for parameter in submission.experiment.spec.parameters] == ["", "lr"]
    assert submission.experiment.spec.parallel_trial_count == 2

    text = EXPERIMENT.replace("'0.01'", "1e-3").replace("'0.1'", "5")

    space = load_experiment(text, "exp.yaml", "default").experiment.spec.parameters[0].feasible_space

    assert (space.min, space.max) == ("1e-3", "5")


def test_a_list_that_the_sdk_of_katib_puts_into_the_distribution_is_taken_as_choices() -> None:
    space = {"distribution": ["a", "b"]}
    raw = with_spec(parameters=[{"name": "p", "parameterType": "categorical", "feasibleSpace": space}])

    submission = decode_experiment(raw, "default")

    assert submission.errors == ()
    assert submission.experiment.spec.parameters[0].feasible_space.list == ("a", "b")


NOT_JSON = {
    "bytes": with_spec(goal=b"x"),
    "a number as key": with_spec(objective={1: "x"}),
    "half a surrogate pair": with_spec(resumePolicy="\ud800"),
}


@pytest.mark.parametrize("raw", NOT_JSON.values(), ids=NOT_JSON)
def test_what_is_no_json_is_refused(raw: dict[str, Any], golden: Golden) -> None:
    with golden.raises(InvalidError):
        decode_experiment(raw, "default")


def test_documents_carry_kind_name_and_line() -> None:
    found = load_documents(documents(CONFIG_MAP, EXPERIMENT), "exp.yaml")

    assert [(document.kind, document.name, document.line) for document in found] == [
        ("ConfigMap", "templates", 1),
        ("Experiment", "demo", 6),
    ]


def test_a_file_is_read_when_its_objects_are_asked_for_and_once() -> None:
    file = FileText(EXPERIMENT, "exp.yaml")
    assert file_of(file, "other.yaml") is file
    assert file.documents is file.documents
    assert str(file) == EXPERIMENT

    with refused("file-empty"):
        _ = FileText("", "exp.yaml").documents  # only now
    assert FileText.of(file.documents, "exp.yaml").documents is file.documents
    assert load_documents(str(FileText.of(file.documents, "exp.yaml")), "exp.yaml")[0].data == file.documents[0].data


def with_field(path: str, value: object = 1) -> dict[str, Any]:
    """Return a valid experiment with one more field, at a dotted path in which numbers are indices."""
    raw = an_experiment()
    *parents, key = path.split(".")
    node: Any = raw
    for part in parents:
        node = node[int(part)] if part.isdigit() else node.setdefault(part, {})
    node[key] = value
    return raw


UNKNOWN = {
    "near a known name": "spec.maxTrialcount",
    "in snake case": "spec.max_trial_count",
    "one level too high": "spec.goal",
    "indented too little": "spec.algorithmName",
    "at the top": "parameters",
    "nothing like it": "spec.objective.xyz",
    "in a list": "spec.parameters.0.feasibleSpace.mim",
    "in metadata": "metadata.lables",
    "with a line break": "spec.a\nb",
    "deep in the collector": "spec.metricsCollectorSpec.source.fileSystemPath.pth",
}


@pytest.mark.parametrize("path", UNKNOWN.values(), ids=UNKNOWN)
def test_an_unknown_field_is_named_with_what_was_meant(path: str, golden: Golden) -> None:
    golden(unknown_fields(with_field(path), Experiment))


OPAQUE = [
    "spec.trialTemplate.trialSpec.anything",
    "spec.trialTemplate.primaryPodLabels.anything",
    "spec.metricsCollectorSpec.source.httpGet.anything",
    "spec.metricsCollectorSpec.collector.customCollector.anything",
    "metadata.annotations.anything",
    "metadata.labels.anything",
    "metadata.managedFields",
    "metadata.selfLink",
    "metadata.uid",
    "status.anything",
]


@pytest.mark.parametrize("path", OPAQUE)
def test_what_belongs_to_somebody_else_is_not_judged(path: str) -> None:
    assert unknown_fields(with_field(path), Experiment) == []


def test_every_unknown_field_is_reported_and_no_wrong_type() -> None:
    raw = with_field("spec.a")
    raw["spec"]["b"] = raw["c"] = 1

    assert {error.path for error in unknown_fields(raw, Experiment)} == {"spec.a", "spec.b", "c"}

    raw = {**an_experiment(), "metadata": [{"x": 1}], "spec": {"parameters": {"x": 1}, "objective": [{"x": 1}]}}

    assert unknown_fields(raw, Experiment) == []
