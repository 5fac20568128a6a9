"""Minimal client of the API server for use inside a pod, without a client library.

It uses the server's address in two variables, and token, certificate and namespace of the service account in three
files. The images of the DB manager and of the suggestion services need the server for a single object, and have no
client library.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from katib.errors import ConflictError, ForbiddenError, KatibError, NotFoundError, UnavailableError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

_CLASSES: Mapping[int, type[KatibError]] = {
    HTTPStatus.UNAUTHORIZED: ForbiddenError,
    HTTPStatus.FORBIDDEN: ForbiddenError,
    HTTPStatus.NOT_FOUND: NotFoundError,
}


def server_of_pod(environment: Mapping[str, str] = os.environ) -> str:
    """Return the URL of the API server of the cluster that this process runs in; empty outside a cluster."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "443")
    return f"https://{f'[{host}]' if ':' in host else host}:{port}" if host else ""


class PodApi:
    """Sends single requests. Thread-safe.

    Args:
        server: `https://host:port` of the API server.
        directory: Directory of token and `ca.crt`; the token is read for each call, since it is renewed.
    """

    def __init__(self, server: str, directory: Path = SERVICE_ACCOUNT, *, timeout_seconds: float) -> None:
        self._server = server
        self._token = directory / "token"
        self._timeout_seconds = timeout_seconds
        authority = directory / "ca.crt"
        context = ssl.create_default_context(cafile=str(authority) if authority.exists() else None)
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}),  # a user's proxy must not be used for the API server
            urllib.request.HTTPSHandler(context=context),
        )

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        content_type: str = "application/json",
        conflict: type[KatibError] = ConflictError,
    ) -> dict[str, Any]:
        """Return the object in the server's response.

        Raises:
            NotFoundError: There is no such object.
            ForbiddenError: The service account lacks the right.
            UnavailableError: The API server does not answer, or did not accept it.
            KatibError: `conflict`, if the server reports one.
        """
        headers = {"Authorization": f"Bearer {self._token.read_text().strip()}", "Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = content_type
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._server + path, data, headers, method=method)  # noqa: S310 - the server's
        try:
            with self._opener.open(request, timeout=self._timeout_seconds) as answer:
                return dict(json.loads(answer.read()))
        except urllib.error.HTTPError as error:
            with error:
                cls = conflict if error.code == HTTPStatus.CONFLICT else _CLASSES.get(error.code, UnavailableError)
                raise cls(f"{method} {path}: {_words(error)}") from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise UnavailableError(f"{method} {path}: the API server does not answer: {error}") from error


def _words(error: urllib.error.HTTPError) -> str:
    """Return the message of the API server, else the status."""
    try:
        message = json.loads(error.read()).get("message")
    except (OSError, http.client.HTTPException, ValueError, AttributeError):
        message = None
    return str(message or f"{error.code} {error.reason}")
