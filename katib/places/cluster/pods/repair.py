"""Replacement of a trial's pods without collector.

The webhook that adds collectors must not keep pods from starting while it is down, or no pod of a namespace could. So
it may miss one: a job creates its pod just when the controller is replaced. The metrics of such a pod are lost,
although the pod itself is fine, whether the trial's other pods have collectors or not.

`remedy_for` chooses the action for a pod. Only a Job with several pods replaces a single pod: that counts as a failed
attempt of the Job, so an attempt has to be left. Everything else is restarted as a whole; other operators may take the
end of one pod for the end of their job.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from katib.engine.controllers.kinds import JOB, POD, TRIAL, key_of
from katib.engine.controllers.ports import EventRecorder, UncollectedPod
from katib.engine.controllers.trial.jobs import job_place
from katib.engine.runtime.clock import Clock
from katib.engine.runtime.informer import Informer
from katib.engine.runtime.objects import Key, Kind, Object, ObjectStore
from katib.errors import KatibError, NotFoundError, UnavailableError
from katib.model.job_kinds import CLUSTER_BACKOFF_LIMIT
from katib.model.trials import ACTIVE, trial_state
from katib.model.types import Trial
from katib.places.cluster.pods.missed import MissedPod, MissedPods, concerns

PERIOD_SECONDS = 5.0

PAUSES_SECONDS = (0.0, 10.0, 60.0)
"""Pauses after the repairs of a trial while new pods miss their collector, too: the webhook may need a moment.

After the last one the pods stay: a namespace whose pods never get collectors must not run its jobs forever.
"""


SETTLING_SECONDS = 5.0
"""How long after a repair the old job may still be observed; its state is ignored."""

_CAUSE = "pod {} ran without metrics collector, because the webhook that adds it did not answer"
_REPAIRED = "a pod ran without metrics collector and is being replaced"

_log = logging.getLogger(__name__)


class RepairAction(Enum):
    """Action on a pod without collector; the value describes it in an event."""

    REPLACE_POD = "it is deleted, so that its job makes another one"
    RESTART = "the job is restarted"


def remedy_for(pod: MissedPod, maker: Object | None, trial_uid: str) -> RepairAction:
    if maker is None or pod.phase == "Succeeded":
        return RepairAction.RESTART
    spec: Mapping[str, Any] = maker.get("spec") or {}
    makes_one = max(spec.get("completions") or 1, spec.get("parallelism") or 1) == 1
    is_whole = any(owner.get("uid") == trial_uid for owner in maker["metadata"].get("ownerReferences") or ())
    if makes_one and is_whole:
        return RepairAction.RESTART
    limit = spec.get("backoffLimit", CLUSTER_BACKOFF_LIMIT)
    has_tries = ((maker.get("status") or {}).get("failed") or 0) < limit
    judges_failures = spec.get("podFailurePolicy") or spec.get("backoffLimitPerIndex") is not None
    return RepairAction.REPLACE_POD if has_tries and not judges_failures else RepairAction.RESTART


@dataclass(frozen=True, slots=True)
class PodRepair:
    """Replaces pods without collectors. `look` is called by one thread, `uncollected` by any.

    Attributes:
        store: Store of pods and jobs. Deletion of a job must take effect at once: a job that stays until its pod is
            gone would be judged by how that pod was ended.
    """

    store: ObjectStore
    trials: Informer[Trial]
    missed: MissedPods
    events: EventRecorder
    clock: Clock
    _repairs: Counter[str] = field(default_factory=Counter, init=False)
    _repaired_at: dict[str, float] = field(default_factory=dict, init=False)
    _handled: dict[str, set[str]] = field(default_factory=dict, init=False)

    def look(self) -> None:
        """Check all running trials once; raises the store's errors."""
        trials = self.trials.all()
        for uid in self._repairs.keys() - {trial.metadata.uid for trial in trials}:
            del self._repairs[uid]
            self._handled.pop(uid, None)
            self._repaired_at.pop(uid, None)
        running = [trial for trial in trials if _is_active(trial) and self.missed.is_any_in(trial.namespace)]
        for namespace in {trial.namespace for trial in running}:
            found = self.missed.by_trial(namespace)
            for trial in running:
                pods = self._untreated(found.get(trial.metadata.uid, ()), trial)
                if pods and self._may_repair(trial):
                    self._repair(trial, pods)

    def uncollected(self, trial: Trial) -> UncollectedPod | None:
        """Return a pod of a running trial whose metrics are lost, None if there is none."""
        if not _is_active(trial):
            return None
        with suppress(KatibError):  # the API server may be back later; the trial waits for its metrics
            pods = self.missed.by_trial(trial.namespace).get(trial.metadata.uid, ())
            for pod in self._untreated(pods, trial):
                return UncollectedPod(_CAUSE.format(pod.key.name), is_final=self._has_given_up(trial))
        settled_at = self._repaired_at.get(trial.metadata.uid, float("-inf")) + SETTLING_SECONDS
        return UncollectedPod(_REPAIRED) if self.clock.monotonic() < settled_at else None

    def _untreated(self, pods: Sequence[MissedPod], trial: Trial) -> list[MissedPod]:
        handled = self._handled.get(trial.metadata.uid, ())
        return [pod for pod in pods if concerns(pod, trial) and pod.uid not in handled]

    def _has_given_up(self, trial: Trial) -> bool:
        return self._repairs[trial.metadata.uid] >= len(PAUSES_SECONDS)

    def _may_repair(self, trial: Trial) -> bool:
        """Return whether the next repair of a trial is due."""
        if self._has_given_up(trial):
            return False
        pause = PAUSES_SECONDS[self._repairs[trial.metadata.uid]]
        return self.clock.monotonic() >= self._repaired_at.get(trial.metadata.uid, float("-inf")) + pause

    def _repair(self, trial: Trial, pods: Sequence[MissedPod]) -> None:
        """Replace pods; a refusal by the API server counts as an attempt, an outage does not."""
        uid = trial.metadata.uid
        try:
            self._replace(trial, pods)
            self._repaired_at[uid] = self.clock.monotonic()  # set before they count as handled: readers use both
            self._handled.setdefault(uid, set()).update(pod.uid for pod in pods)
        except UnavailableError:
            raise
        except KatibError as error:
            _log.warning("Pod without collector stays: %s", error, extra={"trial": str(key_of(trial))})
        self._repaired_at[uid] = self.clock.monotonic()
        self._repairs[uid] += 1

    def _replace(self, trial: Trial, pods: Sequence[MissedPod]) -> None:
        """Replace pods one by one, or all of them by restarting the job."""
        remedies = [remedy_for(pod, self._maker(pod), trial.metadata.uid) for pod in pods]
        if RepairAction.RESTART in remedies:
            self._restart(trial)
            self._report(trial, pods[0], RepairAction.RESTART)
            return
        for pod in pods:
            with suppress(NotFoundError):
                self.store.delete(POD, pod.key, uid=pod.uid)
            self._report(trial, pod, RepairAction.REPLACE_POD)

    def _maker(self, pod: MissedPod) -> Object | None:
        owner = next((owner for owner in pod.owners if owner.get("controller")), pod.owners[0])
        if Kind(str(owner.get("apiVersion")), str(owner.get("kind"))) != JOB:
            return None
        with suppress(NotFoundError):
            job = self.store.get(JOB, Key(pod.key.namespace, str(owner.get("name"))))
            return job if job["metadata"]["uid"] == owner.get("uid") else None
        return None

    def _restart(self, trial: Trial) -> None:
        """Delete the job, which the trial then creates again, unless the trial is completed by now."""
        kind, key = job_place(trial)
        with suppress(NotFoundError):
            current = Trial.decode(self.store.get(TRIAL, key))
            job = self.store.get(kind, key)["metadata"]
            is_its = any(owner.get("uid") == trial.metadata.uid for owner in job.get("ownerReferences") or ())
            if is_its and _is_active(current) and current.metadata.uid == trial.metadata.uid:
                self.store.delete(kind, key, uid=job["uid"])

    def _report(self, trial: Trial, pod: MissedPod, remedy: RepairAction) -> None:
        message = (
            f"Pod {pod.key.name} started without metrics collector while the webhook did not answer; {remedy.value}"
        )
        self.events.record(trial, warning=True, reason="PodWithoutCollector", message=message)
        _log.warning("Pod has no collector", extra={"trial": str(key_of(trial)), "remedy": remedy.value})


def _is_active(trial: Trial) -> bool:
    return trial_state(trial) in ACTIVE and trial.metadata.deletion_timestamp is None
