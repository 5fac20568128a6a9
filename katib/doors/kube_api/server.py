"""The Kubernetes API on a port of its own, behind the guard of all requests.

It uses TLS: kubectl and all other clients in Go send a token over nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Self

from katib.doors.kube_api.app import create_app
from katib.doors.kube_api.kubeconfig import earlier_port, write_kubeconfig
from katib.doors.kube_api.resources import RESOURCES, ServedResource
from katib.doors.kube_api.statuses import render
from katib.doors.rest.guard import LOOPBACK_HOSTS, Guard
from katib.doors.rest.kept_certificate import kept_certificate
from katib.doors.rest.server import is_loopback
from katib.doors.rest.sessions import Sessions
from katib.doors.rest.streams import Closing
from katib.engine.controllers.metrics import Page
from katib.errors import InvalidError
from katib.service.tuning.object_home import ObjectHome
from katib.wire.serving.listening import ServerThread, listen, tls_of_files


class KubernetesServer:
    """Serves the objects of a home from construction on until closed.

    It listens on the port in the kubeconfig of the directory, else on a free port, and rewrites the file.

    Args:
        directory: The data directory, with the certificate and the kubeconfig.
        host: Address or name to listen on.
        token: Required token; None for none, only on a loopback address.
        pages: Pages for monitoring, by path, for `/readyz`.

    Raises:
        InvalidError: The host is unknown.
        TerminalError: The certificate cannot be stored.
    """

    def __init__(
        self,
        home: ObjectHome,
        directory: Path,
        *,
        host: str,
        token: str | None,
        pages: Mapping[str, Page] = MappingProxyType({}),
        resources: Sequence[ServedResource] = RESOURCES,
    ) -> None:
        certificate = kept_certificate(directory, host)
        try:
            listening = listen(host, earlier_port(directory))
        except InvalidError:
            listening = listen(host, 0)
        address, port = listening.getsockname()[:2]
        here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, host)  # noqa: S104 - compared with, not listened on
        self.url = f"https://[{here}]:{port}" if ":" in here else f"https://{here}:{port}"
        self._closing = Closing()
        app = Guard(
            create_app(home, self._closing, pages, resources),
            sessions=Sessions(token.encode()) if token else None,
            allowed_hosts=LOOPBACK_HOSTS | {host} if is_loopback(host) else None,
            render=render,
        )
        tls = tls_of_files(certificate.chain, certificate.key)
        self._thread = ServerThread(app, [listening], "katib-kubernetes", tls=tls, has_sockets=True)
        self.kubeconfig = write_kubeconfig(directory, self.url, certificate.authority, token)

    def close(self) -> None:
        """End the streams, let requests finish for a few seconds, and stop listening. Idempotent."""
        self._closing.begin()
        self._thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
