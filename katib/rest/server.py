"""Listening: one socket, one uvicorn server on a thread of its own, ended in an orderly way."""

from __future__ import annotations

import errno
import ipaddress
import socket
import threading
from collections.abc import Mapping
from types import MappingProxyType
from typing import Self

import uvicorn

from katib.errors import FieldError, InvalidError
from katib.monitoring import Page
from katib.rest.app import MakeRouter, create_app
from katib.rest.guard import LOOPBACK_HOSTS
from katib.rest.streams import Closing
from katib.rest.users import Gateway
from katib.tuning.service import TuningService

_DRAIN_SECONDS = 5


class Server:
    """Serves a tuning service over HTTP from construction on until closed.

    Args:
        service: What answers: one service for all requests, or behind a gateway one for each user.
        host: Address or name to listen on.
        port: Port; 0 takes a free one.
        token: Required when the host is not a loopback address; behind a gateway it is the gateway that carries it.
        pages: What monitoring reads, by path (`create_app`).
        ui: The page for people (`create_app`).

    Raises:
        InvalidError: The port is in use or not ours to take, the host is unknown, or the token is missing.
    """

    def __init__(
        self,
        service: TuningService | Gateway,
        *,
        host: str,
        port: int,
        token: str | None = None,
        pages: Mapping[str, Page] = MappingProxyType({}),
        ui: MakeRouter | None = None,
    ) -> None:
        loopback, behind_gateway = is_loopback(host), isinstance(service, Gateway)
        if not loopback and not token:
            raise InvalidError([_no_token(host, behind_gateway=behind_gateway)])
        self._socket = _listen(host, port)
        self._closing = Closing()
        # Beyond loopback and behind a gateway the names are not known: a token or a login keeps foreign pages out.
        hosts = LOOPBACK_HOSTS | {host} if loopback and not behind_gateway else None
        app = create_app(service, token=token, allowed_hosts=hosts, closing=self._closing, pages=pages, ui=ui)
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
        address, self.port = self._socket.getsockname()[:2]
        self.url = f"http://{shown}:{self.port}"
        self.address = f"http://[{address}]:{self.port}" if ":" in address else f"http://{address}:{self.port}"
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

    def __exit__(self, *_: object) -> None:
        self.close()


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _no_token(host: str, *, behind_gateway: bool) -> FieldError:
    if behind_gateway:
        cause = f"{host} can be reached past the gateway, and anyone who sets its header there is any user"
        remedy = "set a token that only the gateway sends, with --token or KATIB_TOKEN, or listen on 127.0.0.1"
        return FieldError("--host", cause, f"{remedy} behind a proxy in the same pod", "token-required")
    cause = f"{host} can be reached from other machines, and an experiment runs commands on this one"
    remedy = "set a token with --token or KATIB_TOKEN, or listen on 127.0.0.1"
    return FieldError("--host", cause, remedy, "token-required")


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
