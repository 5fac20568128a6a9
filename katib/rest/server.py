"""Listening: one socket, one uvicorn server on a thread of its own, ended in an orderly way."""

from __future__ import annotations

import errno
import ipaddress
import socket
import threading
from types import TracebackType
from typing import Self

import uvicorn

from katib.errors import FieldError, InvalidError
from katib.rest.app import create_app
from katib.rest.guard import LOOPBACK_HOSTS
from katib.rest.streams import Closing
from katib.tuning.service import TuningService

_DRAIN_SECONDS = 5


class Server:
    """Serves a tuning service over HTTP from construction on until closed.

    Args:
        service: What answers.
        host: Address or name to listen on.
        port: Port; 0 takes a free one.
        token: Required when the host is not a loopback address.

    Raises:
        InvalidError: The port is in use or not ours to take, the host is unknown, or the token is missing.
    """

    def __init__(self, service: TuningService, *, host: str, port: int, token: str | None = None) -> None:
        loopback = is_loopback(host)
        if not loopback and not token:
            raise InvalidError(
                [
                    FieldError(
                        "--host",
                        f"{host} can be reached from other machines, and an experiment runs commands on this one",
                        "set a token with --token or KATIB_TOKEN, or listen on 127.0.0.1",
                        "token-required",
                    )
                ]
            )
        self._socket = _listen(host, port)
        self._closing = Closing()
        # Beyond loopback the names are not known, and the token keeps foreign pages out.
        hosts = LOOPBACK_HOSTS | {host} if loopback else None
        app = create_app(service, token=token, allowed_hosts=hosts, closing=self._closing)
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                log_level="warning",
                access_log=False,
                lifespan="off",
                server_header=False,
                timeout_graceful_shutdown=_DRAIN_SECONDS,
            )
        )
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="katib-rest", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """End the streams, let requests finish for a few seconds, and stop listening. Closing twice is fine."""
        self._closing.begin()
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach an address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=512)
    except OSError as error:
        raise InvalidError([_listen_error(host, port, error)]) from error


def _listen_error(host: str, port: int, error: OSError) -> FieldError:
    if error.errno == errno.EADDRINUSE:
        return FieldError(
            "--port",
            f"port {port} on {host} is in use by another program",
            "stop it, or choose another port, such as --port 0 for a free one",
            "port-in-use",
        )
    if error.errno == errno.EACCES:
        return FieldError("--port", f"port {port} needs privileges", "choose one above 1023", "port-privileged")
    return FieldError("--host", f"cannot listen on {host}: {error.strerror}", "use 127.0.0.1", "host-unknown")
