"""The HTTP side of a connection: one pool of sockets and the credentials that go with each request."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode

import urllib3
from kubernetes import client
from kubernetes.config.config_exception import ConfigException

from katib.errors import UnavailableError, one_line

_CREDENTIALS_KEPT_SECONDS = 5.0
"""Asking the package for them costs as much as the rest of a request; its own sources change by the minute."""


class Session:
    """A pool of connections with fixed TLS settings and credentials that renew themselves.

    Bodies pass through as bytes: the package's models would cost more than the request itself.
    """

    def __init__(self, configuration: client.Configuration, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self.host = str(configuration.host)
        self._configuration = configuration
        self._pool: Any = client.ApiClient(configuration).rest_client.pool_manager
        self._lock = threading.Lock()
        self._credentials: dict[str, str] = {}
        self._renewed = float("-inf")

    def send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: bytes | None,
        headers: Mapping[str, str],
        timeout: urllib3.Timeout,
        *,
        stream: bool,
    ) -> urllib3.BaseHTTPResponse:
        """Send one request once.

        Raises:
            urllib3.exceptions.HTTPError: No answer.
            UnavailableError: The credentials cannot be had now.
        """
        url = f"{self.host}{path}" + (f"?{urlencode(query)}" if query else "")
        response: urllib3.BaseHTTPResponse = self._pool.urlopen(
            method,
            url,
            body=body,
            headers={**headers, **self._current_credentials()},
            timeout=timeout,
            retries=False,
            redirect=False,
            preload_content=not stream,
        )
        return response

    def close(self) -> None:
        """Close idle connections."""
        self._pool.clear()

    def _current_credentials(self) -> dict[str, str]:
        now = self._monotonic()
        if now - self._renewed > _CREDENTIALS_KEPT_SECONDS:
            with self._lock:  # a plugin that fetches tokens runs once, not once a thread
                if now - self._renewed > _CREDENTIALS_KEPT_SECONDS:
                    settings = self._read_credentials()
                    self._credentials = {
                        setting["key"]: setting["value"] for setting in settings.values() if setting.get("value")
                    }
                    self._renewed = self._monotonic()
        return self._credentials

    def _read_credentials(self) -> Mapping[str, Any]:
        try:
            settings: Mapping[str, Any] = self._configuration.auth_settings()
        except (ConfigException, OSError, ValueError) as error:  # a token file that is empty for a moment, say
            cause = one_line(error) or type(error).__name__
            raise UnavailableError(f"credentials of the cluster: {cause}; fix them where they come from") from error
        return settings
