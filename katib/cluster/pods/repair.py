"""Pods that a trial got without a collector: found, and their jobs run anew.

The webhook that adds collectors must not keep pods from starting while it is down, or no pod of a namespace could. So
it may miss one: a job creates its pod just when the controller dies. Such a trial would end without metrics although
nothing is wrong with it. Its job is deleted instead, and the trial creates it again.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from katib.api.names import TRIAL_LABEL
from katib.api.types import CollectorKind, Trial
from katib.cluster.pods.owners import OwningTrial
from katib.cluster.pods.reading import POD, TrialPods
from katib.controllers.kinds import key_of
from katib.controllers.ports import EventRecorder
from katib.controllers.trial.jobs import job_kind
from katib.controllers.trial_states import TrialState, state_of
from katib.errors import KatibError, NotFoundError
from katib.runtime.clock import Clock
from katib.runtime.informer import Informer
from katib.runtime.objects import Object, ObjectStore

PERIOD_SECONDS = 5.0
SETTLING_SECONDS = 5.0
"""How long after its start a trial may be without a pod before anybody looks for one."""

MAX_RERUNS = 3
"""A namespace whose pods are never given collectors must not run its jobs for ever."""

_NEVER_COLLECTED = (CollectorKind.PUSH,)

_log = logging.getLogger(__name__)

FindTrial = Callable[[Object, str], OwningTrial | None]
"""Returns the trial of a pod of a namespace, found through its owners; None when it has none."""


class PodRepair:
    """Looks for pods without collectors, now and then, from a thread of its own.

    Args:
        store: Where pods and jobs are. Jobs deleted there have to go at once: one that stays until its pod is gone
            would be judged by how that pod was ended.
        trials: The trials.
        pods: The pods that have collectors.
        find_trial: Walks the owners of a pod.
        events: Told of what was found.
        clock: Where time is measured.
    """

    def __init__(
        self,
        *,
        store: ObjectStore,
        trials: Informer[Trial],
        pods: TrialPods,
        find_trial: FindTrial,
        events: EventRecorder,
        clock: Clock,
    ) -> None:
        self._store = store
        self._trials = trials
        self._pods = pods
        self._find_trial = find_trial
        self._events = events
        self._clock = clock
        self._reruns: Counter[str] = Counter()
        self._asleep = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="pod-repair", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Stop looking."""
        with self._asleep:
            self._stopping = True
            self._asleep.notify_all()
        if self._thread.ident is not None:
            self._thread.join()

    def look(self) -> None:
        """Look once; raises what the store raises."""
        if not self._pods.informer.has_synced():
            return
        trials = self._trials.all()
        self._reruns = Counter({t.metadata.uid: n for t in trials if (n := self._reruns[t.metadata.uid])})
        suspects = {t.metadata.uid: t for t in trials if self._is_suspect(t)}
        for namespace in {trial.namespace for trial in suspects.values()}:
            for uid in self._without_collector(namespace).intersection(suspects):
                self._rerun(suspects[uid])

    def _run(self) -> None:
        while not self._stopping:
            try:
                self.look()
            except KatibError as error:
                _log.warning("Pods not checked: %s", error)
            except Exception:  # noqa: BLE001 - a foreign object that surprises must not end the watch over others
                _log.exception("Pods not checked")
            with self._asleep:
                if not self._stopping:
                    self._clock.wait(self._asleep, PERIOD_SECONDS)

    def _is_suspect(self, trial: Trial) -> bool:
        """Tell whether a trial should have a pod with a collector by now, and has none."""
        if state_of(trial) is not TrialState.RUNNING or trial.metadata.deletion_timestamp is not None:
            return False
        collector = trial.spec.metrics_collector.collector
        if collector is not None and collector.kind in _NEVER_COLLECTED:
            return False
        started = trial.status.start_time
        settled = started is not None and (self._clock.now() - started).total_seconds() > SETTLING_SECONDS
        return settled and not self._pods.has_pods(key_of(trial)) and self._reruns[trial.metadata.uid] < MAX_RERUNS

    def _without_collector(self, namespace: str) -> set[str]:
        """Return the uids of the trials that own pods without the label of a trial."""
        pods = self._store.list(POD, namespace).items
        unlabelled = (pod for pod in pods if TRIAL_LABEL not in (pod["metadata"].get("labels") or {}))
        found = (self._find_trial(pod, namespace) for pod in unlabelled if pod["metadata"].get("ownerReferences"))
        return {trial.uid for trial in found if trial is not None}

    def _rerun(self, trial: Trial) -> None:
        self._reruns[trial.metadata.uid] += 1
        kind, key = job_kind(trial), key_of(trial)
        with suppress(NotFoundError):
            job = self._store.get(kind, key)["metadata"]
            if any(owner.get("uid") == trial.metadata.uid for owner in job.get("ownerReferences") or ()):
                self._tell(trial)
                self._store.delete(kind, key, uid=job["uid"])

    def _tell(self, trial: Trial) -> None:
        message = "A pod started without metrics collector while the webhook did not answer; the job runs anew"
        self._events.record(trial, warning=True, reason="PodWithoutCollector", message=message)
        _log.warning("Job runs anew: its pod has no collector", extra={"trial": str(key_of(trial))})
