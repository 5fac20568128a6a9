"""Port forwarding from this machine to a pod through the API server, for use outside the cluster's network."""

from __future__ import annotations

import os
import re
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from kubernetes import client
from kubernetes.stream import portforward

from katib.engine.runtime.objects import Key
from katib.errors import KatibError, NotFoundError, UnavailableError, one_line
from katib.places.cluster.client import request_info
from katib.places.cluster.client.answers import error_of

_CHUNK_BYTES = 1 << 16
_HANDSHAKE_SECONDS = 10

_forward: Any = portforward  # the package is untyped here


class PortForward:
    """A socket on this machine, accessible to this user only, that forwards connections to a port of a pod.

    A context manager.

    Args:
        configuration: Returns the API server's configuration, with fresh credentials.

    Raises (on entering):
        ForbiddenError: The user may not forward ports.
        UnavailableError: The pod or the API server cannot be reached.
    """

    def __init__(self, configuration: Callable[[], client.Configuration], pod: Key, port: int) -> None:
        self._configuration = configuration
        self._pod = pod
        self._port = port
        self._directory = Path(tempfile.mkdtemp(prefix=f"katib-{os.getpid()}-"))
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)

    def __enter__(self) -> str:
        """Return the gRPC address to connect to."""
        try:
            first = self._dial()  # reports errors at once
            self._listener.bind(str(self._directory / "port"))
            self._listener.listen()
        except BaseException:
            self.close()
            raise
        threading.Thread(target=self._accept, args=(first,), name="port-forward", daemon=True).start()
        return f"unix:{self._directory / 'port'}"

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening; open connections end with their peers. Idempotent."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _dial(self) -> socket.socket:
        """Open a connection to the port of the pod."""
        api = client.CoreV1Api(client.ApiClient(self._configuration()))
        try:
            forward = _forward(
                api.connect_get_namespaced_pod_portforward,
                self._pod.name,
                self._pod.namespace,
                ports=str(self._port),
                _request_timeout=_HANDSHAKE_SECONDS,
            )
        except client.ApiException as error:
            raise self._error_of(error) from error
        except OSError as error:
            raise UnavailableError(f"port {self._port} of pod {self._pod}: {error}; try again in a moment") from error
        found: socket.socket = forward.socket(self._port)
        return found

    def _error_of(self, error: client.ApiException) -> KatibError:
        """Return the error for a refused handshake; the package reports it in one line that ends with the response."""
        text = str(error.reason or "")
        status = re.search(r"Handshake status (\d+)", text)
        if status is None:
            cause = one_line(text) or "no answer"
            return UnavailableError(f"port {self._port} of pod {self._pod}: cannot be forwarded, {cause}; try again")
        path = f"/api/v1/namespaces/{self._pod.namespace}/pods/{self._pod.name}/portforward"
        meant = error_of(int(status[1]), text.rpartition("-+-+- ")[2].encode(), request_info("GET", path))
        return UnavailableError(str(meant)) if isinstance(meant, NotFoundError) else meant

    def _accept(self, first: socket.socket) -> None:
        waiting: socket.socket | None = first
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:  # closed
                if waiting is not None:
                    waiting.close()
                return
            try:
                far, waiting = waiting or self._dial(), None
            except KatibError:
                near.close()  # the client sees a lost connection, and tries again or reports it
                continue
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=_copy, args=(source, sink), name="port-forward", daemon=True).start()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    """Copy bytes in one direction until either end closes, then close both."""
    with suppress(OSError):
        while data := source.recv(_CHUNK_BYTES):
            sink.sendall(data)
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
