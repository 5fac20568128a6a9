"""A suggestion is a function of the history: whatever requests a service saw before, it answers as a new one would."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from katib.api.types import ObjectiveSpec
from katib.rpc._generated import api_pb2 as pb
from katib.rpc._generated.suggestions_pb2 import UndecodedSuggestionsRequest
from suggestion_services.algorithms import ENTRIES, find_entry
from suggestion_services.base import PastTrial, Problem
from suggestion_services.base.algorithm import NotYet
from suggestion_services.base.messages import experiment_spec, past_trial
from suggestion_services.base.sessions import Session
from tests.support.searches import algorithm_for
from tests.support.suggestion import a_parameter, a_trial, an_experiment

OBJECTIVE = ObjectiveSpec(objective_metric_name="loss")
LEARNING = [
    entry.info.name
    for entry in ENTRIES
    if entry.info.reads_history and not entry.info.early_stopping and not entry.info.graph_fields
]
SLOW = {"bayesianoptimization"}
SETTINGS: dict[str, dict[str, object]] = {
    "tpe": {"n_startup_trials": 2},
    "multivariate-tpe": {"n_startup_trials": 2},
    "motpe": {"n_startup_trials": 2},
    "nsga2": {"population_size": 3},
    "hyperband": {"r_l": 9, "resource_name": "epochs", "rounds": 0},
    "bohb": {"r_l": 9, "resource_name": "epochs", "rounds": 0, "n_startup_trials": 3},
    "asha": {"r_l": 9, "resource_name": "epochs"},
    "pbt": {"n_population": 5},
}


@st.composite
def trials(draw: st.DrawFn) -> pb.Trial:
    """Draw one of few trials, so that the same comes again, changed or not."""
    condition = draw(st.sampled_from([pb.TrialStatus.RUNNING, pb.TrialStatus.SUCCEEDED, pb.TrialStatus.FAILED]))
    value = draw(st.sampled_from(["1", "2.5", "-3", "nan", None]))
    labels = {"cmaes.suggestion.katib.kubeflow.org/number": str(draw(st.integers(0, 5))), "generation": "0"}
    point = {"x": draw(st.sampled_from(["0.1", "0.5", "0.9"])), "y": draw(st.sampled_from(["0.2", "0.7"]))}
    point["epochs"] = draw(st.sampled_from(["1", "3", "9"]))
    ended = condition != pb.TrialStatus.RUNNING
    return a_trial(f"t{draw(st.integers(0, 9))}", point, value if ended else None, condition, labels=labels)


histories = st.lists(trials(), max_size=12)
requests = st.lists(st.tuples(histories, st.lists(trials(), max_size=3)), min_size=1, max_size=5)


def request_of(own: Sequence[pb.Trial], earlier: Sequence[pb.Trial]) -> UndecodedSuggestionsRequest:
    request = pb.GetSuggestionsRequest(trials=own, earlier_trials=earlier)
    return UndecodedSuggestionsRequest.FromString(request.SerializeToString())


def expected(own: Sequence[pb.Trial], earlier: Sequence[pb.Trial]) -> list[PastTrial]:
    """Return what a request says, decoded without any cache."""
    found: dict[tuple[bool, str], PastTrial] = {}
    for is_earlier, messages in ((True, earlier), (False, own)):
        for message in messages:
            found[not is_earlier, message.name] = past_trial(message, OBJECTIVE, is_earlier=is_earlier)
    return [found[key] for key in sorted(found)]


@settings(deadline=None)
@given(requests)
def test_trials_are_what_the_request_says_whatever_was_asked_before(
    asked: list[tuple[list[pb.Trial], list[pb.Trial]]],
) -> None:
    session = Session(algorithm_for("random"), OBJECTIVE)
    for own, earlier in asked:
        assert repr(session.history(request_of(own, earlier))) == repr(expected(own, earlier))


@pytest.mark.parametrize("name", [name for name in LEARNING if name not in SLOW])
@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(requests)
def test_an_algorithm_that_saw_other_histories_answers_as_a_new_one(
    name: str, asked: list[tuple[list[pb.Trial], list[pb.Trial]]]
) -> None:
    parameters = [a_parameter("x"), a_parameter("y"), a_parameter("epochs", pb.INT, min="1", max="9")]
    experiment = an_experiment(name, parameters, settings={"random_state": 3, **SETTINGS.get(name, {})})
    entry = find_entry(name)
    problem = Problem.of("demo", experiment_spec(experiment), entry.info)
    old = entry.load()(problem)
    session = Session(old, OBJECTIVE)
    for own, earlier in asked:
        history, first = session.history(request_of(own, earlier)), len({trial.name for trial in own})

        assert _answers(old, history, first) == _answers(entry.load()(problem), expected(own, earlier), first)


def _answers(algorithm: object, history: list[PastTrial], first: int) -> list[str]:
    """Return the next suggestions in words, and how they end."""
    found: list[str] = []
    try:
        found.extend(map(repr, algorithm.suggest(history, first=first, count=2)))  # type: ignore[attr-defined]  # any algorithm
    except NotYet:
        found.append("not yet")
    return found
