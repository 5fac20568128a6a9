"""A search algorithm for Ray Tune: `tune.TuneConfig(search_alg=KatibSearch(), metric="accuracy", mode="max")`.

Ray runs the trials, and its schedulers stop them; their configurations come from ask and tell. The experiment is stored
as any other, with its page and `katib why`.
"""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ray.tune.search import Searcher
from ray.tune.search.sample import Categorical, Domain, Float, Integer, LogUniform, Quantized

from katib.errors import invalid
from katib.sdk import search
from katib.sdk.asking import AskedTrial, Experiment, StopTrial
from katib.sdk.creating import create
from katib.sdk.opening import open_experiment
from katib.sdk.search import Parameter

_AT_ONCE = 64
"""Maximum number of running trials; Ray's `max_concurrent_trials` is the limit."""
_WAIT_SECONDS = 0.2
"""Ray is blocked meanwhile."""
_DIRECTIONS = {"max": "maximize", "min": "minimize"}


class KatibSearch(Searcher):
    """Proposes configurations by an algorithm of katib.

    Args:
        space: By name, nested as `optimizer/lr`: parameters created with `katib.search`; None: the `param_space` of the
            Tuner, whose constants are passed on.
        metric: The metric to optimize; None: that of the Tuner.
        mode: `max` or `min`; None: that of the Tuner.
        algorithm: Proposes configurations; `katib algorithms` lists them, and `auto` chooses one.
        max_trials: Number of trials after which the search ends; None: `num_samples` of the Tuner.
        options: Further arguments of `katib.create`, such as `name`, `data_dir`, `server` or `settings`.

    Attributes:
        experiment_name: For `katib.open` and `katib ui`.
    """

    def __init__(
        self,
        space: Mapping[str, Parameter] | None = None,
        *,
        metric: str | None = None,
        mode: str | None = None,
        algorithm: str = "auto",
        max_trials: int | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(metric=metric, mode=mode)
        self._metric: str | None = metric
        self._mode: str | None = mode
        self.experiment_name = (options or {}).get("name") or f"ray-{uuid.uuid4().hex[:8]}"
        self._space = dict(space or {})
        self._constants: dict[str, Any] = {}
        self._algorithm = algorithm
        self._max_trials = max_trials
        self._options = dict(options or {})
        self._experiment: Experiment | None = None
        self._trials: dict[str, AskedTrial] = {}

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: Mapping[str, Any], **_spec: Any
    ) -> bool:
        """Set the Tuner's properties; return False if they were set before."""
        if config and self._space:
            return False
        self._metric, self._mode = metric or self._metric, mode or self._mode
        for name, value in _flat(config):
            if isinstance(value, Domain | dict):
                self._space[name] = parameter_of(name, value)
            else:
                self._constants[name] = value
        return True

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Return a configuration; None while none can be proposed, FINISHED if there are no more."""
        experiment = self._opened()
        trial = experiment.ask(_WAIT_SECONDS)
        if trial is None:
            return self.FINISHED if experiment.has_ended else None
        self._trials[trial_id] = trial
        return _nested({**self._constants, **trial.parameters})

    def on_trial_result(self, trial_id: str, result: Mapping[str, Any]) -> None:
        trial, value = self._trials.get(trial_id), self._value(result)
        if trial is None or trial.has_ended or value is None:
            return
        with suppress(StopTrial):  # Ray decides whether the trial continues
            trial.report({str(self._metric): value}, step=int(result.get("training_iteration", 0)))

    def on_trial_complete(
        self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False, **_more: Any
    ) -> None:
        trial = self._trials.pop(trial_id, None)
        if trial is None or trial.has_ended:
            return
        value = self._value(result or {})
        if error or value is None:
            trial.fail("it failed in Ray Tune" if error else f"it reported no {self._metric}")
        else:
            trial.tell({str(self._metric): value})

    def save(self, checkpoint_path: str) -> None:
        Path(checkpoint_path).write_text(json.dumps(self._under_way()))

    def restore(self, checkpoint_path: str) -> None:
        saved = json.loads(Path(checkpoint_path).read_text())
        self.experiment_name = saved["name"]
        if saved["began"]:
            place = {key: self._options[key] for key in ("data_dir", "server", "namespace") if key in self._options}
            self._experiment = experiment = open_experiment(self.experiment_name, **place).resume()
            self._trials = {key: experiment.taken_again(*trial) for key, trial in saved["trials"].items()}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_experiment": None, "_trials": {}}

    def _under_way(self) -> dict[str, Any]:
        trials = {key: (one.name, one.parameters, one.ask_id) for key, one in self._trials.items()}
        return {"name": self.experiment_name, "began": self._experiment is not None, "trials": trials}

    def _opened(self) -> Experiment:
        """Return the experiment, created at the first request for a trial."""
        if self._experiment is None:
            if not self._space or not self._metric:
                cause = "the space has no parameters" if self._metric else "it does not know the metric"
                remedy = "give param_space, metric and mode to the Tuner"
                raise invalid("KatibSearch", cause, remedy, "ray-space")
            arguments: dict[str, Any] = {
                "name": self.experiment_name,
                "parameters": self._space,
                "objective": self._metric,
                "direction": _DIRECTIONS[self._mode or "max"],
                "max_trials": self._max_trials,
                "parallel": _AT_ONCE,
                "algorithm": self._algorithm,
                **self._options,
            }
            self._experiment = create(**arguments)
        return self._experiment

    def _value(self, result: Mapping[str, Any]) -> float | None:
        value = result.get(self._metric or "")
        return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def parameter_of(name: str, domain: Any) -> Parameter:
    """Convert a domain of Ray Tune to a parameter.

    Raises:
        InvalidError: The domain has neither bounds nor a list.
    """
    sampler = domain.get_sampler() if isinstance(domain, Domain) else None
    step = sampler.q if isinstance(sampler, Quantized) else None
    if isinstance(sampler, Quantized):
        sampler = sampler.get_sampler()
    log = isinstance(sampler, LogUniform)
    if isinstance(domain, Categorical):
        return search.categorical(domain.categories)
    if isinstance(domain, Integer):
        high = domain.upper if step else domain.upper - 1
        return search.int(int(domain.lower), int(high), step=int(step or 1), log=log)
    if isinstance(domain, Float) and math.isfinite(domain.lower) and math.isfinite(domain.upper):
        return search.double(domain.lower, domain.upper, step=step, log=log)
    remedy = "use uniform, loguniform, quniform, randint or choice, or give KatibSearch a space"
    raise invalid(f"param_space {name}", f"{domain} has no bounds and no list", remedy, "ray-space")


def _flat(config: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in config.items():
        if isinstance(value, dict) and set(value) != {"grid_search"}:
            yield from _flat(value, f"{before}{name}/")
        else:
            yield f"{before}{name}", value


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path, value in values.items():
        place = found
        *outer, name = path.split("/")
        for part in outer:
            place = place.setdefault(part, {})
        place[name] = value
    return found
