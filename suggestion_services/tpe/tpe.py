"""Tree-structured Parzen estimators: `tpe` looks at each parameter for itself, `multivariate-tpe` at all together.

Source: [Bergstra2011] Algorithms for Hyper-Parameter Optimization, NeurIPS 24, section 4; multivariate as in
[Falkner2018] BOHB, ICML 2018. Both as Optuna implements them; every option is set here, since Optuna's defaults changed
between releases.
Failed and diverged trials count as worse than all others (Optuna ranks a pruned trial without readings last), running
ones as bad too (constant liar), so that requests in parallel spread. Optuna weighs trials beyond the newest 25 a little
less; "newest" here goes by name, since a history must mean the same in any order.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState
from typing_extensions import override

from katib.errors import FieldError
from katib.space import Point
from suggestion_services.base.algorithm import Algorithm, Outcome, PastTrial, Problem
from suggestion_services.base.settings import Settings
from suggestion_services.base.shared_context import quiet
from suggestion_services.gp.ranks import EarlierRanks
from suggestion_services.tpe.branches import Branches
from suggestion_services.tpe.dimensions import dimension_of, suggested
from suggestion_services.tpe.history import FloatArray, History, IntArray, KnownTrial

optuna.logging.set_verbosity(optuna.logging.WARNING)  # it announces every study, and a request makes one

_STATES = {
    Outcome.PENDING: TrialState.RUNNING,
    Outcome.MEASURED: TrialState.COMPLETE,
    Outcome.BAD: TrialState.PRUNED,
}
_GOOD_SHARE = 0.1
_MOST_GOOD = 25  # Optuna's and hyperopt's limit of trials that count as good
_CANDIDATES = 24
_DRAWS = 20  # the second half of them without the model: in a nearly used up space only chance finds the rest


class Tpe(Algorithm):
    """The algorithm `tpe`."""

    multivariate = False

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._dimensions = {p.name: dimension_of(p) for p in problem.space.parameters}
        self._distributions = {name: dimension.distribution for name, dimension in self._dimensions.items()}
        self._branches = Branches(problem.space, self._dimensions)
        self._options = sampler_options(problem.settings, multivariate=self.multivariate)
        self._known: dict[str, tuple[PastTrial, KnownTrial | None]] = {}
        self._ranks = EarlierRanks(problem)

    @classmethod
    @override
    def check(cls, problem: Problem) -> Sequence[FieldError]:
        one, other = (problem.settings.get(name) for name in ("n_ei_candidates", "n_EI_candidates"))
        if one is None or other is None or one == other:
            return ()
        path, cause = "spec.algorithm.algorithmSettings", f"n_ei_candidates is {one} but n_EI_candidates is {other}"
        return [FieldError(path, cause, "they are the same option, keep one", "setting-conflict")]

    @override
    def suggest(self, trials: Sequence[PastTrial], *, first: int, count: int) -> Iterator[Point]:
        known = self._frozen(trials)
        history = History(self.problem.experiment, known, maximize=self.problem.maximize)
        study = Study(self.problem.experiment, history)
        taken = [trial.params for trial in known if trial.state is TrialState.RUNNING]
        for k in range(first, first + count):
            params = self._draw(study, history, k, taken)
            taken.append(params)
            yield {name: self._dimensions[name].decode(param) for name, param in params.items()}

    def _draw(self, study: Study, history: History, k: int, taken: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return a draw that no running trial has, unless luck is very bad or there are no others.

        In a small space the model alone may choose a running point again. Each draw in vain stays in the study as one
        more running trial, which pushes the next further away.
        """
        random = self.problem.random(k)
        for attempt in range(_DRAWS):
            seed = random.getrandbits(32)
            options = self._options if attempt < _DRAWS // 2 else {**self._options, "n_startup_trials": sys.maxsize}
            study.sampler = _Sampler(self._branches, history, options, seed)
            params = self._ask(study)
            if params not in taken:
                break
        return params

    def _ask(self, study: Study) -> dict[str, Any]:
        trial = study.ask()
        params: dict[str, Any] = {}
        for group in self._branches.present(params):
            params.update({name: suggested(trial, name, distribution) for name, distribution in group.items()})
        return params

    def _frozen(self, trials: Sequence[PastTrial]) -> list[KnownTrial]:
        """Return the trials as Optuna's, converting only those that are new or changed."""
        old = self._known
        self._known = {}
        for trial in trials:
            known = old.get(trial.name)
            if known is None or (known[0] is not trial and known[0] != trial):
                known = trial, self._freeze(trial)
            self._known[trial.name] = known
        counted = self._ranks.values(trials)
        found = []
        for trial, frozen in self._known.values():
            if frozen is not None and trial.is_earlier and trial.outcome is Outcome.MEASURED:
                if trial.name not in counted:
                    continue
                frozen.value = counted[trial.name]
            if frozen is not None:
                found.append(frozen)
        return found

    def _freeze(self, trial: PastTrial) -> KnownTrial | None:
        state = _STATES.get(trial.outcome)
        point = self.problem.space.nearest(trial.assignments.items())
        if state is None or point is None:
            return None
        value = trial.objective if state is TrialState.COMPLETE else None
        present = self.problem.space.active(point) if self.problem.space.conditions else point
        params = {name: self._dimensions[name].encode(value) for name, value in present.items()}
        return KnownTrial(state, value, params, self._distributions)


class MultivariateTpe(Tpe):
    """The algorithm `multivariate-tpe`."""

    multivariate = True


class _Sampler(TPESampler):
    """Optuna's sampler for one suggestion, given the search space instead of inferring it from all trials each time."""

    def __init__(self, branches: Branches, history: History, options: dict[str, Any], seed: int) -> None:
        with quiet:  # gamma and prior_weight leave Optuna in version 6
            super().__init__(**options, seed=seed)
        self._branches = branches
        self._history = history
        self._good_count = options.get("gamma", usual_good_count)
        self._joint_space = branches.joint_space if options["multivariate"] else {}

    @override
    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._joint_space

    @override
    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        params: dict[str, Any] = {}
        for group in self._branches.present(params) if search_space else ():
            joint = {name: distribution for name, distribution in group.items() if name in search_space}
            params.update(super().sample_relative(study, trial, joint))
        return params

    @override
    def _sample(self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]) -> dict[str, Any]:
        """Return what the models of good trials and of the others suggest.

        Optuna sorts all trials again for each parameter; here that is done once. Not a public hook of Optuna: if it
        were renamed, this would no longer be called, and only time would be lost.
        """
        good, others = self._history.split(self._good_count)
        live = [other for other in self._history.live_trials() if other.number != trial.number]
        asked = self._get_internal_repr(live, search_space, study)
        below = self._model({name: self._numbers(name, good) for name in search_space}, search_space)
        above = self._model(
            {name: np.concatenate([self._numbers(name, others), asked[name]]) for name in search_space}, search_space
        )
        samples = below.sample(self._rng.rng, self._n_ei_candidates)
        best = np.argmax(below.log_pdf(samples) - above.log_pdf(samples))
        return {name: space.to_external_repr(samples[name][best].item()) for name, space in search_space.items()}

    def _model(self, numbers: dict[str, FloatArray], search_space: dict[str, BaseDistribution]) -> Any:
        return self._parzen_estimator_cls(numbers, search_space, self._parzen_estimator_parameters)

    def _numbers(self, name: str, rows: IntArray) -> FloatArray:
        """Return the numbers of one parameter in these trials; those that are sampled together are present together."""
        numbers = self._history.column(name)[rows]
        return numbers[~np.isnan(numbers)]


def usual_good_count(n: int) -> int:
    """Return how many of n ended trials count as good by default, as in Optuna."""
    return min(math.ceil(_GOOD_SHARE * n), _MOST_GOOD)


def sampler_options(settings: Settings, *, multivariate: bool) -> dict[str, Any]:
    """Return every option of Optuna's sampler, except the seed."""
    candidates = settings.whole("n_ei_candidates", settings.whole("n_EI_candidates", _CANDIDATES))
    options: dict[str, Any] = {
        "n_startup_trials": settings.whole("n_startup_trials", 10),
        "n_ei_candidates": max(candidates, 1),  # Katib allows 0, with which nothing could be chosen
        "multivariate": multivariate,
        "group": False,
        "constant_liar": True,
    }
    gamma, prior_weight = settings.get("gamma"), settings.get("prior_weight")
    if gamma is not None:
        share = float(gamma)
        options["gamma"] = lambda n: min(math.ceil(share * math.sqrt(n)), _MOST_GOOD)
    if prior_weight is not None:
        options["prior_weight"] = float(prior_weight)
    return options
