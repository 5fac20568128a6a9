"""The searches that the quality benchmark measures are those that an experiment gets."""

from __future__ import annotations

from benchmarks.search.own import OwnSearch, parameter
from benchmarks.search.problems import Setting, Task, Values, doubles
from katib.model.types import AlgorithmSetting, AlgorithmSpec, ExperimentSpec, ObjectiveSpec, ObjectiveType
from suggestion_services.algorithms import find_entry
from suggestion_services.base.algorithm import PastTrial, Problem, Proposal, TrialOutcome

TRIALS = 40


def bowl(values: Values) -> float:
    return sum((float(value) - 1.0) ** 2 for value in values.values())


TASK = Task("bowl", "test", doubles("x y z", -5.0, 5.0), bowl, 0.0)


def test_labels_of_a_suggestion_come_back_with_its_trial() -> None:
    """Without them `cmaes` would cut its generations in the order of the names, which are random."""
    search = OwnSearch("cmaes", TASK, Setting(seed=3, evaluations=TRIALS, parallel=1))
    measured = []
    for _ in range(TRIALS):
        asked = search.ask()
        assert asked is not None
        name, values = asked
        measured.append(bowl(values))
        search.tell(name, measured[-1])

    assert measured == in_the_order_of_suggestions("cmaes", seed=3)


def in_the_order_of_suggestions(name: str, *, seed: int) -> list[float]:
    """Return what a service gets to see whose trials come back with labels and sorted by number."""
    entry = find_entry(name)
    settings = (AlgorithmSetting(name="random_state", value=str(seed)),)
    spec = ExperimentSpec(
        parameters=tuple(map(parameter, TASK.variables)),
        objective=ObjectiveSpec(type=ObjectiveType.MINIMIZE, objective_metric_name="loss"),
        algorithm=AlgorithmSpec(algorithm_name=name, algorithm_settings=settings),
        max_trial_count=TRIALS,
        parallel_trial_count=1,
    )
    algorithm = entry.load()(Problem.of("benchmark", spec, entry.info))
    trials: list[PastTrial] = []
    for k in range(TRIALS):
        (proposal,) = algorithm.suggest(trials, first=k, count=1)
        assert isinstance(proposal, Proposal)
        value = bowl({name: float(text) for name, text in proposal.assignments.items()})
        labels = proposal.labels
        trials.append(PastTrial(f"t{k:03}", TrialOutcome.MEASURED, proposal.assignments, value, labels=labels))
    return [trial.objective for trial in trials]
