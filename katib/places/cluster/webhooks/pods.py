"""Webhook of pods: pods of trials get their collector, all others pass.

| found | response |
|---|---|
| no trial among the owners | the pod unchanged |
| an owner that is forbidden or unavailable | the pod unchanged, with a warning: it might be a trial's |
| the trial, but not its related objects or its image's command | a refusal to be retried, as the job's controller does
|
| a pod that cannot be collected from | a refusal with the remedy, also as an event of the trial |
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from msgspec import ValidationError

from katib.engine.controllers.kinds import SUGGESTION, TRIAL
from katib.engine.controllers.ports import EventRecorder
from katib.engine.runtime.clock import Clock, SystemClock
from katib.engine.runtime.objects import Key, Object, ObjectStore
from katib.errors import ForbiddenError, InvalidError, NotFoundError, TerminalError, UnavailableError
from katib.model.checkpoints import checkpoint_directory
from katib.model.names import EXPERIMENT_LABEL
from katib.model.types import Suggestion, Trial
from katib.places.cluster.admission.reviews import ALLOWED, AdmissionResponse, AdmissionReview, Handler
from katib.places.cluster.configuration.models import KatibConfig
from katib.places.cluster.images import REMEDY, ImageCommands
from katib.places.cluster.injection import container_to_complete, inject, missing_primary_container
from katib.places.cluster.injection.settings import InjectionSettings, VolumeClaim
from katib.places.cluster.pods.owners import OwningTrial, TrialFinder
from katib.places.cluster.services.plan import early_stopping_address, object_name
from katib.wire.rpc.credentials import NO_CREDENTIALS, DbManagerCredentials

PATH = "/mutate-pod"

_log = logging.getLogger(__name__)


class PodAdmission:
    """Admission of pods. Thread-safe.

    Args:
        store: Store of trials, jobs, and the objects between a job and its pods.
        events: Records events for a trial's user.
        images: Finds the commands of images; None refuses containers without command.
        clock: Measures how long cached owners are valid.
    """

    def __init__(
        self,
        store: ObjectStore,
        settings_for: Callable[[Trial], InjectionSettings],
        *,
        events: EventRecorder | None = None,
        images: ImageCommands | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._store = store
        self._settings_for = settings_for
        self._events = events
        self._images = images
        self._finder = TrialFinder(store, clock or SystemClock())

    def handlers(self) -> dict[str, Handler]:
        return {PATH: self.mutate}

    def mutate(self, review: AdmissionReview) -> AdmissionResponse:
        if review.operation != "CREATE" or review.subresource or review.resource not in {"", "pods"}:
            return ALLOWED
        try:
            found = self._finder.trial_of(review.object, review.namespace)
        except (ForbiddenError, UnavailableError) as error:
            warning = f"if this pod is a trial's, its metrics are not collected: {error}"
            _log.warning("Owners of a pod not read", extra={"namespace": review.namespace, "cause": str(error)})
            return AdmissionResponse(allowed=True, warnings=(warning,))
        return ALLOWED if found is None else self._inject(review, self._trial(found))

    def trial_of(self, pod: Object, namespace: str) -> OwningTrial | None:
        """Return the trial among the owners of a pod, at any depth; None if there is none.

        For repeated calls: an owner that is forbidden or unavailable is read again only after a while.

        Raises:
            ForbiddenError: An owner may not be read.
            UnavailableError: An owner cannot be read now.
        """
        return self._finder.trial_of(pod, namespace, patient=True)

    def _trial(self, owner: OwningTrial) -> Trial:
        key = owner.key
        stored = self._store.get(TRIAL, key)
        if stored["metadata"]["uid"] != owner.uid:
            raise NotFoundError(f"Trial {key} that owns this pod is gone; another has its name")
        try:
            return Trial.decode(stored)
        except ValidationError as error:
            raise TerminalError(f"Trial {key} cannot be read: {error}") from error

    def _inject(self, review: AdmissionReview, trial: Trial) -> AdmissionResponse:
        try:
            settings = self._settings_for(trial)
            injected = inject(self._with_command(review, trial, settings), trial, settings)
        except InvalidError as error:
            self._record(review, trial, "PodRefused", "; ".join(map(str, error.errors)))
            raise
        sentence = missing_primary_container(review.object, trial)
        if sentence:
            self._record(review, trial, "NoPrimaryContainer", sentence)
        return AdmissionResponse(allowed=True, patched=injected, warnings=(sentence,) if sentence else ())

    def _with_command(self, review: AdmissionReview, trial: Trial, settings: InjectionSettings) -> Object:
        """Return the pod, with the command of its image in the primary container if that needs one."""
        index = container_to_complete(review.object, trial, settings)
        if index is None or self._images is None:
            return review.object
        spec = review.object["spec"]
        try:
            container = self._images.complete(spec, spec["containers"][index], review.namespace)
        except UnavailableError as error:
            raise UnavailableError(f"spec.containers[{index}].command: it is missing; {error}; {REMEDY}") from error
        everyone = [*spec["containers"][:index], container, *spec["containers"][index + 1 :]]
        return {**review.object, "spec": {**spec, "containers": everyone}}

    def _record(self, review: AdmissionReview, trial: Trial, reason: str, message: str) -> None:
        if self._events is not None and not review.dry_run:
            self._events.record(trial, warning=True, reason=reason, message=message)


@dataclass(frozen=True, slots=True)
class TrialSettings:
    """Finds the injection settings of trials. Thread-safe.

    Attributes:
        inject_security_context: Whether the collector gets the primary container's security context.
        status_address: Address for the status of Kubeflow Trainer; empty for none.
    """

    store: ObjectStore
    config: Callable[[], KatibConfig]
    db_manager_address: str
    inject_security_context: bool
    credentials: Callable[[Trial], DbManagerCredentials] = lambda _trial: NO_CREDENTIALS
    status_address: str = ""

    def settings_for(self, trial: Trial) -> InjectionSettings:
        """Return the settings for the pods of a trial.

        Raises:
            UnavailableError: Its Suggestion is missing, though early stopping rules need a service.
        """
        config = self.config()
        suggestion = self._suggestion_of(trial)
        return InjectionSettings(
            db_manager_address=self.db_manager_address,
            collectors={entry.kind: entry for entry in config.runtime.metrics_collectors},
            inject_security_context=self.inject_security_context,
            early_stopping_address=self._early_stopping(trial, suggestion, config),
            suggestion_volume=_volume(trial, suggestion, config),
            credentials=self.credentials(trial),
            status_address=self.status_address,
        )

    def _suggestion_of(self, trial: Trial) -> Suggestion | None:
        name = trial.metadata.labels.get(EXPERIMENT_LABEL, "")
        try:
            return Suggestion.decode(self.store.get(SUGGESTION, Key(trial.namespace, name)))
        except NotFoundError:
            return None

    def _early_stopping(self, trial: Trial, suggestion: Suggestion | None, config: KatibConfig) -> str:
        if not trial.spec.early_stopping_rules:
            return ""
        if suggestion is None:
            raise UnavailableError(
                f"trial {trial.name}: its Suggestion is gone, which knows the early stopping service"
            )
        return early_stopping_address(suggestion, config)


def _volume(trial: Trial, suggestion: Suggestion | None, config: KatibConfig) -> VolumeClaim | None:
    """Return the claim with which trials of an experiment share checkpoints, None if there is none."""
    algorithm = suggestion.spec.algorithm if suggestion is not None else None
    directory = checkpoint_directory(algorithm)
    if suggestion is None or algorithm is None or not directory:
        return None
    entry = config.suggestion(algorithm.algorithm_name)
    if entry is not None and entry.address:
        return None  # a service that is not managed here shares nothing with trials
    claim = object_name(suggestion.name, algorithm.algorithm_name)
    return VolumeClaim(directory, claim, f"{suggestion.name}/{trial.name}")
