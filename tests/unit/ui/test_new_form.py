"""The form of the page New and the text beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from katib.doors.ui.new_form import form_of, line_of, unsubmitted, with_form
from katib.doors.ui.new_pages import STARTS, check_draft
from katib.model.types import Experiment
from katib.model.yaml_text import dump_yaml, parse_one, parse_yaml
from tests.support.tuning import MemoryTuningService, document

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples").rglob("experiment*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_a_form_that_nobody_changed_changes_nothing(path: Path) -> None:
    experiment = parse_yaml(path.read_text(), path.name)[0].data

    assert with_form(experiment, form_of(experiment)) == experiment


def test_a_field_changes_what_it_is_about_and_nothing_else() -> None:
    experiment = parse_yaml(document(), "x")[0].data
    form = form_of(experiment) | {"metric": "error", "maxTrialCount": "7", "goal": "0.5"}
    changed = with_form(experiment, form)

    assert changed["spec"].pop("objective") == experiment["spec"].pop("objective") | {
        "objectiveMetricName": "error",
        "goal": 0.5,
    }
    assert changed["spec"].pop("maxTrialCount") == 7
    experiment["spec"].pop("maxTrialCount")
    assert changed == experiment


def test_what_is_no_number_is_kept_and_what_is_emptied_taken_out() -> None:
    experiment = parse_yaml(document(), "x")[0].data

    assert with_form(experiment, form_of(experiment) | {"maxTrialCount": "many"})["spec"]["maxTrialCount"] == "many"

    experiment = parse_yaml(document(), "x")[0].data
    spec = with_form(experiment, form_of(experiment) | {"algorithm": "", "maxTrialCount": ""})["spec"]

    assert "algorithm" not in spec
    assert "maxTrialCount" not in spec


@pytest.mark.parametrize("nonsense", ["", "[]", "3", "spec: 7", "spec: {parameters: [1, {name: [2]}]}", "metadata: x"])
def test_any_text_has_a_form(nonsense: str) -> None:
    documents = [one.data for one in parse_yaml(nonsense, "x")]

    assert form_of(documents[0] if documents and isinstance(documents[0], dict) else {})["parameters"] is not None


def test_an_error_is_found_at_its_line_or_that_of_broken_text() -> None:
    text = "spec:\n  parameters:\n    - name: a\n    - name: b\n      feasibleSpace:\n        min: '3'\n"

    assert line_of(text, "spec.parameters[1].feasibleSpace.min") == 6
    assert line_of(text, "spec.parameters[1].feasibleSpace.max") == 5
    assert line_of(text, "spec.objective") == 1
    assert line_of(text, "nowhere") is None
    assert line_of("a: [", "a") is None

    answer = check_draft(MemoryTuningService(), "kind: Experiment\nspec: {a: [1\n")

    assert answer["form"] is None
    assert answer["errors"][0]["line"] in (2, 3)


def test_a_draft_is_checked_whole() -> None:
    service = MemoryTuningService()
    good = check_draft(service, document())
    bad = check_draft(service, document().replace('"maxTrialCount": 3', '"maxTrialCount": 0'))

    assert good["errors"] == []
    assert good["trial"]["assignments"].keys() == {"x"}
    assert f"echo loss={good['trial']['assignments']['x']}" in good["trial"]["yaml"]
    assert [error["path"] for error in bad["errors"]] == ["spec.maxTrialCount"]
    assert bad["trial"] is None
    assert list(service.experiments()) == []


@pytest.mark.parametrize("start", STARTS)
def test_every_start_lacks_nothing_but_programs_of_the_user(start: str) -> None:
    text = (ROOT / "katib" / "doors" / "ui" / "starts" / f"{start}.yaml").read_text()
    answer = check_draft(MemoryTuningService(), text.replace("algorithmName: tpe", "algorithmName: random"))
    causes = [error["cause"] for error in answer["errors"]]

    assert all(" is not on this machine" in cause or " is not in /" in cause for cause in causes), causes
    assert answer["form"]["parameters"]


def test_a_clone_has_what_a_user_wrote_and_a_free_name() -> None:
    service = MemoryTuningService()
    service.submit(document("demo"), source="demo.yaml")
    service.submit(document("demo-2"), source="demo.yaml")
    service.play("default", "demo")
    names = [one.name for one in service.experiments("default")]
    clone = unsubmitted(service.get(Experiment, "default", "demo").encode(), names)

    assert clone["metadata"]["name"] == "demo-3"
    assert "status" not in clone
    assert service.submit(dump_yaml(clone), source="clone.yaml").outcome == "created"
    assert parse_one(dump_yaml(clone), "clone.yaml") == clone
