"""Rules V7 to V9 and the table of updates in Katib's admission."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from katib.engine.stores.semantics import merged
from katib.errors import InvalidError
from katib.model.defaults import with_defaults
from katib.model.loading import decode_experiment
from katib.model.names import SLURM_OPTIONS_ANNOTATION
from katib.model.restarts import awaits_restart, is_restartable
from katib.model.types import Condition, Experiment
from katib.model.validation import admit_update
from katib.model.validation.update import changed_counts, describe_changes, validate_update
from tests.support.experiments import a_double, a_job, a_template, an_experiment
from tests.support.golden import Golden

MAX_TRIALS = ("Succeeded", "ExperimentMaxTrialsReached")
GOAL = ("Succeeded", "ExperimentGoalReached")
FAILED = ("Failed", "ExperimentFailed")


def stored(*, trials: int = 1, ended: tuple[str, str] | None = None, **spec: Any) -> Experiment:
    """Return an experiment of up to ten trials as a store holds it."""
    experiment = with_defaults(Experiment.decode(an_experiment(**{"maxTrialCount": 10, **spec})))
    conditions = [Condition(type="Created", status="True"), Condition(type="Running", status="False")]
    if ended:
        conditions.append(Condition(type=ended[0], status="True", reason=ended[1]))
    status = structs.replace(experiment.status, trials=trials, conditions=tuple(conditions))
    return structs.replace(experiment, status=status)


def rules_of(old: Experiment, **changed: Any) -> list[tuple[str, str]]:
    """Return path and origin of what forbids a change of the experiment that `stored` made."""
    new = with_defaults(Experiment.decode(an_experiment(**{"maxTrialCount": 10, **changed})))
    return [(error.path, error.origin) for error in validate_update(old, new)]


@pytest.mark.parametrize(
    "counts",
    [{"parallelTrialCount": 5}, {"maxTrialCount": 20}, {"maxTrialCount": 2}, {"maxFailedTrialCount": 4}],
    ids=["parallel", "more", "fewer", "failed"],
)
def test_counts_of_a_running_experiment_may_change(counts: dict[str, int]) -> None:
    assert rules_of(stored(), **counts) == []


def placed(options: str | None) -> dict[str, Any]:
    """Return a trial template with options of Slurm."""
    job = a_job()
    if options is not None:
        job["spec"]["template"]["metadata"] = {"annotations": {SLURM_OPTIONS_ANNOTATION: options}}
    return {"trialTemplate": a_template(trialSpec=job)}


@pytest.mark.parametrize("ended", [None, GOAL], ids=["running", "ended"])
@pytest.mark.parametrize(
    ("before", "after"), [("time=5", "time=7"), ("time=5", None), (None, "time=7")], ids=["other", "less", "more"]
)
def test_options_of_placement_may_change(before: str | None, after: str | None, ended: tuple[str, str] | None) -> None:
    old, new = (stored(ended=ended, **placed(options)) for options in (before, after))
    spec = merged(old.spec.encode(), changed_counts(old, new))

    assert validate_update(old, new) == describe_changes(old, new) == []
    assert spec["trialTemplate"]["trialSpec"] == new.spec.encode()["trialTemplate"]["trialSpec"]


def test_changed_counts_keep_their_own_rules_and_a_budget_may_be_lifted() -> None:
    assert rules_of(stored(trials=10), maxTrialCount=None) == []

    assert rules_of(stored(trials=7), maxTrialCount=0) == [("spec.maxTrialCount", "max-trials-not-positive")]
    assert rules_of(stored(), parallelTrialCount=11) == [("spec.parallelTrialCount", "parallel-above-max")]
    assert rules_of(stored(), maxFailedTrialCount=-1) == [("spec.maxFailedTrialCount", "max-failed-negative")]


@pytest.mark.parametrize("counts", [{"maxTrialCount": 7}, {"maxTrialCount": 6}], ids=["equal", "below"])
def test_v8_a_budget_must_leave_a_trial_to_run(counts: dict[str, int]) -> None:
    assert rules_of(stored(trials=7), **counts) == [("spec.maxTrialCount", "update-max-trials")]


def test_v8_holds_for_any_change_and_v9_for_the_algorithm() -> None:
    old = stored(trials=10, maxFailedTrialCount=2)

    assert rules_of(old, maxFailedTrialCount=3) == [("spec.maxTrialCount", "update-max-trials")]

    assert rules_of(stored(), algorithm={"algorithmName": "tpe"}) == [
        ("spec.algorithm.algorithmName", "update-immutable")
    ]


@pytest.mark.parametrize("ended", [None, MAX_TRIALS, GOAL, FAILED], ids=["running", "budget", "goal", "failed"])
def test_an_unchanged_spec_is_always_accepted(ended: tuple[str, str] | None) -> None:
    assert rules_of(stored(trials=10, ended=ended)) == []


def test_an_unchanged_experiment_is_not_judged_again() -> None:
    """Its algorithm may have left the catalog since; it must still be possible to label and to delete it."""
    old = stored()

    assert validate_update(old, old) == []


@pytest.mark.parametrize("policy", ["LongRunning", "FromVolume"])
def test_a_used_up_budget_may_be_raised_when_the_policy_kept_the_state(policy: str) -> None:
    old = stored(trials=10, ended=MAX_TRIALS, resumePolicy=policy)

    assert is_restartable(old)
    assert rules_of(old, resumePolicy=policy, maxTrialCount=11) == []


@pytest.mark.parametrize(
    ("ended", "trials", "limit", "awaits"),
    [
        pytest.param(MAX_TRIALS, 10, 11, True, id="raised"),
        pytest.param(MAX_TRIALS, 10, None, True, id="taken away"),
        pytest.param(MAX_TRIALS, 10, 10, False, id="used up"),
        pytest.param(GOAL, 5, 10, False, id="not needed"),
        pytest.param(None, 5, 10, False, id="in use"),
    ],
)
def test_an_ended_experiment_awaits_its_restart_when_its_budget_is_larger_than_what_it_used(
    ended: tuple[str, str] | None, trials: int, limit: int | None, *, awaits: bool
) -> None:
    experiment = stored(trials=trials, ended=ended, resumePolicy="LongRunning")
    spec = structs.replace(experiment.spec, max_trial_count=limit)

    assert awaits_restart(structs.replace(experiment, spec=spec)) is awaits


ENDS = {
    "budget, nothing kept": (MAX_TRIALS, "Never", "has ended, and resume policy Never does not let it resume"),
    "goal": (GOAL, "LongRunning", "has reached its end before its budget and cannot be resumed"),
    "failed": (FAILED, "FromVolume", "has failed and cannot be resumed"),
}


@pytest.mark.parametrize(("ended", "policy", "cause"), ENDS.values(), ids=ENDS)
def test_v7_an_end_for_good_is_explained(ended: tuple[str, str], policy: str, cause: str, golden: Golden) -> None:
    old = stored(trials=10, ended=ended, resumePolicy=policy)
    new = with_defaults(Experiment.decode(an_experiment(maxTrialCount=20, resumePolicy=policy)))

    assert not is_restartable(old)
    golden(validate_update(old, new))


def test_a_policy_cannot_be_changed_after_the_end() -> None:
    old = stored(trials=10, ended=MAX_TRIALS)

    assert rules_of(old, maxTrialCount=20, resumePolicy="LongRunning") == [
        ("spec.resumePolicy", "update-not-restartable"),
        ("spec.resumePolicy", "update-immutable"),
    ]


def test_changes_are_named_field_by_field(golden: Golden) -> None:
    old = stored(parameters=[a_double("lr", high="0.5"), a_double("momentum")])
    command = "train --lr ${trialParameters.learningRate}"
    new = with_defaults(
        Experiment.decode(
            an_experiment(
                maxTrialCount=20,
                parameters=[a_double("lr", high="0.9")],
                trialTemplate=a_template(trialSpec=a_job(command, backoffLimit=0)),
                earlyStopping={"algorithmName": "medianstop"},
            )
        )
    )

    golden(str(change) for change in describe_changes(old, new))


def test_many_changes_are_counted_at_the_end(golden: Golden) -> None:
    errors = validate_update(
        stored(parameters=[a_double(f"p{i}") for i in range(20)]),
        stored(parameters=[a_double(f"q{i}") for i in range(20)]),
    )

    assert len(errors) == 11
    golden(errors[-1])


def test_a_truth_value_is_not_a_number(golden: Golden) -> None:
    old, new = (stored(trialTemplate=a_template(trialSpec=a_job(suspend=value))) for value in (1, True))

    golden(str(change) for change in describe_changes(old, new))


def test_an_update_that_is_admitted_has_defaults_and_one_that_is_not_all_its_errors() -> None:
    raw = an_experiment(maxTrialCount=20)

    assert admit_update(decode_experiment(raw, "default"), stored()).spec.resume_policy == "Never"

    raw = an_experiment(maxTrialCount="ten", resumePolicy="LongRunning")

    with pytest.raises(InvalidError) as failure:
        admit_update(decode_experiment(raw, "default"), stored())

    assert [error.origin for error in failure.value.errors] == ["value-type", "update-immutable"]
