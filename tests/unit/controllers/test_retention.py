"""Which logs of trials go, and that the others stay."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from katib.engine.controllers.retention import Retention, expired
from katib.engine.controllers.trial.observing import TrialLogs
from katib.engine.runtime.objects import Key
from katib.errors import UnavailableError
from katib.model.configuration import RetentionConfig
from katib.model.types import Experiment, Trial
from tests.support.clock import VirtualClock
from tests.support.observations import Fault, FaultyLog, reading

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def trial(name: str, *, experiment: str = "demo", hours: float | None = 1.0, state: str = "Succeeded") -> Trial:
    """Return a trial that ended so many hours ago; None: it runs."""
    ended = None if hours is None else (NOW - timedelta(hours=hours)).isoformat().replace("+00:00", "Z")
    time = {} if ended is None else {"completionTime": ended}
    conditions = [{"type": "Created", "status": "True"}, {"type": "Running", "status": str(ended is None)}]
    if ended is not None:
        conditions.append({"type": state, "status": "True"})
    return Trial.decode(
        {
            "apiVersion": "kubeflow.org/v1beta1",
            "kind": "Trial",
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": f"uid of {name}",
                "labels": {"katib.kubeflow.org/experiment": experiment},
            },
            "spec": {"objective": {"type": "minimize", "objectiveMetricName": "loss"}, "runSpec": {}},
            "status": {"conditions": conditions, **time},
        }
    )


def experiment(best: str, *pareto: str) -> Experiment:
    return Experiment.decode(
        {
            "apiVersion": "kubeflow.org/v1beta1",
            "kind": "Experiment",
            "metadata": {"name": "demo", "namespace": "default"},
            "spec": {},
            "status": {
                "currentOptimalTrial": {"bestTrialName": best},
                **({"paretoSet": {"trials": [{"bestTrialName": name} for name in pareto]}} if pareto else {}),
            },
        }
    )


TRIALS = [
    trial("oldest", hours=30, state="EarlyStopped"),
    trial("old", hours=20, state="Failed"),
    trial("new", hours=2),
    trial("running", hours=None),
    trial("alone", experiment="other", hours=25),
]


@pytest.mark.parametrize(
    ("policy", "best", "expected"),
    [
        pytest.param({}, "", [], id="everything stays"),
        pytest.param({"maxAgeSeconds": 24 * 3600}, "", ["alone", "oldest"], id="age"),
        pytest.param({"maxAgeSeconds": 1}, "", ["alone", "new", "old", "oldest"], id="what runs has no age"),
        pytest.param({"maxTrials": 1}, "", ["old", "oldest"], id="number of each experiment"),
        pytest.param({"maxTrials": 1}, "oldest", ["old"], id="the best stays"),
        pytest.param({"maxTrials": 2, "maxAgeSeconds": 3600}, "alone", ["new", "old", "oldest"], id="both"),
    ],
)
def test_logs_go_by_age_or_number(policy: dict[str, int], best: str, expected: list[str]) -> None:
    found = expired(TRIALS, frozenset({Key("default", best)}), RetentionConfig.model_validate(policy), NOW)

    assert sorted(found_trial.name for found_trial in found) == expected


def test_what_may_go_is_removed_once_and_tried_again_while_the_log_is_away() -> None:
    log, policy = FaultyLog(), [RetentionConfig()]
    for one in TRIALS:
        log.report(one.name, [reading("1")])
    retention = Retention(
        lambda: [experiment("old")], lambda: TRIALS, TrialLogs(log), lambda: policy[0], VirtualClock(NOW)
    )
    retention.look()
    assert log.deleted == []

    policy[0] = RetentionConfig(max_trials=1)
    log.fault = away = Fault(UnavailableError("away"))
    with pytest.raises(UnavailableError):
        retention.look()
    away.on = False
    retention.look()
    retention.look()

    assert log.deleted == ["oldest"]
    assert [log.count(name) for name in ("oldest", "old", "new", "running", "alone")] == [0, 1, 1, 1, 1]


def test_the_logs_of_all_trials_of_a_pareto_set_stay() -> None:
    log = FaultyLog()
    retention = Retention(
        lambda: [experiment("old", "old", "oldest")],
        lambda: TRIALS,
        TrialLogs(log),
        lambda: RetentionConfig(max_trials=1),
        VirtualClock(NOW),
    )

    retention.look()

    assert log.deleted == []
