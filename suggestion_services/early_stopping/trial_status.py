"""Writes into a Trial's status that it was stopped early, from inside a pod, as the service of the pod.

Katib's sidecar asks for this after it stopped the program. Only what every pod has is used: the API server's address in
two variables, and token, certificate and namespace of the service account in three files. So the image needs no client.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from katib.backoff import Backoff
from katib.errors import ConflictError, ForbiddenError, KatibError, NotFoundError, UnavailableError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

REASON = "TrialEarlyStopped"
MESSAGE = "Trial is early stopped"

_TIMEOUT_SECONDS = 5.0
_ATTEMPTS = 6
_BACKOFF = Backoff(0.1, 2.0)  # together with it the attempts take 3 s, unless the server lets us wait
_CLASSES: dict[int, type[KatibError]] = {
    401: ForbiddenError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
}

Json = dict[str, Any]


class TrialStatuses:
    """Changes the status of trials of one namespace. Thread-safe.

    Args:
        server: `https://host:port` of the API server.
        directory: Where token, `ca.crt` and namespace are; the token is read at each call, since it is renewed.
        now: Stamps conditions.
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
        self._directory = directory
        self._now = now
        self._pause = pause
        namespace = (directory / "namespace").read_text().strip()
        self._trials = f"{server}/apis/kubeflow.org/v1beta1/namespaces/{namespace}/trials"
        authority = directory / "ca.crt"
        context = ssl.create_default_context(cafile=str(authority) if authority.exists() else None)
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}),  # a user's proxy is not for the way to the API server
            urllib.request.HTTPSHandler(context=context),
        )

    def stop(self, trial: str) -> None:
        """Give a trial the condition EarlyStopped, unless it has one or is over anyway.

        Raises:
            NotFoundError: There is no such trial.
            ForbiddenError: The service account may not do it.
            UnavailableError: The API server did not take it, in several attempts.
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
        found = self._request("GET", f"{self._trials}/{trial}")
        conditions = stopped_conditions((found.get("status") or {}).get("conditions") or [], self._now())
        if conditions is None:
            return
        # With the revision, so that what the controller wrote meanwhile is a conflict and is not overwritten.
        revision = {"resourceVersion": found["metadata"]["resourceVersion"]}
        self._request(
            "PATCH", f"{self._trials}/{trial}/status", {"metadata": revision, "status": {"conditions": conditions}}
        )

    def _request(self, method: str, url: str, body: Json | None = None) -> Json:
        token = (self._directory / "token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/merge-patch+json"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, headers, method=method)  # noqa: S310 - https, made by us
        try:
            with self._opener.open(request, timeout=_TIMEOUT_SECONDS) as answer:
                content: Json = json.loads(answer.read())
                return content
        except urllib.error.HTTPError as error:
            with error:
                raise _CLASSES.get(error.code, UnavailableError)(f"{method} {url}: {_words(error)}") from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise UnavailableError(f"{method} {url}: {error}") from error


def in_cluster(environment: Mapping[str, str] = os.environ, directory: Path = SERVICE_ACCOUNT) -> TrialStatuses | None:
    """Return the trials of the namespace of this pod; None outside of a pod, or in one without a service account."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not (directory / "token").exists():
        return None
    return TrialStatuses(f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}", directory)


def stopped_conditions(conditions: list[Json], now: datetime) -> list[Json] | None:
    """Return the conditions of a trial that was stopped early; None when nothing is to be changed."""
    from katib.api.conditions import COMPLETED_TRIAL, set_condition, true_types
    from katib.api.types import Condition, TrialCondition

    old = tuple(map(Condition.decode, conditions))
    if true_types(old) & COMPLETED_TRIAL:
        return None
    new = set_condition(old, TrialCondition.EARLY_STOPPED, REASON, MESSAGE, now)
    others = [condition for condition in conditions if condition.get("type") != TrialCondition.EARLY_STOPPED]
    return [*others, new[-1].encode()]


def _words(error: urllib.error.HTTPError) -> str:
    """Return what the API server says, else the status."""
    try:
        message = json.loads(error.read()).get("message")
    except (OSError, http.client.HTTPException, ValueError, AttributeError):
        message = None
    return str(message or f"{error.code} {error.reason}")
