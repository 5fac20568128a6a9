"""`katib get` as a user of kubectl types it; `tests/integration/test_kubectl.py` compares it with kubectl itself."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from katib.api.names import TITLE_ANNOTATION, name_of_title
from katib.cli.jsonpath import read_path, read_template
from katib.errors import InvalidError
from katib.rest.server import Server
from tests.support.tuning import MemoryTuningService, condition, document, make_experiment, make_trial, patched
from tests.unit.cli.conftest import Katib

OBJECT = {
    "kind": "Experiment",
    "metadata": {"name": "demo", "labels": {"katib.io/team": "red"}},
    "spec": {
        "maxTrialCount": 4,
        "parameters": [
            {"name": "lr", "feasibleSpace": {"min": "0.01", "max": "1"}},
            {"name": "opt", "feasibleSpace": {"list": ["adam", "sgd"]}, "fixed": True},
        ],
    },
}
_SOME_LABEL = r"{.metadata.labels.katib\.io/team}"


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (".metadata.name", "demo"),
        ('{.metadata.name}{"\\t"}{.spec.maxTrialCount}', "demo\t4"),
        ("{ .kind }/{$.kind}/{@.kind}", "Experiment/Experiment/Experiment"),
        ("{range .spec.parameters[*]}{.name}={.feasibleSpace.max}{'\\n'}{end}", "lr=1\nopt=\n"),
        ("{range .spec.parameters[*]}{.name}:{range .feasibleSpace.list[*]}[{@}]{end};{end}", "lr:;opt:[adam][sgd];"),
        ("{.spec.parameters[-1].name} {.spec.parameters[0:1].name} {.spec.parameters[::2].name}", "opt lr lr"),
        ("{.spec.parameters[0].feasibleSpace}", '{"max":"1","min":"0.01"}'),
        ('{.spec.parameters[?(@.name=="opt")].feasibleSpace.list[*]}', "adam sgd"),
        ("{.spec.parameters[?(@.feasibleSpace.min<0.5)].name}", "lr"),
        ("{.spec.parameters[?(@.fixed)].name}{.spec.parameters[?(@.fixed==true)].name}", "optopt"),
        ("{.spec.parameters[?(@.name != 'lr')].name}", "opt"),
        ("{.spec..name}", "lr opt"),
        ("{.spec.parameters[0,1]['name','fixed']}", "lr opt true"),
        ("{['metadata.name', 'spec.maxTrialCount']}", "demo 4"),
        (_SOME_LABEL + r"{.metadata.labels['katib\.io/team']}{.metadata.labels['katib.io/team']}", "redredred"),
        ("<{.nothing.there[0]}{.spec.parameters[9]}{.metadata.name.x}>", "<>"),
        ('{"a}b"}{.spec.parameters[?(@.name=="})]")].name}', "a}b"),
    ],
)
def test_templates_say_what_they_say_to_kubectl(template: str, text: str) -> None:
    assert read_template(template, "-o jsonpath").render(OBJECT) == text


@pytest.mark.parametrize(
    "path", ["spec.maxTrialCount", ".spec.maxTrialCount", "{spec.maxTrialCount}", "{.spec['maxTrialCount']}"]
)
def test_a_path_has_the_forms_of_kubectl(path: str) -> None:
    assert read_path(path, "--sort-by").values(OBJECT) == [4]


@pytest.mark.parametrize(
    ("template", "cause"),
    [
        ("{.a", "'{.a' is not closed by }"),
        ("{end}", "'{end}' ends no range"),
        ("{range .a[*]}{.b}", "has a range without {end}"),
        ("{.a[x]}", "'[x]' is neither an index, a slice, * nor a name in quotes"),
        ("{.a[?(@.b=~/c/)]}", "is not a filter such as"),
        ('{.a[?(@.b=="c" && @.d)]}', "is not a filter such as"),
        ("{.a[?(@.b==c)]}", "'c' is neither a path, a number, true, false nor a text in quotes"),
        ("{.a(b)}", "'(b)' is not understood as JSONPath"),
        ("", "'' is empty"),
    ],
)
def test_a_template_that_is_not_understood_is_refused_with_its_part(template: str, cause: str) -> None:
    with pytest.raises(InvalidError) as refused:
        read_template(template, "-o jsonpath")

    assert cause in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.fixture
def played(service: MemoryTuningService) -> MemoryTuningService:
    """A service with `demo`, which ran three trials, and `waiting` and `other` with labels."""
    service.submit(document("demo"), source="demo.yaml")
    service.play("default", "demo")
    for name, labels in (("waiting", {"team": "red", "old": "yes"}), ("other", {"team": "blue"})):
        service.put(patched(make_experiment(name, condition("Created")), metadata={"labels": labels}))
    service.put(make_trial("waiting-1", condition("Running"), experiment="waiting"))
    return service


def names(text: str) -> list[str]:
    return [line.partition("/")[2] for line in text.splitlines()]


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ("team=red", ["waiting"]),
        ("team==blue", ["other"]),
        ("team!=red", ["demo", "other"]),
        ("team in (red, blue)", ["waiting", "other"]),
        ("team notin (red),team", ["other"]),
        ("!team", ["demo"]),
        ("team,!old", ["other"]),
        ("=team=red", ["waiting"]),
    ],
)
def test_labels_select_in_all_their_forms(
    katib: Katib, played: MemoryTuningService, selector: str, selected: list[str]
) -> None:
    assert names(katib("get", "-l", selector, "-o", "name").out) == selected


def test_trials_and_fields_are_selected_too(katib: Katib, played: MemoryTuningService) -> None:
    of_one = katib("get", "trials", "-l", "katib.kubeflow.org/experiment=waiting", "-o", "name")
    by_field = katib("get", "--field-selector", "metadata.name!=demo", "-o", "name")
    nothing = katib("get", "-l", "team=green")

    assert names(of_one.out) == ["waiting-1"]
    assert names(by_field.out) == ["waiting", "other"]
    assert nothing == (0, "", "no experiments found\n")


def test_objects_are_sorted_by_any_field(katib: Katib, played: MemoryTuningService) -> None:
    path = "{.status.observation.metrics[0].latest}"
    trials = katib("get", "trials", "--sort-by", path, "-o", f"custom-columns=T:.metadata.name,V:{path},Z:.z")
    by_name = katib("get", "--sort-by=.metadata.name", "--no-headers", "--show-labels")

    assert [line.split() for line in trials.out.splitlines()] == [
        ["T", "V", "Z"],
        ["waiting-1", "<none>", "<none>"],
        ["demo-0002", "0.3", "<none>"],
        ["demo-0001", "0.4", "<none>"],
        ["demo-0000", "0.5", "<none>"],
    ]
    rows = [line.split() for line in by_name.out.splitlines()]
    assert [(row[0], row[-1]) for row in rows] == [
        ("demo", "<none>"),
        ("other", "team=blue"),
        ("waiting", "old=yes,team=red"),
    ]


def test_several_names_and_kinds_are_shown(katib: Katib, played: MemoryTuningService) -> None:
    several = katib("get", "experiments", "other", "demo", "-o", "name")
    mixed = katib("get", "exp/demo", "trials.kubeflow.org/demo-0000")
    partly = katib("get", "experiments", "ghost", "demo", "-o", "json")

    assert names(several.out) == ["other", "demo"]
    tables = [block.splitlines() for block in mixed.out.split("\n\n")]
    assert [table[1].split()[0] for table in tables] == ["experiment/demo", "trial/demo-0000"]
    assert (partly.code, partly.err) == (2, 'error: experiment "ghost" is not in namespace default\n')
    assert [item["metadata"]["name"] for item in json.loads(partly.out)["items"]] == ["demo"]
    assert katib("get", "ghost", "--ignore-not-found") == (0, "", "")


def test_the_title_of_a_study_may_have_slashes(katib: Katib, played: MemoryTuningService) -> None:
    name = name_of_title("team/mine")
    annotations = {TITLE_ANNOTATION: "team/mine"}
    played.put(patched(make_experiment(name, condition("Created")), metadata={"annotations": annotations}))

    for words in (("get", "team/mine"), ("get", "exp/team/mine"), ("describe", "team/mine")):
        assert name in katib(*words).out


def test_one_object_is_the_root_of_a_template_and_several_are_its_items(
    katib: Katib, played: MemoryTuningService
) -> None:
    assert katib("get", "demo", "-o", "jsonpath={.metadata.name}").out == "demo"
    assert katib("get", "-o=jsonpath={range .items[*]}{.metadata.name},{end}").out == "demo,waiting,other,"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ("nodes",),
            'experiment "nodes" is not in namespace default; "nodes" is not a kind either: experiments, trials, ',
        ),
        (("nodes", "a"), '"nodes" is not a kind; use experiments, trials, suggestions or pods'),
        (("exp/demo", "other"), "give a kind and names, or KIND/NAME each time, not both: exp/demo other"),
        (("exp/",), '"exp/" is not KIND/NAME; write it as experiment/my-experiment'),
        (
            ("node/a",),
            '"node/a" is neither the title of a study nor KIND/NAME with experiments, trials, suggestions or',
        ),
        (("demo", "-A"), "names have no meaning beside --all-namespaces; give their namespace with -n"),
        (("demo", "-l", "a=b"), "names have no meaning beside --selector and --field-selector; leave one out"),
        (("exp,trials", "-w"), "--watch shows objects of one kind; leave the others out"),
        (("-l", "a=("), '--selector: "a=(" cannot be understood; write it as app=demo'),
        (
            ("--field-selector", "a=b"),
            '--field-selector: "a" is not a known field selector of Experiment; use metadata.name',
        ),
        (("--sort-by", ".nope"), "--sort-by: no experiment has a value there; check the path"),
        (
            ("-o", "custom-columns=NAME"),
            '-o custom-columns: "NAME" is not HEADING:PATH; write it as NAME:.metadata.name',
        ),
        (("-o", "go-template=x"), "'go-template=x' is not one of 'wide', 'json', 'yaml', 'name', 'jsonpath='"),
    ],
)
def test_what_cannot_be_shown_is_one_line(
    katib: Katib, played: MemoryTuningService, words: tuple[str, ...], line: str
) -> None:
    result = katib("get", *words)

    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert line in result.err


@pytest.mark.parametrize(
    ("form", "lines"),
    [
        ((), [("waiting-1", "Running"), ("waiting-1", "Failed")]),
        (("-o", "name"), [("trial/waiting-1",), ("trial/waiting-1",)]),
        (("-o", "yaml"), [("---",), ("name:", "waiting-1"), ("---",), ("name:", "waiting-1")]),
        (
            ("-o", "jsonpath={.metadata.name}{' '}{.status.conditions[-1].type}{'\\n'}"),
            [("waiting-1", "Running"), ("waiting-1", "Failed")],
        ),
    ],
    ids=["table", "name", "yaml", "jsonpath"],
)
def test_what_changes_is_printed_in_every_form(
    katib: Katib,
    played: MemoryTuningService,
    monkeypatch: pytest.MonkeyPatch,
    form: tuple[str, ...],
    lines: list[tuple[str, ...]],
) -> None:
    looks = 0

    def sleep(_: float) -> None:
        nonlocal looks
        looks += 1
        if looks > 1:
            raise KeyboardInterrupt
        played.put(make_trial("waiting-1", condition("Failed"), experiment="waiting"))

    monkeypatch.setattr(time, "sleep", sleep)
    result = katib("get", "trials", "-w", "-l", "katib.kubeflow.org/experiment=waiting", *form)

    assert result.code == 130
    shown = [tuple(line.split()[:2]) for line in result.out.splitlines() if line == "---" or "waiting-1" in line]
    assert shown == lines


def test_objects_are_named_as_kubectl_names_them(katib: Katib, played: MemoryTuningService) -> None:
    assert "Progress:" in katib("describe", "experiment", "demo").out
    assert "Progress:" in katib("describe", "experiments.kubeflow.org/demo").out
    assert katib("describe", "pod/x").err == (
        "error: pod/x is not of a kind that this command takes; name its experiment or trial or suggestion\n"
    )
    assert "give one name" in katib("describe", "demo", "other").err


def test_the_files_of_a_folder_are_applied_and_deleted(
    katib: Katib, service: MemoryTuningService, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").mkdir()
    for name in ("one", "two"):
        (tmp_path / "folder" / f"{name}.yaml").write_text(document(name))
    (tmp_path / "folder" / "train.py").write_text("print(1)\n")
    with Server(service, host="127.0.0.1", port=0) as server:
        at = ("--server", server.url)
        applied, again = katib("apply", "-f", "folder", *at), katib("apply", "folder", *at)
        service.edit("default", "two", counts={}, stopped=True)
        (tmp_path / "folder" / "one.yaml").write_text(document("one", trials=9))
        changed = katib("apply", "folder", *at)
        empty = katib("apply", "-f", "empty", *at)
        of_trial = katib("delete", "trial", "one-1", *at)
        deleted = katib("delete", "-f", "folder/one.yaml", *at)
        rest = katib("delete", "exp/two", *at)

    assert applied.out == "experiment/one created\nexperiment/two created\n"
    assert again.out == "experiment/one unchanged\nexperiment/two unchanged\n"
    assert changed.out == "experiment/one configured\nexperiment/two resumed\n"
    assert empty.err == "error: empty: is a folder without a file .yaml, .yml, .json; name a file\n"
    assert "trial/one-1 is not of a kind that this command takes; name its experiment" in of_trial.err
    assert (deleted.out, rest.out) == ("experiment/one deleted\n", "experiment/two deleted\n")
    assert list(service.experiments()) == []
