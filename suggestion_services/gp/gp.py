"""Bayesian optimization with a Gaussian process, for few, expensive trials.

Each suggestion is computed from scratch from all known trials, so it depends only on the history and its number:

1. the first points fill the space (`design`); with priors each of them comes as believed and as it is;
2. values become scores that are nearly normal (`history`, `warping`), and those of trials that were stopped early
   expected final ones (`steps`); while no trial meets the constraints, their
   violation replaces the value. Failed trials have no score: a model of failures weighs the acquisition as a constraint
   does, and its noise tells failures by chance from those of a region;
3. a Gaussian process is fitted to them: a trend and a Matern kernel with a length scale per parameter, inputs warped
   if the trials require it (`likelihood`, `model`);
4. earlier experiments predict scores, weighted by their agreement (`transfer`); once they make the trials more probable
   they guide the search, even instead of the design, except for points beside tried ones (`_chosen`). No trial is spent
   on testing them, and without their guidance the search is unchanged;
5. running trials are believed to end as the model predicts, which leaves nothing to learn beside them, and the row with
   the largest log expected improvement is searched (`acquisition`, `search`), per duration if requested (`cost`). With
   noise, every second suggestion improves on the best mean, since the best score is a lucky one; not before there are
   more trials than the trend has effects, which look like noise till then.

With several objectives each has a model, and the row is searched that is expected to add most hypervolume to the front
(`front`), without earlier experiments. While no trial meets the constraints, their violation is the only objective.

Sources: [Jones1998] Efficient Global Optimization of Expensive Black-Box Functions, Journal of Global Optimization 13;
[Ginsbourger2010] Kriging Is Well-Suited to Parallelize Optimization, section 5 (believing running trials);
[Cowen-Rivers2022] HEBO, JAIR 74 (transformed outcomes, warped inputs, a linear beside the Matern kernel). Each module
cites those of its own part. With many trials, the model uses a subset: see `subset`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TypeVar

import numpy as np
from typing_extensions import override

from katib.model.space import Point
from suggestion_services.base.algorithm import Algorithm, PastTrial, Problem, Proposal
from suggestion_services.base.allowed import anchors_of
from suggestion_services.base.priors import PriorGuide
from suggestion_services.base.shared_context import one_thread
from suggestion_services.gp.acquisition import NOISY, Acquisition, ExpectedImprovement
from suggestion_services.gp.beliefs import BeliefTerm, believed_row
from suggestion_services.gp.cost import Cost, fit_cost, share_of_cost
from suggestion_services.gp.design import design_point
from suggestion_services.gp.encoding import Encoding
from suggestion_services.gp.front import fit_front
from suggestion_services.gp.history import HistoryReader, ModelHistory
from suggestion_services.gp.likelihood import ThetaLayout
from suggestion_services.gp.model import fit, subset
from suggestion_services.gp.optimize import BoolArray, FloatArray, IntArray
from suggestion_services.gp.regions import (
    in_region,
    is_restricted,
    labels_of,
    nearest,
    region_words,
    restarts_of,
    trust_region,
)
from suggestion_services.gp.search import AcquisitionSearch, is_among
from suggestion_services.gp.steps import final_scores
from suggestion_services.gp.transfer import (
    LEAST_OWN,
    LEAST_TRIALS,
    GuidedModel,
    SourceModel,
    fit_guided,
    learned_words,
    most_own,
)

STARTUP = 5  # four to six are best for budgets of 60; a small design leaves more for the model
_LEAST_MEASURED = 2  # values that the model needs
_MOST_TRIALS = 400  # in the model; beyond, a subset
_MOST_RUNNING = 100  # running trials that the model believes
_MOST_AT_ONCE = 100  # suggestions of one request from the model; further ones fill the space
_ENUMERATED = 2000  # a space of at most this size is enumerated
_WARPED_LEVELS = 4  # a number with fewer levels has nothing to warp
_WARPED_DIMENSIONS = 40  # in more dimensions, trials are too few to learn warps
_TRIED_ENOUGH = ((0.02, 1), (0.1, 5))  # distances within which this many trials are more informative than a source
_MOST_SOURCES = 10  # earlier experiments to learn from, those with most trials
_MOST_OF_SOURCE = 200  # trials in the model of one
_REACH = 0.05  # of running trials, in length scales: nearer points are redundant
_BOLD = 2  # with noise, one suggestion of this many improves on the best score, the others on the best mean
_FEASIBLE = 0.6  # share of feasible trials below which the search is more cautious, so that half of them are
_MORE_CAUTION = 8.0
_DRAWS = 100  # random rows tried before the design repeats a point


_Acquisition = TypeVar("_Acquisition", bound=Acquisition)


class _EarlierExperiment:
    """An earlier experiment, and the model of it alone, fitted on first use.

    Attributes:
        name: Name of the experiment; empty for a file.
        trials: Its trials in the request.
        history: Their history.
    """

    def __init__(self, name: str, trials: Sequence[PastTrial], history: ModelHistory, layout: ThetaLayout) -> None:
        self.name, self.trials, self.history = name, trials, history
        self._layout = layout
        self._known: SourceModel | None = None

    def known(self, encoding: Encoding) -> SourceModel:
        """Return its model and values."""
        if self._known is None:
            rows, scores = self.history.measured, self.history.scores
            kept = subset(rows, scores, _MOST_OF_SOURCE)
            model = fit(encoding.columns(rows[kept]), scores[kept], self._layout)
            self._known = SourceModel(model, self.history.minimized[kept])
        return self._known


class GaussianProcess(Algorithm):
    """The algorithm `gp`."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._encoding = Encoding(problem.space)
        self._reader = HistoryReader(problem, self._encoding)
        self._sources: dict[str, _EarlierExperiment] = {}
        self._weights: dict[str, float] = {}
        self._ignores_earlier = self._has_enough = False
        self._has_region = is_restricted(self._encoding) and len(problem.directions) == 1
        self._in_region = HistoryReader(problem, self._encoding)
        self._side, self._restarts = 1.0, 0
        self._cost_share = 0.0
        self._noise_words = ""
        self._guide = PriorGuide(problem.space, len(problem.fixed))
        self._n_startup = problem.settings.whole("n_startup_trials", STARTUP)
        levels = self._encoding.levels
        warped = [i for i, places in enumerate(levels) if places is None or len(places) >= _WARPED_LEVELS]
        numbers = np.arange(self._encoding.n_numbers)
        warped = warped if self._encoding.count <= _WARPED_DIMENSIONS else []
        self._layout = ThetaLayout(self._encoding.groups, np.array(warped, dtype=np.intp), numbers)

    @override
    def suggest(self, trials: Sequence[PastTrial], *, first: int, count: int) -> Iterator[Point | Proposal]:
        own = [trial for trial in trials if not trial.is_earlier]
        history = self._reader.read(own)
        taken = history.taken
        if self._has_region:
            self._restarts = restarts_of(self._encoding, own, maximize=self.problem.maximize)
            history = self._in_region.read(in_region(own, self._restarts)) if self._restarts else history
        several = len(self.problem.directions) > 1
        self._ignores_earlier = several and any(trial.is_earlier for trial in trials)
        sources = [] if several or self._restarts else self._read_sources(trials)
        self._weights = dict.fromkeys((source.name for source in sources), 0.0)
        self._has_enough = len(history.known) > most_own(self._encoding.count)
        believed = list(history.pending)
        self._noise_words = ""
        promises: tuple[Acquisition, Acquisition | None] | None = None
        for k in range(first, first + count):
            n_known = len(history.known) + len(believed)
            is_early = n_known < self._n_startup or len(history.measured) < _LEAST_MEASURED
            fits = k - first < _MOST_AT_ONCE and self._encoding.count > 0
            row: FloatArray | None = None if self._encoding.count else np.empty(0)
            if fits and (not is_early or (sources and len(history.measured) >= LEAST_OWN)):
                with one_thread:
                    if promises is None:
                        promises = self._fitted(history, sources)
                        self._noise_words = self._words_on_noise(history, promises[0], own)
                    row = self._chosen(history, promises, believed, taken, k, is_early=is_early)
            row = self._designed(k, taken) if row is None else row
            believed.append(row)
            taken = np.concatenate([taken, [row]])
            point = self._encoding.point(row)
            yield (
                Proposal(self.problem.space.format(point), labels_of(k, self._restarts)) if self._has_region else point
            )

    @override
    def explain(self) -> str:
        if self._ignores_earlier:
            ignored = "gp does not learn from earlier trials with several objectives; nsga2 does"
            return "; ".join(filter(None, (ignored, self._guide.words("gp"))))
        costs = f"gp weighs a trial's expected improvement against its duration to the power of {self._cost_share:.2f}"
        learned = learned_words("gp", self._weights)
        if learned and self._has_enough:
            learned = (
                f"gp learned from earlier trials of {', '.join(name or 'the file' for name in self._weights)} at first"
            )
        region = region_words(self._encoding, self._side, self._restarts)
        said = (learned, costs if self._cost_share else "", region, self._guide.words("gp"), self._noise_words)
        return "; ".join(filter(None, said))

    def _words_on_noise(self, history: ModelHistory, promise: Acquisition, own: Sequence[PastTrial]) -> str:
        """Return one sentence on the noise of values near the best one, and the best trial without it.

        Empty if the model sees none, or knows trials by estimates only.
        """
        if not isinstance(promise, ExpectedImprovement) or not self._has_enough or not np.all(np.isnan(history.steps)):
            return ""
        model, kept = promise.objective, np.flatnonzero(history.feasible)
        if isinstance(model, GuidedModel) or model.noise < NOISY or history.seeks_feasible or not len(kept):
            return ""
        means = model.predict(self._encoding.columns(history.measured[kept]))[0]
        order, values = np.argsort(history.scores), history.minimized
        sign, value = -1.0 if self.problem.maximize else 1.0, values[kept[np.argmin(means)]]
        name = next((trial.name for trial in own if trial.objective == sign * value), "an early trial")
        mean = np.interp(means.min(keepdims=True), history.scores[order], values[order])
        slope = float(np.exp(history.transform.log_slopes(mean)[0])) / history.transform.scale
        noise = f"gp estimates noise with a deviation of about {math.sqrt(model.noise) / slope:.2g}"
        return f"{noise}; without it, {name} is the best trial, with about {sign * mean[0]:.4g}"

    def _read_sources(self, trials: Sequence[PastTrial]) -> list[_EarlierExperiment]:
        """Return the earlier experiments with trials to learn from, those with most first; a file counts as one."""
        found: dict[str, list[PastTrial]] = {}
        for trial in trials:
            if trial.is_earlier:
                found.setdefault(trial.source, []).append(trial)
        old, self._sources = self._sources, {}
        for name, theirs in found.items():
            known = old.get(name)
            if known is None or known.trials != theirs:
                known = _EarlierExperiment(
                    name, theirs, HistoryReader(self.problem, self._encoding).read(theirs), self._layout
                )
            self._sources[name] = known
        enough = [s for s in self._sources.values() if len(s.history.measured) >= LEAST_TRIALS and self._encoding.count]
        return sorted(enough, key=lambda source: (-len(source.history.measured), source.name))[:_MOST_SOURCES]

    def _designed(self, k: int, taken: FloatArray) -> FloatArray:
        """Return the row of the design with this number, or a random one if that is taken."""
        block, seed = max(self._n_startup - 1, 1), self.problem.seed_of(0)
        place = max(k - len(self.problem.fixed), 0)
        unit = design_point(place // 2 if self._guide else k, self._encoding.count, block, seed)
        row = self._encoding.from_units(unit[None])[0]
        if self._guide and place % 2 == 0:  # each point comes as believed and as it is, so that they can be compared
            row = believed_row(row, unit, self._encoding, self._guide)
        random = np.random.default_rng(self.problem.seed_of(k))
        for _ in range(_DRAWS):
            if not is_among(row, taken) and self.problem.space.allows(self._encoding.point(row)):
                break
            row = self._encoding.from_units(random.random((1, self._encoding.count)))[0]
        return np.asarray(row)

    def _chosen(
        self,
        history: ModelHistory,
        promises: tuple[Acquisition, Acquisition | None],
        believed: Sequence[FloatArray],
        taken: FloatArray,
        k: int,
        *,
        is_early: bool,
    ) -> FloatArray | None:
        """Return the most promising row; None if the design decides.

        If the sources lead the search to tried points, it has learned their knowledge, or they are wrong.
        """
        own, guided = promises
        if guided is not None:
            row = self._promising(history, guided, believed, taken, k)
            apart = np.max(np.abs(self._encoding.columns(history.measured) - self._encoding.columns(row[None])), axis=1)
            if all(np.count_nonzero(apart < reach) < most for reach, most in _TRIED_ENOUGH):
                return row
        return None if is_early else self._promising(history, own, believed, taken, k)

    def _fitted(
        self, history: ModelHistory, sources: Sequence[_EarlierExperiment]
    ) -> tuple[Acquisition, Acquisition | None]:
        """Return the acquisition of this experiment alone, and with its sources; None if they are uninformative."""
        if len(self.problem.directions) > 1 and not history.seeks_feasible:
            return self._weighed(fit_front(history, self._encoding, self._layout, _MOST_TRIALS), history), None
        if self._has_region and not history.seeks_feasible:
            history = history.only(nearest(self._encoding.columns(history.measured), self._order(history)[0]))
        if not history.seeks_feasible:
            columns = self._encoding.columns(history.measured)
            final = final_scores(columns, history.scores, history.steps, self._layout)
            history = history if final is history.scores else replace(history, values=final)
        rows, scores = history.measured, history.scores
        kept = subset(rows, scores, _MOST_TRIALS)
        columns, minimized = self._encoding.columns(rows[kept]), history.minimized
        known = [source.known(self._encoding) for source in sources]
        learned = fit_guided(columns, minimized[kept], history.transform, self._layout, known)
        self._weights = {source.name: weight for source, weight in zip(sources, learned.weights, strict=True)}
        best = self._order(history)[:1]
        own = self._weighed(ExpectedImprovement(learned.own, float(scores[best[0]])), history)
        if learned.guided is None:
            return own, None
        return own, replace(own, objective=learned.guided, best=float(learned.transform(minimized[best])[0]))

    def _weighed(self, promise: _Acquisition, history: ModelHistory) -> _Acquisition:
        """Return the acquisition with the terms of constraints, failures, costs and priors."""
        constraints = []
        for i in [] if history.seeks_feasible else range(len(self.problem.constraints)):
            read, said = history.constraint_scores(i)
            if len(read):
                kept = subset(history.measured[read], said, _MOST_TRIALS)
                columns = self._encoding.columns(history.measured[read[kept]])
                constraints.append(fit(columns, said[kept], self._layout))
        if len(history.bad):
            labels = history.failure_labels
            kept = subset(history.known, labels, _MOST_TRIALS)
            constraints.append(fit(self._encoding.columns(history.known[kept]), labels[kept], self._layout))
        if self._has_enough and not history.seeks_feasible and np.mean(history.feasible) < _FEASIBLE:
            promise = replace(promise, caution=_MORE_CAUTION)
        cost, beliefs = self._cost_of(history), self._beliefs_of(history)
        return replace(promise, constraints=tuple(constraints), cost=cost, beliefs=beliefs)

    def _beliefs_of(self, history: ModelHistory) -> BeliefTerm | None:
        """Return the term of the priors, with trust in those that the best trials support."""
        if not self._guide:
            return None
        self._guide.learn(list(history.measured[self._order(history)]), self._encoding.point)
        return BeliefTerm.of(self._encoding, self._guide, len(history.known))

    def _cost_of(self, history: ModelHistory) -> Cost | None:
        """Return the cost of points, if the setting `cost_aware` is on."""
        self._cost_share = 0.0
        if not self.problem.settings.get("cost_aware", False):
            return None
        kept = subset(history.measured, history.values, _MOST_TRIALS)
        share = share_of_cost(len(history.known), self.problem.max_trial_count)
        columns = self._encoding.columns(history.measured[kept])
        cost = fit_cost(columns, history.seconds[kept], self._layout, share)
        self._cost_share = share if cost is not None else 0.0
        return cost

    @staticmethod
    def _order(history: ModelHistory, random: np.random.Generator | None = None) -> IntArray:
        """Return the indices of the measured trials, best first, feasible ones before all others; ties shuffled."""
        ties = np.zeros(len(history.scores)) if random is None else random.random(len(history.scores))
        return np.lexsort((ties, history.scores, np.logical_not(history.feasible)))

    def _promising(
        self, history: ModelHistory, promise: Acquisition, believed: Sequence[FloatArray], taken: FloatArray, k: int
    ) -> FloatArray:
        encoding = self._encoding
        promise = replace(promise, beliefs=None) if self._guide and k % 2 and not self._guide.agreement else promise
        promise = promise.of_means() if self._has_enough and k % _BOLD else promise
        running = np.reshape(believed, (len(believed), encoding.count))[-_MOST_RUNNING:]
        random = np.random.default_rng(self.problem.seed_of(k))
        centers = history.measured[self._order(history, random if len(self.problem.directions) > 1 else None)]
        lengths = np.exp(np.mean(self._layout.lengths(promise.thetas), axis=0))
        box = trust_region(encoding, np.concatenate([history.known, running]), centers[0], lengths)
        self._side = box.side
        reach = _REACH * lengths[self._layout.groups]
        believing = promise.believing(encoding.columns(running), reach)
        allowed = self._allowed if self.problem.space.constraints else None
        noise = float(np.mean(self._layout.variances(promise.thetas)[:, 1]))
        part = box.around(centers[0], noise, random)
        row = AcquisitionSearch(encoding, believing, part, random, allowed).best(centers, taken, self._more_rows)
        if part is not box and is_among(row, taken):
            row = AcquisitionSearch(encoding, believing, box, random, allowed).best(centers, taken, self._more_rows)
        return row

    def _allowed(self, rows: FloatArray) -> BoolArray:
        return np.array([self.problem.space.allows(self._encoding.point(row)) for row in rows], dtype=bool)

    @cached_property
    def _more_rows(self) -> FloatArray:
        """All rows of a small space; of a large one with constraints, some that satisfy them."""
        size = self.problem.space.size
        if size is None or size > _ENUMERATED:
            some = anchors_of(self.problem.space) if self.problem.space.constraints else ()
            return np.reshape([self._encoding.row(point) for point in some], (len(some), self._encoding.count))
        return np.array([self._encoding.row(self.problem.space.at(i)) for i in range(size)])
