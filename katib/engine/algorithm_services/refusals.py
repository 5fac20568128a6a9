"""Validation of an experiment by built-in algorithms before it is stored.

The rules are those that the service applies on validation; no service has to run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import structs

from katib.errors import FieldError, InvalidError, NotFoundError
from katib.model.algorithms import AlgorithmCatalog
from katib.model.features.repeats.feature import configuration_count
from katib.model.loadable import Loadable
from katib.model.types import Experiment, ExperimentSpec
from suggestion_services.algorithms import ListedAlgorithm, find_entry

_CHECK_STOPPING: Final[Loadable[Callable[..., object]]] = Loadable(
    "suggestion_services.early_stopping.algorithm:settings_of"
)


def refusals(experiment: Experiment, catalog: AlgorithmCatalog) -> list[FieldError]:
    """Return the errors that the services of a valid experiment would report; none if they are not built-in."""
    spec = structs.replace(experiment.spec, max_trial_count=configuration_count(experiment))
    errors = list[FieldError]()
    try:
        if spec.algorithm is not None and (entry := _ours(spec.algorithm.algorithm_name, catalog)) is not None:
            errors += _missing(entry, "spec.algorithm")
            errors += [] if _takes_any(entry, spec) else _refused(entry, experiment.name, spec)
        stopping = spec.early_stopping
        if stopping is not None and (entry := _ours(stopping.algorithm_name, catalog, early_stopping=True)) is not None:
            _CHECK_STOPPING.load()(entry.load(), entry.info, stopping.algorithm_settings)
    except InvalidError as error:
        errors += error.errors
    return errors


def _takes_any(entry: ListedAlgorithm, spec: ExperimentSpec) -> bool:
    """Return whether an algorithm without rules gets parameters that do not depend on each other, and no settings."""
    has_settings = spec.algorithm is not None and bool(spec.algorithm.algorithm_settings)
    depends = bool(spec.parameter_constraints) or any(parameter.when is not None for parameter in spec.parameters)
    return not (entry.rules or spec.nas_config is not None or has_settings or depends)


def _refused(entry: ListedAlgorithm, name: str, spec: ExperimentSpec) -> Sequence[FieldError]:
    from suggestion_services.base.algorithm import Problem

    problem, rules = Problem.of(name, spec, entry.info), entry.load_rules()
    errors: Sequence[FieldError] = rules.check(problem) or rules.check_before_start(problem)
    return errors


def _ours(name: str, catalog: AlgorithmCatalog, *, early_stopping: bool = False) -> ListedAlgorithm | None:
    """Return the entry of an algorithm if it is built-in and not replaced by another service."""
    try:
        entry = find_entry(name, early_stopping=early_stopping)
    except NotFoundError:
        return None
    return entry if catalog.find(name, early_stopping=early_stopping) is entry.info else None


def _missing(entry: ListedAlgorithm, path: str) -> list[FieldError]:
    if entry.is_installed:
        return []
    cause, remedy = f"the package {entry.package} is missing", entry.install_command
    return [FieldError(f"{path}.algorithmName", cause, remedy, "algorithm-not-installed")]
