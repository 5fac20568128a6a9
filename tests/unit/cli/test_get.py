"""`katib get` as a user of kubectl types it; `tests/integration/test_kubectl.py` compares it with kubectl itself."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from katib.doors.rest.server import Server
from katib.model.names import TITLE_ANNOTATION, name_of_title
from tests.support.golden import Golden
from tests.support.tuning import MemoryTuningService, condition, document, make_experiment, make_trial, patched
from tests.unit.cli.conftest import Katib


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


def test_trials_are_selected_too(katib: Katib, played: MemoryTuningService) -> None:
    of_one = katib("get", "trials", "-l", "katib.kubeflow.org/experiment=waiting", "-o", "name")
    nothing = katib("get", "-l", "team=green")

    assert names(of_one.out) == ["waiting-1"]
    assert nothing == (0, "", "no experiments found\n")


def test_labels_are_shown_without_headings(katib: Katib, played: MemoryTuningService) -> None:
    rows = [line.split() for line in katib("get", "--no-headers", "--show-labels").out.splitlines()]

    assert [(row[0], row[-1]) for row in rows] == [
        ("demo", "<none>"),
        ("waiting", "old=yes,team=red"),
        ("other", "team=blue"),
    ]


def test_several_names_and_kinds_are_shown(katib: Katib, played: MemoryTuningService, golden: Golden) -> None:
    several = katib("get", "experiments", "other", "demo", "-o", "name")
    mixed = katib("get", "exp/demo", "trials.kubeflow.org/demo-0000")
    partly = katib("get", "experiments", "ghost", "demo", "-o", "json")

    assert names(several.out) == ["other", "demo"]
    tables = [block.splitlines() for block in mixed.out.split("\n\n")]
    assert [table[1].split()[0] for table in tables] == ["experiment/demo", "trial/demo-0000"]
    assert partly.code == 2
    golden(partly.err)
    assert [item["metadata"]["name"] for item in json.loads(partly.out)["items"]] == ["demo"]
    assert katib("get", "ghost", "--ignore-not-found") == (0, "", "")


def test_the_title_of_a_study_may_have_slashes(katib: Katib, played: MemoryTuningService) -> None:
    name = name_of_title("team/mine")
    annotations = {TITLE_ANNOTATION: "team/mine"}
    played.put(patched(make_experiment(name, condition("Created")), metadata={"annotations": annotations}))

    for words in (("get", "team/mine"), ("get", "exp/team/mine"), ("describe", "team/mine")):
        assert name in katib(*words).out


@pytest.mark.parametrize(
    "words",
    [
        ("nodes",),
        ("nodes", "a"),
        ("exp/demo", "other"),
        ("exp/",),
        ("node/a",),
        ("demo", "-A"),
        ("demo", "-l", "a=b"),
        ("exp,trials", "-w"),
        ("-l", "a=("),
        ("--field-selector", "a=b"),
        ("trials", "--sort-by=.metadata.name"),
        ("-o", "custom-columns=N:.metadata.name"),
        ("-o=jsonpath={.kind}",),
        ("-o", "go-template=x"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_shown_is_one_line(
    katib: Katib, played: MemoryTuningService, words: tuple[str, ...], golden: Golden
) -> None:
    result = katib("get", *words)

    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    golden(result.err)


@pytest.mark.parametrize(
    ("form", "lines"),
    [
        ((), [("waiting-1", "Running"), ("waiting-1", "Failed")]),
        (("-o", "name"), [("trial/waiting-1",), ("trial/waiting-1",)]),
        (("-o", "yaml"), [("---",), ("name:", "waiting-1"), ("---",), ("name:", "waiting-1")]),
    ],
    ids=["table", "name", "yaml"],
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


def test_objects_are_named_as_kubectl_names_them(katib: Katib, played: MemoryTuningService, golden: Golden) -> None:
    assert "Progress:" in katib("describe", "experiment", "demo").out
    assert "Progress:" in katib("describe", "experiments.kubeflow.org/demo").out
    golden(katib("describe", "pod/x").err)
    assert "give one name" in katib("describe", "demo", "other").err


def test_the_files_of_a_folder_are_applied_and_deleted(
    katib: Katib, service: MemoryTuningService, tmp_path: Path, golden: Golden
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").mkdir()
    for name in ("one", "two"):
        (tmp_path / "folder" / f"{name}.yaml").write_text(document(name))
    (tmp_path / "folder" / "train.py").write_text("print(1)\n")
    with Server(service, host="127.0.0.1", port=0) as server:
        at = ("--server", server.url)
        applied, again = katib("apply", "-f", "folder", *at), katib("apply", "folder", *at)
        service.edit("default", "two", stopped=True)
        (tmp_path / "folder" / "one.yaml").write_text(document("one", trials=9))
        changed = katib("apply", "folder", *at)
        empty = katib("apply", "-f", "empty", *at)
        of_trial = katib("delete", "trial", "one-1", *at)
        deleted = katib("delete", "-f", "folder/one.yaml", *at)
        rest = katib("delete", "exp/two", *at)

    assert applied.out == "experiment/one created\nexperiment/two created\n"
    assert again.out == "experiment/one unchanged\nexperiment/two unchanged\n"
    assert changed.out == "experiment/one configured\nexperiment/two resumed\n"
    golden(empty.err)
    golden(of_trial.err)
    assert (deleted.out, rest.out) == ("experiment/one deleted\n", "experiment/two deleted\n")
    assert list(service.experiments()) == []
