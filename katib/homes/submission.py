"""The gate: from the text of a file to an experiment that can run in this home."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from katib.api.algorithms import AlgorithmCatalog
from katib.api.defaults import with_defaults
from katib.api.loading import Submission, load_experiment
from katib.api.types import CollectorKind, Experiment, ExperimentSpec, ParameterSpec, TrialTemplate
from katib.api.validation import admit, admit_update, find_warnings
from katib.controllers.kinds import CONFIG_MAP
from katib.controllers.trial.jobs import check_job_kind
from katib.errors import FieldError, InvalidError, NotFoundError
from katib.runtime.objects import Key, Kind, ObjectStore
from katib.templates.check import check_template
from katib.templates.condition_path import check_condition
from katib.templates.render import prepare
from katib.templates.source import ConfigMapReader, template_path, template_text
from katib.workloads.job_schema import check_job_schema

WORKSPACE_ANNOTATION = "katib.kubeflow.org/workspace"
"""On an Experiment: the directory that relative paths of its commands start from, that of the submitted file."""

JOB = Kind("batch/v1", "Job")

ALL_COLLECTORS: tuple[str, ...] = tuple(CollectorKind)

ObjectCheck = Callable[[Mapping[str, Any], str, Path | None], tuple[list[FieldError], list[str]]]
"""Looks at the object that trials run as, with placeholders still in it. Takes the object, its path in the experiment
and the workspace; returns what keeps it from running in this home, and what will be done otherwise than elsewhere."""


ObjectWarnings = Callable[[Mapping[str, Any], str, ExperimentSpec], Sequence[str]]
"""Says what will surprise about the object that trials run as, given its path and the spec with defaults."""


def check_nothing(
    _source: Mapping[str, Any], _path: str, _workspace: Path | None
) -> tuple[list[FieldError], list[str]]:
    """Find nothing: for homes that run whatever Kubernetes takes."""
    return [], []


@dataclass(frozen=True, slots=True)
class Admitted:
    """An experiment that may be stored.

    Attributes:
        companions: ConfigMaps and Secrets from the same file.
        notices: What will be done otherwise than the author may expect.
    """

    experiment: Experiment
    companions: tuple[dict[str, Any], ...]
    notices: tuple[str, ...]


class Gate:
    """Checks submissions against what this home can do. Thread-safe.

    Args:
        catalog: Algorithms that are offered.
        config_maps: Finds a stored ConfigMap, for templates that are not in the same file.
        collectors: Kinds of metrics collectors that can run here.
        check_object: Looks at the object that trials run as. That a Job has the structure of one is checked anyway.
        warn_of: Says what will surprise about that object.
        on_algorithm: Told at once which algorithm a document asks for, so that its service can come up meanwhile.
        notes_workspace: Whether relative paths of commands start from the directory of the submitted file.
    """

    def __init__(
        self,
        catalog: AlgorithmCatalog,
        config_maps: ConfigMapReader,
        *,
        collectors: Collection[str] = ALL_COLLECTORS,
        check_object: ObjectCheck = check_nothing,
        warn_of: ObjectWarnings = lambda _source, _path, _spec: (),
        on_algorithm: Callable[[str], None] = lambda _name: None,
        notes_workspace: bool = True,
    ) -> None:
        self._catalog = catalog
        self._config_maps = config_maps
        self._collectors = collectors
        self._check_object = check_object
        self._warn_of = warn_of
        self._on_algorithm = on_algorithm
        self._notes_workspace = notes_workspace

    def load(self, document: str, *, source: str, namespace: str) -> Submission:
        """Read a document. Raises InvalidError when it holds no experiment."""
        submission = load_experiment(document, source, namespace)
        if submission.experiment.spec.algorithm is not None:
            self._on_algorithm(submission.experiment.spec.algorithm.algorithm_name)
        workspace = Path(source)
        if not self._notes_workspace or not workspace.is_file():
            return submission
        metadata = submission.experiment.metadata
        annotations = {WORKSPACE_ANNOTATION: str(workspace.resolve().parent), **metadata.annotations}
        experiment = submission.experiment.model_copy(
            update={"metadata": metadata.model_copy(update={"annotations": annotations})}
        )
        return Submission(submission.raw, experiment, submission.companions, submission.errors)

    def admit(self, submission: Submission) -> Admitted:
        """Return a new experiment, ready to be created.

        Raises:
            InvalidError: With everything that is wrong with it.
        """
        notices = [str(warning) for warning in find_warnings(submission.experiment)]

        def check(template: TrialTemplate, parameters: Sequence[ParameterSpec]) -> list[FieldError]:
            errors, notes = self._check_template(submission, template, parameters)
            notices.extend(notes)
            return errors

        experiment = admit(submission, catalog=self._catalog, check_template=check, collectors=self._collectors)
        return Admitted(experiment, submission.companions, tuple(dict.fromkeys(notices)))

    def admit_update(self, submission: Submission, old: Experiment) -> Experiment:
        """Return an experiment that may take the place of a stored one of that name.

        Raises:
            InvalidError: It differs in a way that cannot be resumed.
        """
        return admit_update(submission, old)

    def _check_template(
        self, submission: Submission, template: TrialTemplate, parameters: Sequence[ParameterSpec]
    ) -> tuple[list[FieldError], list[str]]:
        try:
            text = template_text(
                template, lambda ns, name: submission.config_map(ns, name) or self._config_maps(ns, name)
            )
            errors = [
                *check_condition(template.success_condition, "spec.trialTemplate.successCondition"),
                *check_condition(template.failure_condition, "spec.trialTemplate.failureCondition"),
                *check_template(template, parameters, text),
            ]
            _, source = prepare(template, text)
        except InvalidError as error:
            return list(error.errors), []
        path = template_path(template)
        errors += check_job_kind(Kind.of(source), path)
        if Kind.of(source) == JOB:
            errors += check_job_schema(dict(source), path)
        found, notices = self._check_object(source, path, _workspace(submission.experiment))
        warnings = self._warn_of(source, path, with_defaults(submission.experiment).spec)
        return [*errors, *found], [*notices, *warnings]


def _workspace(experiment: Experiment) -> Path | None:
    text = experiment.metadata.annotations.get(WORKSPACE_ANNOTATION, "")
    return Path(text) if text else None


class ConfigMaps:
    """The ConfigMaps of a store."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def find(self, namespace: str, name: str) -> dict[str, str] | None:
        """Return the data of a ConfigMap, None when there is none."""
        try:
            return dict(self._store.get(CONFIG_MAP, Key(namespace, name)).get("data") or {})
        except NotFoundError:
            return None
