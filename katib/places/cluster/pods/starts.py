"""Pods of trials that have a node but do not start: an image takes minutes, a volume or the network cannot be set up.

The status of such a pod remains `ContainerCreating`; only its events tell more. They are listed only once a pod has
been starting for a while, with growing pauses, and for a whole namespace at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from katib.engine.controllers.kinds import key_of
from katib.engine.runtime.clock import Clock
from katib.engine.runtime.informer import Informer
from katib.engine.runtime.objects import Key, Object
from katib.errors import Backoff
from katib.model.trials import ACTIVE, trial_state
from katib.model.types import Trial, format_time
from katib.places.cluster.pods.reading import PodFacts, TrialPodCache
from katib.places.cluster.pods.refusals import ListEvents, time_of_event

SETTLING_SECONDS = 10.0
"""How long a pod may take to start before the reason is looked up. A pull in progress emits no such event."""

BACKOFF = Backoff(5.0, 60.0)
"""Pause between two lookups of the events of a starting pod."""

START_FAILURES = ("FailedMount", "FailedAttachVolume", "FailedMapVolume", "FailedCreatePodSandBox")
"""Reasons of events by which the kubelet and the volume controller report why a pod does not start."""

PULLING = "Pulling"
"""Reason of the kubelet's event for a pull in progress; nothing else shows its duration."""

NOT_STARTING = " does not start: "

_SUMMARY = "Unable to attach or mount volumes"
"""Prefix of an event that only lists the missing volumes; events of the single volumes have the cause."""


def pull_words(events: Iterable[Object], images: Collection[str]) -> str:
    """Return which of these images a pod pulls, and since when, as the rest of a sentence; empty if it pulls none."""
    dated = sorted((time_of_event(event, "lastTimestamp"), str(event.get("message"))) for event in events)
    for time, message in reversed(dated):
        image = message.partition('"')[2].rpartition('"')[0]
        if image in images:
            return f' pulls image "{image}" since {format_time(time)}'
    return ""


def start_failure(events: Iterable[Object]) -> str:
    """Return why a pod does not start, in the words of its events; empty if there is no such event."""
    dated = [(time_of_event(event, "lastTimestamp"), " ".join(str(event.get("message")).split())) for event in events]
    texts = [text for _, text in sorted(dated)]
    return next((text for text in reversed(texts) if not text.startswith(_SUMMARY)), texts[-1] if texts else "")


@dataclass(slots=True)
class _StartingPodState:
    """State of a starting pod: when its events are due, the number of lookups, and its activity."""

    due: float
    looks: int = 0
    words: str = ""


@dataclass(slots=True, eq=False)
class SlowStarts:
    """Finds out why pods of trials do not start. `look` is called by one thread, `of` by any."""

    trials: Informer[Trial]
    pods: TrialPodCache
    list_events: ListEvents
    clock: Clock
    _wake: Callable[[Key], None] = field(default=lambda _key: None, init=False)
    _watched: dict[str, _StartingPodState] = field(default_factory=dict, init=False)

    def on_change(self, wake: Callable[[Key], None]) -> None:
        """Register a callback for trials whose cause changed."""
        self._wake = wake

    def of(self, trial: Trial) -> str:
        """Return why a pod of a trial does not start, or what delays it; empty if that is unknown."""
        facts = self.pods.starting(trial)
        pod = None if facts is None else facts.starting
        watched = None if pod is None else self._watched.get(pod.uid)
        return f"pod {pod.name}{watched.words}" if pod and watched and watched.words else ""

    def look(self) -> None:
        """List the events of pods that have been starting for a while; raises the store's errors."""
        now = self.clock.monotonic()
        active = [trial for trial in self.trials.all() if trial_state(trial) in ACTIVE]
        starting = [(trial, self.pods.starting(trial)) for trial in active]
        found = {pod.starting.uid: (trial, pod) for trial, pod in starting if pod is not None and pod.starting}
        self._watched = {uid: self._watched.get(uid) or _StartingPodState(now + SETTLING_SECONDS) for uid in found}
        late = [uid for uid, watched in self._watched.items() if watched.due <= now]
        for namespace in {found[uid][0].namespace for uid in late}:
            events = self._events_in(namespace)
            for uid in late:
                trial, facts = found[uid]
                if trial.namespace == namespace:
                    self._note(trial, self._watched[uid], _words(events.get(uid, ()), facts))

    def _events_in(self, namespace: str) -> dict[str, list[Object]]:
        """Return the events of a namespace about pods that do not start, by the pod's uid."""
        found: dict[str, list[Object]] = defaultdict(list)
        for reason in (*START_FAILURES, PULLING):
            for event in self.list_events(namespace, {"involvedObject.kind": "Pod", "reason": reason}):
                found[str(event["involvedObject"].get("uid"))].append(event)
        return found

    def _note(self, trial: Trial, watched: _StartingPodState, words: str) -> None:
        watched.looks += 1
        watched.due = self.clock.monotonic() + BACKOFF.pause_seconds(watched.looks)
        if watched.words != words:
            watched.words = words
            self._wake(key_of(trial))


def _words(events: Collection[Object], pod: PodFacts) -> str:
    """Return the state of a starting pod, failures first, as the rest of a sentence."""
    of_pulls = [event for event in events if event.get("reason") == PULLING]
    if failure := start_failure(event for event in events if event.get("reason") != PULLING):
        return f"{NOT_STARTING}{failure}"
    return pull_words(of_pulls, pod.images) or (f" {pod.preparing}" if pod.preparing else "")
