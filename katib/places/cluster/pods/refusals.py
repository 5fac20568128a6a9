"""Jobs whose pods are refused: by Katib's webhook, Pod Security, a quota, another webhook, or validation.

A job does not fail because of that. Its controller retries and reports the refusal in events; if it reports nothing,
Katib's webhook still reports its own refusal on the trial. Events are listed only while a trial runs without an active
pod, with growing pauses, and for a whole namespace at once.

The mere absence of pods proves nothing: a suspended or queued job has none on purpose.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from katib.engine.controllers.kinds import key_of
from katib.engine.controllers.ports import PodRefusal
from katib.engine.runtime.clock import Clock
from katib.engine.runtime.informer import Informer
from katib.engine.runtime.objects import Key, Object
from katib.errors import Backoff, ForbiddenError
from katib.model.job_kinds import is_suspended
from katib.model.trials import ACTIVE, trial_state
from katib.model.types import Trial
from katib.places.cluster.pods.missed import FindTrial, MissedPods
from katib.places.cluster.pods.reading import TrialPodCache
from katib.service.tuning.reading import time_of

SETTLING_SECONDS = 2.0
"""How long after its start a trial may be without a pod before the reason is looked up."""

BACKOFF = Backoff(5.0, 60.0)
"""Pause between two lookups of the events of a trial without pods."""

POD_REFUSED_REASON = "PodRefused"
"""Reason of the webhook's event on a Trial whose template never allows metrics to be collected."""

_QUESTIONS: Sequence[Mapping[str, str]] = (
    {"involvedObject.kind": "Trial", "reason": POD_REFUSED_REASON},
    *({"type": "Warning", "reason": r} for r in ("FailedCreate", "FailedCreatePod", "JobCreationFailed")),
)
"""Selectors of the listed events: Katib's on trials, and those on a Job, training jobs, a JobSet."""

ListEvents = Callable[[str, Mapping[str, str]], Iterable[Object]]
"""Returns the events of a namespace whose fields have these values, such as `reason`."""

_PREFIXES = re.compile(r"^(\(combined from similar events\): |Error creating: )+")
_INVALID = re.compile(r'^\S+ "[^"]*" is invalid: ')
_FORBIDDEN = re.compile(r'^\S+ "[^"]*" is forbidden: ')
_PASSING = re.compile(
    r"exceeded quota|unknown for quota|failed calling webhook|Internal error occurred|[Tt]imed? ?out"
    r'|webhook "mutator\.pod\.katib\.kubeflow\.org" denied'  # it reports permanent refusals by an event of its own
)
_LONGEST_MESSAGE = 500
_LONG_AGO = datetime.fromtimestamp(0, UTC)


def refusal_of(events: Iterable[Object], after: datetime | None = None) -> PodRefusal | None:
    """Return the refusal of one job's pods according to its events, None if there is none.

    Args:
        events: Events of the job, its dependents, and its trial.
        after: When the job was last seen with a pod: earlier refusals are obsolete.
    """
    dated = [(time_of_event(event, "lastTimestamp"), event) for event in events]
    known = [event for last, event in sorted(dated, key=lambda one: one[0]) if after is None or last > after]
    if not known:
        return None
    final = next((event for event in reversed(known) if _is_final(event)), None)
    chosen = final or known[-1]
    passing = _is_passing(chosen)
    firsts = [time_of_event(event, "firstTimestamp") for event in known if _is_passing(event) is passing]
    since = min(firsts) if after is None else max(min(firsts), after)
    return PodRefusal(refusal_words(_message(chosen)), since, is_final=final is not None, is_passing=passing)


def _is_final(event: Object) -> bool:
    """Return whether the same pod will be refused regardless of its environment."""
    return event.get("reason") == POD_REFUSED_REASON or bool(_INVALID.match(_message(event)))


def _is_passing(event: Object) -> bool:
    """Return whether the pod is refused because of its environment, not its own content."""
    return not _is_final(event) and bool(_PASSING.search(_message(event)))


def _message(event: Object) -> str:
    return _without_prefix(str(event.get("message", "")))


def _without_prefix(message: str) -> str:
    return _PREFIXES.sub("", " ".join(message.split()))


def refusal_words(message: str) -> str:
    """Return the message of an event without names of pods, which differ between attempts."""
    text = _FORBIDDEN.sub("", _INVALID.sub("the pod is invalid: ", _without_prefix(message)))
    return text if len(text) <= _LONGEST_MESSAGE else f"{text[: _LONGEST_MESSAGE - 3]}..."


def time_of_event(event: Object, name: str) -> datetime:
    """Return a time of an event by the name of its field; older and newer recorders write different fields."""
    texts = (event.get(name), event.get("eventTime"), event["metadata"].get("creationTimestamp"))
    return next((time for text in texts if (time := time_of(text)) is not None), _LONG_AGO)


@dataclass(slots=True)
class _RunningTrialState:
    """State of a running trial.

    Attributes:
        had_pods_at: When it was last seen with a pod.
        due: When to list its events.
        looks: Number of lookups since it had pods.
    """

    had_pods_at: datetime | None = None
    due: float = 0.0
    looks: int = 0
    refusal: PodRefusal | None = None


@dataclass(slots=True, eq=False)
class Refusals:
    """Finds out why trials have no pods. `look` is called by one thread, `of` by any."""

    trials: Informer[Trial]
    pods: TrialPodCache
    missed: MissedPods
    find_job: Callable[[Trial], Object | None]
    find_trial: FindTrial
    list_events: ListEvents
    clock: Clock
    _wake: Callable[[Key], None] = field(default=lambda _key: None, init=False)
    _watched: dict[str, _RunningTrialState] = field(default_factory=dict, init=False)

    def on_change(self, wake: Callable[[Key], None]) -> None:
        """Register a callback for trials whose refusal begins, changes or ends."""
        self._wake = wake

    def of(self, trial: Trial) -> PodRefusal | None:
        """Return why a trial has no pod; None if it has one, or none is refused."""
        watched = self._watched.get(trial.metadata.uid)
        return None if watched is None or self.pods.has_active_pod(trial) else watched.refusal

    def look(self) -> None:
        """List the events of trials that run without an active pod; raises the store's errors."""
        if not self.pods.informer.has_synced():
            return
        running = [trial for trial in self.trials.all() if trial_state(trial) in ACTIVE]
        self._watched = {t.metadata.uid: self._watched.get(t.metadata.uid) or _RunningTrialState() for t in running}
        suspects = defaultdict(list)
        for trial in running:
            if self._is_suspect(trial):
                suspects[trial.namespace].append(trial)
        for namespace, trials in suspects.items():
            self._look_at(namespace, trials)

    def _is_suspect(self, trial: Trial) -> bool:
        """Return whether the cause of a trial's missing pods is due to be looked up."""
        watched = self._watched[trial.metadata.uid]
        if self.pods.has_active_pod(trial) or (
            self.missed.is_any_in(trial.namespace) and trial.metadata.uid in self.missed.by_trial(trial.namespace)
        ):
            watched.had_pods_at, watched.looks, watched.due = self.clock.now(), 0, 0.0
            self._note(trial, None)
            return False
        started = trial.status.start_time
        if started is None or (self.clock.now() - started).total_seconds() < SETTLING_SECONDS:
            return False
        now = self.clock.monotonic()
        if now < watched.due:
            return False
        watched.looks += 1
        watched.due = now + BACKOFF.pause_seconds(watched.looks)
        job = self.find_job(trial)
        if job is None or "deletionTimestamp" in job["metadata"] or is_suspended(job):
            self._note(trial, None)
            return False
        status = job.get("status") or {}
        if watched.had_pods_at is None and (status.get("failed") or status.get("succeeded")):
            watched.had_pods_at = self.clock.now()  # before this process started; earlier refusals are obsolete
        return True

    def _look_at(self, namespace: str, trials: Sequence[Trial]) -> None:
        events = [event for fields in _QUESTIONS for event in self.list_events(namespace, fields)]
        found: dict[str, list[Object]] = defaultdict(list)
        for event in events:
            if uid := self._trial_uid(event, namespace):
                found[uid].append(event)
        for trial in trials:
            uid = trial.metadata.uid
            self._note(trial, refusal_of(found.get(uid, ()), self._watched[uid].had_pods_at))

    def _trial_uid(self, event: Object, namespace: str) -> str:
        """Return the uid of the trial that an event concerns, through the owners of its object."""
        about: Mapping[str, Any] = event.get("involvedObject") or {}
        try:
            trial = self.find_trial({"metadata": {"ownerReferences": [about]}}, namespace)
        except ForbiddenError:
            return ""
        return "" if trial is None else trial.uid

    def _note(self, trial: Trial, refusal: PodRefusal | None) -> None:
        watched = self._watched[trial.metadata.uid]
        if watched.refusal != refusal:
            watched.refusal = refusal
            self._wake(key_of(trial))
