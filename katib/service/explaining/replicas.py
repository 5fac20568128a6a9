"""States of the pods of a job with several replicas."""

from __future__ import annotations

from collections.abc import Sequence

from katib.model.failure_text import of_replica
from katib.service.tuning.replicas import (
    code_words,
    has_failed,
    has_role,
    is_over,
    is_running,
    last_failure,
    newest_of_each,
    replica_name,
    restarts_of,
    status_of,
    waiting_words,
    was_stopped,
)
from katib.service.tuning.service import Json

_SHOWN = 5


def replicas_of(pods: Sequence[Json]) -> list[Json]:
    """Return the newest pod of each replica of a job that has several; empty for any other job."""
    found = newest_of_each(pods)
    return found if len(found) > 1 and all(map(has_role, found)) else []


def failed_replica(pods: Sequence[Json], cause: str = "") -> Json | None:
    """Return the replica whose failure ended a job; None if none failed by itself, or the job has only one.

    Args:
        pods: The pods of one job, oldest first.
        cause: Why the trial failed; empty if it did not. Of several failed replicas the one that it names or quotes is
            returned, else the first. A replica that its job ended while it was being restarted counts, too.
    """
    failed = [pod for pod in replicas_of(pods) if has_failed(pod) or (cause and was_stopped(pod) and last_failure(pod))]

    def rank(pod: Json) -> tuple[bool, bool, bool, str]:
        end = last_failure(pod)
        is_named = replica_name(pod) == of_replica(cause)[0]
        is_quoted = bool(end.get("message")) and str(end["message"]).rstrip(".") in cause
        return not is_named, not is_quoted, was_stopped(pod), str(end.get("finishedAt") or "")

    return min(failed, key=rank, default=None)


def last_words(pod: Json) -> str:
    """Return the last line and the exit code of a failed replica; empty if it printed nothing."""
    end = last_failure(pod)
    return f"{end['message']} (exit code {code_words(end)})" if end.get("message") else ""


def replica_findings(pods: Sequence[Json]) -> list[str]:
    """Return the number of running replicas, and the obstacle of each other one, one sentence each."""
    replicas = replicas_of(pods)
    if not replicas:
        return []
    running = [pod for pod in replicas if is_running(pod)]
    found = [f"{len(running)} of {len(replicas)} replicas run."]
    held = [(pod, words) for pod in replicas if (words := trouble_of(pod))]
    found.extend(f"Replica {replica_name(pod)} {words.rstrip('.')}." for pod, words in held[:_SHOWN])
    if len(held) > _SHOWN:
        found.append(f"{len(held) - _SHOWN} more replicas do not run either.")
    return found


def trouble_of(pod: Json) -> str:
    """Return the problem of a replica, as the rest of a sentence about it; empty if there is none."""
    end, restarts = last_failure(pod), restarts_of(pod)
    said = f"; last output: {end['message']}" if end.get("message") else ""
    if has_failed(pod):
        cause = " ".join(str(status_of(pod).get("message") or "no reason was recorded").split())
        return f"failed with exit code {code_words(end)}{said}" if end else f"failed: {cause}"
    if is_over(pod):
        was_retried = was_stopped(pod) and end
        return f"failed with exit code {code_words(end)} before its job ended it{said}" if was_retried else ""
    if end:
        code, many = code_words(end), "s" * (restarts != 1)
        states = (status.get("state") or {} for status in status_of(pod).get("containerStatuses") or ())
        if any((state.get("waiting") or {}).get("reason") == "CrashLoopBackOff" for state in states):
            return f"ended with exit code {code} and is started again after a pause{said}"
        return f"runs again, {restarts} restart{many} so far; it ended last with exit code {code}{said}"
    waiting = waiting_words(pod)
    if is_running(pod) or not waiting:
        return ""
    return waiting if waiting.startswith("waits ") else f"waits: {waiting}"
