"""The plan of a pod; the pod as an object, as the kubelet of a cluster would show it; and its note on disk.

The object is kept small: of the template only the names and images of containers, which is all that a reader asks for.

In its note, `pod.json`, a pod writes down its job, its processes, and its end. The file has one
JSON object in each line, and later lines are merged into earlier ones. A line is written at once and
nothing is ever written over, so that a crash at any moment leaves all that stood there. The first line is there before
any process of the pod is. Earlier versions wrote all of it as one object.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType

from katib.engine.runtime.clock import SteadyTime
from katib.engine.runtime.objects import Object
from katib.model.names import REPLICA_ANNOTATION
from katib.model.types import format_time
from katib.places.machine.pods.plans import (
    ContainerPlan,
    ContainerRole,
    Json,
    PodPlan,
    append_note,
    pulling_words,
    replica_of,
)
from katib.places.machine.pods.records import ContainerState, PodPhase, PodRecord
from katib.places.machine.pods.references import ADDRESS, NODE

PROCESS_ID = "process://"
"""A container's id is that of its process behind this; on a cluster, its runtime gives the id."""

NO_STATUS: Object = MappingProxyType({})
_CREATING = "ContainerCreating"
_SIGNAL_BASE = 128
_LARGEST_SIGNAL = 64


def pod_object(plan: PodPlan, record: PodRecord, steady: SteadyTime, now: datetime, before: Object = NO_STATUS) -> Json:
    """Return a pod as an object, but for its namespace and its owner.

    Args:
        now: Transition time of the conditions that changed.
        before: Its status as it was stored last; empty for none.
    """
    names = {container.command.name: container.role is ContainerRole.MAIN for container in plan.containers}
    spec = {
        "nodeName": NODE,
        "containers": [_container(plan, name) for name, is_main in names.items() if is_main],
    }
    if others := [_container(plan, name) for name, is_main in names.items() if not is_main]:
        spec["initContainers"] = others
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": pod_metadata(plan),
        "spec": spec,
        "status": _status(plan, record, steady, now, before),
    }


def pod_metadata(plan: PodPlan) -> Json:
    """Return the metadata of a pod, but for its namespace and its owner."""
    replica = replica_of(plan.role, plan.index)
    mark = {REPLICA_ANNOTATION: replica} if replica else {}
    return {
        "name": plan.name,
        "uid": plan.uid,
        "labels": dict(plan.labels),
        "annotations": {**plan.annotations, **mark},
    }


def _container(plan: PodPlan, name: str) -> Json:
    return {"name": name, "image": plan.images.get(name, "")}


def _status(plan: PodPlan, record: PodRecord, steady: SteadyTime, now: datetime, before: Object) -> Json:
    status: Json = {"phase": str(record.phase), "hostIP": ADDRESS, "podIP": ADDRESS}
    if record.started_at is not None:
        status["startTime"] = format_time(record.started_at)
    since = {(c["type"], c["status"]): c.get("lastTransitionTime") for c in before.get("conditions", ())}
    status["conditions"] = [
        {**condition, "lastProbeTime": None, "lastTransitionTime": since.get(key) or format_time(now)}
        for condition in _conditions(plan, record)
        for key in ((condition["type"], condition["status"]),)
    ]
    status.update({name: text for name, text in zip(("reason", "message"), _reason(record), strict=True) if text})
    failed = next((c.name for c in record.containers if c.exit is not None and c.exit.code), "")
    outputs = {failed: record.last_output} if record.last_output else {}
    containers = record.containers or _not_started(plan, record)
    statuses = [(c.is_main, _container_status(c, plan.images, outputs, steady)) for c in containers]
    for _, found in statuses:
        waits = (found.get("state") or {}).get("waiting") or {}
        if waits.get("reason") == _CREATING and record.pulling == found["image"] != "":
            waits["message"] = pulling_words(record.pulling)
    if statuses:
        status["containerStatuses"] = [found for is_main, found in statuses if is_main]
    if others := [found for is_main, found in statuses if not is_main]:
        status["initContainerStatuses"] = others
    return status


def _conditions(plan: PodPlan, record: PodRecord) -> Iterator[Json]:
    """Yield the conditions of a pod as a kubelet sets them, without times."""
    if record.waiting:
        yield {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": record.waiting}
        return
    states = {container.name: container for container in record.containers}
    first = [
        c.command.name for c in plan.containers if c.role is not ContainerRole.MAIN and not _is_initialized(states, c)
    ]
    main = [c.command.name for c in plan.containers if c.role is not ContainerRole.INIT]
    unready = [name for name in main if name not in states or not states[name].is_running]
    completed = {"reason": "PodCompleted"} if record.phase is PodPhase.SUCCEEDED else {}
    over = completed or ({"reason": "PodFailed"} if record.phase is PodPhase.FAILED else {})
    yield {"type": "PodScheduled", "status": "True"}
    yield _condition("Initialized", [] if over else first, "ContainersNotInitialized", "incomplete") | completed
    for type_ in ("ContainersReady", "Ready"):
        condition = _condition(type_, unready, "ContainersNotReady", "unready")
        yield {"type": type_, "status": "False", **over} if over else condition


def _is_initialized(states: Mapping[str, ContainerState], container: ContainerPlan) -> bool:
    """Return whether an init container has succeeded, or a sidecar has started."""
    state = states.get(container.command.name)
    if state is None or container.role is ContainerRole.SIDECAR:
        return state is not None and state.began is not None
    return state.is_over and state.exit is not None and state.exit.code == 0


def _condition(type_: str, names: Sequence[str], reason: str, what: str) -> Json:
    """Return a condition that holds if it has no container against it."""
    if not names:
        return {"type": type_, "status": "True"}
    message = f"containers with {what} status: [{' '.join(names)}]"
    return {"type": type_, "status": "False", "reason": reason, "message": message}


def _not_started(plan: PodPlan, record: PodRecord) -> tuple[ContainerState, ...]:
    """Return the containers of a pod before any has run; empty while there is nothing to show."""
    if not record.pulling or record.is_finished:
        return ()
    names = {container.command.name: container.role is ContainerRole.MAIN for container in plan.containers}
    return tuple(ContainerState(name, is_main, 0, 0, None, None, None, False) for name, is_main in names.items())


def _reason(record: PodRecord) -> tuple[str, str]:
    """Return why a pod is in its phase, as one word and as a sentence; empty if its containers show it."""
    if record.cannot_start:
        return "PodCannotStart", record.cannot_start
    if record.evicted:
        return "Evicted", record.evicted
    if record.reason:
        return record.reason, record.message
    if record.verdict:
        return "EarlyStopped", record.verdict
    if record.stopping:
        return ("Stopped", "its job ended it") if record.is_finished else ("Terminating", "its job ends it")
    return "", record.message if record.phase is not PodPhase.SUCCEEDED else ""


def _container_status(
    container: ContainerState, images: Mapping[str, str], outputs: Mapping[str, str], steady: SteadyTime
) -> Json:
    ended = _terminated(container, outputs.get(container.name, ""), steady)
    status: Json = {
        "name": container.name,
        "image": images.get(container.name, ""),
        "imageID": "",
        "ready": container.is_running,
        "restartCount": container.restarts,
    }
    if container.pid:
        status["containerID"] = f"{PROCESS_ID}{container.pid}"
    if container.is_running and container.began is not None:
        status["state"] = {"running": {"startedAt": format_time(steady.at(container.began))}}
    elif container.exit is not None and container.is_over:
        status["state"] = {"terminated": ended}
    elif container.exit is not None:
        status["state"] = {"waiting": {"reason": "CrashLoopBackOff"}}
    else:
        status["state"] = {"waiting": {"reason": _CREATING}}
    if (earlier := container.earlier) is not None:
        before = container._replace(began=earlier.began, ended=earlier.ended, exit=earlier.exit)
        status["lastState"] = {"terminated": _terminated(before, earlier.output, steady)}
    return status


def _terminated(container: ContainerState, output: str, steady: SteadyTime) -> Json:
    """Return how a container ended last; empty when it has not."""
    end = container.exit
    if end is None:
        return {}
    reason = "ContainerStatusUnknown" if end.lost else "Error" if end.code else "Completed"
    if end.out_of_memory:
        reason = "OOMKilled"
    found: Json = {"exitCode": end.code, "reason": reason}
    if _SIGNAL_BASE < end.code <= _SIGNAL_BASE + _LARGEST_SIGNAL:
        found["signal"] = end.code - _SIGNAL_BASE
    if output:
        found["message"] = output
    for name, moment in (("startedAt", container.began), ("finishedAt", container.ended)):
        if moment is not None:
            found[name] = format_time(steady.at(moment))
    return found


def note_end(plan: PodPlan, end: PodRecord, steady: SteadyTime, *, is_measured: bool) -> None:
    """Write down how a pod ended: replicas are known by it when their pods are gone with the job."""
    with contextlib.suppress(OSError):
        append_note(
            plan.directory,
            {"pod": pod_object(plan, end, steady, end.finished_at or steady.now()), "isMeasured": is_measured},
        )
