"""Where the API server is and who we are to it: a kubeconfig file or the service account of a pod."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes import client, config
from kubernetes.config.config_exception import ConfigException
from urllib3.connection import HTTPConnection

from katib.errors import UnavailableError, invalid, one_line

_loader: Any = config  # the package is untyped here

POOL_SIZE = 64
"""Connections kept open: some sixteen worker threads, one for each watch, and room."""
_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_KEEPALIVE_IDLE_SECONDS, _KEEPALIVE_INTERVAL_SECONDS, _KEEPALIVE_PROBES = 30, 10, 3


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach an API server.

    Attributes:
        load: Reads the configuration again, with fresh credentials.
        namespace: The namespace of the context, or of the pod.
    """

    load: Callable[[], client.Configuration]
    namespace: str


def access(kubeconfig: str | Path | None = None, context: str | None = None) -> Access:
    """Find out how to reach an API server.

    A given file or context decides; then $KUBECONFIG; then, in a pod, its service account; then ~/.kube/config.

    Raises:
        InvalidError: The file cannot be read, or has no such context.
        UnavailableError: There is no configuration anywhere.
    """
    named = kubeconfig or os.environ.get("KUBECONFIG")
    if not named and context is None and "KUBERNETES_SERVICE_HOST" in os.environ:
        return Access(_prepared(_loader.load_incluster_config), _namespace_of_pod())
    path = str(named or _loader.kube_config.KUBE_CONFIG_DEFAULT_LOCATION)
    namespace = _namespace_of_context(path, context)

    def load(configuration: client.Configuration) -> None:
        _loader.load_kube_config(path, context, configuration, persist_config=False)

    return Access(_prepared(load), namespace)


def _prepared(load: Callable[[client.Configuration], None]) -> Callable[[], client.Configuration]:
    def prepared() -> client.Configuration:
        configuration = client.Configuration()
        try:
            load(configuration)
        except (ConfigException, OSError, ValueError) as error:
            raise UnavailableError(f"credentials of the cluster: {error}; fix the kubeconfig") from error
        configuration.connection_pool_maxsize = POOL_SIZE
        configuration.socket_options = [*HTTPConnection.default_socket_options, *_keepalive()]
        return configuration

    return prepared


def _namespace_of_pod() -> str:
    try:
        return _POD_NAMESPACE.read_text().strip() or "default"
    except OSError:
        return "default"


def _namespace_of_context(path: str, context: str | None) -> str:
    places = [Path(place).expanduser() for place in path.split(os.pathsep) if place]
    if not any(place.exists() for place in places):
        raise UnavailableError(f"{path}: no such file; name a kubeconfig with --kubeconfig or in $KUBECONFIG")
    try:
        contexts, current = _loader.list_kube_config_contexts(path)
    except Exception as error:  # the package lets through what PyYAML and its own lookups raise
        raise invalid(path, one_line(error), "fix the kubeconfig", "kubeconfig") from error
    chosen: dict[str, Any] | None = current
    if context is not None:
        chosen = next((each for each in contexts if each["name"] == context), None)
    if chosen is None:
        names = ", ".join(sorted(each["name"] for each in contexts)) or "none"
        raise invalid(path, f"has no context {context!r}", f"choose one of: {names}", "kubeconfig-context")
    return str(chosen["context"].get("namespace") or "default")


def _keepalive() -> list[tuple[int, int, int]]:
    """Return the socket options that find a dead peer within a minute, also while a watch is quiet."""
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in (
        ("TCP_KEEPIDLE", _KEEPALIVE_IDLE_SECONDS),
        ("TCP_KEEPINTVL", _KEEPALIVE_INTERVAL_SECONDS),
        ("TCP_KEEPCNT", _KEEPALIVE_PROBES),
    ):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options
