"""Repeats with whole controllers: each run is a trial, the experiment is judged by means, and the count is exact."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from katib.engine.controllers.ports import SuggestionsReply
from katib.model.features.repeats.feature import REPEATS
from katib.model.features.repeats.runs import FIRST_RUN_LABEL, first_run
from katib.model.trials import trial_state
from katib.model.types import Trial, TrialState
from tests.support.controllers import FakeServices, JobEnd, World, a_reply
from tests.support.experiments import an_experiment


def repeated(repeats: int = 3, **spec: Any) -> dict[str, Any]:
    made = an_experiment(**spec)
    made["metadata"]["annotations"] = REPEATS.write(repeats)
    return made


def number_of(trial: Trial) -> int:
    """Return 1 for the first run of a configuration, 2 for the second."""
    return 1 if first_run(trial) == trial.name else int(trial.name.rpartition("-")[2])


def noisy(trial: Trial) -> JobEnd:
    """Return a loss that is the learning rate in thousandths, plus a noise that depends on the run."""
    rate = float(trial.spec.parameter_assignments[0].value) * 1000
    return JobEnd(readings=(f"{rate + (-2.0, 0.5, 1.5)[(number_of(trial) - 1) % 3]:.6f}",))


def runs_of(world: World) -> dict[str, list[Trial]]:
    found = defaultdict(list)
    for trial in world.trials():
        found[first_run(trial)].append(trial)
    return found


def test_each_run_is_a_trial_and_the_best_one_has_the_best_mean() -> None:
    with World(script=noisy) as world:
        world.submit(repeated(maxTrialCount=12, parallelTrialCount=3))
        experiment = world.ended()
        runs = runs_of(world)
        best = experiment.status.current_optimal_trial
        first = runs[best.best_trial_name]

    assert experiment.status.trials == experiment.status.trials_succeeded == 12
    assert {len({trial.spec.parameter_assignments for trial in found}) for found in runs.values()} == {1}
    assert sorted(trial.name for trial in first)[:3] == [
        best.best_trial_name,
        f"{best.best_trial_name}-2",
        f"{best.best_trial_name}-3",
    ]
    assert best.parameter_assignments[0].value == "0.010"
    assert best.observation.metrics[0].latest == "10"  # one run had 8
    assert all(FIRST_RUN_LABEL in trial.metadata.labels for trial in first if trial.name != best.best_trial_name)


def test_a_configuration_that_cannot_win_has_fewer_runs_and_others_take_them() -> None:
    def clear(trial: Trial) -> JobEnd:
        rate = float(trial.spec.parameter_assignments[0].value) * 1000
        return JobEnd(readings=(f"{100 * rate + number_of(trial):.3f}",))

    with World(script=clear) as world:
        world.submit(repeated(maxTrialCount=12, parallelTrialCount=1))
        world.ended()
        counts = sorted(map(len, runs_of(world).values()))

    # The first has all its runs; each later one is out after one; what is left over repeats the best.
    assert counts == [1, 1, 1, 1, 1, 1, 1, 5]


def test_without_a_race_to_decide_every_configuration_has_all_its_runs() -> None:
    with World() as world:  # all values are equal
        world.submit(repeated(maxTrialCount=9, parallelTrialCount=2))
        world.ended()

    assert [len(found) for found in runs_of(world).values()] == [3, 3, 3]


@pytest.mark.parametrize("maximum", [3, 4, 5, 7, 10])
def test_the_number_of_trials_is_exact_whatever_is_left_over(maximum: int) -> None:
    with World() as world:
        world.submit(repeated(maxTrialCount=maximum, parallelTrialCount=4))
        experiment = world.ended()

    assert experiment.status.conditions[-1].reason == "ExperimentMaxTrialsReached"
    assert len(world.trials()) == maximum
    assert min(map(len, runs_of(world).values())) >= 3


def test_the_goal_is_compared_with_means() -> None:
    goal = {"type": "minimize", "objectiveMetricName": "loss", "goal": 9.0}
    with World(script=noisy) as world:  # the first run of the first configuration has 8, its mean is 10
        world.submit(repeated(maxTrialCount=6, parallelTrialCount=1, objective=goal))
        missed = world.ended()
    with World(script=noisy) as world:
        world.submit(repeated(maxTrialCount=6, parallelTrialCount=1, objective={**goal, "goal": 10.5}))
        reached = world.ended()

    assert missed.status.conditions[-1].reason == "ExperimentMaxTrialsReached"
    assert reached.status.conditions[-1].reason == "ExperimentGoalReached"
    assert reached.status.trials == 3


def test_a_configuration_whose_first_run_failed_is_not_repeated_and_a_lost_run_leaves_the_mean_of_the_others() -> None:
    def fails(trial: Trial) -> JobEnd:
        is_lost = trial.spec.parameter_assignments[0].value == "0.010" or number_of(trial) == 2
        return JobEnd("Failed", "Error", "boom") if is_lost else JobEnd(readings=(f"0.{number_of(trial)}",))

    with World(script=fails) as world:
        world.submit(repeated(maxTrialCount=7, parallelTrialCount=1, maxFailedTrialCount=7))
        experiment = world.ended()
        runs = runs_of(world)
        states = {
            found[0].spec.parameter_assignments[0].value: Counter(map(trial_state, found)) for found in runs.values()
        }

    assert states["0.010"] == {TrialState.FAILED: 1}
    assert states["0.011"] == {TrialState.SUCCEEDED: 2, TrialState.FAILED: 1}
    assert experiment.status.current_optimal_trial.observation.metrics[0].latest == "0.2"


def test_an_exhausted_search_space_ends_after_the_runs_of_its_last_configuration() -> None:
    def two(first: int, count: int) -> SuggestionsReply:
        given = min(count, max(2 - first, 0))
        return SuggestionsReply(a_reply(first, given).assignments, exhausted=given < count)

    with World(services=FakeServices(answer=two)) as world:
        world.submit(repeated(maxTrialCount=30, parallelTrialCount=1))
        experiment = world.ended()

    assert experiment.status.conditions[-1].reason == "ExperimentSuggestionEndReached"
    assert [len(found) for found in runs_of(world).values()] == [3, 3]


class _Listening(FakeServices):
    """Keeps the trials that it was told of with each question."""

    def get_suggestions(self, _experiment: Any, trials: Sequence[Trial], **options: Any) -> Future[SuggestionsReply]:
        self.told = [*getattr(self, "told", []), list(trials)]
        return super().get_suggestions(_experiment, trials, **options)


def test_the_algorithm_is_told_one_mean_of_each_configuration() -> None:
    services = _Listening()
    with World(script=noisy, services=services) as world:
        world.submit(repeated(maxTrialCount=9, parallelTrialCount=1))
        world.ended()
        first = next(trial for trial in services.told[-1] if trial.spec.parameter_assignments[0].value == "0.010")

    assert [len(told) for told in services.told] == list(range(len(services.told)))
    assert trial_state(first) is TrialState.SUCCEEDED
    assert first.status.observation is not None
    assert first.status.observation.metrics[0].latest == "10"
