"""The pods of trials: what of them is worth knowing, and what they say about their trials.

Only pods that bear the label of a trial are followed, and of each only a few words are kept: a thousand pods cost
less than one of them does as it came.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from katib.api.names import TRIAL_LABEL
from katib.api.types import Trial
from katib.controllers.kinds import key_of
from katib.controllers.ports import PodNews
from katib.runtime.clock import Clock
from katib.runtime.informer import Informer, InformerEvent
from katib.runtime.objects import Key, Kind, Object, ObjectStore
from metrics_collector.sidecar import LAST_OUTPUT

POD = Kind("v1", "Pod")

COLLECTORS = ("metrics-logger-and-collector", "metrics-collector")
"""Names of the collector's container."""

_PULL_FAILURES = ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName")
_CREATE_FAILURES = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
_BY_TRIAL = "trial"
_REMEMBERED_FAILURES = 10_000


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What is kept of a pod.

    Attributes:
        trial: Whose pod it is.
        waiting: Why it does not run.
        failed_at: When a container of it failed last; empty when none has.
        failure: How that container ended, and its last output when the collector left it.
        report: What its collector said about missing metrics.
    """

    trial: Key
    waiting: str = ""
    failed_at: str = ""
    failure: str = ""
    report: str = ""


def facts_of(pod: Object) -> PodFacts:
    """Return what is worth keeping of a pod."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    labels = metadata.get("labels") or {}
    failed_at, failure = max(_failures(metadata["name"], status), default=("", ""))
    report = next(_reports(status), "")
    if failure and report.startswith(LAST_OUTPUT):
        failure, report = f"{failure}; {report}", ""
    return PodFacts(
        trial=Key(metadata.get("namespace", ""), labels.get(TRIAL_LABEL, "")),
        waiting=_waiting(metadata["name"], status),
        failed_at=failed_at,
        failure=failure,
        report=report,
    )


class TrialPods:
    """Follows the pods of trials. Fits `katib.controllers.ports.PodWatcher`.

    How the last container failed is remembered until the trial is over: a job may remove its failed pods before
    anybody asks.
    """

    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        self.informer: Informer[PodFacts] = Informer(
            store, POD, facts_of, {_BY_TRIAL: lambda facts: (str(facts.trial),)}, clock=clock
        )
        self._failures: OrderedDict[Key, tuple[str, str]] = OrderedDict()
        self.informer.add_handler(self._remember)

    def on_change(self, wake: Callable[[Key], None]) -> None:
        """Have somebody told which trial's pod changed in a way worth knowing. Before the informer starts."""

        def changed(event: InformerEvent[PodFacts]) -> None:
            if event.old != event.new:
                facts = event.new or event.old
                if facts is not None:
                    wake(facts.trial)

        self.informer.add_handler(changed)

    def news_of(self, trial: Trial) -> PodNews:
        """Return what the pods of a trial say."""
        pods = self.informer.by_index(_BY_TRIAL, str(key_of(trial)))
        _, failure = self._failures.get(key_of(trial), ("", ""))
        return PodNews(
            waiting=next((pod.waiting for pod in pods if pod.waiting), ""),
            last_failure=failure,
            metrics_report=next((pod.report for pod in reversed(pods) if pod.report), ""),
        )

    def has_pods(self, trial: Key) -> bool:
        """Tell whether any pod with the trial's label is there."""
        return self.informer.count_by_index(_BY_TRIAL, str(trial)) > 0

    def forget(self, trial: Key) -> None:
        """Forget a trial that is over."""
        self._failures.pop(trial, None)

    def _remember(self, event: InformerEvent[PodFacts]) -> None:
        facts = event.new
        if facts is not None and facts.failure:
            known = self._failures.pop(facts.trial, ("", ""))
            self._failures[facts.trial] = max(known, (facts.failed_at, facts.failure))
            if len(self._failures) > _REMEMBERED_FAILURES:
                self._failures.popitem(last=False)


# --- reading a pod ----------------------------------------------------------------------------------------------------


def container_statuses(status: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return what a pod's status says of its containers, native sidecars and other init containers first."""
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _waiting(pod: str, status: Mapping[str, Any]) -> str:
    for condition in status.get("conditions") or ():
        unscheduled = condition.get("type") == "PodScheduled" and condition.get("status") == "False"
        if unscheduled and condition.get("reason") == "Unschedulable":
            return f"pod {pod} cannot be scheduled: {condition.get('message', '')}"
    return next((text for container in container_statuses(status) if (text := _why_it_waits(pod, container))), "")


def _why_it_waits(pod: str, container: Mapping[str, Any]) -> str:
    waiting = (container.get("state") or {}).get("waiting") or {}
    reason, name = waiting.get("reason", ""), container.get("name", "")
    if reason in _PULL_FAILURES:
        return f'image "{container.get("image", "")}" of container {name} in pod {pod} cannot be pulled'
    if reason in _CREATE_FAILURES:
        return f"container {name} in pod {pod} cannot be started: {waiting.get('message', reason)}"
    if reason == "CrashLoopBackOff":
        ended = (container.get("lastState") or {}).get("terminated") or {}
        return f"container {name} in pod {pod} {_how(ended)} and is restarted with growing pauses"
    return ""


def _failures(pod: str, status: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for container in container_statuses(status):
        for state in ("lastState", "state"):
            ended = (container.get(state) or {}).get("terminated") or {}
            if ended.get("exitCode") and container.get("name") not in COLLECTORS:
                text = f"Container {container.get('name', '')} in pod {pod} {_how(ended)}"
                yield ended.get("finishedAt") or "", text
    if status.get("phase") == "Failed" and status.get("reason"):
        yield "9999", f"Pod {pod} failed: {status['reason']}: {status.get('message', '')}".rstrip(": ")


def _how(ended: Mapping[str, Any]) -> str:
    """Return how a container ended, as the rest of a sentence."""
    code, reason = ended.get("exitCode", 0), ended.get("reason", "")
    if reason == "OOMKilled":
        return "was killed because it ran out of memory; raise its memory limit"
    told = "" if reason in ("", "Error", "Completed") else f" ({reason})"
    return f"ended with exit code {code}{told}"


def _reports(status: Mapping[str, Any]) -> Iterator[str]:
    for container in container_statuses(status):
        ended = (container.get("state") or {}).get("terminated") or {}
        if container.get("name") in COLLECTORS and ended.get("message"):
            yield str(ended["message"]).strip()
