"""The algorithm `bohb`: Hyperband with new configurations from a model of the trials at the largest resource.

Source: [Falkner2018] BOHB: Robust and Efficient Hyperparameter Optimization at Scale, ICML 2018: the model is of the
largest resource that has enough trials, and a share of the configurations stays random, so that the guarantees of
Hyperband hold.
Differs from the paper: the model also uses the configurations that ended below that resource (`evidence`), and can be
that of another algorithm. Failed trials count as worse than all others, and pending configurations as taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from typing_extensions import override

from katib.errors import FieldError, NotFoundError
from katib.model.space import Point
from suggestion_services.algorithms import find_entry
from suggestion_services.base.algorithm import Algorithm, PastTrial, Problem, Proposal, TrialOutcome
from suggestion_services.base.settings import LiteralError, Settings, SettingValue
from suggestion_services.bohb.density import DensityModel
from suggestion_services.bohb.evidence import evidence_at
from suggestion_services.hyperband.hyperband import Hyperband
from suggestion_services.hyperband.rungs import Labels

_MODELS: dict[str, tuple[str, dict[str, SettingValue]]] = {
    "kde": ("", {}),
    "tpe": ("multivariate-tpe", {"n_startup_trials": 0}),
    "gp": ("gp", {}),
}
_RANDOM_FRACTION = 1 / 3  # as in the paper
_ENDED = (TrialOutcome.MEASURED, TrialOutcome.BAD)


class Bohb(Hyperband):
    """The algorithm `bohb`."""

    labels = Labels("bohb.suggestion.katib.kubeflow.org")
    rounds = 0  # unlimited: a model improves with every round

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        searched = tuple(p for p in problem.space.parameters if p is not self._parameter)
        self._searched = replace(problem.space, parameters=searched)
        self._random_fraction = problem.settings.number("random_fraction", _RANDOM_FRACTION)
        self._enough = problem.settings.whole("n_startup_trials", len(searched) + 3)
        self._model = self._build() if searched else None
        self._known: list[PastTrial] = []

    def _build(self) -> Algorithm:
        name, settings = _MODELS[self.problem.settings.text("model", "kde")]
        loaded: type[Algorithm] = find_entry(name, early_stopping=False).load() if name else DensityModel
        seed = self.problem.settings.get("random_state")
        given = Settings(settings if seed is None else {**settings, "random_state": seed})
        return loaded(replace(self.problem, space=self._searched, settings=given, max_trial_count=None))

    @classmethod
    @override
    def check(cls, problem: Problem) -> Sequence[FieldError]:
        model = problem.settings.text("model", "kde")
        name = _MODELS[model][0]
        try:
            _ = find_entry(name, early_stopping=False) if name else None
        except NotFoundError:
            cause = f"model {model} is not installed here"
            return [LiteralError("spec.algorithm.algorithmSettings.model", cause, "use kde", "model-unknown")]
        return super().check(problem)

    @override
    def prepare(self, trials: Sequence[PastTrial]) -> None:
        """Collect the model's data: all configurations, by the largest resource that enough trials had."""
        super().prepare(trials)
        by_amount: dict[float, list[PastTrial]] = {}
        for trial in trials:
            amount = self.amount(trial)
            if trial.outcome in _ENDED and amount is not None:
                by_amount.setdefault(amount, []).append(trial)
        amounts = [
            amount
            for amount, found in by_amount.items()
            if sum(trial.outcome is TrialOutcome.MEASURED for trial in found) >= self._enough
        ]
        self._known = []
        if amounts:
            pending = (t for t in trials if t.outcome is TrialOutcome.PENDING and not t.labels.get(self.labels.parent))
            self._known = [*evidence_at(max(amounts), by_amount, self._resource.name), *pending]

    @override
    def draw(self, k: int) -> Point:
        random = self.problem.random(k)
        point = self.sampled(random, k)
        if self._model is None or not self._known or random.random() < self._random_fraction:
            return point
        suggested = next(iter(self._model.suggest(self._known, first=k, count=1)), None)
        if isinstance(suggested, Proposal):
            suggested = self._searched.nearest(suggested.assignments.items())
        return point if suggested is None else {**point, **suggested}

    @override
    def noted(self, k: int, point: Point) -> None:
        if self._known:
            self._known.append(PastTrial(f"/{k}", TrialOutcome.PENDING, self.problem.space.format(point)))
