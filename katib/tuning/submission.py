"""The gate: from the text of a file to an experiment that can run in this home."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from msgspec import structs

from katib.api.algorithms import AlgorithmCatalog
from katib.api.defaults import default_algorithm, with_defaults
from katib.api.loading import Submission, holds_runtimes, load_experiment, load_runtimes
from katib.api.names import WORKSPACE_ANNOTATION
from katib.api.types import CollectorKind, Experiment, ExperimentSpec, ParameterSpec, TrialTemplate
from katib.api.validation import admit, admit_update, find_warnings
from katib.api.wording import shown
from katib.controllers.kinds import CONFIG_MAP, EXPERIMENT
from katib.controllers.trial.jobs import check_job_kind
from katib.errors import FieldError, InvalidError, NotFoundError
from katib.runtime.objects import Key, Kind, Object, ObjectStore
from katib.space import check_assignments
from katib.templates.absence import variants
from katib.templates.check import check_template
from katib.templates.condition_path import check_condition
from katib.templates.devices import device_errors
from katib.templates.job_schema import check_job_schema
from katib.templates.render import prepare
from katib.templates.source import template_path, template_text, usable_data
from katib.tuning.preview import preview_trial
from katib.tuning.service import Preview

JOB = Kind("batch/v1", "Job")

ALL_COLLECTORS: tuple[str, ...] = tuple(CollectorKind)

FindConfigMap = Callable[[str, str], Object | None]
"""Takes namespace and name; returns a stored ConfigMap, None when there is none."""

HasExperiment = Callable[[str, str], bool]
"""Takes namespace and name; says whether that experiment is stored."""

FindObject = Callable[[Kind, Key], Object | None]
"""Finds an object that a template depends on; without a namespace it looks in that of the experiment, too."""

ObjectCheck = Callable[[Mapping[str, Any], str, Path | None, FindObject], tuple[list[FieldError], list[str]]]
"""Looks at the object that trials run as, with placeholders still in it. Takes the object, its path in the experiment,
the workspace and what finds objects of the same file or of the store; returns what keeps it from running in this home,
and what will be done otherwise than elsewhere."""


ObjectWarnings = Callable[[Mapping[str, Any], str, ExperimentSpec], Sequence[str]]
"""Says what will surprise about the object that trials run as, given its path and the spec with defaults."""

ObjectErrors = Callable[[Mapping[str, Any], str, ExperimentSpec, FindObject], Sequence[FieldError]]
"""Says what of that object cannot work with the rest of the spec, or with objects of the same file."""


RuntimeCheck = Callable[[Mapping[str, Any], str], Sequence[FieldError]]
"""Says what is wrong with a training runtime, given the object and what to put before the paths of its fields."""


PrimaryLabels = Callable[[Mapping[str, Any], FindObject], Mapping[str, str]]
"""Returns the labels of the pod that prints metrics where they depend on what the object that trials run as refers to;
empty where they do not. Takes the object, which may be malformed, and what finds the others."""


def check_nothing(
    _source: Mapping[str, Any], _path: str, _workspace: Path | None, _find: FindObject
) -> tuple[list[FieldError], list[str]]:
    """Find nothing: for homes that run whatever Kubernetes takes."""
    return [], []


@dataclass(frozen=True, slots=True)
class Admitted:
    """An experiment that may be stored.

    Attributes:
        companions: ConfigMaps, Secrets and training runtimes from the same file.
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
        errors_of: Says what of that object cannot work with the rest of the spec.
        on_algorithm: Told at once which algorithm a document asks for, so that its service can come up meanwhile.
        has_experiment: Says whether an experiment is stored, for warm starts.
        find: Finds a stored object that a template depends on.
        check_runtime: Says what is wrong with a training runtime that is stored by itself.
        primary_labels: Finds the labels of primary pods that an experiment does not name.
        notes_workspace: Whether relative paths of commands start from the directory of the submitted file.
    """

    def __init__(
        self,
        catalog: AlgorithmCatalog,
        config_maps: FindConfigMap,
        *,
        collectors: Collection[str] = ALL_COLLECTORS,
        check_object: ObjectCheck = check_nothing,
        warn_of: ObjectWarnings = lambda _source, _path, _spec: (),
        errors_of: ObjectErrors = lambda _source, _path, _spec, _find: (),
        on_algorithm: Callable[[str], None] = lambda _name: None,
        has_experiment: HasExperiment = lambda _namespace, _name: True,
        find: FindObject = lambda _kind, _key: None,
        check_runtime: RuntimeCheck = lambda _runtime, _place: (),
        primary_labels: PrimaryLabels = lambda _source, _find: {},
        notes_workspace: bool = True,
    ) -> None:
        self._catalog = catalog
        self._config_maps = config_maps
        self._collectors = collectors
        self._check_object = check_object
        self._warn_of = warn_of
        self._errors_of = errors_of
        self._on_algorithm = on_algorithm
        self._has_experiment = has_experiment
        self._find = find
        self._check_runtime = check_runtime
        self._primary_labels = primary_labels
        self._notes_workspace = notes_workspace

    def load(self, document: str, *, source: str, namespace: str) -> Submission:
        """Read a document. Raises InvalidError when it holds no experiment."""
        submission = self._with_primary_labels(load_experiment(document, source, namespace))
        algorithm = default_algorithm(submission.experiment.spec)
        if algorithm is not None:
            self._on_algorithm(algorithm.algorithm_name)
        if not self._notes_workspace or not os.path.isfile(source):  # noqa: PTH113 - Path raises for a name that is too long
            return submission
        metadata = submission.experiment.metadata
        annotations = {WORKSPACE_ANNOTATION: str(Path(source).resolve().parent), **metadata.annotations}
        experiment = structs.replace(submission.experiment, metadata=structs.replace(metadata, annotations=annotations))
        return Submission(submission.raw, experiment, submission.companions, submission.errors)

    def _with_primary_labels(self, submission: Submission) -> Submission:
        """Fill in which pods are primary where that is known only with what the template refers to."""
        experiment = submission.experiment
        template = experiment.spec.trial_template
        if template is None or template.primary_pod_labels or not template.trial_spec:
            return submission
        labels = self._primary_labels(template.trial_spec, self._finder(submission))
        if not labels:
            return submission
        template = structs.replace(template, primary_pod_labels=dict(labels))
        spec = structs.replace(experiment.spec, trial_template=template)
        return replace(submission, experiment=structs.replace(experiment, spec=spec))

    def runtimes(self, document: str, *, source: str, namespace: str) -> tuple[dict[str, Any], ...]:
        """Return the training runtimes of a document that holds nothing else.

        Raises:
            InvalidError: With everything that is wrong with them.
        """
        found = load_runtimes(document, source, namespace)
        errors = [error for place, runtime in found for error in self._check_runtime(runtime, place)]
        if errors:
            raise InvalidError(errors)
        return tuple(runtime for _, runtime in found)

    def check(self, document: str, *, source: str, namespace: str) -> Admitted | None:
        """Check a document and return what it holds; None for one of training runtimes alone.

        Raises:
            InvalidError: With everything that is wrong with it.
        """
        if holds_runtimes(document, source):
            self.runtimes(document, source=source, namespace=namespace)
            return None
        return self.admit(self.load(document, source=source, namespace=namespace))

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

        experiment = admit(
            submission,
            catalog=self._catalog,
            check_template=check,
            check_point=check_assignments,
            collectors=self._collectors,
        )
        self._check_earlier_experiments(experiment)
        return Admitted(experiment, submission.companions, tuple(dict.fromkeys(notices)))

    def preview(self, submission: Submission) -> Preview:
        """Return what the first trial of a new experiment would run.

        Raises:
            InvalidError: As `admit`; or its first trial cannot be shown.
        """
        experiment = self.admit(submission).experiment
        return preview_trial(experiment, lambda namespace, name: self._data_for(submission, namespace, name))

    def _check_earlier_experiments(self, experiment: Experiment) -> None:
        start, namespace = experiment.spec.warm_start, experiment.namespace
        errors = [
            FieldError(
                f"spec.warmStart.experiments[{i}]",
                f"there is no experiment {shown(name)} in namespace {namespace}",
                "name an experiment that is there",
                "warm-start-experiment",
            )
            for i, name in enumerate(start.experiments if start is not None else ())
            if not self._has_experiment(namespace, name)
        ]
        if errors:
            raise InvalidError(errors)

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
            text = template_text(template, lambda ns, name: self._data_for(submission, ns, name))
            errors = [
                *check_condition(template.success_condition, "spec.trialTemplate.successCondition"),
                *check_condition(template.failure_condition, "spec.trialTemplate.failureCondition"),
                *check_template(template, parameters, text),
            ]
            _, source = prepare(template, text)
        except InvalidError as error:
            return list(error.errors), []
        path = template_path(template)
        found, notices = self._check_source(submission, source, path)
        errors += found
        for variant in () if errors else variants(template, parameters, source):
            # Paths may be off by the elements that are left out, so what holds of the whole object is said of it alone.
            errors += self._check_source(submission, variant, path)[0]
        spec = with_defaults(submission.experiment).spec
        return list(dict.fromkeys(errors)), [*notices, *self._warn_of(source, path, spec)]

    def _check_source(
        self, submission: Submission, source: Mapping[str, Any], path: str
    ) -> tuple[list[FieldError], list[str]]:
        errors = list(check_job_kind(Kind.of(source), path))
        if Kind.of(source) == JOB:
            errors += check_job_schema(dict(source), path)
        errors += device_errors(source, path)
        find = self._finder(submission)
        found, notices = self._check_object(source, path, _workspace(submission.experiment), find)
        errors += found
        errors += self._errors_of(source, path, with_defaults(submission.experiment).spec, find)
        return errors, notices

    def _finder(self, submission: Submission) -> FindObject:
        """Return what finds objects, of the same file before any other."""
        own = submission.experiment.namespace

        def find(kind: Kind, key: Key) -> Object | None:
            for namespace in dict.fromkeys((key.namespace, key.namespace or own)):
                beside = submission.companion(kind.kind, namespace, key.name)
                if found := beside or self._find(kind, Key(namespace, key.name)):
                    return found
            return None

        return find

    def _data_for(self, submission: Submission, namespace: str, name: str) -> Mapping[str, str] | None:
        """Return the data of a ConfigMap, of the same file before any other, if the experiment may use it."""
        found = submission.config_map(namespace, name) or self._config_maps(namespace, name)
        return usable_data(found, submission.experiment.namespace)


def _workspace(experiment: Experiment) -> Path | None:
    text = experiment.metadata.annotations.get(WORKSPACE_ANNOTATION, "")
    return Path(text) if text else None


def has_experiment(store: ObjectStore) -> HasExperiment:
    """Return what says whether a store has an experiment."""

    def is_stored(namespace: str, name: str) -> bool:
        try:
            store.get(EXPERIMENT, Key(namespace, name))
        except NotFoundError:
            return False
        return True

    return is_stored


class ConfigMaps:
    """The ConfigMaps of a store."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def find(self, namespace: str, name: str) -> Object | None:
        """Return a ConfigMap, None when there is none."""
        try:
            return self._store.get(CONFIG_MAP, Key(namespace, name))
        except NotFoundError:
            return None
