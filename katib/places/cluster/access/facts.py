"""State of jobs and services in a cluster, beyond the objects of an experiment, gathered for a diagnosis."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from katib.engine.controllers.kinds import POD, key_of
from katib.engine.runtime.objects import Key, Kind, Object, ObjectStore
from katib.errors import ForbiddenError, KatibError, KindNotInstalledError, NotFoundError, UnavailableError
from katib.model.names import RETRYING_REASON, TRIAL_LABEL
from katib.model.quantities import parse_quantity
from katib.model.trials import is_callers
from katib.model.types import Experiment, Suggestion, Trial
from katib.places.cluster.pods.logs import ClusterOutput, most_telling_first
from katib.places.cluster.pods.reading import CREATE_FAILURES, PULL_FAILURES, container_statuses, facts_of
from katib.places.cluster.pods.refusals import refusal_words
from katib.places.cluster.pods.starts import NOT_STARTING
from katib.places.cluster.services.plan import DEPLOYMENT, object_name
from katib.places.cluster.services.trouble import is_available, trouble_of
from katib.service.explaining.diagnostician import attempt_of
from katib.service.explaining.evidence import HomeTerms, JobFacts, ServiceFacts
from katib.service.explaining.replicas import failed_replica
from katib.service.tuning.ports import EventReader
from katib.service.tuning.reading import algorithm_of
from katib.service.tuning.replicas import COLLECTORS
from katib.service.tuning.states import failure_of, is_completed, running_condition, state_of
from metrics_collector.delivery import KEPT

CONTROLLER = "katib-controller"

_QUOTA = re.compile(r"exceeded quota: .*requested: (?P<requested>\S+), used: \S+, limited: (?P<limited>\S+)")
_LOG_LINES = 12
_SIGNALS = range(1, 65)
_SIGNALED = 128
"""Offset that a shell adds to the number of the signal that ended its program."""
_IMAGE = "Check the name of the image in the template, and whether the nodes may pull it (imagePullSecrets)."
_CONTAINER = "Fix the container in the template as the message says."
_MISSING = "Create what is missing, or fix its name in the template; the pod starts by itself once it is there."
_DESCRIBE = "Look at it: kubectl -n {} describe pod {}. The volumes of the template may be wrong, or its node."
_COLLECTOR = (
    "Look at the DB manager, and whether a NetworkPolicy of namespace {} keeps pods from it; no reading is lost."
)
_OUTPUT = "Read the output below and fix the cause; set restartPolicy: Never and backoffLimit: 0 if no retry can help."
_REMEDIES = {
    **dict.fromkeys(PULL_FAILURES, _IMAGE),
    **dict.fromkeys(CREATE_FAILURES, _CONTAINER),
    "CrashLoopBackOff": _OUTPUT,
}
"""Remedies for a waiting container, by the reason of its state."""

_PULL_FAILED = "Failed to pull image"

_REFUSED = {
    "failed calling webhook": "Look at the webhook named in the message; the job continues by itself once it answers.",
    "admission webhook": "Fix the pod of the template, or the webhook that refuses it, as the message says.",
    "exceeded quota": "Wait for running trials to end, ask for a larger quota, or lower resources in the template.",
    "failed quota: .*must specify": "Give every container what the quota names, or let a LimitRange do so.",
    "usage per (Container|Pod)|request ratio": "Fit resources in the template to the LimitRange of the namespace; "
    "those of the collector beside it are in the KatibConfig (runtime.metricsCollectors).",
    "violates PodSecurity": "Give the pod of the template the security context that the namespace demands.",
    "not found|was found": "Create what is missing, or fix its name in the template.",
}
"""Remedies for refused pods, by a pattern of the message."""

_UNSCHEDULED = {
    "persistentvolumeclaim": "Create the claim, or fix its name in the template; one that is there needs a volume.",
    "taint": "Give the pod of the template tolerations for the taint, or let other nodes join.",
    "match": "Fix nodeSelector or affinity in the template, or give a node the labels.",
}
"""Remedies for a pod that is unschedulable for a reason other than capacity, by a word of the scheduler's message."""


class KatibComponents(NamedTuple):
    """Katib's own components in the cluster.

    Attributes:
        store: Objects as these components may read them; the offered algorithms and the state of the controller are no
            secrets of a namespace.
    """

    namespace: str
    store: ObjectStore


def cluster_place(core_namespace: str) -> HomeTerms:
    """Return the cluster's terms for a diagnosis."""
    controller = f"kubectl -n {core_namespace} get pods -l katib.kubeflow.org/component=controller"
    return HomeTerms(
        idle=f"no controller is ready in namespace {core_namespace}",
        start=f"Look why the Deployment {CONTROLLER} is not ready: {controller}",
        disk="Give the database of the DB manager more room; the work continues by itself.",
        database="Look at the DB manager and its database; the work continues by itself.",
        silence=f"If this lasts, look at the controller: kubectl -n {core_namespace} logs deployment/{CONTROLLER}",
        command="Use an image that has the command, or give its full path in the template.",
        capacity="Wait for room in the cluster, or lower resources.requests in the template.",
        release="Where no controller is to come back, `katib release-finalizers` lets it go.",
        needs_annotation=True,
    )


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """State of jobs and services in a cluster. Implements `katib.service.explaining.diagnostician.HomeFacts`.

    Facts that the user may not read are left out.
    """

    store: ObjectStore
    events: EventReader
    output: ClusterOutput
    core: KatibComponents

    @property
    def place(self) -> HomeTerms:
        return cluster_place(self.core.namespace)

    def services(self, asked: Suggestion | Experiment) -> Iterator[ServiceFacts]:
        """Yield the state of the Deployment that serves a Suggestion; nothing before the Deployment exists.

        Before the Suggestion exists, its Experiment, which has the same name, can be passed instead.
        """
        namespace, algorithm = asked.namespace, algorithm_of(asked)
        name = object_name(asked.name, algorithm)
        with suppress(NotFoundError, ForbiddenError, UnavailableError):
            deployment = self.store.get(DEPLOYMENT, Key(namespace, name))
            if is_available(deployment):
                yield ServiceFacts(algorithm, "ready")
                return
            labels = ((deployment["spec"].get("selector") or {}).get("matchLabels")) or {}
            pods = self.store.list(POD, namespace, labels=labels).items if labels else ()
            trouble = trouble_of(deployment, pods)
            yield ServiceFacts(
                algorithm,
                "failing" if trouble else "starting",
                attempts=1 + max(map(_restarts, pods), default=0),
                last_error=trouble.words,
                remedy=_service_remedy(trouble.words, namespace, name),
            )

    def is_at_work(self) -> bool:
        """Return False only if the Deployment of the controller exists and none of its pods is ready."""
        return is_controller_at_work(self.core.store, self.core.namespace)

    def disk_is_full(self) -> bool:
        """Return False: a cluster does not store events beside its metrics."""
        return False

    def job(self, trial: Trial) -> JobFacts:
        if is_callers(trial):
            return JobFacts()
        kind, key = Kind.of(trial.spec.run_spec or {}), key_of(trial)
        try:
            job: dict[str, Any] | None = dict(self.store.get(kind, key))
        except KindNotInstalledError:
            return JobFacts(
                waiting=f"the cluster serves no {kind.kind} ({kind.api_version})",
                remedy=f"Install the operator of {kind.kind}; the trial continues by itself.",
            )
        except NotFoundError:
            job = None
        except (ForbiddenError, UnavailableError):
            job = {}  # it may still exist
        pods: Sequence[Object] = ()
        with suppress(ForbiddenError, UnavailableError):
            pods = most_telling_first(self.store.list(POD, key.namespace, labels={TRIAL_LABEL: key.name}).items)
        if job is not None and not pods and not is_completed(trial):
            return self._without_pods(kind, trial, job)
        return self._with_pods(trial, job, pods)

    def _without_pods(self, kind: Kind, trial: Trial, job: dict[str, Any]) -> JobFacts:
        """Return why a job has no pod, from the job's own events or from the trial's condition."""
        refusals = []
        with suppress(KatibError):
            events = self.events.events_of(kind.kind, trial.namespace, trial.name)
            refusals = [event for event in events if event.warning and event.reason == "FailedCreate"]
        message = refusal_words(refusals[-1].message) if refusals else _reported_refusal(trial)
        if not message:
            return JobFacts(job=job, attempt=attempt_of(job))
        return JobFacts(
            job=job,
            waiting=f"no pod of its job can be created: {message}",
            remedy=_refusal_remedy(message) or "Fix the template as the message says; the job continues by itself.",
            attempt=attempt_of(job),
        )

    def _with_pods(self, trial: Trial, job: dict[str, Any] | None, pods: Sequence[Object]) -> JobFacts:
        troubled = next((pod for pod in pods if facts_of(pod).waiting), None)
        oldest_first = sorted(map(dict, pods), key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")))
        is_retried = running_condition(trial).reason == RETRYING_REASON
        failed = next((pod for pod in pods if facts_of(pod).has_failed), None) if is_retried else None
        chosen = troubled or failed or failed_replica(oldest_first, failure_of(trial)) or next(iter(pods), None)
        ended = _last_end(chosen, trial.spec.primary_container_name) if chosen else {}
        code, init = ended.get("exitCode"), _failed_init(failed) if failed is not None else ""
        looped = troubled is not None and _remedy_of(troubled) == _OUTPUT
        wants_tail = looped or failed is not None or state_of(trial) in ("Failed", "MetricsUnavailable")
        waiting, remedy = self._held_by(trial, troubled, pods)
        return JobFacts(
            job=job,
            waiting=waiting,
            remedy=remedy or _refusal_remedy(_reported_refusal(trial)),
            attempt=max(attempt_of(job or {}), 1 + _restarts(chosen)),
            exit_code=code if isinstance(code, int) else None,
            signal=_signal_name(ended),
            out_of_memory=ended.get("reason") == "OOMKilled",
            log_tail=self.output.tail(trial, chosen, _LOG_LINES, init) if chosen is not None and wants_tail else (),
            log_container=init,
            pods=tuple(oldest_first),
        )

    def _held_by(self, trial: Trial, troubled: Object | None, pods: Sequence[Object]) -> tuple[str, str]:
        """Return why a pod of a trial does not run, and the remedy."""
        if troubled is not None:
            waiting, remedy = facts_of(troubled).waiting, _remedy_of(troubled)
            return f"{waiting}{self._pull_failure(troubled)}" if remedy == _IMAGE else waiting, remedy
        message = running_condition(trial).message
        if NOT_STARTING in message and any(facts_of(pod).starting for pod in pods):
            words = message[message.index("pod ") :]
            return words, _MISSING if "not found" in words else _DESCRIBE.format(trial.namespace, words.split()[1])
        for pod in pods:
            for collector in _collectors_alone(pod):
                line = " ".join(self.output.tail(trial, pod, 1, collector))
                if KEPT in line:
                    words = f"its program has ended, and its {line[line.index(KEPT) :]}"
                    return words, _COLLECTOR.format(trial.namespace)
        return "", ""

    def _pull_failure(self, pod: Object) -> str:
        """Return why an image cannot be pulled, from the pod's events.

        Its status names the cause only some of the time.
        """
        key = Key.of(pod)
        with suppress(KatibError):
            events = reversed(self.events.events_of("Pod", key.namespace, key.name))
            failure = next((event for event in events if event.message.startswith(_PULL_FAILED)), None)
            cause = "" if failure is None else failure.message.partition(": ")[2]
            return f": {' '.join(cause.rpartition(' desc = ')[2].split())}" if cause else ""
        return ""


def is_controller_at_work(store: ObjectStore, core_namespace: str) -> bool:
    """Return False only if the Deployment of the controller exists and none of its pods is ready."""
    with suppress(KatibError):
        status = store.get(DEPLOYMENT, Key(core_namespace, CONTROLLER)).get("status") or {}
        return bool(status.get("readyReplicas"))
    return True


def _remedy_of(pod: Object) -> str:
    """Return the remedy for a waiting pod; empty if it waits for capacity."""
    unscheduled = next((remedy for word, remedy in _UNSCHEDULED.items() if word in facts_of(pod).waiting.lower()), "")
    if unscheduled:
        return unscheduled
    reasons = (((c.get("state") or {}).get("waiting") or {}).get("reason", "") for c in _statuses(pod))
    remedy = next((_REMEDIES[reason] for reason in reasons if reason in _REMEDIES), "")
    return _MISSING if remedy == _CONTAINER and "not found" in facts_of(pod).waiting else remedy


def _collectors_alone(pod: Object) -> list[str]:
    """Return the collectors that still run in a pod whose other containers have ended."""
    running = [status["name"] for status in _statuses(pod) if "running" in (status.get("state") or {})]
    return running if all(name in COLLECTORS for name in running) else []


def _failed_init(pod: Object) -> str:
    """Return the name of the init container whose failure kept the program from starting."""
    for container in (pod.get("status") or {}).get("initContainerStatuses") or ():
        ended = ((container.get("state") or {}).get("terminated") or {}).get("exitCode")
        if ended and container.get("name") not in COLLECTORS:
            return str(container["name"])
    return ""


def _service_remedy(words: str, namespace: str, name: str) -> str:
    """Return the remedy for a service that does not start, from the messages of its Deployment and pods."""
    entry = "its entry under runtime.suggestions of the KatibConfig"
    if "exceeded quota" in words:
        return f"Free some of the quota, ask for a larger one, or have {entry} ask for less; it continues by itself."
    if "is forbidden" in words:
        return f"Have namespace {namespace} allow the pod of the service, or change {entry}; it continues by itself."
    if "PersistentVolumeClaim" in words:
        claim = f"kubectl -n {namespace} describe persistentvolumeclaim {name}"
        return f"Give the cluster a volume or a StorageClass for its claim: {claim}"
    return f"Look at it: kubectl -n {namespace} describe deployment {name}, and its pods."


def _reported_refusal(trial: Trial) -> str:
    """Return the refusal of pods that a trial reports; empty if it reports none."""
    message = failure_of(trial) if is_completed(trial) else running_condition(trial).message
    return message.partition("no pod of its job can be created: ")[2]


def _refusal_remedy(message: str) -> str:
    """Return the remedy for refused pods; empty if the message itself is enough."""
    if _exceeds_whole_quota(message):
        return "One pod asks for more than the whole quota: lower resources in the template, or ask for a larger quota."
    return next((remedy for words, remedy in _REFUSED.items() if re.search(words, message)), "")


def _exceeds_whole_quota(message: str) -> bool:
    """Return whether a request exceeds a quota even with no other usage."""
    found = _QUOTA.search(message)
    if found is None:
        return False
    requested, limited = (dict(part.partition("=")[::2] for part in text.split(",")) for text in found.groups())
    with suppress(ValueError):  # an API server that words it in another way
        return any(
            parse_quantity(value) > parse_quantity(limited.get(name, value)) for name, value in requested.items()
        )
    return False


def _statuses(pod: Object) -> Sequence[Mapping[str, Any]]:
    return container_statuses(pod.get("status") or {})


def _last_end(pod: Object, container: str) -> Mapping[str, Any]:
    """Return the last failed end of a container; if it has none, that of any container except the collector."""
    statuses = [status for status in _statuses(pod) if status.get("name") not in COLLECTORS]
    for status in sorted(statuses, key=lambda status: status.get("name") != container):
        for state in ("state", "lastState"):
            ended: Mapping[str, Any] = (status.get(state) or {}).get("terminated") or {}
            if ended.get("exitCode"):
                return ended
    return {}


def _restarts(pod: Object | None) -> int:
    return max((int(status.get("restartCount") or 0) for status in _statuses(pod or {})), default=0)


def _signal_name(ended: Mapping[str, Any]) -> str:
    """Return the signal that ended a container, from the kubelet or from the shell's exit code."""
    code = ended.get("exitCode") or 0
    number = ended.get("signal") or code - _SIGNALED
    with suppress(ValueError):
        return signal.Signals(number).name if number in _SIGNALS else ""
    return ""
