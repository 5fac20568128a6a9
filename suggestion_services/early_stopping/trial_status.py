"""Sets a Trial's condition EarlyStopped from inside a pod, as the service of the pod.

Katib's sidecar requests this after it has stopped the program.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from katib.errors import Backoff, ConflictError, UnavailableError
from katib.wire.rpc.pod_api import SERVICE_ACCOUNT, PodApi, server_of_pod

REASON = "TrialEarlyStopped"
MESSAGE = "Trial is early stopped"

_TIMEOUT_SECONDS = 5.0
_ATTEMPTS = 6
_BACKOFF = Backoff(0.1, 2.0)  # the attempts take 3 s in total, unless the server asks for longer waits

Json = dict[str, Any]


class TrialStatuses:
    """Changes the status of trials of one namespace. Thread-safe.

    Args:
        server: `https://host:port` of the API server.
        directory: Directory of the token, `ca.crt` and namespace; the token is read at each call, since it is renewed.
        pause: Waits between attempts.
    """

    def __init__(
        self,
        server: str,
        directory: Path = SERVICE_ACCOUNT,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._now = now
        self._pause = pause
        namespace = (directory / "namespace").read_text().strip()
        self._trials = f"/apis/kubeflow.org/v1beta1/namespaces/{namespace}/trials"
        self._api = PodApi(server, directory, timeout_seconds=_TIMEOUT_SECONDS)

    def stop(self, trial: str) -> None:
        """Set the condition EarlyStopped of a trial, unless it has it or has ended.

        Raises:
            NotFoundError: The trial does not exist.
            ForbiddenError: The service account lacks the permission.
            UnavailableError: The API server did not accept it, in several attempts.
        """
        for attempt in range(_ATTEMPTS):
            try:
                self._stop_once(trial)
            except (ConflictError, UnavailableError) as error:
                if attempt == _ATTEMPTS - 1:
                    raise UnavailableError(f"status of trial {trial} cannot be written: {error}") from error
                self._pause(_BACKOFF.pause_seconds(attempt + 1))
            else:
                return

    def _stop_once(self, trial: str) -> None:
        found = self._api.request("GET", f"{self._trials}/{trial}")
        conditions = stopped_conditions((found.get("status") or {}).get("conditions") or [], self._now())
        if conditions is None:
            return
        # With the resource version, so that a concurrent write of the controller is a conflict and is not overwritten.
        revision = {"resourceVersion": found["metadata"]["resourceVersion"]}
        change = {"metadata": revision, "status": {"conditions": conditions}}
        self._api.request(
            "PATCH", f"{self._trials}/{trial}/status", change, content_type="application/merge-patch+json"
        )


def in_cluster(environment: Mapping[str, str] = os.environ, directory: Path = SERVICE_ACCOUNT) -> TrialStatuses | None:
    """Return the trials of this pod's namespace; None outside of a pod, or without a service account."""
    server = server_of_pod(environment)
    return TrialStatuses(server, directory) if server and (directory / "token").exists() else None


def stopped_conditions(conditions: list[Json], now: datetime) -> list[Json] | None:
    """Return the conditions of an early stopped trial; None if they are unchanged."""
    from katib.model.conditions import COMPLETED_TRIAL, set_condition, true_types
    from katib.model.types import Condition, TrialCondition

    old = tuple(map(Condition.decode, conditions))
    if true_types(old) & COMPLETED_TRIAL:
        return None
    new = set_condition(old, TrialCondition.EARLY_STOPPED, REASON, MESSAGE, now)
    others = [condition for condition in conditions if condition.get("type") != TrialCondition.EARLY_STOPPED]
    return [*others, new[-1].encode()]
