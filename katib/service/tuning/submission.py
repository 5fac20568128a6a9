"""The gate: from the text of a file to an experiment that can run in this home."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from msgspec import structs

from katib.engine.controllers.kinds import CONFIG_MAP, EXPERIMENT, JOB
from katib.engine.controllers.trial.jobs import check_job_kind
from katib.engine.runtime.objects import Key, Kind, Object, ObjectStore
from katib.errors import FieldError, InvalidError, NotFoundError, invalid
from katib.model.algorithms import AlgorithmCatalog
from katib.model.defaults import default_algorithm, holds, with_defaults
from katib.model.job_kinds import known_kind
from katib.model.learned_experiments import found_experiments, looks_for_experiments
from katib.model.loadable import Loadable
from katib.model.loading import FileText, Submission, are_runtimes, experiment_of, file_of, runtimes_of
from katib.model.names import LEARNS_FROM_ANNOTATION, NOTHING, WORKSPACE_ANNOTATION
from katib.model.space.assignments import check_assignments
from katib.model.templates.absence import variants
from katib.model.templates.check import check_template
from katib.model.templates.condition_path import check_condition, scalar_notices
from katib.model.templates.devices import device_errors
from katib.model.templates.job_schema import check_job_schema
from katib.model.templates.render import prepare
from katib.model.templates.source import template_path, template_text, usable_data
from katib.model.trials import is_asked
from katib.model.types import CollectorKind, Experiment, ExperimentSpec, ParameterSpec, TrialTemplate
from katib.model.validation import admit, admit_update, find_warnings
from katib.model.wording import shown
from katib.service.tuning.service import DEFAULT_NAMESPACE, Document, Preview

_CALLERS = "there is no spec.trialTemplate, so each trial waits until a program asks for it and evaluates it"

_LEARNS = (
    "auto learns from {}, as far as they agree with the new trials; the annotation "
    f"{LEARNS_FROM_ANNOTATION}: {NOTHING}, or --learn-from {NOTHING}, prevents that"
)

PLACEMENT = "slurm-"
"""Prefix of the origin of errors about the placement of trials."""

_CHECK_CONSTRAINTS: Final[Loadable[Callable[[ExperimentSpec], list[FieldError]]]] = Loadable(
    "katib.model.space.constraint_rules:check_constraints"
)
_PREVIEW: Final[Loadable[Callable[..., Preview]]] = Loadable("katib.service.tuning.preview:preview_trial")
_IN_WORDS_OF_JOB: Final[Loadable[Callable[[InvalidError], InvalidError]]] = Loadable(
    "katib.model.optimization_jobs:in_words_of_job"
)

FindObject = Callable[[Kind, Key], Object | None]
"""Finds an object that a template depends on; without a namespace it looks in that of the experiment, too."""


class Home:
    """Rules of a home for experiments. This one takes everything that Kubernetes does; others add rules.

    Attributes:
        collectors: Kinds of metrics collectors that can run here.
        notes_workspace: Whether relative paths of commands start from the directory of the submitted file.
        keeps_jobs: Whether an OptimizationJob that is submitted is stored beside its experiment.
        places_trials: Whether errors of `PLACEMENT` may arise between two runs of an experiment.
    """

    collectors: Collection[str] = tuple(CollectorKind)
    notes_workspace = True
    keeps_jobs = True
    places_trials = False

    def check(
        self, _source: Mapping[str, Any], _path: str, _experiment: Experiment, _find: FindObject
    ) -> tuple[Sequence[FieldError], Sequence[str]]:
        """Return the errors of the object that trials run as, and notices for its author.

        Takes the object, with placeholders still in it, its path in the experiment, the experiment with defaults, and
        a function that finds objects of the same file or of the store. The structure of a Job is checked anyway.
        """
        return (), ()

    def check_job(self, _job: Mapping[str, Any], _find: FindObject) -> tuple[Sequence[FieldError], Sequence[str]]:
        """Return the errors of a job without an experiment, and notices for its author.

        Paths begin with a dot.
        """
        return (), ()

    def annotations(self, _source: Mapping[str, Any], _experiment: Experiment) -> Mapping[str, str]:
        """Return annotations that a new experiment gets, from the object that its trials run as."""
        return {}

    def check_runtime(self, _runtime: Mapping[str, Any], _place: str) -> Sequence[FieldError]:
        """Return the errors of a training runtime, each path with the place before it."""
        return ()

    def primary_labels(self, _source: Mapping[str, Any], _find: FindObject) -> Mapping[str, str]:
        """Return the labels of the pod that prints metrics if they depend on the object's references.

        Empty if they do not. The object may be malformed.
        """
        return {}

    def shipped_config_map(self, _key: Key) -> Object | None:
        """Return a ConfigMap that came with the installation; one that is stored comes before it."""
        return None

    def check_algorithms(self, _experiment: Experiment, _catalog: AlgorithmCatalog) -> Sequence[FieldError]:
        """Return the refusals of the algorithms' services for a valid experiment, as far as known here."""
        return ()

    def try_create(self, _experiment: Experiment) -> None:
        """Raise the errors that storing a new experiment would give, beyond those of the gate; store nothing."""

    def prewarm(self, _algorithm: str) -> None:
        """Take note that a document asks for an algorithm, so that its service can come up meanwhile."""


class StoredObjects:
    """Objects that experiments may refer to.

    Args:
        store: Objects; None: there are none.
        knows_experiments: Whether those are all experiments; if not, others check warm starts.
    """

    def __init__(self, store: ObjectStore | None, *, knows_experiments: bool = True) -> None:
        self._store = store
        self._knows_experiments = knows_experiments

    def find(self, kind: Kind, key: Key) -> Object | None:
        """Return an object, None when there is none."""
        try:
            return None if self._store is None else self._store.get(kind, key)
        except NotFoundError:
            return None

    def found_experiments(self, experiment: Experiment) -> tuple[str, ...]:
        """Return the names of the experiments that a new one learns from without having named any."""
        if self._store is None or not self._knows_experiments or not looks_for_experiments(experiment):
            return ()
        return found_experiments(
            experiment, self._store.list(EXPERIMENT, experiment.namespace).items, check_assignments
        )

    def may_have_experiment(self, key: Key) -> bool:
        """Return whether an experiment is stored, or cannot be looked up."""
        return not self._knows_experiments or self.find(EXPERIMENT, key) is not None


@dataclass(frozen=True, slots=True)
class Admitted:
    """A new experiment that may be stored as it is.

    Attributes:
        experiment: With defaults and the notes of its home.
        submission: Its source, with the ConfigMaps, Secrets and training runtimes from the same file.
        notices: Differences from the author's likely expectation.
    """

    experiment: Experiment
    submission: Submission
    notices: tuple[str, ...]


Candidate = Submission | Admitted
"""An experiment of a document that was read, and perhaps admitted, so that neither has to be done again."""


class Gate:
    """Checks submissions against the abilities of this home. Thread-safe.

    Args:
        catalog: Algorithms that are offered.
        home: Rules of this home.
        stored: Objects that they may refer to.
    """

    def __init__(self, catalog: AlgorithmCatalog, home: Home, stored: StoredObjects) -> None:
        self.catalog = catalog
        self.keeps_jobs = home.keeps_jobs
        self._home = home
        self._stored = stored

    def load(self, document: Document, *, source: str, namespace: str) -> Submission:
        """Read a document. Raises InvalidError when it holds no experiment."""
        submission = self.received(experiment_of(file_of(document, source).documents, source, namespace))
        if not self._home.notes_workspace or not os.path.isfile(source):  # noqa: PTH113 - Path raises for a name that is too long
            return submission
        metadata = submission.experiment.metadata
        folder = Path(source).resolve().parent / metadata.annotations.get(WORKSPACE_ANNOTATION, "")
        annotations = {**metadata.annotations, WORKSPACE_ANNOTATION: os.path.normpath(folder)}
        experiment = structs.replace(submission.experiment, metadata=structs.replace(metadata, annotations=annotations))
        return replace(submission, experiment=experiment)

    def received(self, submission: Submission) -> Submission:
        """Return a submission with the parts filled in that depend on other objects, and note its algorithm."""
        submission = self._with_primary_labels(submission)
        self.expect(submission)
        return submission

    def expect(self, submission: Submission) -> None:
        """Have the home take note of the algorithm of an experiment, so that its service can come up meanwhile."""
        algorithm = default_algorithm(submission.experiment.spec)
        if algorithm is not None:
            self._home.prewarm(algorithm.algorithm_name)

    def _with_primary_labels(self, submission: Submission) -> Submission:
        """Fill in the primary pods if they depend on the template's references."""
        experiment = submission.experiment
        template = experiment.spec.trial_template
        if template is None or template.primary_pod_labels or not template.trial_spec:
            return submission
        labels = self._home.primary_labels(template.trial_spec, self._finder(submission))
        if not labels:
            return submission
        template = structs.replace(template, primary_pod_labels=dict(labels))
        spec = structs.replace(experiment.spec, trial_template=template)
        return replace(submission, experiment=structs.replace(experiment, spec=spec))

    def runtimes(self, document: Document, *, source: str, namespace: str) -> tuple[dict[str, Any], ...]:
        """Return the training runtimes of a document that holds nothing else.

        Raises:
            InvalidError: With everything that is wrong with them.
        """
        found = runtimes_of(file_of(document, source).documents, source, namespace)
        errors = [error for place, runtime in found for error in self._home.check_runtime(runtime, place)]
        if errors:
            raise InvalidError(errors)
        return tuple(runtime for _, runtime in found)

    def check(self, document: Document, *, source: str, namespace: str) -> Admitted | None:
        """Check a document and return its experiment; None if it holds only training runtimes.

        Raises:
            InvalidError: With everything that is wrong with it.
        """
        file = file_of(document, source)
        if are_runtimes(file.documents):
            self.runtimes(file, source=source, namespace=namespace)
            return None
        admitted = self.admit(self.load(file, source=source, namespace=namespace))
        if not admitted.submission.companions:  # they would have to be stored before the experiment could be tried
            self._home.try_create(admitted.experiment)
        return admitted

    def admit(self, submission: Submission) -> Admitted:
        """Return a new experiment, ready to be created.

        Raises:
            InvalidError: With everything that is wrong with it.
        """
        if submission.job is None:
            return self._admit(submission)
        try:
            return self._admit(submission)
        except InvalidError as error:
            raise _IN_WORDS_OF_JOB.load()(error) from error

    def _admit(self, submission: Submission) -> Admitted:
        notices = [*submission.notices, *map(str, find_warnings(submission.experiment.spec, self.catalog))]

        def check(template: TrialTemplate, parameters: Sequence[ParameterSpec]) -> list[FieldError]:
            errors, notes = self._check_template(submission, template, parameters)
            notices.extend(notes)
            return errors

        experiment = admit(
            submission,
            catalog=self.catalog,
            check_template=check,
            check_point=check_assignments,
            check_constraints=lambda spec: _CHECK_CONSTRAINTS.load()(spec) if spec.parameter_constraints else [],
            collectors=self._home.collectors,
        )
        self._check_earlier_experiments(experiment)
        if errors := self._home.check_algorithms(experiment, self.catalog):
            raise InvalidError(errors)
        notices += [_CALLERS] if is_asked(experiment) else []
        found = self._stored.found_experiments(experiment)
        notices += [_LEARNS.format(", ".join(found))] if found else []
        experiment = self._with_annotations(experiment, {LEARNS_FROM_ANNOTATION: ",".join(found)} if found else {})
        return Admitted(experiment, submission, tuple(dict.fromkeys(notices)))

    def _with_annotations(self, experiment: Experiment, found: Mapping[str, str]) -> Experiment:
        """Return a new experiment with the found experiments and the notes of its home; the author's fields stay."""
        template = experiment.spec.trial_template
        noted = self._home.annotations(template.trial_spec or {}, experiment) if template is not None else {}
        noted = {**noted, **found}
        if not noted:
            return experiment
        annotations = {**noted, **experiment.metadata.annotations}
        return structs.replace(experiment, metadata=structs.replace(experiment.metadata, annotations=annotations))

    def preview(self, submission: Submission) -> Preview:
        """Return the first trial of a new experiment.

        Raises:
            InvalidError: As `admit`; or its first trial cannot be shown.
        """
        experiment = self.admit(submission).experiment
        return _PREVIEW.load()(experiment, lambda namespace, name: self._data_for(submission, namespace, name))

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
            if not self._stored.may_have_experiment(Key(namespace, name))
        ]
        if errors:
            raise InvalidError(errors)

    def admit_update(self, submission: Submission, old: Experiment) -> Experiment:
        """Return an experiment that may take the place of a stored one of that name.

        Raises:
            InvalidError: It differs in a way that cannot be resumed.
        """
        return admit_update(submission, old)

    def check_placement(self, experiment: Experiment) -> None:
        """Check that trials of a stored experiment can still be placed by this home.

        Raises:
            InvalidError: They cannot.
        """
        template = experiment.spec.trial_template
        if template is None or not self._home.places_trials:
            return
        found, _ = self._check_template(Submission({}, experiment), template, experiment.spec.parameters or ())
        if errors := [error for error in found if error.origin.startswith(PLACEMENT)]:
            raise InvalidError(errors)

    def _check_template(
        self, submission: Submission, template: TrialTemplate, parameters: Sequence[ParameterSpec]
    ) -> tuple[list[FieldError], Sequence[str]]:
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
        notices = [*notices, *(() if errors else _condition_notices(template, source))]
        errors += found
        for variant in () if errors else variants(template, parameters, source):
            # Paths may be off by the elements that are left out, so what holds of the whole object is said of it alone.
            errors += self._check_source(submission, variant, path)[0]
        return list(dict.fromkeys(errors)), notices

    def _check_source(
        self, submission: Submission, source: Mapping[str, Any], path: str
    ) -> tuple[list[FieldError], Sequence[str]]:
        errors = list(check_job_kind(Kind.of(source), path))
        if Kind.of(source) == JOB:
            errors += check_job_schema(dict(source), path)
        errors += device_errors(source, path)
        experiment = with_defaults(submission.experiment)
        found, notices = self._home.check(source, path, experiment, self._finder(submission))
        return [*errors, *found], notices

    def _finder(self, submission: Submission) -> FindObject:
        """Return a function that finds objects, those of the same file first."""
        own = submission.experiment.namespace

        def find(kind: Kind, key: Key) -> Object | None:
            for namespace in dict.fromkeys((key.namespace, key.namespace or own)):
                beside = submission.companion(kind.kind, namespace, key.name)
                if found := beside or self._stored.find(kind, Key(namespace, key.name)):
                    return found
            return None

        return find

    def _data_for(self, submission: Submission, namespace: str, name: str) -> Mapping[str, str] | None:
        """Return the data of a ConfigMap, of the same file before any other, if the experiment may use it."""
        key = Key(namespace, name)
        stored = submission.config_map(namespace, name) or self._stored.find(CONFIG_MAP, key)
        return usable_data(stored or self._home.shipped_config_map(key), submission.experiment.namespace)


def _condition_notices(template: TrialTemplate, source: Mapping[str, Any]) -> list[str]:
    """Return notices for the conditions of a template that can never hold."""
    known = known_kind(source)
    return [
        *scalar_notices(
            template.success_condition,
            "spec.trialTemplate.successCondition",
            holds(known.success) if known is not None else "",
        ),
        *scalar_notices(template.failure_condition, "spec.trialTemplate.failureCondition", holds("Failed")),
    ]


def workspace_of(experiment: Experiment) -> Path | None:
    """Return the directory of an experiment's relative paths; None if it names none."""
    text = experiment.metadata.annotations.get(WORKSPACE_ANNOTATION, "")
    return Path(text) if text else None


def check_runs_by_itself(file: FileText) -> None:
    """Refuse an experiment that only a caller would evaluate; other mistakes are left to others.

    Raises:
        InvalidError: It has no trial template.
    """
    try:
        submission = experiment_of(file.documents, file.source, DEFAULT_NAMESPACE)
    except InvalidError:
        return
    if is_asked(submission.experiment) and not submission.errors:
        cause = "it is missing, so that its trials would wait for a program that asks for them"
        remedy = "describe the object that each trial runs as, or see `katib ask`"
        raise invalid("spec.trialTemplate", cause, remedy, "template-missing")
