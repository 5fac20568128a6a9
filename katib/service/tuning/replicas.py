"""Reading pods in their JSON form: which replica of its job one is, and how it is. The same in both homes. Pure."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from katib.engine.runtime.objects import Object
from katib.errors import NotFoundError
from katib.model.failure_text import last_line, of_replica
from katib.model.job_kinds import has_several_pods
from katib.model.names import REPLICA_ANNOTATION, TRIAL_LABEL
from katib.model.wording import closest
from katib.service.tuning.states import failure_of

if TYPE_CHECKING:
    from katib.model.types import Experiment, Trial


COLLECTORS = ("metrics-logger-and-collector", "metrics-collector")
"""Names of the collector's container, which is not the user's."""

_TRAINING = "training.kubeflow.org"
_JOB_SET = "jobset.sigs.k8s.io"
_INDEX = "batch.kubernetes.io/job-completion-index"
_ENDED_BY_ITS_JOB = frozenset({"Stopped", "Terminating", "EarlyStopped"})
_SIGNAL_BASE = 128
_PROCESS = "process://"
"""How the id of a container begins that is a process of this machine."""

Json = dict[str, Any]


def replica_name(pod: Object) -> str:
    """Return the name of a pod among those of its job: `worker-1`, `launcher`; its own name if it has no role."""
    metadata = pod.get("metadata") or {}
    labels: Mapping[str, str] = metadata.get("labels") or {}
    role = labels.get(f"{_TRAINING}/replica-type") or labels.get(f"{_TRAINING}/job-role")
    if role:
        return _joined(role.lower(), labels.get(f"{_TRAINING}/replica-index"))
    if role := labels.get(f"{_JOB_SET}/replicatedjob-name"):
        several = labels.get(f"{_JOB_SET}/replicatedjob-replicas", "1") != "1"
        return _joined(role, labels.get(f"{_JOB_SET}/job-index") if several else None, labels.get(_INDEX))
    own = (metadata.get("annotations") or {}).get(REPLICA_ANNOTATION)
    return str(own or labels.get(_INDEX) or metadata.get("name", ""))


def has_role(pod: Object) -> bool:
    """Return whether a pod is one of several that differ, and so bears a name among them."""
    return replica_name(pod) != str((pod.get("metadata") or {}).get("name", ""))


def _joined(*parts: str | None) -> str:
    return "-".join(part for part in parts if part)


def is_primary(pod: Object, trial: Trial) -> bool:
    """Return whether the metrics of a trial come from this pod: it carries all primary pod labels that there are."""
    labels: Mapping[str, str] = (pod.get("metadata") or {}).get("labels") or {}
    return trial.spec.primary_pod_labels.items() <= labels.items()


def newest_of_each(pods: Iterable[Json]) -> list[Json]:
    """Return the newest pod of each replica, given the oldest first: one that was replaced is history."""
    return list({replica_name(pod): pod for pod in pods}.values())


def may_have_replicas(experiment: Experiment) -> bool:
    """Return whether the jobs of an experiment's trials may have several pods, as far as its template says."""
    template = experiment.spec.trial_template
    job = (template.trial_spec if template is not None else None) or {}
    return job.get("kind") != "Job" or has_several_pods(job)


def named_replica(trial: Trial) -> str:
    """Return by which replica of its job a trial failed, as its Failed condition says; empty if it names none."""
    job = trial.spec.run_spec or {}
    return of_replica(failure_of(trial))[0] if job.get("kind") != "Job" or has_several_pods(job) else ""


def own_cause(trial: Trial) -> str:
    """Return why a trial failed, without the replica: trials of which different ones failed may have failed alike."""
    cause = failure_of(trial)
    return of_replica(cause)[1] if named_replica(trial) else cause


def replica_counts(pods: Iterable[Json]) -> dict[str, str]:
    """Return how many of its replicas run, as `2/3`, by the name of each trial whose job has several.

    Args:
        pods: Of many trials, the oldest first.
    """
    by_trial: dict[str, list[Json]] = {}
    for pod in pods:
        by_trial.setdefault(trial_of(pod), []).append(pod)
    newest = {trial: newest_of_each(found) for trial, found in by_trial.items()}
    return {trial: f"{sum(map(is_running, found))}/{len(found)}" for trial, found in newest.items() if len(found) > 1}


def trial_of(pod: Object) -> str:
    return str((pod.get("metadata", {}).get("labels") or {}).get(TRIAL_LABEL, ""))


def find_replica(pods: Sequence[Object], wanted: str, trial: str) -> Sequence[Object]:
    """Return the pods of a replica, which is named by its role and index, or by the name of its pod.

    Raises:
        NotFoundError: There is no such one, with the names of those that there are.
    """
    found = [pod for pod in pods if wanted in (replica_name(pod), (pod.get("metadata") or {}).get("name", ""))]
    if found:
        return found
    names = sorted(set(map(replica_name, pods)), key=lambda name: (len(name), name))  # worker-2 before worker-10
    raise NotFoundError(f'trial "{trial}" has no replica "{wanted}"; {_choice(wanted, names)}')


def no_container(wanted: str, names: Sequence[str], where: str) -> NotFoundError:
    """Return the error for a container that is not there, with the names of those that are."""
    return NotFoundError(f'{where} has no output of a container "{wanted}"; {_choice(wanted, names)}')


def _choice(wanted: str, names: Sequence[str]) -> str:
    guess = closest(wanted, names)
    return f"{f'did you mean {guess}? ' if guess else ''}it has {', '.join(names) or 'none yet'}"


# --- how a pod is -----------------------------------------------------------------------------------------------------


def status_of(pod: Object) -> Json:
    """Return the status of a pod, empty while it has none."""
    status: Json = pod.get("status") or {}
    return status


def state_words(pod: Json) -> str:
    """Return how a pod is in the words of kubectl: `Running`, `Completed`, `Error`, `CrashLoopBackOff`."""
    status = status_of(pod)
    if pod.get("metadata", {}).get("deletionTimestamp"):
        return "Terminating"
    if status.get("reason"):
        return str(status["reason"])
    for container in _of_init(status):
        reason = _reason_of(container)
        if reason not in ("", "Completed", "PodInitializing"):
            return f"Init:{reason}"
    containers = status.get("containerStatuses") or ()
    reasons = list(filter(None, map(_reason_of, containers)))
    ended = "Completed" if len(reasons) == len(containers) else ""
    known = next((reason for reason in reasons if reason != "Completed"), ended) if reasons else ""
    return known or str(status.get("phase") or "Unknown")


def _reason_of(container: Json) -> str:
    """Return why a container does not run; empty when it does."""
    state = container.get("state") or {}
    return str((state.get("waiting") or state.get("terminated") or {}).get("reason") or "")


def ready_words(pod: Json) -> str:
    """Return how many of its containers are ready, as `1/2`."""
    statuses = status_of(pod).get("containerStatuses") or ()
    return f"{sum(bool(s.get('ready')) for s in statuses)}/{len(pod.get('spec', {}).get('containers') or ())}"


def restarts_of(pod: Json) -> int:
    """Return how often its containers were started again."""
    return sum(int(status.get("restartCount") or 0) for status in _statuses(pod))


def is_running(pod: Json) -> bool:
    """Return whether it runs and is not being ended."""
    status = status_of(pod)
    going = pod.get("metadata", {}).get("deletionTimestamp") or status.get("reason") in _ENDED_BY_ITS_JOB
    return status.get("phase") == "Running" and not going


def is_over(pod: Json) -> bool:
    """Return whether it has ended, or is being ended."""
    status = status_of(pod)
    return status.get("phase") in ("Succeeded", "Failed") or status.get("reason") in _ENDED_BY_ITS_JOB


def has_failed(pod: Json) -> bool:
    """Return whether it failed by itself: not because its job ended it."""
    status = status_of(pod)
    return status.get("phase") == "Failed" and not was_stopped(pod)


def was_stopped(pod: Json) -> bool:
    """Return whether its job ended it."""
    return status_of(pod).get("reason") in _ENDED_BY_ITS_JOB


def last_failure(pod: Json) -> Json:
    """Return how a container of a pod failed last, `terminated` of its status with its name; empty when none has.

    How a pod ended that its job ended is no failure; how a container of it ended before a restart is.
    """
    return _last_end(pod, ("lastState",) if was_stopped(pod) else ("state", "lastState"))


def _last_end(pod: Json, states: Sequence[str]) -> Json:
    """Return the first end of a container with a code other than 0, each by the first of these states that has one."""
    ends = []
    for status in _statuses(pod):
        for state in states:
            ended = (status.get(state) or {}).get("terminated") or {}
            if ended.get("exitCode") and status.get("name") not in COLLECTORS:
                line = last_line(str(ended.get("message") or "").encode())
                ends.append({**ended, "message": line, "name": status.get("name", "")})
                break
    return min(ends, key=lambda end: str(end.get("finishedAt") or "9"), default={})


def exit_words(pod: Json) -> str:
    """Return with which code it ended, or failed last: `0`, `3`, `137 (SIGKILL)`; empty before."""
    end = _last_end(pod, ("state", "lastState"))
    if end:
        return code_words(end)
    codes = [((s.get("state") or {}).get("terminated") or {}).get("exitCode") for s in _statuses(pod)]
    return "0" if status_of(pod).get("phase") == "Succeeded" or (codes and all(code == 0 for code in codes)) else ""


def code_words(end: Json) -> str:
    """Return the exit code of a container that ended, with the signal or cause if there is one."""
    code = int(end.get("exitCode") or 0)
    number = int(end.get("signal") or code - _SIGNAL_BASE)
    word = signal.Signals(number).name if number in {s.value for s in signal.Signals} else ""
    if end.get("reason") == "OOMKilled":
        word = "OOMKilled"
    return f"{code} ({word})" if word else str(code)


def waiting_words(pod: Json) -> str:
    """Return why a pod does not run yet; empty when it does, or the cause is unknown."""
    status = status_of(pod)
    for condition in status.get("conditions") or ():
        if (condition.get("type"), condition.get("status")) == ("PodScheduled", "False"):
            return str(condition.get("message") or "")
    for container in _statuses(pod):
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason"):
            return str(waiting.get("message") or waiting["reason"])
    return ""


def place_words(pod: Json) -> str:
    """Return the place of a pod: its processes here, else its node; empty for one whose processes are gone."""
    found = [s for s in status_of(pod).get("containerStatuses") or () if str(s.get("containerID")).startswith(_PROCESS)]
    pids = [s["containerID"].removeprefix(_PROCESS) for s in found if (s.get("state") or {}).get("running")]
    node = "" if found else str(pod.get("spec", {}).get("nodeName") or "")
    return f"pid {', '.join(pids)}" if pids else node


def _statuses(pod: Json) -> Iterator[Json]:
    status = status_of(pod)
    yield from _of_init(status)
    yield from status.get("containerStatuses") or ()


def _of_init(status: Json) -> Sequence[Json]:
    return status.get("initContainerStatuses") or ()
