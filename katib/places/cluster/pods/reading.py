"""Facts about the pods of trials, and summaries for their trials.

Only pods with the label of a trial are followed, and only a few facts of each are kept: a thousand pods take less
memory than one full pod.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from katib.engine.controllers.kinds import POD, key_of
from katib.engine.controllers.ports import PodUpdate
from katib.engine.runtime.clock import Clock
from katib.engine.runtime.informer import Informer, InformerEvent
from katib.engine.runtime.objects import Key, Object, ObjectStore
from katib.model.container_restarts import runs_again
from katib.model.failure_text import (
    LAST_OUTPUT,
    OUT_OF_MEMORY,
    failure_cause,
    last_line,
    pod_title,
    with_last_output,
)
from katib.model.job_kinds import gate_words
from katib.model.names import TRIAL_LABEL
from katib.model.trials import ACTIVE, trial_state
from katib.model.types import CollectorKind, Trial, format_time
from katib.service.tuning.replicas import COLLECTORS, has_role, replica_name
from katib.service.tuning.states import is_suspended_trial
from metrics_collector.program import LAUNCHER_DIRECTORY
from metrics_collector.seen_program import COMPLETING
from metrics_collector.sidecar import ALL_STORED, NOT_ALL_STORED

_OF_THE_NODE = frozenset({"emptyDir", "projected", "downwardAPI"})
"""Sources of volumes that are available at once."""

PULL_FAILURES = ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName")
CREATE_FAILURES = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
_AGAIN = "container {} in pod {} is restarted with growing pauses"
_SIGNALLED = (137, 143)
"""Exit codes of a program ended by SIGKILL or SIGTERM."""

_OF_A_SHELL = ("Killed", "Terminated")
"""A shell's message about a signalled program; it adds nothing to the exit code."""

_CREATING = ("ContainerCreating", "PodInitializing")
OVER = ("Succeeded", "Failed")
"""Phases in which no container of a pod runs any more."""
_OUR_COLLECTORS = frozenset(CollectorKind) - {CollectorKind.CUSTOM, CollectorKind.PUSH, CollectorKind.NONE}
"""Kinds of collectors that end by themselves, or with their pod; whether they stored everything matters."""

_REMEMBERED_FAILURES = 10_000


class StartingPod(NamedTuple):
    """Name and uid of a pod whose containers are to be created."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class PodFacts:
    """The relevant facts about a pod.

    Attributes:
        waiting: Why it does not run.
        starting: Name and uid, while it has a node and none of its job's containers exists.
        images: Images of its containers that wait to be created.
        preparing: Its preparation before it has a network, and since when; as the rest of a sentence.
        runs: Whether a container of the job runs.
        failed_at: Time of the last failure of a container by itself; empty if there is none.
        failure: How that container ended, and its last output if known.
        restarts: Restarts of the job's containers.
        report: The collector's message about missing metrics.
        collecting: The collector that has not ended, or will be restarted.
        incomplete: Why the collector has not stored all readings.
        labels: Its labels, which show whether it is a primary pod.
        is_over: Whether none of its containers will run again.
    """

    trial: Key
    waiting: str = ""
    starting: StartingPod | None = None
    images: frozenset[str] = frozenset()
    preparing: str = ""
    runs: bool = False
    failed_at: str = ""
    failure: str = ""
    restarts: int = 0
    report: str = ""
    collecting: str = ""
    incomplete: str = ""
    has_failed: bool = False
    labels: frozenset[tuple[str, str]] = frozenset()
    is_over: bool = False


def facts_of(pod: Object) -> PodFacts:
    """Return the relevant facts about a pod."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    labels = metadata.get("labels") or {}
    title = pod_title(metadata["name"], replica_name(pod) if has_role(pod) else "")
    ends = list(_failures(title, status, _asked_to_end(metadata)))
    failed_at, failure = max(ends, default=("", ""))
    report = next(_reports(pod), "")
    if failure and report.startswith(LAST_OUTPUT):
        is_of_another = LAST_OUTPUT in failure or (failed_at and not all(moment for moment, _ in ends))
        failure, report = failure if is_of_another else f"{failure}; {report}", ""
    is_starting = _is_starting(pod)
    return PodFacts(
        trial=Key(metadata.get("namespace", ""), labels.get(TRIAL_LABEL, "")),
        waiting=_waiting(pod, status),
        starting=StartingPod(metadata["name"], metadata.get("uid", "")) if is_starting else None,
        images=frozenset(_awaited_images(pod)) if is_starting else frozenset(),
        preparing=_preparing(pod) if is_starting else "",
        runs=_runs(status),
        failed_at=failed_at,
        failure=failure,
        restarts=sum(
            int(one.get("restartCount") or 0)
            for one in status.get("containerStatuses") or ()
            if one.get("name") not in COLLECTORS
        ),
        report=report,
        collecting="" if metadata.get("deletionTimestamp") else next(_collecting(pod), ""),
        incomplete=next(_incomplete(pod), ""),
        has_failed=status.get("phase") == "Failed",
        labels=frozenset(labels.items()),
        is_over=status.get("phase") in OVER,
    )


class TrialPodCache:
    """Cache of the pods of trials.

    The last failure of a container is remembered until the trial is completed: a job may remove its failed pods before
    the trial is judged. Ends caused by suspending the job do not count: other pods take over.
    """

    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        self.informer: Informer[PodFacts] = Informer(store, POD, facts_of, lambda facts: facts.trial, clock=clock)
        self._failures: OrderedDict[Key, tuple[str, str]] = OrderedDict()
        self._incomplete: OrderedDict[Key, dict[Key, str]] = OrderedDict()  # by trial, and of it by pod
        self._suspended: set[Key] = set()
        self.informer.add_handler(self._remember)
        self.informer.add_handler(self._remember_incomplete)

    def on_change(self, wake: Callable[[Key], None]) -> None:
        """Register a callback for trials whose pods changed relevantly. Call before the informer starts."""

        def changed(event: InformerEvent[PodFacts]) -> None:
            if event.old != event.new:
                facts = event.new or event.old
                if facts is not None:
                    wake(facts.trial)

        self.informer.add_handler(changed)

    def update_of(self, trial: Trial) -> PodUpdate:
        pods = self.informer.group(key_of(trial))
        _, failure = self._failures.get(key_of(trial), ("", ""))
        update = PodUpdate(
            waiting=next((pod.waiting for pod in pods if pod.waiting), ""),
            runs=any(pod.runs for pod in pods) if pods else None,
            last_failure=failure,
            restarts=max((pod.restarts for pod in pods), default=0),
            metrics_report=next((pod.report for pod in reversed(pods) if pod.report), ""),
        )
        return self._with_collection(update, trial, pods)

    def has_active_pod(self, trial: Trial) -> bool:
        """Return whether a pod that metrics are collected from runs or is pending."""
        primary, pods = trial.spec.primary_pod_labels.items(), self.informer.group(key_of(trial))
        return any(primary <= pod.labels and not pod.is_over for pod in pods)

    def is_any_active(self, trial: Trial) -> bool:
        return any(not pod.is_over for pod in self.informer.group(key_of(trial)))

    def starting(self, trial: Trial) -> PodFacts | None:
        """Return a pod of a trial that has a node and starts; None if there is none."""
        return next((pod for pod in self.informer.group(key_of(trial)) if pod.starting), None)

    def follow(self, event: InformerEvent[Trial]) -> None:
        """Forget completed or deleted trials, and failures of trials that are, or were until now, suspended."""
        is_over = event.new is None or trial_state(event.new) not in ACTIVE
        was_suspended = event.key in self._suspended
        if not is_over and event.new is not None and is_suspended_trial(event.new):
            self._suspended.add(event.key)
        else:
            self._suspended.discard(event.key)
        if is_over or was_suspended or event.key in self._suspended:
            self._failures.pop(event.key, None)
            self._incomplete.pop(event.key, None)

    def _with_collection(self, update: PodUpdate, trial: Trial, pods: Sequence[PodFacts]) -> PodUpdate:
        """Return the update with the state of the trial's collection.

        Collection counts as incomplete until known otherwise: the end of a job may be observed before its pods.
        """
        collector = trial.spec.metrics_collector.collector
        if collector is not None and collector.kind not in _OUR_COLLECTORS:
            return update
        unknown = "" if self.informer.is_following else "its pods could not be looked at"
        return replace(
            update,
            collecting=next((pod.collecting for pod in pods if pod.collecting), unknown),
            incomplete=next(iter(self._incomplete.get(key_of(trial), {}).values()), ""),
            lost=next((pod.incomplete for pod in pods if pod.has_failed and pod.incomplete), ""),
        )

    def _remember_incomplete(self, event: InformerEvent[PodFacts]) -> None:
        """Remember an incomplete collection beyond the pod, which may be deleted with its job.

        Failed pods are left out: another one counts. Only the latest state of a pod counts, since all its containers
        may have been restarted.
        """
        facts = event.new
        if facts is None or facts.trial in self._suspended:
            return
        of_trial = self._incomplete.pop(facts.trial, {})
        of_trial.pop(event.key, None)
        if facts.incomplete and not facts.has_failed and not facts.collecting:
            of_trial[event.key] = facts.incomplete
        if of_trial:
            self._incomplete[facts.trial] = of_trial
            if len(self._incomplete) > _REMEMBERED_FAILURES:
                self._incomplete.popitem(last=False)

    def _remember(self, event: InformerEvent[PodFacts]) -> None:
        facts = event.new
        if facts is not None and facts.failure and facts.trial not in self._suspended:
            known = self._failures.pop(facts.trial, ("", ""))
            self._failures[facts.trial] = max(known, (facts.failed_at, facts.failure))
            if len(self._failures) > _REMEMBERED_FAILURES:
                self._failures.popitem(last=False)


# --- reading a pod ----------------------------------------------------------------------------------------------------


def container_statuses(status: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the container statuses of a pod, native sidecars and other init containers first."""
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _waiting(pod: Object, status: Mapping[str, Any]) -> str:
    name = pod["metadata"]["name"]
    if gated := gate_words(pod):
        return f"pod {name} {gated}"
    for condition in status.get("conditions") or ():
        unscheduled = condition.get("type") == "PodScheduled" and condition.get("status") == "False"
        if unscheduled and condition.get("reason") == "Unschedulable":
            return f"pod {name} cannot be scheduled: {condition.get('message', '')}"
    return next((text for container in container_statuses(status) if (text := _why_it_waits(name, container))), "")


def _is_starting(pod: Object) -> bool:
    """Return whether a pod has a node, no container yet, and no other problem."""
    status = pod.get("status") or {}
    if status.get("phase") != "Pending" or not (pod.get("spec") or {}).get("nodeName"):
        return False
    ours = (container for container in container_statuses(status) if container.get("name") not in COLLECTORS)
    states = [(container.get("state") or {}).get("waiting") for container in ours]
    return all(waiting is not None and waiting.get("reason") in _CREATING for waiting in states)


def _awaited_images(pod: Object) -> Iterator[str]:
    """Yield the images of the waiting containers, as the template names them."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    begun = {one.get("name") for one in container_statuses(status) if "waiting" not in (one.get("state") or {})}
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        if container["name"] not in begun:
            yield str(container.get("image"))


def _preparing(pod: Object) -> str:
    """Return the current phase before images are pulled: mounting volumes, then setting up the network."""
    conditions = {one.get("type"): one for one in (pod.get("status") or {}).get("conditions") or ()}
    if (conditions.get("PodReadyToStartContainers") or {}).get("status") != "False":
        return ""
    since = (conditions.get("PodScheduled") or {}).get("lastTransitionTime") or ""
    volumes = [str(one["name"]) for one in pod["spec"].get("volumes") or () if not _OF_THE_NODE.intersection(one)]
    what = f"mounts {', '.join(volumes)}" if volumes else "waits for its network"
    return f"{what} since {since}" if since else what


def _runs(status: Mapping[str, Any]) -> bool:
    """Return whether a container of the job runs; the phase decides while no container is listed."""
    known = [container for container in container_statuses(status) if container.get("name") not in COLLECTORS]
    if not known:
        return status.get("phase") == "Running"
    return any("running" in (container.get("state") or {}) for container in known)


def _why_it_waits(pod: str, container: Mapping[str, Any]) -> str:
    waiting = (container.get("state") or {}).get("waiting") or {}
    reason, name = waiting.get("reason", ""), container.get("name", "")
    if reason in PULL_FAILURES:
        return f'image "{container.get("image", "")}" of container {name} in pod {pod} cannot be pulled'
    if reason in CREATE_FAILURES:
        return f"container {name} in pod {pod} cannot be started: {waiting.get('message', reason)}"
    if reason == "CrashLoopBackOff":
        ended = (container.get("lastState") or {}).get("terminated") or {}
        if line := _last_words(ended):
            return f"{failure_cause(with_last_output(_how(ended), line))}; {_AGAIN.format(name, pod)}"
        return f"container {name} in pod {pod} {_how(ended)} and is restarted with growing pauses"
    return ""


def _asked_to_end(metadata: Mapping[str, Any]) -> str:
    """Return when the deletion of a pod was requested: its timestamp is the end of the grace period."""
    if not (text := metadata.get("deletionTimestamp")):
        return ""
    grace = timedelta(seconds=metadata.get("deletionGracePeriodSeconds") or 0)
    return format_time(datetime.fromisoformat(text) - grace)


def _failures(pod: str, status: Mapping[str, Any], asked_to_end: str) -> Iterator[tuple[str, str]]:
    """Yield how containers failed, and when; without a time if the deletion of the pod ended them."""
    for part, title in (("initContainerStatuses", "Init container"), ("containerStatuses", "Container")):
        for container in status.get(part) or ():
            for state in ("lastState", "state"):
                ended = (container.get(state) or {}).get("terminated") or {}
                if ended.get("exitCode") and container.get("name") not in COLLECTORS:
                    text = f"{title} {container.get('name', '')} in pod {pod} {_how(ended)}"
                    moment = ended.get("finishedAt") or ""
                    is_signalled = ended["exitCode"] in _SIGNALLED and ended.get("reason") != "OOMKilled"
                    # The timestamp moves if a kubelet repeats the request without grace: a signal is conclusive by
                    # itself.
                    is_asked = asked_to_end and (moment > asked_to_end or (is_signalled and state == "state"))
                    yield "" if is_asked else moment, with_last_output(text, _last_words(ended))
    if status.get("phase") == "Failed" and status.get("reason"):
        yield "9999", f"Pod {pod} failed: {status['reason']}: {status.get('message', '')}".rstrip(": ")


def _last_words(ended: Mapping[str, Any]) -> str:
    """Return the last line of a container's termination message, which falls back to its log."""
    line = last_line(str(ended.get("message") or "").encode())
    return "" if line in _OF_A_SHELL else line


def _how(ended: Mapping[str, Any]) -> str:
    """Return how a container ended, as the rest of a sentence."""
    code, reason = ended.get("exitCode", 0), ended.get("reason", "")
    if reason == "OOMKilled":
        return f"{OUT_OF_MEMORY}; raise its memory limit"
    named = "" if reason in ("", "Error", "Completed") else f" ({reason})"
    return f"ended with exit code {code}{named}"


def _reports(pod: Object) -> Iterator[str]:
    for _, ended in _ended_collectors(pod):
        text = str(ended.get("message") or "").strip()
        first, _, rest = text.partition("\n")
        if report := rest if first == ALL_STORED or first.startswith(NOT_ALL_STORED) else text:
            yield report.strip()


def _ended_collectors(pod: Object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the collectors that will not run again, and how they ended."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    is_over = status.get("phase") in OVER or "deletionTimestamp" in pod["metadata"]
    containers = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    by_name = {container["name"]: container for container in containers}
    for container in container_statuses(status):
        name, state = container.get("name"), container.get("state") or {}
        ended, before = state.get("terminated"), (container.get("lastState") or {}).get("terminated") or {}
        if is_over and "waiting" in state:  # for a next start that never happened
            ended = before
        if name in COLLECTORS and ended:
            if not ended.get("message") and str(before.get("message") or "").startswith(ALL_STORED):
                ended = before  # a later run had nothing left to store
            code, policy = ended.get("exitCode", 0), spec.get("restartPolicy", "Never")
            if is_over or not runs_again(by_name.get(name, {}), policy, code):
                yield str(name), ended


def _collecting(pod: Object) -> Iterator[str]:
    """Yield the collectors that may still store readings. In a completed pod there are none."""
    status = pod.get("status") or {}
    if status.get("phase") in OVER:
        return
    ended = {name for name, _ in _ended_collectors(pod)}
    for container in container_statuses(status):
        if container.get("name") in COLLECTORS and container["name"] not in ended:
            yield f"the collector in pod {pod['metadata']['name']} had not ended"


def _incomplete(pod: Object) -> Iterator[str]:
    """Yield why a collector has not stored everything: it reports so, could not report, or ended too soon.

    A program may be started again after its collector ended without the collector's knowledge: by a restart rule of
    another container, or much later than the collector waited.
    """
    where = f"in pod {pod['metadata']['name']}"
    for name, ended in _ended_collectors(pod):
        first = str(ended.get("message") or "").partition("\n")[0].strip()
        if first.startswith(NOT_ALL_STORED):
            yield f"{first} (container {name} {where})"
        elif ended.get("exitCode") and first != ALL_STORED:
            said = f": {first}" if first else ""
            yield f"container {name} {where} {_how(ended)}{said}"
        for program in _started_after(pod, str(ended.get("finishedAt") or "")):
            yield f"container {program} {where} was started again after container {name} had ended"


def _started_after(pod: Object, moment: str) -> Iterator[str]:
    """Yield the programs of a pod that were started after a time; if none is wrapped, any container."""
    others = [c for c in (pod.get("spec") or {}).get("containers") or () if c["name"] not in COLLECTORS]
    marks = (LAUNCHER_DIRECTORY, COMPLETING)
    wrapped = [c["name"] for c in others if any(mark in str(c.get("command")) for mark in marks)]
    names = wrapped or [container["name"] for container in others]
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        state = container.get("state") or {}
        started = (state.get("terminated") or state.get("running") or {}).get("startedAt") or ""
        if moment and container.get("name") in names and started > moment:  # both are in UTC, to the second
            yield str(container["name"])
