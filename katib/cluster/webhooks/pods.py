"""The webhook of pods: pods of trials get their collector, all others pass.

| found | answer |
|---|---|
| no trial among the owners | the pod as it is |
| an owner that may not be read, or not now | the pod as it is, with a warning: it might be a trial's |
| the trial, but not what belongs to it | a refusal to try again: the job's controller does |
| a pod that cannot be collected from | a refusal with the remedy, also as an event of the trial |
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from msgspec import ValidationError

from katib.api.types import Trial
from katib.cluster.admission.reviews import ALLOWED, Handler, Review, Verdict
from katib.cluster.injection import InjectionSettings, inject, missing_primary_container
from katib.cluster.pods.owners import OwningTrial, TrialFinder
from katib.controllers.kinds import TRIAL
from katib.controllers.ports import EventRecorder
from katib.errors import ForbiddenError, InvalidError, NotFoundError, TerminalError, UnavailableError
from katib.runtime.clock import Clock, SystemClock
from katib.runtime.objects import Object, ObjectStore

PATH = "/mutate-pod"

_log = logging.getLogger(__name__)


class PodAdmission:
    """Decides about pods. Thread-safe.

    Args:
        store: Holds trials, jobs, and what is between a job and its pods.
        settings_for: Returns the settings of a trial.
        events: Records what a trial's user has to know.
        clock: Says how long what was read about owners counts.
    """

    def __init__(
        self,
        store: ObjectStore,
        settings_for: Callable[[Trial], InjectionSettings],
        *,
        events: EventRecorder | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._store = store
        self._settings_for = settings_for
        self._events = events
        self._finder = TrialFinder(store, clock or SystemClock())

    def handlers(self) -> dict[str, Handler]:
        """Return the handlers by path."""
        return {PATH: self.mutate}

    def mutate(self, review: Review) -> Verdict:
        """Answer a review of a pod."""
        if review.operation != "CREATE" or review.subresource or review.resource not in {"", "pods"}:
            return ALLOWED
        try:
            found = self._finder.trial_of(review.object, review.namespace)
        except (ForbiddenError, UnavailableError) as error:
            warning = f"if this pod is a trial's, its metrics are not collected: {error}"
            _log.warning("Owners of a pod not read", extra={"namespace": review.namespace, "cause": str(error)})
            return Verdict(allowed=True, warnings=(warning,))
        return ALLOWED if found is None else self._inject(review, self._trial(found))

    def trial_of(self, pod: Object, namespace: str) -> OwningTrial | None:
        """Return the trial that owns a pod at whatever distance; None when there is none.

        For those who ask again and again: what may not be read is asked for again only after a while.

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

    def _inject(self, review: Review, trial: Trial) -> Verdict:
        try:
            injected = inject(review.object, trial, self._settings_for(trial))
        except InvalidError as error:
            self._tell(review, trial, "PodRefused", "; ".join(map(str, error.errors)))
            raise
        sentence = missing_primary_container(review.object, trial)
        if sentence:
            self._tell(review, trial, "NoPrimaryContainer", sentence)
        return Verdict(allowed=True, patched=injected, warnings=(sentence,) if sentence else ())

    def _tell(self, review: Review, trial: Trial, reason: str, message: str) -> None:
        if self._events is not None and not review.dry_run:
            self._events.record(trial, warning=True, reason=reason, message=message)
