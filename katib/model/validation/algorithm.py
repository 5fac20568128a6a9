"""Rules about algorithms: they exist, in the right role, with known settings; and the resume policy."""

from __future__ import annotations

from collections.abc import Iterator

from katib.errors import FieldError
from katib.model.algorithms import (
    AlgorithmCatalog,
    AlgorithmInfo,
    check_features,
    check_named_parameters,
    check_settings,
)
from katib.model.types import AlgorithmSpec, ExperimentSpec, ParameterType, ResumePolicy
from katib.model.wording import did_you_mean, either, shown


def check_algorithm(spec: ExperimentSpec, catalog: AlgorithmCatalog) -> Iterator[FieldError]:
    """Check the suggestion algorithm, and that it supports the experiment's search.

    Only an architecture search gets none by default.
    """
    path, algorithm = "spec.algorithm", spec.algorithm
    if algorithm is None:
        remedy = "name one that searches architectures, enas or darts"
        yield FieldError(path, "it is missing", remedy, "algorithm-missing")
    elif not algorithm.algorithm_name:
        remedy = "name one that searches architectures, enas or darts"
        yield FieldError(f"{path}.algorithmName", "it is missing", remedy, "algorithm-name-missing")
    else:
        yield from _check_known(algorithm, catalog, path, early_stopping=False)
        info = catalog.find(algorithm.algorithm_name)
        if info is not None and info.settings is not None and info.declares_features:
            yield from check_features(spec, info.name, info.features, catalog.all)
            yield from _check_searched(spec, info, catalog)
        if info is not None:
            where = f"{path}.algorithmSettings"
            yield from check_named_parameters(info, algorithm.algorithm_settings, spec.parameters, where)


def _check_searched(spec: ExperimentSpec, info: AlgorithmInfo, catalog: AlgorithmCatalog) -> Iterator[FieldError]:
    """Check that the algorithm searches the given kind of space: parameters or an architecture."""
    if info.graph_fields and spec.nas_config is not None:
        from katib.model.architecture import check_beyond_parameters

        yield from check_beyond_parameters(spec.nas_config, info.graph_fields)
        yield from _check_references(spec, info)
    elif info.graph_fields and spec.parameters:
        cause = f"{info.name} searches architectures, not parameters"
        remedy = "describe the layers in spec.nasConfig in place of spec.parameters, or use another algorithm"
        yield FieldError("spec.algorithm.algorithmName", cause, remedy, "algorithm-parameters")
    elif spec.nas_config is not None and not info.graph_fields:
        able = [other.name for other in catalog.all() if other.graph_fields]
        cause = f"{info.name} does not search architectures"
        remedy = f"use {either(able)}" if able else "list what to tune in spec.parameters"
        yield FieldError("spec.algorithm.algorithmName", cause, remedy, "algorithm-nas")


def check_needs(spec: ExperimentSpec, catalog: AlgorithmCatalog) -> Iterator[FieldError]:
    """Check that the parameters suit the algorithm: enough numeric ones, or values that can be listed."""
    info = catalog.find(spec.algorithm.algorithm_name) if spec.algorithm is not None else None
    if info is None or not spec.parameters:
        return
    count = sum(parameter.parameter_type != ParameterType.CATEGORICAL for parameter in spec.parameters)
    if count < info.numeric_parameters:
        cause = f"{info.name} needs at least {info.numeric_parameters} parameters whose values are numbers, not {count}"
        yield FieldError("spec.parameters", cause, "use tpe, which searches any space", "algorithm-numeric-parameters")
    for i, parameter in enumerate(spec.parameters if info.needs_steps else ()):
        if parameter.parameter_type == ParameterType.DOUBLE and not parameter.feasible_space.step:
            cause = f"it is missing, and {info.name} tries every value of {parameter.name}"
            remedy = "give a step, or use an algorithm that needs none, such as tpe"
            yield FieldError(f"spec.parameters[{i}].feasibleSpace.step", cause, remedy, "algorithm-step")


def _check_references(spec: ExperimentSpec, info: AlgorithmInfo) -> Iterator[FieldError]:
    """Check that the template refers to exactly the names that the algorithm assigns."""
    if spec.trial_template is None or not info.assigns:
        return
    path = "spec.trialTemplate.trialParameters"
    references = [entry.reference for entry in spec.trial_template.trial_parameters or ()]
    for i, reference in enumerate(references):
        if reference and reference not in info.assigns and not reference.startswith("${"):  # metadata of the template
            cause = f"{info.name} assigns no {shown(reference)}"
            remedy = did_you_mean(reference, info.assigns)
            yield FieldError(f"{path}[{i}].reference", cause, remedy, "trial-parameter-reference-unknown")
    for name in info.assigns:
        if name not in references:
            cause = f"no trial parameter refers to {name}, so it would never reach a trial"
            remedy = f"add an entry with reference {name}, and use it in the template"
            yield FieldError(path, cause, remedy, "template-assignment-unused")


def check_early_stopping(spec: ExperimentSpec, catalog: AlgorithmCatalog) -> Iterator[FieldError]:
    path, algorithm = "spec.earlyStopping", spec.early_stopping
    if algorithm is None:
        return
    if spec.objective is not None and spec.objective.has_several:
        cause = "it judges by one objective, and could stop a trial that is good in another"
        remedy = "remove it, or make the others constraints"
        yield FieldError(path, cause, remedy, "early-stopping-several-objectives")
    if not algorithm.algorithm_name:
        remedy = did_you_mean("", _names(catalog, early_stopping=True))
        yield FieldError(f"{path}.algorithmName", "it is missing", remedy, "early-stopping-name-missing")
    else:
        yield from _check_known(algorithm, catalog, path, early_stopping=True)


def check_resume_policy(policy: str) -> Iterator[FieldError]:
    """Check the resume policy; empty stands for the default."""
    if policy and policy not in tuple(ResumePolicy):
        remedy = did_you_mean(policy, ResumePolicy)
        yield FieldError("spec.resumePolicy", f"{shown(policy)} is not a resume policy", remedy, "resume-policy")


def _check_known(
    algorithm: AlgorithmSpec, catalog: AlgorithmCatalog, path: str, *, early_stopping: bool
) -> Iterator[FieldError]:
    name = algorithm.algorithm_name
    info = catalog.find(name, early_stopping=early_stopping)
    if info is not None:
        for i, setting in enumerate(algorithm.algorithm_settings):
            if not setting.name:
                where = f"{path}.algorithmSettings[{i}].name"
                yield FieldError(where, "it is missing", "name the setting or remove the entry", "setting-name-missing")
        yield from check_settings(info, algorithm.algorithm_settings, f"{path}.algorithmSettings", catalog.all)
    elif catalog.find(name, early_stopping=not early_stopping) is not None:
        role, home = ("a suggestion", "algorithm") if early_stopping else ("an early stopping", "earlyStopping")
        cause = f"{shown(name)} is {role} algorithm"
        yield FieldError(f"{path}.algorithmName", cause, f"move it to spec.{home}", "algorithm-role")
    else:
        remedy = did_you_mean(name, _names(catalog, early_stopping=early_stopping))
        yield FieldError(f"{path}.algorithmName", f"{shown(name)} is unknown", remedy, "algorithm-unknown")


def _names(catalog: AlgorithmCatalog, *, early_stopping: bool) -> list[str]:
    return [info.name for info in catalog.all() if info.early_stopping == early_stopping]
