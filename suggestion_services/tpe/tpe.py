"""Tree-structured Parzen estimators: `tpe` models each parameter separately, `multivariate-tpe` all together.

`motpe` is `tpe` for several objectives: the good trials are a tenth, front by front.

Source: [Bergstra2011] Algorithms for Hyper-Parameter Optimization, NeurIPS 24, section 4; multivariate as in
[Falkner2018] BOHB, ICML 2018; several objectives as in [Ozaki2022] Multiobjective Tree-Structured Parzen Estimator,
JAIR 73. All as implemented in Optuna; every option is set here, since Optuna's defaults changed between releases. If a
front does not fit among the good trials as a whole, its trials with the most hypervolume together are used; beyond
three objectives, for which that is expensive, trials spread over all of it.
Failed and diverged trials count as worse than all others (Optuna ranks a pruned trial without readings last), running
ones as bad too (constant liar), so that parallel requests spread. Optuna weighs trials beyond the newest 25 a little
less; "newest" here is a random choice, since a history has no order.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState
from typing_extensions import override

from katib.model.pareto import Point as Costs
from katib.model.pareto import front, hypervolume, spread
from katib.model.space import Point
from suggestion_services.base.algorithm import Algorithm, PastTrial, Problem, TrialOutcome
from suggestion_services.base.allowed import REJECTED, allowed_near
from suggestion_services.base.priors import MOST_GOOD, PriorGuide
from suggestion_services.base.rules import TpeRules
from suggestion_services.base.settings import Settings
from suggestion_services.base.shared_context import quiet
from suggestion_services.base.untried import UntriedPoints
from suggestion_services.gp.ranks import EarlierRanks
from suggestion_services.gp.transfer import learned_words
from suggestion_services.tpe.branches import Branches
from suggestion_services.tpe.dimensions import dimension_of, suggested
from suggestion_services.tpe.history import FloatArray, HistoryStorage, IntArray, KnownTrial

optuna.logging.set_verbosity(optuna.logging.WARNING)  # it logs every study, and a request creates one

_STATES = {
    TrialOutcome.PENDING: TrialState.RUNNING,
    TrialOutcome.MEASURED: TrialState.COMPLETE,
    TrialOutcome.BAD: TrialState.PRUNED,
}
_GOOD_SHARE = 0.1
_MOST_GOOD = 25  # Optuna's and hyperopt's limit of trials that count as good
_MOST_PROMISED = 3  # of ten that would be drawn at random
_MEASURED = 3  # objectives up to which the hypervolume is exact and cheap
_TINY = 1e-12
_CANDIDATES = 24
_DRAWS = 20  # the second half of them without the model: in a nearly exhausted space only chance finds the rest


class Tpe(TpeRules, Algorithm):
    """The algorithm `tpe`."""

    name = "tpe"
    multivariate = False
    guided = 0.5
    """Share of the points after the first ones that priors draw at first, if the trust in them is full."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._dimensions = {p.name: dimension_of(p) for p in problem.space.parameters}
        self._distributions = {name: dimension.distribution for name, dimension in self._dimensions.items()}
        self._branches = Branches(problem.space, self._dimensions)
        self._options = sampler_options(problem.settings, multivariate=self.multivariate)
        self._known: dict[str, tuple[PastTrial, KnownTrial | None]] = {}
        self._counted: Mapping[str, float] = {}
        self._ranks = EarlierRanks(problem)
        self._guide = PriorGuide(problem.space, len(problem.fixed))
        self._n_startup = int(self._options["n_startup_trials"])

    @property
    def maximizes(self) -> bool:
        """Whether the largest of the counted values is the best."""
        return self.problem.maximize

    def counted(self, trials: Sequence[PastTrial]) -> Mapping[str, float]:
        """Return values that replace those of trials; earlier ones without an entry do not count."""
        return self._ranks.values(trials)

    @override
    def explain(self) -> str:
        return "; ".join(filter(None, (learned_words(self.name, self._ranks.weights), self._guide.words(self.name))))

    def promised(self, trials: Sequence[PastTrial]) -> Sequence[Point]:
        """Return the points to try first, from earlier trials."""
        return self._ranks.best(trials)[:_MOST_PROMISED]

    @override
    def suggest(self, trials: Sequence[PastTrial], *, first: int, count: int) -> Iterator[Point]:
        known = self._frozen(trials)
        if self._guide:
            self._guide.learn_from((t for t in trials if not t.is_earlier), self._rank)
        history = HistoryStorage(self.problem.experiment, known, maximize=self.maximizes)
        study = Study(self.problem.experiment, history)
        untried = UntriedPoints(self.problem.space, trials)
        promised = self.promised(trials)
        for k in range(first, first + count):
            if k < len(promised):
                yield untried.take(promised[k], self.problem.random(k))
            else:
                yield self._draw(study, history, k, untried)

    def _draw(self, study: Study, history: HistoryStorage, k: int, untried: UntriedPoints) -> Point:
        """Return an untried draw; in a large space any draw once attempts run out.

        In a small space the model alone may choose a tried point again. Each rejected draw stays in the study as one
        more running trial, which pushes the next further away.
        """
        random = self.problem.random(k)
        share = self.guided * self._guide.trust * self._n_startup / max(k, 1)
        guided = self._guide and (history.n_ended < self._n_startup or random.random() < share)
        for attempt in range(_DRAWS):
            if guided:
                point = self._guide.draw(random, k if attempt == 0 else -1)
                point = point if attempt < REJECTED else allowed_near(self.problem.space, point)
                if point in untried and self.problem.space.allows(point):
                    break
                continue
            seed = random.getrandbits(32)
            options = self._options if attempt < _DRAWS // 2 else {**self._options, "n_startup_trials": sys.maxsize}
            study.sampler = _TpeSampler(self._branches, history, options, seed)
            trial = study.ask()
            params: dict[str, Any] = {}
            for group in self._branches.present(params):
                params.update({name: suggested(trial, name, distribution) for name, distribution in group.items()})
            point = self.problem.space.complete(
                {name: self._dimensions[name].decode(param) for name, param in params.items()}
            )
            if attempt >= REJECTED:
                point = allowed_near(self.problem.space, point)
            if point in untried and self.problem.space.allows(point):
                break
        return untried.take(point, random)

    def _rank(self, trial: PastTrial) -> float | None:
        """Return the sort key of a trial, lower is better; None if it has no value."""
        value = self._counted.get(trial.name, trial.objective)
        return None if trial.outcome is not TrialOutcome.MEASURED else -value if self.maximizes else value

    def _frozen(self, trials: Sequence[PastTrial]) -> list[KnownTrial]:
        """Convert the trials to Optuna's, only those that are new or changed."""
        old = self._known
        self._known = {}
        for trial in trials:
            known = old.get(trial.name)
            if known is None or (known[0] is not trial and known[0] != trial):
                known = trial, self._freeze(trial)
            self._known[trial.name] = known
        self._counted = counted = self.counted(trials)
        sources = {trial.source for trial in trials if trial.is_earlier and trial.name in counted}
        found = []
        for trial, frozen in self._known.values():
            if frozen is None:
                continue
            if trial.name in counted:
                frozen.value = counted[trial.name]
            elif trial.is_earlier and (trial.outcome is TrialOutcome.MEASURED or trial.source not in sources):
                continue
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

    name = "multivariate-tpe"
    multivariate = True
    guided = 0.2


class Motpe(Tpe):
    """The algorithm `motpe`."""

    name = "motpe"

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._options["gamma"] = _good_count_of_fronts

    @property
    @override
    def maximizes(self) -> bool:
        return False  # trials count with their rank, 0 for the best

    @override
    def promised(self, trials: Sequence[PastTrial]) -> Sequence[Point]:
        return ()

    @override
    def counted(self, trials: Sequence[PastTrial]) -> Mapping[str, float]:
        measured = [trial for trial in trials if trial.outcome is TrialOutcome.MEASURED]
        points = [
            tuple(-value if up else value for value, up in zip(trial.values, self.problem.directions, strict=False))
            for trial in measured
        ]
        n_ended = sum(trial.outcome in (TrialOutcome.MEASURED, TrialOutcome.BAD) for trial in trials)
        order = best_first(points, max(_good_count_of_fronts(n_ended), MOST_GOOD if self._guide else 0))
        return {measured[i].name: float(place) for place, i in enumerate(order)}


class _TpeSampler(TPESampler):
    """Optuna's sampler for one suggestion, given the search space instead of inferring it from all trials each time."""

    def __init__(self, branches: Branches, history: HistoryStorage, options: dict[str, Any], seed: int) -> None:
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
        """Return the suggestion of the models of good and other trials.

        Optuna sorts all trials again for each parameter; here that is done once. Not a public hook of Optuna: if it
        were renamed, this would no longer be called, and only time would be lost.
        """
        good, others = self._history.split(self._good_count)
        live = [other for other in self._history.live_trials() if other.number != trial.number]
        asked = self._get_internal_repr(live, search_space, study)
        below = self._model({name: self._numbers(name, good) for name in search_space}, search_space, weighs_alike=True)
        above = self._model(
            {name: np.concatenate([self._numbers(name, others), asked[name]]) for name in search_space}, search_space
        )
        samples = below.sample(self._rng.rng, self._n_ei_candidates)
        best = np.argmax(below.log_pdf(samples) - above.log_pdf(samples))
        return {name: space.to_external_repr(samples[name][best].item()) for name, space in search_space.items()}

    def _model(
        self,
        numbers: dict[str, FloatArray],
        search_space: dict[str, BaseDistribution],
        *,
        weighs_alike: bool = False,
    ) -> Any:
        weights = np.ones(len(next(iter(numbers.values())))) if weighs_alike and numbers else None
        return self._parzen_estimator_cls(numbers, search_space, self._parzen_estimator_parameters, weights)

    def _numbers(self, name: str, rows: IntArray) -> FloatArray:
        """Return the numbers of one parameter in these trials; parameters sampled together are present together."""
        numbers = self._history.column(name)[rows]
        return numbers[~np.isnan(numbers)]


def best_first(points: Sequence[Costs], count: int) -> list[int]:
    """Return the indices of points, so that the first `count` are front after front, the last one spread.

    Args:
        points: Costs of the trials, equally many for each; lower is better.
        count: Number of indices with a significant order.
    """
    found: list[int] = []
    rest = list(range(len(points)))
    while rest and len(found) < count:
        level = [rest[i] for i in front([points[i] for i in rest])]
        chosen = [level[i] for i in _widest([points[i] for i in level], count - len(found))]
        found += chosen
        taken = set(chosen)
        rest = [i for i in rest if i not in taken]
    return found + rest


def _widest(points: Sequence[Costs], count: int) -> list[int]:
    """Return the indices of `count` points of a front with a large hypervolume: greedily, the largest gain first.

    The gain of a point only falls as others are added, so most are measured once.
    """
    if len(points) <= count or len(points[0]) > _MEASURED:
        return spread(points, count)
    reference = tuple(max(1.1 * worst, 0.9 * worst) or _TINY for worst in map(max, zip(*points, strict=True)))
    taken: list[int] = []
    covered = 0.0
    gains = [(-hypervolume([point], reference), i, 0) for i, point in enumerate(points)]
    heapify(gains)
    while len(taken) < count:
        gain, i, compared = gains[0]
        if compared < len(taken):
            more = hypervolume([points[j] for j in taken] + [points[i]], reference) - covered
            heapreplace(gains, (-more, i, len(taken)))
            continue
        heappop(gains)
        taken.append(i)
        covered -= gain
    return taken


def _good_count_of_fronts(n: int) -> int:
    return math.ceil(_GOOD_SHARE * n)


def usual_good_count(n: int) -> int:
    """Return the default number of good trials among n ended ones, as in Optuna."""
    return min(math.ceil(_GOOD_SHARE * n), _MOST_GOOD)


def sampler_options(settings: Settings, *, multivariate: bool) -> dict[str, Any]:
    """Return every option of Optuna's sampler, except the seed."""
    candidates = settings.whole("n_ei_candidates", settings.whole("n_EI_candidates", _CANDIDATES))
    options: dict[str, Any] = {
        "n_startup_trials": settings.whole("n_startup_trials", 10),
        "n_ei_candidates": max(candidates, 1),  # Katib allows 0, which leaves nothing to choose from
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
