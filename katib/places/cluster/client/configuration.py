"""Address of the API server and credentials for it, from a kubeconfig file or a pod's service account."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import urllib3
from urllib3.connection import HTTPConnection

from katib.errors import UnavailableError, invalid, one_line

if TYPE_CHECKING:  # 15 MB, which a controller in its pod avoids
    from kubernetes import client

POOL_SIZE = 64
"""Connections kept open: about sixteen worker threads, one for each watch, and some spare."""
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_KEEPALIVE_IDLE_SECONDS, _KEEPALIVE_INTERVAL_SECONDS, _KEEPALIVE_PROBES = 30, 10, 3


@dataclass(frozen=True, slots=True)
class ServerEndpoint:
    """Connection parameters of an API server.

    Attributes:
        host: Address, such as `https://10.0.0.1:6443`.
        credentials: Returns the authentication headers; raises UnavailableError while there are none.
    """

    host: str
    pool: urllib3.PoolManager
    credentials: Callable[[], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """Configuration for reaching an API server.

    Attributes:
        load: Reads the configuration again, with fresh credentials.
        configuration: Reads it in the form of the package `kubernetes`.
    """

    load: Callable[[], ServerEndpoint]
    configuration: Callable[[], client.Configuration]
    namespace: str


def access(kubeconfig: str | Path | None = None, context: str | None = None) -> ClusterAccess:
    """Find the configuration for reaching an API server.

    Precedence: a given file or context, $KUBECONFIG, the service account in a pod, ~/.kube/config.

    Raises:
        InvalidError: The file cannot be read, or has no such context.
        UnavailableError: There is no configuration.
    """
    named = kubeconfig or os.environ.get("KUBECONFIG")
    if not named and context is None and "KUBERNETES_SERVICE_HOST" in os.environ:
        in_pod = _prepared(lambda configuration: _loader().load_incluster_config(configuration))
        return ClusterAccess(_way_of_pod, in_pod, _namespace_of_pod())
    path = str(named or _loader().kube_config.KUBE_CONFIG_DEFAULT_LOCATION)
    namespace = _namespace_of_context(path, context)

    def load(configuration: client.Configuration) -> None:
        _loader().load_kube_config(path, context, configuration, persist_config=False)

    prepared = _prepared(load)
    return ClusterAccess(lambda: way_of(prepared()), prepared, namespace)


def _loader() -> Any:  # the package is untyped here
    from kubernetes import config

    return config


def _prepared(load: Callable[[client.Configuration], None]) -> Callable[[], client.Configuration]:
    def prepared() -> client.Configuration:
        from kubernetes import client
        from kubernetes.config.config_exception import ConfigException

        configuration = client.Configuration()
        try:
            load(configuration)
        except (ConfigException, OSError, ValueError) as error:
            raise UnavailableError(f"credentials of the cluster: {error}; fix the kubeconfig") from error
        configuration.connection_pool_maxsize = POOL_SIZE
        configuration.socket_options = _socket_options()
        return configuration

    return prepared


def way_of(configuration: client.Configuration) -> ServerEndpoint:
    """Return the connection parameters of a configuration of the package `kubernetes`."""
    from kubernetes import client
    from kubernetes.config.config_exception import ConfigException

    def credentials() -> Mapping[str, str]:
        try:
            settings: Mapping[str, Any] = configuration.auth_settings()
        except (ConfigException, OSError, ValueError) as error:  # such as a token file that is empty while rewritten
            raise _without_credentials(error) from error
        return {setting["key"]: setting["value"] for setting in settings.values() if setting.get("value")}

    return ServerEndpoint(
        str(configuration.host), client.ApiClient(configuration).rest_client.pool_manager, credentials
    )


def _way_of_pod() -> ServerEndpoint:
    def credentials() -> Mapping[str, str]:
        try:
            return {"authorization": f"Bearer {_of_service_account('token')}"}
        except (OSError, ValueError) as error:
            raise _without_credentials(error) from error

    credentials()
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    options = _socket_options()
    pool = urllib3.PoolManager(ca_certs=str(_SERVICE_ACCOUNT / "ca.crt"), maxsize=POOL_SIZE, socket_options=options)
    return ServerEndpoint(f"https://{f'[{host}]' if ':' in host else host}:{port}", pool, credentials)


def _of_service_account(name: str) -> str:
    if not (text := (_SERVICE_ACCOUNT / name).read_text().strip()):
        raise ValueError(f"{_SERVICE_ACCOUNT / name} is empty")
    return text


def _without_credentials(error: Exception) -> UnavailableError:
    cause = one_line(error) or type(error).__name__
    return UnavailableError(f"credentials of the cluster: {cause}; fix them where they come from")


def _namespace_of_pod() -> str:
    try:
        return _of_service_account("namespace")
    except (OSError, ValueError):
        return "default"


def _namespace_of_context(path: str, context: str | None) -> str:
    places = [Path(place).expanduser() for place in path.split(os.pathsep) if place]
    if not any(place.exists() for place in places):
        raise UnavailableError(f"{path}: no such file; name a kubeconfig with --kubeconfig or in $KUBECONFIG")
    try:
        contexts, current = _loader().list_kube_config_contexts(path)
    except Exception as error:  # the package lets errors of PyYAML and of its own lookups through
        raise invalid(path, one_line(error), "fix the kubeconfig", "kubeconfig") from error
    chosen: dict[str, Any] | None = current
    if context is not None:
        chosen = next((each for each in contexts if each["name"] == context), None)
    if chosen is None:
        names = ", ".join(sorted(each["name"] for each in contexts)) or "none"
        raise invalid(path, f"has no context {context!r}", f"choose one of: {names}", "kubeconfig-context")
    return str(chosen["context"].get("namespace") or "default")


def _socket_options() -> list[tuple[int, int, int | bytes]]:
    """Return the socket options that detect a dead peer within a minute, even on a quiet watch."""
    options = [*HTTPConnection.default_socket_options, (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in (
        ("TCP_KEEPIDLE", _KEEPALIVE_IDLE_SECONDS),
        ("TCP_KEEPINTVL", _KEEPALIVE_INTERVAL_SECONDS),
        ("TCP_KEEPCNT", _KEEPALIVE_PROBES),
    ):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options
