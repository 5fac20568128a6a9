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

GIVE = "give an Experiment, with ConfigMaps, Secrets and training runtimes if it needs them"

EXPERIMENT = yaml.safe_dump(an_experiment())
SECOND_LINE = EXPERIMENT.count("\n") + 2
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
    "empty file": ("", "exp.yaml: it is empty; write an Experiment into it"),
    "only a comment": ("# later\n---\n", "exp.yaml: it is empty; write an Experiment into it"),
    "tab as indentation": (
        "spec:\n\tparameters: []\n",
        "exp.yaml:2:1: a tab character indents this line; indent with spaces",
    ),
    "NUL byte": (
        b"kind: Exp\n\x00\x01",
        "exp.yaml:2: it holds the control character U+0000; give a YAML or JSON text file",
    ),
    "not UTF-8": (b"\xff\xfe\x00", "exp.yaml: byte 0 is not UTF-8; give a YAML or JSON file in UTF-8"),
    "a sentence": (
        "please tune my model",
        "exp.yaml: it is a single value, not an object; start with apiVersion, kind, metadata and spec",
    ),
    "a list": (
        "- kind: Experiment\n",
        "exp.yaml: it is a list, not an object; start with apiVersion, kind, metadata and spec",
    ),
    "colon in a plain value": (
        "a: b: c\n",
        "exp.yaml:1:5: mapping values are not allowed in this context; put the value in quotes or fix the indentation",
    ),
    "no-break spaces": (
        "kind: Experiment\nmetadata:\n\u00a0\u00a0name: x\n",
        "exp.yaml:3: no-break space (U+00A0) indents this line; indent with spaces; it may come from a web page",
    ),
    "an unseen character": (
        "kind: Experiment\nmetadata:\n  name: x\n \u200b namespace: y\n",
        "exp.yaml:4: zero width space (U+200B) indents this line; indent with spaces; it may come from a web page",
    ),
    "a placeholder as a value": (
        "metadata:\n  name: {{ NAME }}\n",
        'exp.yaml:2:10: "{{ NAME }}" was not filled in; write a value in its place',
    ),
    "a placeholder before a text": (
        "metadata:\n  name: {{NAME}}-x\n",
        'exp.yaml:2:10: "{{NAME}}" was not filled in; write a value in its place',
    ),
    "indentation slips": (
        "kind: Experiment\nmetadata:\n  name: x\n namespace: y\n",
        "exp.yaml:4:2: did not find expected key; fix the indentation of this line or of the one above",
    ),
    "open bracket": (
        "list: [1, 2\nkind: x\n",
        "exp.yaml:2:5: did not find expected ',' or ']'; close the bracket or add the comma",
    ),
    "open quote": ('name: "x', "exp.yaml:1:9: found unexpected end of stream; close the quotes"),
    "backquote": ("name: `x`", "exp.yaml:1:7: found character that cannot start any token; put the value in quotes"),
    "alias of nothing": ("name: *x", "exp.yaml:1:7: *x refers to nothing above; put the value in quotes"),
    "alias of itself": ("a: &x [*x]", "exp.yaml:1:8: *x refers to nothing above; put the value in quotes"),
    "foreign tag": (
        "a: !!python/name:os.system x",
        'exp.yaml:1:4: the tag "tag:yaml.org,2002:python/name:os.system" has no meaning here; remove the tag',
    ),
    "repeated key": ("a: 1\nb: 2\na: 3\n", 'exp.yaml:3:1: key "a" appears twice; keep one of them'),
    "repeated key in JSON": ('{"a": 1,\n "a": 2}', 'exp.yaml:2:2: key "a" appears twice; keep one of them'),
    "nested flow": ("[" * 100_000, "exp.yaml:1:65: it is nested deeper than 64 levels; flatten it"),
    "nested blocks": ("- " * 100_000, "exp.yaml:1:129: it is nested deeper than 64 levels; flatten it"),
    "nested JSON": (
        '{"a":' * 50_000 + "1" + "}" * 50_000,
        "exp.yaml:1:321: it is nested deeper than 64 levels; flatten it",
    ),
    "billion laughs": (
        "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
        + "".join(f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10)),
        "exp.yaml:6:10: it holds more than 200000 values; use fewer aliases",
    ),
    "no kind": ("apiVersion: kubeflow.org/v1beta1", "kind: it is missing; write kind: Experiment"),
    "misspelled kind": (
        "apiVersion: kubeflow.org/v1beta1\nkind: experimnt",
        'kind: "experimnt" is not accepted; did you mean Experiment?',
    ),
    "kind is a list": ("kind: [Experiment]", 'kind: ["Experiment"] is not accepted; ' + GIVE),
    "another kind": ("apiVersion: v1\nkind: Pod", 'kind: "Pod" is not accepted; ' + GIVE),
    "a job": (
        "apiVersion: batch/v1\nkind: Job",
        (
            'kind: "Job" is not accepted; '
            "give an Experiment, which `katib init FILE` writes from a job; `katib tune` takes the job itself"
        ),
    ),
    "no apiVersion": ("kind: Experiment", "apiVersion: it is missing; write apiVersion: kubeflow.org/v1beta1"),
    "old apiVersion": (
        "apiVersion: kubeflow.org/v1alpha3\nkind: Experiment",
        (
            'apiVersion: "kubeflow.org/v1alpha3" is not the version of Experiment; '
            "`katib convert FILE` makes a file of kubeflow.org/v1beta1 of it"
        ),
    ),
    "two experiments": (
        documents(EXPERIMENT, SECOND),
        (
            f'exp.yaml: it holds 2 Experiments, "demo" at line 1 and "second" at line {SECOND_LINE}; '
            "submit one at a time; `katib run` and `katib apply` take such a file"
        ),
    ),
    "no experiment": (
        documents(CONFIG_MAP, SECRET),
        "exp.yaml: it holds no Experiment, only ConfigMap, Secret; add the Experiment",
    ),
    "a Service beside it": (
        documents("apiVersion: v1\nkind: Service\n", EXPERIMENT),
        'exp.yaml:1: kind: "Service" is not accepted; ' + GIVE,
    ),
}


@pytest.mark.parametrize(("text", "line"), UNREADABLE.values(), ids=UNREADABLE)
def test_what_cannot_be_read_is_explained_in_one_line(text: str | bytes, line: str) -> None:
    assert lines_of(text) == [line]


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
    "no name": (["data: {}\n"], ["ConfigMap at line 1: metadata.name: it is missing; give it a name"]),
    "a name for nobody": (
        ["metadata: {name: My_Map}\n"],
        [
            (
                'ConfigMap at line 1: metadata.name: "My_Map" is not a DNS name; '
                "use lower case letters, digits, hyphens and dots"
            )
        ],
    ),
    "a name twice": (
        ["metadata: {name: a}\n", "metadata: {name: a, namespace: default}\n", "metadata: {name: a, namespace: b}\n"],
        ['ConfigMap at line 5: metadata.name: "a" is used twice; keep one of them'],
    ),
    "a mapping": (
        ["metadata: {name: a}\ndata: {port: {}}\n"],
        ["ConfigMap at line 1: data: it has values that are not text; put them in quotes"],
    ),
    "a list": (
        ["metadata: {name: a}\nbinaryData: []\n"],
        ["ConfigMap at line 1: binaryData: it has values that are not text; put them in quotes"],
    ),
}


@pytest.mark.parametrize(("config_maps", "lines"), COMPANIONS.values(), ids=COMPANIONS)
def test_companions_that_cannot_be_used_are_reported_with_their_line(config_maps: list[str], lines: list[str]) -> None:
    texts = [f"apiVersion: v1\nkind: ConfigMap\n{rest}" for rest in config_maps]

    submission = load_experiment(documents(*texts, EXPERIMENT), "exp.yaml", "default")

    assert [str(error) for error in submission.errors] == lines


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
    "text for a count": (
        with_spec(maxTrialCount="ten"),
        'spec.maxTrialCount: "ten" is not a whole number; write a whole number without quotes',
    ),
    "quoted count": (
        with_spec(maxTrialCount="10"),
        'spec.maxTrialCount: "10" is not a whole number; write a whole number without quotes',
    ),
    "truth for a count": (
        with_spec(parallelTrialCount=True),
        "spec.parallelTrialCount: true is not a whole number; write a whole number without quotes",
    ),
    "fraction for a count": (
        with_spec(maxTrialCount=2.5),
        "spec.maxTrialCount: 2.5 is not a whole number; write a whole number without quotes",
    ),
    "count beyond 32 bits": (
        with_spec(maxTrialCount=2**31),
        "spec.maxTrialCount: 2147483648 does not fit into 32 bits; use a smaller number",
    ),
    "count beyond everything": (
        with_spec(maxTrialCount=10**100),
        'spec.maxTrialCount: "a huge number" does not fit into 32 bits; use a smaller number',
    ),
    "text for the goal": (
        with_spec(objective={"type": "minimize", "objectiveMetricName": "loss", "goal": "low"}),
        'spec.objective.goal: "low" is not a number; write a number without quotes',
    ),
    "truth for the goal": (
        with_spec(objective={"type": "minimize", "objectiveMetricName": "loss", "goal": True}),
        "spec.objective.goal: true is not a number; write a number without quotes",
    ),
    "number for a name": (
        with_spec(algorithm={"algorithmName": 5}),
        "spec.algorithm.algorithmName: 5 is not text; put it in quotes",
    ),
    "mapping for a list": (
        with_spec(parameters={"lr": 1}),
        'spec.parameters: {"lr": 1} is not a list; write a list, one element a line with a dash',
    ),
    "list for a mapping": (
        with_spec(objective=["minimize"]),
        'spec.objective: ["minimize"] is not a mapping; write its fields as key: value',
    ),
    "text for a template": (
        with_spec(trialTemplate="job.yaml"),
        'spec.trialTemplate: "job.yaml" is not a mapping; write its fields as key: value',
    ),
    "null in a list of choices": (
        with_spec(parameters=[{"name": "o", "parameterType": "categorical", "feasibleSpace": {"list": ["a", None]}}]),
        "spec.parameters[0].feasibleSpace.list[1]: null is not text; put it in quotes",
    ),
    "text for truth": (
        with_spec(trialTemplate={**an_experiment()["spec"]["trialTemplate"], "retain": "yes"}),
        'spec.trialTemplate.retain: "yes" is not true or false; write true or false without quotes',
    ),
    "number in labels": (
        {**an_experiment(), "metadata": {"name": "demo", "labels": {"a/b": 1}}},
        'metadata.labels["a/b"]: 1 is not text; put it in quotes',
    ),
    "null in labels": (
        {**an_experiment(), "metadata": {"name": "demo", "labels": {"a": None, "b": "c"}}},
        "metadata.labels.a: null is not text; put it in quotes",
    ),
    "a number beyond all numbers": (
        with_spec(objective={**an_experiment()["spec"]["objective"], "goal": 10**400}),
        'spec.objective.goal: "a huge number" is not a number; write a number without quotes',
    ),
    "metadata is text": (
        {**an_experiment(), "metadata": "demo"},
        'metadata: "demo" is not a mapping; write its fields as key: value',
    ),
}


@pytest.mark.parametrize(("raw", "line"), WRONG_TYPES.values(), ids=WRONG_TYPES)
def test_a_value_of_the_wrong_type_is_shown_with_its_path(raw: dict[str, Any], line: str) -> None:
    assert [str(error) for error in decode_experiment(raw, "default").errors] == [line]


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
    "bytes": (with_spec(goal=b"x"), "spec.goal: bytes is not a JSON value; write text or a number"),
    "a number as key": (with_spec(objective={1: "x"}), "spec.objective: the key 1 is not text; put it in quotes"),
    "half a surrogate pair": (
        with_spec(resumePolicy="\ud800"),
        'spec.resumePolicy: "\\ud800" is half a character; write whole Unicode',
    ),
}


@pytest.mark.parametrize(("raw", "line"), NOT_JSON.values(), ids=NOT_JSON)
def test_what_is_no_json_is_refused(raw: dict[str, Any], line: str) -> None:
    with pytest.raises(InvalidError) as failure:
        decode_experiment(raw, "default")

    assert str(failure.value) == line


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
    "near a known name": (
        "spec.maxTrialcount",
        'spec.maxTrialcount: spec has no field "maxTrialcount"; did you mean maxTrialCount?',
    ),
    "in snake case": (
        "spec.max_trial_count",
        'spec.max_trial_count: spec has no field "max_trial_count"; did you mean maxTrialCount?',
    ),
    "one level too high": ("spec.goal", 'spec.goal: spec has no field "goal"; move it to spec.objective.goal'),
    "indented too little": (
        "spec.algorithmName",
        (
            'spec.algorithmName: spec has no field "algorithmName"; '
            "move it to spec.algorithm.algorithmName or spec.earlyStopping.algorithmName"
        ),
    ),
    "at the top": ("parameters", 'parameters: the document has no field "parameters"; move it to spec.parameters'),
    "nothing like it": (
        "spec.objective.xyz",
        (
            'spec.objective.xyz: objective has no field "xyz"; remove it, or use one of type, goal, '
            "objectiveMetricName, additionalMetricNames, metricStrategies, objectives, constraints"
        ),
    ),
    "in a list": (
        "spec.parameters.0.feasibleSpace.mim",
        'spec.parameters[0].feasibleSpace.mim: feasibleSpace has no field "mim"; did you mean min?',
    ),
    "in metadata": ("metadata.lables", 'metadata.lables: metadata has no field "lables"; did you mean labels?'),
    "with a line break": (
        "spec.a\nb",
        (
            'spec["a\\nb"]: spec has no field "a\\nb"; remove it, or use one of parameters, objective, algorithm, '
            "earlyStopping, trialTemplate, parallelTrialCount, maxTrialCount, maxFailedTrialCount, "
            "metricsCollectorSpec, nasConfig, resumePolicy, warmStart, initialTrials, parameterConstraints"
        ),
    ),
    "deep in the collector": (
        "spec.metricsCollectorSpec.source.fileSystemPath.pth",
        'spec.metricsCollectorSpec.source.fileSystemPath.pth: fileSystemPath has no field "pth"; did you mean path?',
    ),
}


@pytest.mark.parametrize(("path", "line"), UNKNOWN.values(), ids=UNKNOWN)
def test_an_unknown_field_is_named_with_what_was_meant(path: str, line: str) -> None:
    assert [str(error) for error in unknown_fields(with_field(path), Experiment)] == [line]


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
