"""Webhooks of Experiments: fill in defaults, then report all errors before an experiment is stored.

The rules are those of every home (`katib.service.tuning.submission`). Specific to a cluster are the label of the
namespace, volumes left by an earlier experiment, and requests about existing objects.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from msgspec import ValidationError, structs

from katib.engine.runtime.objects import Key, Kind, Object, ObjectStore
from katib.errors import FieldError, InvalidError, KatibError, NotFoundError
from katib.model.algorithms import AlgorithmCatalog
from katib.model.decoding import decode
from katib.model.defaults import with_defaults
from katib.model.loading import Submission, decode_experiment
from katib.model.names import LEARNS_FROM_ANNOTATION
from katib.model.templates import has_placeholder
from katib.model.types import CollectorKind, Experiment, ExperimentStatus, ResumePolicy
from katib.model.validation.update import COUNTS, FIXED_FIELDS, changed_fields, validate_update
from katib.places.cluster.admission.reviews import ALLOWED, AdmissionResponse, AdmissionReview, Handler
from katib.places.cluster.images import REMEDY, ImageCommands
from katib.places.cluster.template_warnings import (
    containers_without_command,
    is_taken_as_written,
    template_errors,
    template_warnings,
)
from katib.service.tuning.submission import FindObject, Gate, Home, StoredObjects

DEFAULTER_PATH = "/mutate-experiment"
VALIDATOR_PATH = "/validate-experiment"

INJECTION_LABEL = "katib.kubeflow.org/metrics-collector-injection"
INJECTION_ENABLED = "enabled"

NAMESPACE = Kind("v1", "Namespace")
PERSISTENT_VOLUME = Kind("v1", "PersistentVolume")

WITHOUT_IMAGE = (CollectorKind.CUSTOM, CollectorKind.PUSH, CollectorKind.NONE)
"""Collectors without an entry in the configuration: the user's program or container reports, or nothing does."""

KNOWN_FIELDS = frozenset((*COUNTS, *FIXED_FIELDS))
"""Known fields of a spec; an edit of any other is kept as written."""

_UNKNOWN_FIELD = "field-unknown"


class AdmittingHome(Home):
    """Checks of experiments by a cluster before they are stored.

    Args:
        collectors: Kinds of metrics collectors in the configuration.
        images: Finds the commands of images; None leaves them to the webhook of pods.
    """

    def __init__(self, collectors: Collection[str], images: ImageCommands | None = None) -> None:
        self.collectors = {*WITHOUT_IMAGE, *collectors}
        self._images = images

    def check(
        self, source: Mapping[str, Any], path: str, experiment: Experiment, _find: FindObject
    ) -> tuple[Sequence[FieldError], Sequence[str]]:
        errors = template_errors(source, path, experiment.spec)
        warnings = template_warnings(source, path, experiment.spec)
        found, total = containers_without_command(source, path, experiment.spec)
        unknown = [error for where, entry, pod in found for error in self._unknown(where, entry, pod, experiment)]
        if is_taken_as_written(source) and len(unknown) == total:
            return [*errors, *unknown], warnings
        return errors, [*warnings, *map(str, unknown)]

    def _unknown(
        self, where: str, container: Mapping[str, Any], pod: Mapping[str, Any], experiment: Experiment
    ) -> Iterator[FieldError]:
        """Yield why the command of a container is not known."""
        if self._images is None or has_placeholder(str([container.get("image"), pod.get("imagePullSecrets")])):
            return
        try:
            self._images.complete(pod, container, experiment.metadata.namespace)
        except KatibError as error:
            yield FieldError(f"{where}.command", f"it is missing; {error}", REMEDY, "command-missing")


@dataclass(frozen=True, slots=True)
class ExperimentAdmission:
    """Admission of Experiments. Thread-safe; nothing is cached, so that a changed configuration takes effect at once.

    Attributes:
        store: Store of namespaces, ConfigMaps and volumes.
        catalog: Returns the algorithms configured now.
        collectors: Returns the kinds of collectors with an image now.
        has_volume: Returns whether an algorithm is configured with a PersistentVolume of its own.
    """

    store: ObjectStore
    catalog: Callable[[], AlgorithmCatalog]
    collectors: Callable[[], Collection[str]]
    has_volume: Callable[[str], bool] = lambda _algorithm: False
    images: ImageCommands | None = None

    def handlers(self) -> dict[str, Handler]:
        return {DEFAULTER_PATH: self.default, VALIDATOR_PATH: self.validate}

    def default(self, review: AdmissionReview) -> AdmissionResponse:
        """Fill in the missing fields of a new experiment; given values keep their form.

        In an edit, every field with an unchanged meaning gets its stored form. Otherwise the API server's own rules,
        which compare forms, would refuse an edit because of a default or a different notation. A forbidden edit is
        refused here already, with both values: those rules run before the validator, and report no values.

        Unreadable fields are left to the validator, which runs next and reports them.

        Raises:
            InvalidError: The edit is forbidden.
        """
        if _is_none_of_ours(review) or _keeps_spec(review):
            return ALLOWED
        try:
            submission = decode_experiment(review.object, review.namespace)
        except InvalidError:
            return ALLOWED
        if _value_errors(submission):  # a default must not replace an unreadable value
            return ALLOWED
        if review.operation == "UPDATE":
            return self._edited(submission, review)
        patched = with_raw_defaults(review.object, submission.experiment)
        with suppress(KatibError):  # experiments that cannot be looked up are not learned from
            if found := StoredObjects(self.store).found_experiments(submission.experiment):
                metadata = patched["metadata"]
                annotations = {**(metadata.get("annotations") or {}), LEARNS_FROM_ANNOTATION: ",".join(found)}
                patched = {**patched, "metadata": {**metadata, "annotations": annotations}}
        return AdmissionResponse(allowed=True, patched=patched)

    def validate(self, review: AdmissionReview) -> AdmissionResponse:
        """Return whether an experiment may be stored, with all errors or with warnings.

        Raises:
            InvalidError: It is refused.
            UnavailableError, ForbiddenError: An object that it depends on cannot be read.
        """
        if _is_none_of_ours(review) or _is_left_alone(review):
            return ALLOWED
        submission = decode_experiment(review.object, review.namespace)
        # Katib has always dropped unknown fields; a typing error deserves a warning, not a refusal.
        warnings = [str(error) for error in submission.errors if error.origin == _UNKNOWN_FIELD]
        submission = Submission(submission.raw, submission.experiment, errors=_value_errors(submission))
        if review.operation == "UPDATE":
            self._validate_update(submission, review)
        else:
            warnings.extend(self._validate_new(submission, review.namespace))
        return AdmissionResponse(allowed=True, warnings=tuple(warnings))

    def _validate_new(self, submission: Submission, namespace: str) -> Sequence[str]:
        """Return warnings about a new experiment. Raises InvalidError with all errors."""
        experiment = with_defaults(submission.experiment)
        errors = [*self._check_namespace(namespace), *self._check_volume(experiment, namespace)]
        try:
            gate = Gate(self.catalog(), AdmittingHome(self.collectors(), self.images), StoredObjects(self.store))
            notices = gate.admit(submission).notices
        except InvalidError as error:
            raise InvalidError([*errors, *error.errors]) from error
        if errors:
            raise InvalidError(errors)
        return notices

    def _edited(self, submission: Submission, review: AdmissionReview) -> AdmissionResponse:
        old, errors = decode(review.old_object)
        if errors:  # its meaning is not known
            return ALLOWED
        if not _is_left_alone(review):
            self._validate_update(Submission(submission.raw, submission.experiment), review)
        patched = with_stored_form(review.object, review.old_object, submission.experiment, old)
        return AdmissionResponse(allowed=True, patched=patched)

    def _validate_update(self, submission: Submission, review: AdmissionReview) -> None:
        errors = [
            *submission.errors,
            *validate_update(_stored(review.old_object), with_defaults(submission.experiment)),
        ]
        if errors:
            raise InvalidError(errors)

    def _check_namespace(self, namespace: str) -> Iterator[FieldError]:
        """Check that metrics can be collected in the namespace: pods of unlabelled ones are not changed."""
        try:
            labels = self.store.get(NAMESPACE, Key("", namespace)).get("metadata", {}).get("labels") or {}
        except NotFoundError:
            labels = {}
        if labels.get(INJECTION_LABEL) != INJECTION_ENABLED:
            label = f"{INJECTION_LABEL}={INJECTION_ENABLED}"
            cause = f"namespace {namespace} does not have the label {label}, without which no metrics are collected"
            remedy = f"run: kubectl label namespace {namespace} --overwrite {label}"
            yield FieldError("metadata.namespace", cause, remedy, "namespace-label-missing")

    def _check_volume(self, experiment: Experiment, namespace: str) -> Iterator[FieldError]:
        """Check that no volume of an earlier experiment with that name would be reused by the new one."""
        algorithm = experiment.spec.algorithm
        if experiment.spec.resume_policy != ResumePolicy.FROM_VOLUME or algorithm is None or not experiment.name:
            return
        if not self.has_volume(algorithm.algorithm_name):
            return
        name = f"{experiment.name}-{algorithm.algorithm_name}-{namespace}"
        try:
            self.store.get(PERSISTENT_VOLUME, Key("", name))
        except NotFoundError:
            return
        cause = f"PersistentVolume {name} of an earlier experiment still exists"
        remedy = f"wait until it is gone, run: kubectl delete persistentvolume {name}, or take another name"
        yield FieldError("spec.resumePolicy", cause, remedy, "volume-exists")


def with_raw_defaults(raw: Object, experiment: Experiment) -> dict[str, Any]:
    """Return an Experiment as written, with defaults added.

    Args:
        experiment: The decoded form, without errors.
    """
    before, after = experiment.spec.encode(), with_defaults(experiment).spec.encode()
    return {**raw, "spec": _overlaid(raw.get("spec") or {}, before, after)}


def with_stored_form(raw: Object, stored: Object, new: Experiment, old: Experiment) -> dict[str, Any]:
    """Return an edited Experiment in which every field with an unchanged meaning has its stored form."""
    changed = changed_fields(with_defaults(old), with_defaults(new))
    defaulted, before = with_raw_defaults(raw, new)["spec"], stored.get("spec") or {}
    spec = {**(raw.get("spec") or {}), **{name: defaulted[name] for name in COUNTS if name in changed & set(defaulted)}}
    for name in KNOWN_FIELDS - changed:
        if name in before:
            spec[name] = before[name]
        else:
            spec.pop(name, None)
    return {**raw, "spec": spec}


def _overlaid(raw: Any, before: Any, after: Any) -> Any:
    """Apply the difference between two encodings to the written form.

    Unchanged values keep their form, and unknown fields stay.
    """
    if before == after:
        return raw
    if isinstance(after, dict) and isinstance(raw, Mapping):
        known = before if isinstance(before, dict) else {}
        changed = {key: _overlaid(raw.get(key), known.get(key), value) for key, value in after.items()}
        return {**raw, **{key: value for key, value in changed.items() if key in raw or value is not None}}
    if isinstance(after, list) and isinstance(raw, list) and isinstance(before, list) and len(raw) == len(before):
        shared = zip(raw, before, after, strict=False)
        return [*(_overlaid(*three) for three in shared), *after[len(raw) :]]
    return after


def _value_errors(submission: Submission) -> tuple[FieldError, ...]:
    """Return the decoding errors, except unknown fields."""
    return tuple(error for error in submission.errors if error.origin != _UNKNOWN_FIELD)


def _is_none_of_ours(review: AdmissionReview) -> bool:
    return bool(review.subresource) or review.operation not in {"CREATE", "UPDATE"}


def _is_left_alone(review: AdmissionReview) -> bool:
    """Return whether an update does not concern the spec: labels, finalizers, or any update during deletion.

    Such an update always passes, whatever has changed around the experiment since it was created; otherwise its
    finalizer could not be removed, and it could not be deleted.
    """
    if review.operation != "UPDATE":
        return False
    metadata = review.object.get("metadata") or {}
    return bool(metadata.get("deletionTimestamp")) or _keeps_spec(review)


def _keeps_spec(review: AdmissionReview) -> bool:
    return review.operation == "UPDATE" and review.object.get("spec") == review.old_object.get("spec")


def _stored(raw: Object) -> Experiment:
    """Return a stored experiment with its status, as far as they are readable."""
    experiment, _ = decode(raw)
    try:
        status = ExperimentStatus.decode(raw.get("status") or {})
    except ValidationError:
        status = ExperimentStatus()
    return with_defaults(structs.replace(experiment, status=status))
