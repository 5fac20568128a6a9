"""Why an experiment or a trial is in its state, in the words of a page."""

from __future__ import annotations

import pytest

from katib.ui.views import experiment_head
from katib.ui.words import trial_sentence
from tests.support.tuning import START, condition, make_experiment, make_trial

WORDS = [
    ("Created", "Experiment is created", ""),
    ("Running", "Experiment is running", ""),
    ("Succeeded", "Experiment has succeeded because max trial count has reached", "Finished: all 16 trials ran"),
    (
        "Succeeded",
        "Experiment has succeeded because Objective goal has reached",
        "Finished: loss reached the goal after 16 trials",
    ),
    (
        "Succeeded",
        "Experiment has succeeded because suggestion service has reached the end",
        "Finished: random has no more to try after 16 trials",
    ),
    ("Failed", "Experiment has failed because max failed count has reached", "Failed: 3 trials brought no value"),
    ("Failed", "Experiment has failed because none had a value", "Failed: none had a value"),
    ("Failed", "Suggestion has failed: no module", "Suggestion has failed: no module"),
]
TRIAL_WORDS = [
    ("Created", "Trial is created", ""),
    ("Running", "Trial is running", ""),
    ("Running", "Trial is running: waits for the second worker", "Waits for the second worker"),
    ("Succeeded", "Trial has succeeded", ""),
    ("Succeeded", "Trial has succeeded. Job message: all well", "Job message: all well"),
    (
        "Failed",
        "Trial has failed: its program ended with exit code 3",
        "Exit code 3.",
    ),
    (
        "MetricsUnavailable",
        'Metrics are not available: nothing reported "loss" within 5 s of the end of the job',
        "No value of loss in its output.",
    ),
    (
        "MetricsUnavailable",
        'Metrics are not available: the job ended without reporting "loss"; call katib.report',
        'The job ended without reporting "loss"; call katib.report',
    ),
    ("EarlyStopped", "Trial is early stopped: worse than the median", "worse than the median"),
]


@pytest.mark.parametrize(("state", "message", "expected"), WORDS, ids=[words[2] or words[0] for words in WORDS])
def test_an_experiment_says_why_only_where_its_state_does_not(state: str, message: str, expected: str) -> None:
    counts = {"trialsSucceeded": 13, "trialsFailed": 2, "trialMetricsUnavailable": 1}
    experiment = make_experiment("demo", condition(state, message=message), **counts)

    assert experiment_head(experiment, START)["sentence"] == expected


@pytest.mark.parametrize(
    ("state", "message", "expected"), TRIAL_WORDS, ids=[words[2] or words[0] for words in TRIAL_WORDS]
)
def test_a_trial_says_why_only_where_its_state_does_not(state: str, message: str, expected: str) -> None:
    assert trial_sentence(make_trial("demo-1", condition(state, message=message))) == expected
