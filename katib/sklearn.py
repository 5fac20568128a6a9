"""A search for scikit-learn: `KatibSearchCV(estimator, {"C": loguniform(0.01, 100)}).fit(X, y)`.

It is a search class of scikit-learn with candidates from ask and tell: scikit-learn evaluates them, and keeps
`cv_results_`, `best_estimator_` and the rest. The experiment is stored as any other, with its page and `katib why`.
"""

from __future__ import annotations

import math
import re
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.exceptions import FitFailedWarning
from sklearn.model_selection import RandomizedSearchCV
from sklearn.model_selection._search import BaseSearchCV
from sklearn.utils import check_random_state

from katib.errors import InvalidError, invalid
from katib.sdk.asking import AskedTrial
from katib.sdk.creating import create
from katib.sdk.search import Parameter, categorical, discrete, double
from katib.sdk.search import int as whole

_LONGEST_WAIT_SECONDS = 0.5
_LOOK_SECONDS = 0.02
_FEWEST_SAMPLES = 20
"""Minimum size of a subset of the training samples."""
_MOST_RUNGS = 4
_MEAN = "mean_test_"
_ALL_FAILED = "fits failed"
"""Part of scikit-learn's error message if no fold of the given candidates could be fitted."""
_WHICH = "space.number"
"""The parameter that chooses among several spaces. No parameter of an estimator has a dot in its name."""
_TAIL = 0.001
"""Share of a distribution left out at each end: estimators may refuse values at a bound, such as C=0."""
_LARGEST_SEED = 2**31 - 1

Evaluate = Callable[..., dict[str, Any]]


class KatibSearchCV(BaseSearchCV):
    """Search the parameters of an estimator by cross-validation, with an algorithm that learns from the scores.

    Besides `algorithm`, `halving` and `options`, the parameters and the attributes of a fitted search are those of
    scikit-learn's `RandomizedSearchCV`, which it replaces; hence the long constructor. A fitted search also has
    `experiment_name_`, for `katib.open` and `katib ui`.

    Args:
        estimator: The estimator to fit.
        param_distributions: By name of a parameter, such as `clf__C` in a pipeline: a list of choices, a distribution
            of SciPy, or a parameter created with `katib.search`. Or a list of such spaces, each candidate from one.
        n_iter: Number of candidates.
        algorithm: Proposes candidates; `katib algorithms` lists them, and `auto` chooses one.
        halving: Successive halving: each candidate is scored on a small part of the training samples first, then on
            `halving` times as many, and so on; early stopping (`asha`) ends it unless it is among the best share.
            None: all samples at once. `cv_results_` has a row for each evaluation, with `n_resources`.
        options: Further arguments of `katib.create`, such as `name`, `data_dir`, `server` or `settings`.
        scoring: One score or several; with several, `refit` names the one to maximize.
        n_jobs: Number of folds fitted in parallel.
        pre_dispatch: Number of fits prepared in parallel.
        random_state: Makes the search repeatable: a seed, or a generator from which it is drawn.
        refit: Whether to fit the best candidate to all samples, or the score that selects it.
        cv: The folds.
        verbose: Verbosity of scikit-learn.
        error_score: The score of a failed fit, or `raise`. A candidate without a fit is a failed trial unless this is a
            number.
        return_train_score: Whether `cv_results_` has scores of the training samples.

    Raises:
        InvalidError: At `fit`: the space or the options are invalid.
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **RandomizedSearchCV._parameter_constraints,  # noqa: SLF001 - as for scikit-learn's own searches
        "param_distributions": [Mapping, list],
    }

    def __init__(
        self,
        estimator: Any,
        param_distributions: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        n_iter: int = 10,
        scoring: Any = None,
        n_jobs: int | None = None,
        refit: Any = True,
        cv: Any = None,
        verbose: int = 0,
        pre_dispatch: Any = "2*n_jobs",
        random_state: Any = None,
        error_score: Any = math.nan,
        return_train_score: bool = False,
        algorithm: str = "auto",
        halving: int | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            estimator,
            scoring=scoring,
            n_jobs=n_jobs,
            refit=refit,
            cv=cv,
            verbose=verbose,
            pre_dispatch=pre_dispatch,
            error_score=error_score,
            return_train_score=return_train_score,
        )
        self.param_distributions = param_distributions
        self.n_iter = n_iter
        self.random_state = random_state
        self.algorithm = algorithm
        self.halving = halving
        self.options = options

    def _check_input_parameters(self, X: Any, y: Any, split_params: Mapping[str, Any]) -> None:  # noqa: N803 - scikit-learn's name
        """Split the samples once: the folds of all candidates are the same, even if they are drawn at random."""
        super()._check_input_parameters(X, y, split_params)
        self._folds = [*self._checked_cv_orig.split(X, y, **split_params)]
        self._results: dict[str, Any] = {}
        self._failed: list[tuple[dict[str, Any], dict[str, list[int]]]] = []

    def _run_search(self, evaluate_candidates: Evaluate) -> None:
        """Evaluate requested candidates until the budget is used up."""
        metrics = self._metrics()
        objective = metrics[0]
        space = _SklearnSpace(self.param_distributions)
        stopping = {} if self.halving is None else _stopping(self.halving)
        seed = self.random_state
        if seed is not None and not isinstance(seed, Integral):
            seed = check_random_state(seed).randint(_LARGEST_SEED)
        options = dict(self.options or {})
        settings = {**({} if seed is None else {"random_state": seed}), **(options.pop("settings", None) or {})}
        name = f"{_slug(type(self.estimator).__name__)}-{uuid.uuid4().hex[:8]}"
        arguments = {
            "name": name,
            "parameters": space.parameters,
            "objective": objective,
            "direction": "maximize",
            "additional_metrics": [*metrics[1:], "fit_time"],
            "max_trials": self.n_iter,
            "algorithm": self.algorithm,
            "settings": settings,
            **stopping,
            **options,
        }
        with create(**arguments) as experiment:
            self.experiment_name_ = experiment.name
            trials, failure = 0, None
            for trial in experiment.ask_until_done():
                trials += 1
                candidate = space.candidate(trial.parameters)
                with trial:
                    try:
                        self._evaluate(trial, candidate, evaluate_candidates, metrics)
                    except ValueError as error:
                        if self.error_score == "raise" or _ALL_FAILED not in str(error):
                            raise
                        failure = error
                        if math.isfinite(self.error_score):
                            trial.tell(dict.fromkeys(metrics, float(self.error_score)))
                        else:
                            trial.fail(str(error).strip().splitlines()[-1])
                        warnings.warn(f"{candidate}: {error}", FitFailedWarning, stacklevel=2)
            if failure is not None and not self._results:
                raise failure
            if not trials:
                cause, remedy = "it has ended already", "choose another name, or leave the name out"
                raise invalid(f"experiment {experiment.name}", cause, remedy, "search-ended")
            if self._failed:
                self._insert_failed(*self._rows, before=0)
                self._results.update(super()._format_results(*self._rows))
        del self._folds, self._failed, self._results, self._rows

    def _evaluate(
        self, trial: AskedTrial, candidate: dict[str, Any], evaluate_candidates: Evaluate, metrics: Sequence[str]
    ) -> None:
        """Evaluate a candidate, on ever more samples with halving, and end its trial."""
        factor, train_count = self.halving or 1, len(self._folds[0][0])
        rungs = [1] if self.halving is None else _rungs(train_count, factor)
        for number, share in enumerate(reversed(rungs)):
            began = time.monotonic()
            more = {} if self.halving is None else {"iter": [number], "n_resources": [train_count // share]}
            self._failed.append((candidate, more))
            results = evaluate_candidates([candidate], cv=_Folds(self._folds, share), more_results=more)
            scores = {key.removeprefix(_MEAN): float(results[key][-1]) for key in results if key.startswith(_MEAN)}
            first = {metrics[0]: next(iter(scores.values()))}
            values = {**first, **(scores if "score" not in scores else {})}
            values["fit_time"] = float(results["mean_fit_time"][-1])
            if not math.isfinite(values[metrics[0]]):
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

    def _format_results(self, candidate_params: Any, n_splits: int, out: Any, more_results: Any = None) -> Any:
        """Return the results, with a row for each candidate before the last one that could not be fitted."""
        self._failed.pop()
        self._rows = candidate_params, n_splits, out, more_results
        self._insert_failed(*self._rows, before=1)
        self._results = super()._format_results(*self._rows)
        return self._results

    def _insert_failed(self, params: Any, n_splits: int, out: Any, more_results: Any, *, before: int) -> None:
        """Insert the candidates without a fit before the last `before` rows; scikit-learn drops them."""
        for candidate, more in self._failed:
            at = len(params) - before
            scores = out[-1]["test_scores"]
            scores = dict.fromkeys(scores, self.error_score) if isinstance(scores, dict) else self.error_score
            row = {"test_scores": scores, "train_scores": scores, "fit_time": 0.0, "score_time": 0.0}
            out[at * n_splits : at * n_splits] = [
                {key: row.get(key, value) for key, value in out[-1].items()}
            ] * n_splits
            params.insert(at, candidate)
            for key, values in more.items():
                more_results[key][at:at] = values
        self._failed.clear()

    def _metrics(self) -> list[str]:
        """Return the names of the scores, the maximized one first."""
        if isinstance(self.scoring, str):
            return [self.scoring]
        names = list(self.scoring) if isinstance(self.scoring, Mapping | list | tuple | set) else []
        first = self.refit if isinstance(self.refit, str) else [*names, "score"][0]
        return [first, *(name for name in names if name != first)]

    @staticmethod
    def _select_best_index(refit: Any, refit_metric: str, results: Mapping[str, Any]) -> int:
        """Return the best row; with halving, of those evaluated on all samples."""
        if callable(refit) or "n_resources" not in results:
            return int(BaseSearchCV._select_best_index(refit, refit_metric, results))  # noqa: SLF001 - of the base
        resources = np.asarray(results["n_resources"])
        scores = np.where(resources == resources.max(), results[f"{_MEAN}{refit_metric}"], np.nan)
        return 0 if np.all(np.isnan(scores)) else int(np.nanargmax(scores))


class _Folds:
    """The given splits, with the first part of each set of training samples in a fixed random order."""

    def __init__(self, folds: Sequence[tuple[Any, Any]], share: int) -> None:
        self._folds = folds
        self._share = share

    def split(self, *_: Any, **__: Any) -> Iterator[tuple[Any, Any]]:
        for train, test in self._folds:
            if self._share > 1:
                train = np.random.default_rng(0).permutation(train)[: max(len(train) // self._share, 1)]  # noqa: PLW2901
            yield train, test


@dataclass(frozen=True, slots=True)
class _Quantile(Parameter):
    """A parameter whose distribution an experiment does not support: the experiment searches its quantile."""

    distribution: Any = None

    def value(self, text: str) -> Any:
        number = self.distribution.ppf(float(text))
        return int(number) if hasattr(self.distribution, "pmf") else float(number)


class _SklearnSpace:
    """The search space of an experiment for one or several spaces of scikit-learn.

    With several, a parameter chooses one of them, and those of each are present if it is chosen. A name with different
    values in two of them becomes two parameters, such as `C.1` and `C.2`.

    Attributes:
        parameters: By name.
    """

    def __init__(self, spaces: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        several = [spaces] if isinstance(spaces, Mapping) else list(spaces)
        if not several or not all(isinstance(space, Mapping) for space in several):
            cause, remedy = "it is not a list of search spaces", 'write [{"C": [1, 10]}, ...]'
            raise invalid("param_distributions", cause, remedy, "search-space")
        self.parameters: dict[str, Parameter] = {}
        self._names: list[dict[str, str]] = [{} for _ in several]
        if len(several) > 1:
            self.parameters[_WHICH] = categorical(range(len(several)))
        found = [*_variants(several)]
        for key, name, _, numbers in found:
            for number in numbers:
                self._names[number][key] = name
        for key, _, parameter, numbers in found:
            if parameter.condition is not None:
                on, values = parameter.condition
                names = self._names[numbers[0]].items()
                parameter = parameter.when(next((other for other, name in names if name == on), on), *values)  # noqa: PLW2901
            elif len(numbers) < len(several):
                parameter = parameter.when(_WHICH, *numbers)  # noqa: PLW2901
            self.parameters[key] = parameter

    def candidate(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters of the estimator for those of a trial."""
        names = self._names[values.get(_WHICH, 0)]
        return {names[key]: value for key, value in values.items() if key in names}


def _variants(several: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str, Parameter, list[int]]]:
    """Yield the parameters: the name in the experiment, that of the estimator, the values, and the spaces with them."""
    found: dict[str, list[tuple[Parameter, list[int]]]] = {}
    for number, space in enumerate(several):
        for name, values in space.items():
            parameter, known = _parameter(name, values), found.setdefault(name, [])
            numbers = next((numbers for other, numbers in known if _are_alike(other, parameter)), None)
            if numbers is None:
                known.append((parameter, numbers := []))
            numbers.append(number)
    for name, known in found.items():
        for place, (parameter, numbers) in enumerate(known, start=1):
            key = f"{name}.quantile" if isinstance(parameter, _Quantile) else name
            yield f"{key}.{place}" if len(known) > 1 else key, name, parameter, numbers


def _are_alike(one: Parameter, other: Parameter) -> bool:
    distributions = [getattr(parameter, "distribution", None) for parameter in (one, other)]
    return one.spec("") == other.spec("") and distributions[0] is distributions[1]


def _parameter(name: str, values: Any) -> Parameter:
    """Convert a list of choices or a distribution to a parameter."""
    path = f'param_distributions["{name}"]'
    if isinstance(values, Parameter):
        return values
    if hasattr(values, "rvs") or hasattr(values, "ppf"):
        return _drawn(path, values)
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise invalid(path, f"{values!r} is neither a list nor a distribution", f"write [{values!r}]", "search-space")
    choices = list(values)
    is_logical = any(isinstance(one, bool) for one in choices)
    if not is_logical and all(isinstance(one, Real) and math.isfinite(one) for one in choices):
        return discrete({float(one): one for one in choices}.values())  # a model can use their order
    try:
        return categorical({(type(one), str(one)): one for one in choices}.values())
    except InvalidError as error:
        raise invalid(path, error.errors[0].cause, error.errors[0].remedy, error.errors[0].origin) from None


def _drawn(path: str, distribution: Any) -> Parameter:
    """Convert a distribution of SciPy to a parameter."""
    kind = getattr(getattr(distribution, "dist", distribution), "name", "")
    try:
        low, middle, high = (float(distribution.ppf(q)) for q in (_TAIL, 0.5, 1 - _TAIL))
        least, most = float(distribution.ppf(0)), float(distribution.ppf(1))
    except (AttributeError, TypeError, ValueError):
        low = middle = high = least = most = math.nan
    if math.isnan(low + middle + high):
        cause, remedy = (
            "it has no quantile function (ppf) of one number",
            "write katib.search.double(min, max), or a list",
        )
        raise invalid(path, cause, remedy, "search-distribution")
    if kind == "randint":
        return whole(int(least) + 1, int(most))
    if kind == "uniform":
        return double(low, high)
    if kind in ("loguniform", "reciprocal") and math.isclose(middle**2, least * most):  # one with loc is another
        return double(least, most, log=True)
    return _Quantile("double", {"min": str(_TAIL), "max": str(1 - _TAIL)}, distribution=distribution)


def _rungs(train_count: int, factor: int) -> list[int]:
    """Return the divisors of the training samples, the largest set first."""
    return [factor**k for k in range(_MOST_RUNGS) if k == 0 or train_count // factor**k >= _FEWEST_SAMPLES]


def _stopping(factor: int) -> dict[str, Any]:
    if factor < 2:  # noqa: PLR2004 - no halving below
        raise invalid("halving", f"{factor} is not above 1", "use 2, 3 or 4", "search-halving")
    return {"early_stopping": "asha", "early_stopping_settings": {"reduction_factor": factor}}


def _await_verdict(trial: AskedTrial, seconds: float) -> None:
    """Wait for the verdict of early stopping over the last score."""
    deadline = time.monotonic() + seconds
    while not trial.should_stop and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
        trial.renew()


def _slug(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()[:30]
