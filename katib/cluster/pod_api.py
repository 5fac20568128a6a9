"""Secrets of the API server, asked from inside a pod with what every pod has; it needs no client library.

The image of the DB manager has none, and needs the API server for one object at its start.
"""

from __future__ import annotations

import json
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from katib.errors import (
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    KatibError,
    NotFoundError,
    UnavailableError,
)
from katib.runtime.objects import Key, Kind, Object

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

_TIMEOUT_SECONDS = 10.0
_CLASSES: Mapping[int, type[KatibError]] = {
    401: ForbiddenError,
    403: ForbiddenError,
    404: NotFoundError,
}


class PodSecrets:
    """Fits `katib.cluster.installation_key.Secrets`.

    Args:
        server: `https://host:port` of the API server.
        directory: Where token and `ca.crt` are.
    """

    def __init__(self, server: str, directory: Path = SERVICE_ACCOUNT) -> None:
        self._server = server
        self._directory = directory
        authority = directory / "ca.crt"
        context = ssl.create_default_context(cafile=str(authority) if authority.exists() else None)
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}),  # a user's proxy is not for the way to the API server
            urllib.request.HTTPSHandler(context=context),
        )

    @classmethod
    def of_pod(cls, environment: Mapping[str, str] = os.environ) -> PodSecrets:
        """Return the Secrets of the cluster we run in.

        Raises:
            UnavailableError: We run in none.
        """
        host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "443")
        if not host:
            raise UnavailableError("this is not a pod of a cluster: KUBERNETES_SERVICE_HOST is not set")
        return cls(f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}")

    def get(self, kind: Kind, key: Key) -> Object:
        """Return a Secret."""
        del kind
        return self._request("GET", f"{_path(key.namespace)}/{key.name}")

    def create(self, obj: Object) -> Object:
        """Create a Secret."""
        return self._request("POST", _path(Key.of(obj).namespace), obj, conflict=AlreadyExistsError)

    def update(self, obj: Object) -> Object:
        """Replace a Secret."""
        key = Key.of(obj)
        return self._request("PUT", f"{_path(key.namespace)}/{key.name}", obj)

    def _request(
        self, method: str, path: str, body: Object | None = None, conflict: type[KatibError] = ConflictError
    ) -> Object:
        request = urllib.request.Request(self._server + path, method=method)  # noqa: S310 - the API server's address
        request.add_header("Authorization", f"Bearer {(self._directory / 'token').read_text().strip()}")
        request.add_header("Content-Type", "application/json")
        data = None if body is None else json.dumps(body).encode()
        try:
            with self._opener.open(request, data, timeout=_TIMEOUT_SECONDS) as answer:
                found: Any = json.loads(answer.read())
        except urllib.error.HTTPError as error:
            cls = conflict if error.code == 409 else _CLASSES.get(error.code, UnavailableError)  # noqa: PLR2004 - HTTP
            raise cls(f"{method} {path}: {_message(error)}") from error
        except (OSError, ValueError) as error:
            raise UnavailableError(f"the API server does not answer: {error}") from error
        return dict(found)


def _path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/secrets"


def _message(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read()).get("message") or error.reason)
    except (ValueError, OSError, AttributeError):
        return str(error.reason)
