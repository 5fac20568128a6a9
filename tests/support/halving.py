"""Experiments with rungs, run without controllers: trials that take turns, ends of any kind, restarts in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from katib.wire.rpc._generated import api_pb2 as pb
from suggestion_services.algorithms import find_entry
from suggestion_services.base.algorithm import Algorithm, AwaitingTrials, PastTrial, Problem, Proposal, TrialOutcome
from suggestion_services.base.messages import experiment_spec
from tests.support.suggestion import Assignments, a_parameter, an_experiment

SPACE = (a_parameter("x"), a_parameter("y"), a_parameter("epochs", pb.INT, min="1", max="27"))
SETTINGS: Mapping[str, object] = {"r_l": 9, "resource_name": "epochs"}


def a_learning_curve(point: Assignments) -> float:
    """Return a loss that falls with the epochs towards what the other parameters allow."""
    return (float(point["x"]) - 0.3) ** 2 + (float(point["y"]) - 0.6) ** 2 + 1 / float(point["epochs"])


def halving_problem(
    name: str = "hyperband",
    parameters: Sequence[pb.ParameterSpec] = SPACE,
    *,
    experiment: str = "demo",
    max_trial_count: int = 0,
    **settings: object,
) -> Problem:
    """Return a problem of hyperband or bohb; settings override `SETTINGS`, None leaves one out."""
    given = {key: value for key, value in {**SETTINGS, **settings}.items() if value is not None}
    message = an_experiment(name, parameters, name=experiment, settings=given, max_trial_count=max_trial_count)
    return Problem.of(experiment, experiment_spec(message), find_entry(name, early_stopping=False).info)


def algorithm_of(problem: Problem, name: str = "hyperband") -> Algorithm:
    """Return a new object, as after a restart."""
    made: Algorithm = find_entry(name, early_stopping=False).load()(problem)
    return made


End = Callable[[PastTrial], PastTrial]


def measured(trial: PastTrial) -> PastTrial:
    """Return the trial with its loss."""
    return replace(trial, outcome=TrialOutcome.MEASURED, objective=a_learning_curve(dict(trial.assignments)))


def ends_as(outcome: TrialOutcome) -> End:
    """Return what ends a trial without a value."""
    return lambda trial: replace(trial, outcome=outcome)


@dataclass
class Run:
    """One experiment: asks, starts what it gets, ends the oldest trial, asks again."""

    problem: Problem
    name: str = "hyperband"
    parallel: int = 1
    end: End = measured
    keeps_labels: bool = True
    restarts: bool = False
    shows: Callable[[PastTrial], bool] = lambda _trial: True
    trials: list[PastTrial] = field(default_factory=list)
    waits: int = 0
    asked: int = 0

    def __post_init__(self) -> None:
        self.algorithm = algorithm_of(self.problem, self.name)

    def ask(self, count: int) -> list[Proposal]:
        """Return suggestions and note whether the algorithm waits for more."""
        if self.restarts:
            self.algorithm = algorithm_of(self.problem, self.name)
        self.asked += 1
        given: list[Proposal] = []
        history = sorted(filter(self.shows, self.trials), key=lambda trial: trial.name)
        try:
            for suggestion in self.algorithm.suggest(history, first=len(self.trials), count=count):
                assert isinstance(suggestion, Proposal)
                given.append(suggestion)
        except AwaitingTrials:
            self.waits += 1
            assert given or self.running()
        return given

    def running(self) -> list[PastTrial]:
        return [trial for trial in self.trials if trial.outcome is TrialOutcome.PENDING]

    def start(self) -> None:
        """Fill the free places."""
        budget = self.problem.max_trial_count
        room = self.parallel - len(self.running())
        wanted = room if budget is None else min(room, budget - len(self.trials))
        for proposal in self.ask(wanted) if wanted else ():
            labels = proposal.labels if self.keeps_labels else {}
            name = f"t{len(self.trials):05}"
            self.trials.append(PastTrial(name, TrialOutcome.PENDING, proposal.assignments, labels=labels))

    def step(self) -> bool:
        """Start what can be and end the oldest trial; return whether there was one."""
        self.start()
        running = self.running()
        if not running:
            return False
        self.trials[self.trials.index(running[0])] = self.end(running[0])
        return True

    def to_the_end(self, most: int = 10_000) -> Run:
        """Run until nothing is left to do."""
        for _ in range(most):
            if not self.step():
                return self
        raise AssertionError(f"no end after {most} trials")

    def rungs(self) -> Counter[tuple[str, str, str]]:
        """Return how many trials each rung of each bracket has: (bracket, rung, epochs)."""
        kind = f"{self.name}.suggestion.katib.kubeflow.org"
        return Counter(
            (t.labels[f"{kind}/bracket"], t.labels[f"{kind}/rung"], t.assignments["epochs"]) for t in self.trials
        )
