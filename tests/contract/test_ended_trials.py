"""What every home promises of trials that were evaluated elsewhere."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import structs

from katib.errors import InvalidError
from katib.model.metrics import MetricLog
from katib.model.types import Experiment, Trial
from katib.service.tuning.reading import assignments_of
from katib.service.tuning.service import EndedTrial, TuningService
from katib.service.tuning.states import last_condition, objective_value, state_of
from tests.contract.test_ask_and_tell import NS, ask, ended, kept, service, submit
from tests.support.refusals import refused
from tests.support.waiting import eventually

__all__ = ["kept", "service"]

BEGAN = datetime(2024, 5, 1, 12, tzinfo=UTC)


def elsewhere(identity: str, loss: str = "0.5", **parts: Any) -> EndedTrial:
    values = {"loss": loss} if loss else {}
    return EndedTrial(identity, {"lr": "0.02"}, BEGAN, BEGAN + timedelta(seconds=90), values, **parts)


def trials_of(service: TuningService) -> list[Trial]:
    return list(service.trials(NS, "demo").items)


def test_trials_that_were_evaluated_elsewhere_are_trials_of_the_experiment(service: TuningService) -> None:
    submit(service, maxTrialCount=5)
    readings = tuple(MetricLog(BEGAN + timedelta(seconds=k), "loss", str(1 / (k + 1)), k) for k in range(3))
    sent = (
        elsewhere("0", readings=readings),
        elsewhere("1", "", failure="out of memory"),
        elsewhere("2", "", stopped=True, readings=readings),
    )

    assert service.add_ended_trials(NS, "demo", sent) == 3
    eventually(lambda: {state_of(one) for one in trials_of(service)} == {"Succeeded", "Failed", "EarlyStopped"})
    done, failed, stopped = (
        next(one for one in trials_of(service) if state_of(one) == state)
        for state in ("Succeeded", "Failed", "EarlyStopped")
    )
    assert assignments_of(done) == {"lr": "0.02"}
    assert (done.status.start_time, done.status.completion_time) == (BEGAN, BEGAN + timedelta(seconds=90))
    assert [(one.step, one.value) for one in service.metrics(NS, done.name)][:2] == [(0, "1.0"), (1, "0.5")]
    assert "out of memory" in last_condition(failed).message
    assert objective_value(stopped)


def test_each_is_taken_once_and_the_search_goes_on(service: TuningService) -> None:
    submit(service, maxTrialCount=4, parallelTrialCount=1)
    service.add_ended_trials(NS, "demo", (elsewhere("0"), elsewhere("1", "0.1")))

    assert service.add_ended_trials(NS, "demo", (elsewhere("1", "0.1"), elsewhere("2"))) == 1
    trial = ask(service).trial
    assert trial is not None
    service.tell(NS, trial.name, {"loss": 0.9})
    experiment = ended(service)
    best = service.best(NS, "demo")
    assert (experiment.status.trials, experiment.status.trials_succeeded) == (4, 4)
    assert best is not None
    assert objective_value(best) == "0.1"
    with refused("add-trial-ended"):
        service.add_ended_trials(NS, "demo", (elsewhere("3"),))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (structs.replace(elsewhere("0"), assignments={}), r"trials\[1\]"),
        (structs.replace(elsewhere("0"), assignments={"lr": "99"}), r"trials\[1\]"),
        (elsewhere("0", ""), r'trials\[1\]\.values: "loss" is missing'),
        (elsewhere("0", "high"), r"trials\[1\]\.values\[.*loss.*\]: .*high.* is not a number"),
    ],
    ids=["parameter missing", "out of bounds", "no value", "no number"],
)
def test_what_cannot_be_a_trial_is_refused_and_nothing_is_taken(
    service: TuningService, wrong: EndedTrial, words: str
) -> None:
    submit(service)

    with pytest.raises(InvalidError, match=words):
        service.add_ended_trials(NS, "demo", (elsewhere("1"), wrong))
    assert not trials_of(service)
    assert service.get(Experiment, NS, "demo").status.trials == 0
