"""A search for scikit-learn: `KatibSearchCV(estimator, {"C": katib.search.double(0.01, 100, log=True)}).fit(X, y)`.

It is one of scikit-learn's own searches, whose candidates come from ask and tell: scikit-learn evaluates them, and
keeps `cv_results_`, `best_estimator_` and the rest. The experiment is kept as any other, with its page and `katib why`.
"""

from __future__ import annotations

import math
import re
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.exceptions import FitFailedWarning
from sklearn.model_selection._search import BaseSearchCV

from katib.errors import invalid
from katib.sdk.asking import AskedTrial
from katib.sdk.creating import create
from katib.sdk.search import Parameter, categorical

_LONGEST_WAIT_SECONDS = 0.5
_LOOK_SECONDS = 0.02
_FEWEST_SAMPLES = 20
"""Of a subset of the training samples."""
_MOST_RUNGS = 4
_MEAN = "mean_test_"
_ALL_FAILED = "fits failed"
"""What scikit-learn says where no fold of the candidates that it was given could be fitted."""

Evaluate = Callable[..., dict[str, Any]]


class KatibSearchCV(BaseSearchCV):
    """Search the parameters of an estimator by cross-validation, with an algorithm that learns from the scores.

    Beside `space`, `n_trials`, `algorithm`, `halving` and `options`, the parameters and the attributes of a fitted
    search are those of scikit-learn's `RandomizedSearchCV`: a search takes its place, which is why its constructor has
    so many. A fitted search has `experiment_name_`, too, for `katib.open` and `katib ui`.

    Args:
        estimator: What is fitted.
        space: By name of a parameter, as `clf__C` in a pipeline: a parameter made with `katib.search`, or a list of
            choices.
        n_trials: How many candidates are evaluated.
        algorithm: Proposes candidates; `katib algorithms` lists them, and `auto` chooses one.
        halving: Successive halving: each candidate is scored on a small part of the training samples first, then on
            `halving` times as many, and so on; early stopping (`asha`) ends it where it is not among the best share.
            None: all samples at once. `cv_results_` has a row for each evaluation, with `n_resources`.
        options: Further arguments of `katib.create`, such as `name`, `data_dir`, `server` or `settings`.
        scoring: One score or several; with several, `refit` names the one to maximize.
        n_jobs: How many folds are fitted at once.
        refit: Whether to fit the best candidate to all samples, or by which score.
        cv: The folds.
        verbose: How much scikit-learn prints.
        error_score: The score of a fit that failed, or `raise`. A candidate without score is a failed trial.
        return_train_score: Whether `cv_results_` has scores of the training samples.

    Raises:
        InvalidError: At `fit`: anything wrong with the space or the options.
    """

    def __init__(
        self,
        estimator: Any,
        space: Mapping[str, Parameter | Sequence[Any]],
        *,
        n_trials: int = 20,
        algorithm: str = "auto",
        halving: int | None = None,
        options: Mapping[str, Any] | None = None,
        scoring: Any = None,
        n_jobs: int | None = None,
        refit: Any = True,
        cv: Any = None,
        verbose: int = 0,
        error_score: Any = math.nan,
        return_train_score: bool = False,
    ) -> None:
        super().__init__(
            estimator,
            scoring=scoring,
            n_jobs=n_jobs,
            refit=refit,
            cv=cv,
            verbose=verbose,
            error_score=error_score,
            return_train_score=return_train_score,
        )
        self.space = space
        self.n_trials = n_trials
        self.algorithm = algorithm
        self.halving = halving
        self.options = options

    def _check_input_parameters(self, X: Any, y: Any, split_params: Mapping[str, Any]) -> None:  # noqa: N803 - scikit-learn's name
        """Note how many training samples there are, before the first candidate."""
        super()._check_input_parameters(X, y, split_params)
        if self.halving is not None:
            train, _ = next(iter(self._checked_cv_orig.split(X, y, **split_params)))
            self._train_count = len(train)

    def _run_search(self, evaluate_candidates: Evaluate) -> None:
        """Evaluate what is asked for, until the budget is used up."""
        metrics = self._metrics()
        objective = metrics[0]
        space = {name: one if isinstance(one, Parameter) else categorical(one) for name, one in self.space.items()}
        stopping = {} if self.halving is None else _stopping(self.halving)
        name = f"{_slug(type(self.estimator).__name__)}-{uuid.uuid4().hex[:8]}"
        arguments = {
            "name": name,
            "parameters": space,
            "objective": objective,
            "direction": "maximize",
            "additional_metrics": [*metrics[1:], "fit_time"],
            "max_trials": self.n_trials,
            "algorithm": self.algorithm,
            **stopping,
            **(self.options or {}),
        }
        with create(**arguments) as experiment:
            self.experiment_name_ = experiment.name
            trials, evaluated, failure = 0, 0, None
            for trial in experiment.ask_until_done():
                trials += 1
                with trial:
                    try:
                        self._evaluate(trial, evaluate_candidates, objective)
                        evaluated += 1
                    except ValueError as error:
                        if self.error_score == "raise" or _ALL_FAILED not in str(error):
                            raise
                        failure = error
                        trial.fail(str(error).strip().splitlines()[-1])
                        warnings.warn(f"{trial.parameters}: {error}", FitFailedWarning, stacklevel=2)
            if failure is not None and not evaluated:
                raise failure
            if not trials:
                cause, remedy = "it has ended already", "choose another name, or leave the name out"
                raise invalid(f"experiment {experiment.name}", cause, remedy, "search-ended")

    def _evaluate(self, trial: AskedTrial, evaluate_candidates: Evaluate, objective: str) -> None:
        """Evaluate a candidate, on ever more samples with halving, and end its trial."""
        factor = self.halving or 1
        rungs = [1] if self.halving is None else _rungs(self._train_count, factor)
        for number, share in enumerate(reversed(rungs)):
            began = time.monotonic()
            if self.halving is None:
                results = evaluate_candidates([trial.parameters])
            else:
                part = _PartOfTraining(self._checked_cv_orig, share)
                more = {"iter": [number], "n_resources": [self._train_count // share]}
                results = evaluate_candidates([trial.parameters], cv=part, more_results=more)
            scores = {key.removeprefix(_MEAN): float(results[key][-1]) for key in results if key.startswith(_MEAN)}
            values = {objective: scores["score"]} if set(scores) == {"score"} else scores
            values = {**values, "fit_time": float(results["mean_fit_time"][-1])}
            if not math.isfinite(values.get(objective, math.nan)):
                trial.fail("its score is not a number: a fit failed, as the warnings of scikit-learn say")
                return
            if share == 1:
                trial.tell(values)
                return
            trial.report(values, step=factor**number)
            took = time.monotonic() - began
            _await_verdict(trial, min(took * factor, _LONGEST_WAIT_SECONDS))
            if trial.should_stop:
                trial.report(values, step=factor**number)  # raises StopTrial

    def _metrics(self) -> list[str]:
        """Return the names of the scores, that which is maximized first."""
        if isinstance(self.scoring, str):
            return [self.scoring]
        names = list(self.scoring) if isinstance(self.scoring, Mapping | list | tuple | set) else []
        first = self.refit if isinstance(self.refit, str) else [*names, "score"][0]
        return [first, *(name for name in names if name != first)]

    @staticmethod
    def _select_best_index(refit: Any, refit_metric: str, results: Mapping[str, Any]) -> int:
        """Return the best row; with halving, of those that were evaluated on all samples."""
        if callable(refit) or "n_resources" not in results:
            return int(BaseSearchCV._select_best_index(refit, refit_metric, results))  # noqa: SLF001 - of the base
        resources = np.asarray(results["n_resources"])
        scores = np.where(resources == resources.max(), results[f"{_MEAN}{refit_metric}"], np.nan)
        return 0 if np.all(np.isnan(scores)) else int(np.nanargmax(scores))


class _PartOfTraining:
    """Splits as another splitter, with the first part of each set of training samples in a fixed random order."""

    def __init__(self, base: Any, share: int) -> None:
        self._base = base
        self._share = share

    def split(self, *arguments: Any, **named: Any) -> Iterator[tuple[Any, Any]]:
        for train, test in self._base.split(*arguments, **named):
            shuffled = np.random.default_rng(0).permutation(train)
            yield shuffled[: max(len(train) // self._share, 1)], test


def _rungs(train_count: int, factor: int) -> list[int]:
    """Return the shares of the training samples, as what they are divided by, the largest set first."""
    return [factor**k for k in range(_MOST_RUNGS) if k == 0 or train_count // factor**k >= _FEWEST_SAMPLES]


def _stopping(factor: int) -> dict[str, Any]:
    if factor < 2:  # noqa: PLR2004 - no halving below
        raise invalid("halving", f"{factor} is not above 1", "use 2, 3 or 4", "search-halving")
    return {"early_stopping": "asha", "early_stopping_settings": {"reduction_factor": factor}}


def _await_verdict(trial: AskedTrial, seconds: float) -> None:
    """Wait for what early stopping says of the last score."""
    deadline = time.monotonic() + seconds
    while not trial.should_stop and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
        trial.renew()


def _slug(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()[:30]
