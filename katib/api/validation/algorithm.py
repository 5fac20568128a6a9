"""Rules about algorithms: they exist, in the right role, with settings they know; and about what remains of them."""

from __future__ import annotations

from collections.abc import Iterator

from katib.api.algorithms import AlgorithmCatalog, check_settings
from katib.api.types import AlgorithmSpec, ResumePolicy
from katib.api.wording import did_you_mean, shown
from katib.errors import FieldError


def check_algorithm(algorithm: AlgorithmSpec | None, catalog: AlgorithmCatalog) -> Iterator[FieldError]:
    """Check the suggestion algorithm."""
    path = "spec.algorithm"
    if algorithm is None:
        yield FieldError(path, "it is missing", "name one with algorithmName, such as random", "algorithm-missing")
    elif not algorithm.algorithm_name:
        remedy = did_you_mean("", _names(catalog, early_stopping=False))
        yield FieldError(f"{path}.algorithmName", "it is missing", remedy, "algorithm-name-missing")
    else:
        yield from _check_known(algorithm, catalog, path, early_stopping=False)


def check_early_stopping(algorithm: AlgorithmSpec | None, catalog: AlgorithmCatalog) -> Iterator[FieldError]:
    """Check the early stopping algorithm, if there is to be one."""
    path = "spec.earlyStopping"
    if algorithm is None:
        return
    if not algorithm.algorithm_name:
        remedy = did_you_mean("", _names(catalog, early_stopping=True))
        yield FieldError(f"{path}.algorithmName", "it is missing", remedy, "early-stopping-name-missing")
    else:
        yield from _check_known(algorithm, catalog, path, early_stopping=True)


def check_resume_policy(policy: str) -> Iterator[FieldError]:
    """Check the resume policy; empty stands for the default."""
    if policy and policy not in tuple(ResumePolicy):
        remedy = did_you_mean(policy, ResumePolicy)
        yield FieldError("spec.resumePolicy", f"{shown(policy)} is no resume policy", remedy, "resume-policy")


def _check_known(
    algorithm: AlgorithmSpec, catalog: AlgorithmCatalog, path: str, *, early_stopping: bool
) -> Iterator[FieldError]:
    name = algorithm.algorithm_name
    info = catalog.find(name, early_stopping=early_stopping)
    if info is not None:
        yield from _check_setting_names(algorithm, path)
        yield from check_settings(info, algorithm.algorithm_settings, f"{path}.algorithmSettings")
    elif catalog.find(name, early_stopping=not early_stopping) is not None:
        role, home = ("a suggestion", "algorithm") if early_stopping else ("an early stopping", "earlyStopping")
        cause = f"{shown(name)} is {role} algorithm"
        yield FieldError(f"{path}.algorithmName", cause, f"move it to spec.{home}", "algorithm-role")
    else:
        remedy = did_you_mean(name, _names(catalog, early_stopping=early_stopping))
        yield FieldError(f"{path}.algorithmName", f"{shown(name)} is unknown", remedy, "algorithm-unknown")


def _check_setting_names(algorithm: AlgorithmSpec, path: str) -> Iterator[FieldError]:
    for i, setting in enumerate(algorithm.algorithm_settings):
        if not setting.name:
            where = f"{path}.algorithmSettings[{i}].name"
            yield FieldError(where, "it is missing", "name the setting or remove the entry", "setting-name-missing")


def _names(catalog: AlgorithmCatalog, *, early_stopping: bool) -> list[str]:
    return [info.name for info in catalog.all() if info.early_stopping == early_stopping]
