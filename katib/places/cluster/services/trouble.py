"""Why a Deployment is not available, in the words of its own conditions and pods. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from katib.engine.runtime.objects import Object
from katib.model.job_kinds import gate_words

_HARMLESS = frozenset({"", "ContainerCreating", "PodInitializing"})
_PULLING = frozenset({"ErrImagePull", "ImagePullBackOff", "RegistryUnavailable"})
_KILLED = 137  # by SIGKILL
_MAX_WORDS = 300


@dataclass(frozen=True, slots=True)
class ReadinessProblem:
    """An obstacle to a service's readiness; false if there is none.

    Attributes:
        words: Description, as part of a sentence.
        may_pass: Whether it is the cluster's and can end without a fix of the service: no capacity on any node, an
            exhausted quota, an unreachable registry, a container killed by the kernel.
    """

    words: str = ""
    may_pass: bool = False

    def __bool__(self) -> bool:
        return bool(self.words)


NO_TROUBLE = ReadinessProblem()


def is_available(deployment: Object) -> bool:
    """Return whether enough pods of a Deployment are ready."""
    return _condition(deployment, "Available").get("status") == "True"


def trouble_of(deployment: Object, pods: Iterable[Object]) -> ReadinessProblem:
    """Return why a Deployment is not available; no trouble if it is merely not ready yet."""
    newest = sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")), reverse=True)
    for pod in newest:
        trouble = next(_pod_troubles(pod), None)
        if trouble is not None:
            return ReadinessProblem(f"pod {pod['metadata']['name']}: {trouble.words}", trouble.may_pass)
    failure = _condition(deployment, "ReplicaFailure")
    if failure.get("status") == "True":
        return ReadinessProblem(_words(failure), may_pass=True)
    progress = _condition(deployment, "Progressing")
    if progress.get("status") == "False":
        return ReadinessProblem(_words(progress))
    return NO_TROUBLE


def _pod_troubles(pod: Object) -> Iterator[ReadinessProblem]:
    status = pod.get("status") or {}
    scheduled = _condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        yield ReadinessProblem(gate_words(pod) or _words(scheduled), may_pass=True)
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        trouble = _container_trouble(container)
        if trouble:
            yield ReadinessProblem(f"container {container.get('name')}: {trouble.words}", trouble.may_pass)
    if status.get("phase") == "Failed":
        yield ReadinessProblem(_words(status), may_pass=True)  # such as an eviction: a container would be restarted


def _container_trouble(container: Mapping[str, Any]) -> ReadinessProblem:
    if container.get("ready"):
        return NO_TROUBLE
    waiting = (container.get("state") or {}).get("waiting") or {}
    ended = _ended(container)
    if ended and (ended.get("exitCode") or waiting.get("reason") not in _HARMLESS):
        killed = ended.get("reason") == "OOMKilled" or ended.get("exitCode") == _KILLED
        restarts = 0 if killed else int(container.get("restartCount") or 0)  # keeps the words of passing trouble stable
        times = f", {restarts} restarts" if restarts else ""
        code = f"exit code {ended.get('exitCode', 0)}"
        reason = ended.get("reason") or "Error"
        cause = code if reason == "Error" else f"{reason}, {code}"
        words = _clipped(ended.get("message", ""))
        return ReadinessProblem(f"ended ({cause}{times})" + (f": {words}" if words else ""), may_pass=killed)
    if waiting.get("reason", "") not in _HARMLESS:
        return ReadinessProblem(_words(waiting), may_pass=waiting["reason"] in _PULLING)
    return NO_TROUBLE


def _ended(container: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the last end of a container; a service is expected not to end at all."""
    for state in ("state", "lastState"):
        ended = (container.get(state) or {}).get("terminated")
        if ended:
            found: Mapping[str, Any] = ended
            return found
    return {}


def _condition(obj: Object, type_: str) -> Mapping[str, Any]:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((condition for condition in conditions if condition.get("type") == type_), {})


def _words(state: Mapping[str, Any]) -> str:
    parts = (str(state.get("reason") or ""), _clipped(state.get("message", "")))
    return ": ".join(part for part in parts if part)


def _clipped(text: object) -> str:
    """Return the end of a text, with the last lines of a traceback, on one line."""
    line = " | ".join(part.strip() for part in str(text or "").splitlines() if part.strip())
    return line if len(line) <= _MAX_WORDS else f"...{line[-_MAX_WORDS:]}"
