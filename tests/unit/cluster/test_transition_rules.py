"""Rules of the API server about changes: what they hold, what only the webhook can hold, and how they get there."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from katib.engine.controllers.kinds import EXPERIMENT
from katib.engine.runtime.objects import Object
from katib.errors import InvalidError
from katib.model.defaults import with_defaults
from katib.model.types import Experiment, ExperimentSpec
from katib.model.validation.update import COUNTS, FIXED_FIELDS, SPEC_RULES, validate_update
from katib.places.cluster.admission.reviews import AdmissionReview
from katib.places.cluster.webhooks.experiments import ExperimentAdmission
from tests.support.experiments import a_double, a_template, an_experiment
from tests.support.gate import CATALOG
from tests.support.golden import Golden
from tests.support.memory_store import MemoryStore
from tests.support.transition_rules import broken_rules, holds

CRD = Path(__file__).parents[3] / "manifests" / "components" / "crds" / "experiments.yaml"
SUCCEEDED = {"type": "Succeeded", "status": "True", "reason": "ExperimentGoalReached"}

Json = dict[str, Any]


def stored(status: Json | None = None, **spec: Any) -> Json:
    raw = with_defaults(Experiment.decode(an_experiment(**spec))).encode()
    return {**raw, "status": status or {}}


def edited(obj: Json, **spec: Any) -> Json:
    """Return an edit of a spec; None takes a field away."""
    fields = {name: value for name, value in {**obj["spec"], **spec}.items() if value is not None}
    return {**copy.deepcopy(obj), "spec": fields}


# --- what holds what --------------------------------------------------------------------------------------------------

OTHER: dict[str, Any] = {
    "parameters": [a_double("other")],
    "objective": {"type": "maximize", "objectiveMetricName": "loss"},
    "algorithm": {"algorithmName": "grid"},
    "earlyStopping": {"algorithmName": "medianstop"},
    "trialTemplate": {**a_template(), "retain": True},
    "metricsCollectorSpec": {"collector": {"kind": "File"}},
    "nasConfig": {"graphConfig": {"numLayers": 3}},
    "resumePolicy": "LongRunning",
}
SAME = {"metricsCollectorSpec": "", "resumePolicy": ""}
"""What may be left out, because that means the same: to the webhook, which puts it back, and not to a rule."""

FULL = {"earlyStopping": {"algorithmName": "random"}, "nasConfig": {"graphConfig": {"numLayers": 2}}}

RULES: list[tuple[str, Json, Json, str, list[str]]] = [
    *((f"{name} changed", stored(**FULL), {name: value}, "update-immutable", [name]) for name, value in OTHER.items()),
    *((f"{name} removed", stored(**FULL), {name: None}, SAME.get(name, "update-immutable"), [name]) for name in OTHER),
    ("earlyStopping added", stored(), {"earlyStopping": OTHER["earlyStopping"]}, "update-immutable", ["earlyStopping"]),
    ("nasConfig added", stored(), {"nasConfig": OTHER["nasConfig"]}, "update-immutable", ["nasConfig"]),
    (
        "an ended one continues",
        stored({"conditions": [SUCCEEDED]}),
        {"maxTrialCount": 50},
        "update-not-restartable",
        [],
    ),
    ("fewer trials than there are", stored({"trials": 9}), {"maxTrialCount": 4}, "update-max-trials", []),
    ("no parallel trials", stored(), {"parallelTrialCount": 0}, "parallel-not-positive", []),
    ("more at once than in all", stored(), {"parallelTrialCount": 999}, "parallel-above-max", []),
]
"""Each rule of the webhook about edits: an edit against it, the webhook's error, and the fields whose rules refuse it.

What no rule refuses is about counts or needs the status. While nobody answers the webhook such an edit is stored, and
the controller makes the best of it: what has ended does not start again, and no trial at a time means one.
"""


@pytest.mark.parametrize(("old", "edit", "origin", "fields"), [row[1:] for row in RULES], ids=[row[0] for row in RULES])
def test_what_a_rule_refuses_is_said_with_both_values_by_the_webhook_that_comes_before_it(
    old: Json, edit: Json, origin: str, fields: list[str]
) -> None:
    new = edited(old, **edit)
    errors = [error.origin for error in validate_update(Experiment.decode(old), with_defaults(Experiment.decode(new)))]
    admission = ExperimentAdmission(MemoryStore({EXPERIMENT}), catalog=lambda: CATALOG, collectors=lambda: ["StdOut"])
    review = AdmissionReview("u", "UPDATE", "default", "demo", new, old)

    assert [message.partition(" ")[0] for message in broken_rules(old, new)] == fields
    if not origin:
        patched = admission.default(review).patched
        assert patched is not None
        assert errors == broken_rules(old, dict(patched)) == []
        return
    with pytest.raises(InvalidError) as raised:
        admission.default(review)
    assert origin in errors
    assert origin in [error.origin for error in raised.value.errors]
    assert all(f"spec.{field}" in str(raised.value) for field in fields)


def test_every_field_of_a_spec_is_fixed_or_a_count() -> None:
    assert {*FIXED_FIELDS, *COUNTS} == set(ExperimentSpec.__struct_encode_fields__)
    assert len(SPEC_RULES) == len(FIXED_FIELDS)


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("value", [7, None], ids=["changed", "removed"])
def test_counts_may_change_whoever_is_asked(name: str, value: int | None) -> None:
    old = stored(maxTrialCount=9, maxFailedTrialCount=3)

    assert broken_rules(old, edited(old, **{name: value})) == []


def test_a_spec_cannot_be_taken_away(golden: Golden) -> None:
    old = stored()

    golden(broken_rules(old, {key: value for key, value in old.items() if key != "spec"}))


@pytest.mark.parametrize(("old", "new"), [([], None), ({"a": 1}, {"a": 1.0}), ({"a": None}, {}), ({"a": []}, {})])
def test_a_rule_sees_a_change_of_form(old: Any, new: Any) -> None:
    rule = "has(self.x) == has(oldSelf.x) && (!has(self.x) || self.x == oldSelf.x)"

    assert not holds(rule, {"x": old}, {} if new is None else {"x": new})
    assert holds(rule, {"x": old}, {"x": old})


# --- edits through the webhook ----------------------------------------------------------------------------------------


def as_stored(raw: Json, new: Json) -> Json:
    """Return what is stored of an edit, after the webhooks."""
    admission = ExperimentAdmission(MemoryStore({EXPERIMENT}), catalog=lambda: CATALOG, collectors=lambda: ["StdOut"])
    verdict = admission.default(AdmissionReview("u", "UPDATE", "default", "demo", new, raw))
    after = dict(new if verdict.patched is None else verdict.patched)
    assert admission.validate(AdmissionReview("u", "UPDATE", "default", "demo", after, raw)).allowed
    return after


SDK = {"type": "minimize", "objectiveMetricName": "loss", "additionalMetricNames": []}
WITHOUT_DEFAULTS = [
    pytest.param(an_experiment(), id="nothing filled in"),
    pytest.param(an_experiment(objective=SDK), id="the official SDK's empty list"),
    pytest.param(an_experiment(resumePolicy=""), id="an empty policy"),
    pytest.param(an_experiment(trialTemplate={**a_template(), "retain": False}), id="an explicit false"),
    pytest.param(an_experiment(parameters=[{**a_double("lr"), "feasibleSpace": {"min": 1, "max": 2}}]), id="numbers"),
    pytest.param(stored(), id="everything filled in"),
]


@pytest.mark.parametrize("raw", WITHOUT_DEFAULTS)
def test_an_edit_of_a_count_changes_nothing_that_the_rules_hold(raw: Json) -> None:
    after = as_stored(raw, edited(raw, parallelTrialCount=1))

    assert broken_rules(raw, after) == []
    assert after["spec"] == {**raw["spec"], "parallelTrialCount": 1}


@pytest.mark.parametrize("raw", WITHOUT_DEFAULTS)
def test_who_writes_the_whole_object_in_another_form_changes_nothing(raw: Json) -> None:
    """Such as Katib's controller, or `kubectl replace` with the file that was applied first."""
    for rewritten in (Experiment.decode(raw), with_defaults(Experiment.decode(raw))):
        assert as_stored(raw, {**raw, "spec": rewritten.encode()["spec"]})["spec"] == raw["spec"]


def test_a_count_that_is_taken_away_is_the_default_again() -> None:
    raw = stored(parallelTrialCount=1)

    assert as_stored(raw, edited(raw, parallelTrialCount=None))["spec"]["parallelTrialCount"] == 3


def test_a_field_of_a_newer_version_can_be_edited() -> None:
    raw = an_experiment(newer=1)

    assert as_stored(raw, edited(raw, newer=2))["spec"] == {**raw["spec"], "newer": 2}


# --- in the definition ------------------------------------------------------------------------------------------------


def definition() -> Json:
    crd: Json = yaml.safe_load(CRD.read_text())
    return crd


def rules_of(crd: Object) -> tuple[list[str], list[str]]:
    root = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    levels = (root, root["properties"]["spec"])
    of_object, of_spec = ([rule["message"] for rule in level.get("x-kubernetes-validations", ())] for level in levels)
    return of_object, of_spec


def test_the_definition_of_the_manifests_has_all_rules() -> None:
    assert [len(rules) for rules in rules_of(definition())] == [1, len(FIXED_FIELDS)]
