"""The gate as an installation has it: a catalog with some algorithms, and the real look into templates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from katib.engine.runtime.objects import Key, Object
from katib.errors import FieldError, InvalidError
from katib.model.algorithms import AlgorithmInfo, SettingSpec
from katib.model.loading import Submission, decode_experiment
from katib.model.space import check_assignments, check_constraints
from katib.model.templates import check_template, template_text
from katib.model.templates.source import usable_data
from katib.model.types import Experiment, ParameterSpec, TrialTemplate
from katib.model.validation import admit
from katib.places.machine.submission import shipped_config_map


class Catalog:
    """Algorithms by name. `tpe` declares its settings, the others leave them to their service."""

    def __init__(self, *names: str, early_stopping: Sequence[str] = ("medianstop",)) -> None:
        self._infos = [
            *(AlgorithmInfo(name, settings=TPE_SETTINGS if name == "tpe" else None) for name in names),
            *(AlgorithmInfo(name, early_stopping=True) for name in early_stopping),
        ]

    def find(self, name: str, *, early_stopping: bool = False) -> AlgorithmInfo | None:
        return next((i for i in self._infos if i.name == name and i.early_stopping == early_stopping), None)

    def all(self) -> Sequence[AlgorithmInfo]:
        return self._infos


TPE_SETTINGS = (
    SettingSpec("n_startup_trials", "int", "10", "Random trials first.", at_least=0),
    SettingSpec("gamma", "float", "", "Share of good trials.", above=0, below=1),
    SettingSpec("multivariate", "bool", "false", "Model parameters together."),
    SettingSpec("prior", "text", "flat", "Shape of the prior.", choices=("flat", "peaked")),
)

CATALOG = Catalog("random", "grid", "tpe", "bayesianoptimization", "auto")
KATIB_CATALOG = Catalog(
    *("random", "tpe", "multivariate-tpe", "bayesianoptimization", "cmaes", "sobol", "grid", "hyperband", "pbt"),
    *("enas", "darts"),
)
"""Every algorithm of Katib, with settings that only the services judge."""


def admitted(raw: dict[str, Any], *, catalog: Catalog = CATALOG, **options: Any) -> Experiment:
    """Return the raw experiment as it would be stored."""
    return admit_submission(decode_experiment(raw, "default"), catalog=catalog, **options)


def admit_submission(submission: Submission, *, catalog: Catalog = CATALOG, **options: Any) -> Experiment:
    """Admit a submission, which finds its own ConfigMaps, and those that come with Katib."""

    def config_map(namespace: str, name: str) -> Object | None:
        return submission.config_map(namespace, name) or shipped_config_map(Key(namespace, name))

    def check(template: TrialTemplate, parameters: Sequence[ParameterSpec]) -> list[FieldError]:
        try:
            namespace = submission.experiment.namespace
            text = template_text(template, lambda ns, name: usable_data(config_map(ns, name), namespace))
        except InvalidError as error:
            return list(error.errors)
        return check_template(template, parameters, text)

    return admit(
        submission,
        catalog=catalog,
        check_template=check,
        check_point=check_assignments,
        check_constraints=check_constraints,
        **options,
    )


def errors_of(raw: dict[str, Any], **options: Any) -> list[FieldError]:
    """Return everything that is wrong with a raw experiment."""
    try:
        admitted(raw, **options)
    except InvalidError as error:
        return list(error.errors)
    return []


def broken_rules(raw: dict[str, Any], **options: Any) -> list[tuple[str, str]]:
    """Return path and origin of each error."""
    return [(error.path, error.origin) for error in errors_of(raw, **options)]
